"""A TorchScript policy computes, and does nothing else: neither when it is called nor while it is loaded."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from genelab.errors import UsageError
from genelab.rl.torchscript import load_torchscript, without_lines

CPU = torch.device("cpu")


def save_it(x: Tensor) -> Tensor:
    torch.save(x, "owned")
    return x


class Saves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, "owned")
        return x


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_file("owned", True, 4)


class InAPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(2, 2), Saves())

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x)


class InAFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return save_it(x)


class Sometimes(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 1e30):
            return save_it(x)
        return x


class InReset(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def reset(self) -> None:
        save_it(torch.ones(1))


class InTheBackground(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.jit.wait(torch.jit.fork(save_it, x))


class Forever(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while True:
            x = x + 1
        return x


class Prints(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print(x)
        return x


class WhileLoading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def __getstate__(self) -> tuple[Tensor, bool]:
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]) -> None:
        torch.save(torch.ones(1), "owned")
        self.weight = state[0]
        self.training = state[1]


def hooked() -> Any:
    module = nn.Linear(2, 2)

    def hook(self: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return save_it(output)

    module.register_forward_hook(hook)
    return module


def content(module: Any) -> bytes:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (Saves, "aten::save"),
        (Overwrites, "aten::from_file"),
        (InAPart, "aten::save"),
        (InAFunction, "aten::save"),
        (Sometimes, "aten::save"),
        (InReset, "aten::save"),
        (InTheBackground, "prim::fork"),
        (Forever, "prim::Loop"),
        (Prints, "prim::Print"),
        (WhileLoading, "__getstate__"),
        (hooked, "__forward_hooks__"),
    ],
)
def test_what_does_more_than_compute_is_not_run(
    make: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = content(make())
    with pytest.raises(UsageError, match=f"it does more than compute: .*{what}"):
        load_torchscript(data, CPU)
    assert list(tmp_path.iterdir()) == []


def test_one_part_does_not_hide_another(tmp_path: Path) -> None:
    """What is looked at must be what is loaded: torch finds parts in any case."""
    path = tmp_path / "policy.ts"
    path.write_bytes(content(nn.Linear(2, 2)))
    with zipfile.ZipFile(path, "a") as archive:
        name = next(name for name in archive.namelist() if "linear" in name and name.endswith(".py"))
        archive.writestr(name.replace("linear", "LINEAR"), "")
    with pytest.raises(UsageError, match="two of its parts have one name"):
        load_torchscript(path.read_bytes(), CPU)


def test_a_second_list_of_parts_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes the list that lies before the end of an archive, torch the one at the offset that the end names."""
    monkeypatch.chdir(tmp_path)
    shown, hidden = nn.Linear(2, 2), WhileLoading()
    parts, listed, _ = taken_apart(content(shown), fill=0, more=40)
    hidden_parts, hidden_list, count = taken_apart(content(hidden), fill=20_000, more=0)
    start = len(hidden_parts)
    shift = len(hidden_list) + len(parts)  # Python adds it to all offsets: the list lies that much further on
    entries, at = bytearray(listed), 0
    while at < len(entries):
        name, extra, comment = struct.unpack_from("<HHH", entries, at + 28)
        (offset,) = struct.unpack_from("<I", entries, at + 42)
        struct.pack_into("<I", entries, at + 42, start + len(hidden_list) + offset - shift)
        at += 46 + name + extra + comment
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(entries), start, 0)
    module = load_torchscript(hidden_parts + hidden_list + parts + entries + end, CPU)
    assert list(tmp_path.iterdir()) == []
    x = torch.ones(1, 2)
    assert torch.equal(module(x), shown(x))


def taken_apart(data: bytes, *, fill: int, more: int) -> tuple[bytes, bytes, int]:
    """The parts of an archive, some of them added; the list of them; and their number."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        top = old.namelist()[0].partition("/")[0]
        new.writestr(f"{top}/data/99", bytes(fill))
        for i in range(more):
            new.writestr(f"{top}/data/{100 + i}", b"")
        count = len(new.namelist())
    archive = file.getvalue()
    size, start = struct.unpack("<II", archive[-10:-2])
    return archive[:start], archive[start : start + size], count


def test_tensors_are_not_unpacked_either() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy/data/0", bytes(20_000_000))
    with pytest.raises(UsageError, match="its tensors are larger than the file"):
        load_torchscript(file.getvalue(), CPU)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "policy.ts"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy/code/__torch__.py", b" " * 20_000_000)
    with pytest.raises(UsageError, match="its source is larger than 4 MB"):
        load_torchscript(path.read_bytes(), CPU)


def test_what_computes_is_run() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.ELU(), nn.LayerNorm(3), nn.Linear(3, 1), nn.Tanh())
    x = torch.ones(4, 2)
    assert torch.equal(load_torchscript(content(module), CPU)(x), module(x))


def contents(archive: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return b"".join(file.read(name) for name in file.namelist())


def test_a_file_that_is_written_does_not_say_where_its_source_was() -> None:
    """Torch keeps the path of every line that was traced, its own among them."""
    buffer = io.BytesIO()
    module = torch.jit.trace(nn.Sequential(nn.Linear(2, 2), nn.ELU()), torch.zeros(1, 2))
    torch.jit.save(module, buffer)
    place = str(Path(torch.__file__).parent).encode()
    lean = without_lines(buffer.getvalue())
    assert place in contents(buffer.getvalue())
    assert place not in contents(lean)
    row = torch.rand(3, 2)
    assert torch.equal(load_torchscript(lean, CPU)(row), module(row))
