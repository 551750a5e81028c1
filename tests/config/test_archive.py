"""Archives are bounded before anything in them is read."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

import numpy as np
import pytest
import torch

from genelab.config import archive
from genelab.config.archive import check_zip
from genelab.errors import UsageError


def zipped(**members: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as content:
        for name, data in members.items():
            content.writestr(name, data)
    return file


def test_what_torch_and_numpy_write_is_taken() -> None:
    file = io.BytesIO()
    torch.save({"a": torch.ones(1000), "b": [torch.zeros(3)]}, file)
    assert {record.filename.rpartition("/")[2] for record in check_zip(file, "x.pt")} >= {"data.pkl", "0", "1"}
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, a=np.ones(1000), b=np.zeros(3))
        assert len(check_zip(file, "x.npz", most_bytes=2**20)) == 2
    assert check_zip(zipped(), "x.npz", most_bytes=1) == []


def test_what_unpacks_to_too_much_is_refused() -> None:
    file = zipped(a=bytes(600_000), b=bytes(600_000))
    assert len(check_zip(file, "x", most_bytes=1_200_000)) == 2
    with pytest.raises(UsageError, match=r"^x: unpacks to 1,200,000 bytes, and 1,199,999 are the most$"):
        check_zip(file, "x", most_bytes=1_199_999)
    with pytest.raises(UsageError, match="torch compresses nothing"):
        check_zip(file, "x")


def test_a_stored_record_is_not_larger_than_the_file() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as content:
        content.writestr("a", bytes(100))
        content.getinfo("a").file_size = 10_000
    with pytest.raises(UsageError, match="unpacks to 10,000 bytes"):
        check_zip(file, "x")


def test_too_many_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = zipped(a=b"", b=b"", c=b"")
    monkeypatch.setattr(archive, "MAX_RECORDS", 2)
    with pytest.raises(UsageError, match="more than 2 records"):
        check_zip(file, "x", most_bytes=1)


def test_a_long_list_of_records_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*given: Any) -> None:
        raise AssertionError("it was read")

    size = 2**24 + 1
    file = io.BytesIO(bytes(size) + struct.pack("<4s8xLLH", b"PK\5\6", size, 0, 0))
    monkeypatch.setattr(zipfile, "ZipFile", read)
    with pytest.raises(UsageError, match="list of records is longer than 16 MB"):
        check_zip(file, "x")


@pytest.mark.parametrize("how", ["before", "behind", "comment", "elsewhere"])
def test_a_second_list_of_records_is_not_possible(how: str) -> None:
    file = io.BytesIO()
    torch.save(torch.ones(3), file)
    data = file.getvalue()
    located = data.rindex(b"PK\6\7") + 8  # where torch's reader looks for the list, and Python's does not
    changed = {
        "before": b"#!" + data,
        "behind": data + b"\0",
        "comment": data[:-2] + b"\1\0" + b"x",
        "elsewhere": data[:located] + bytes(8) + data[located + 8 :],
    }[how]
    with pytest.raises(UsageError, match="a damaged archive, or one with something before or behind it"):
        check_zip(io.BytesIO(changed), "x")
