"""Ways to spoil a file, each as suits its kind: cut, flipped, retyped, swapped, or made malicious."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import random
import sqlite3
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.campaigns import forked

COMMAND = f"touch {forked.CANARY}"


class Bomb:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (COMMAND,)


VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        5,
        1e308,
        float("nan"),
        10**400,
        2**63,
        "",
        "x",
        "\ud800",
        "a" * 10_000,
        [],
        {},
        [[]],
        [1, "a"],
    ),
    *({"a": 1}, "os:system", "subprocess:check_output", "this:s", "../../etc/passwd", "<script>alert(1)</script>"),
    *({"__type__": "subprocess:Popen", "args": COMMAND}, {"__callable__": "os:system"}, {"__float__": "nan"}),
)


def spoil(path: Path, rng: random.Random) -> str:
    """Change a file in one of the ways that suit its kind; returns what was done."""
    ways: list[Callable[[Path, random.Random], str]] = [_cut, _flip, _zero, _append, _replace]
    if path.suffix == ".json":
        ways = [_retype_json] * 12 + ways + [_nest, _swap_json]
    elif path.suffix in (".pt", ".zip"):
        ways = [_retype_tensors] * 6 + [_poison] * 2 + [_change_archive] * 2 + ways
    elif path.suffix == ".npz":
        ways = [_retype_arrays] * 6 + ways
    elif path.suffix == ".ts":
        ways = [_script] * 3 + [_change_archive] * 2 + ways
    elif path.suffix in (".xml", ".urdf"):
        ways = [_retype_xml] * 8 + [_entities] + ways
    elif path.suffix == ".csv":
        ways = [_retype_csv] * 6 + ways
    elif path.suffix == ".db":
        ways = [_retype_study] * 6 + ways
    return rng.choice(ways)(path, rng)


def _cut(path: Path, rng: random.Random) -> str:
    data = path.read_bytes()
    size = rng.choice((0, 1, len(data) // 2, rng.randrange(len(data)), len(data) - 1))
    path.write_bytes(data[:size])
    return f"cut to {size} bytes"


def _flip(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    count = rng.choice((1, 8, 200))
    for _ in range(count):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"{count} bits flipped"


def _zero(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    data[start : start + 512] = bytes(min(512, len(data) - start))
    path.write_bytes(data)
    return f"zeros from byte {start}"


def _append(path: Path, rng: random.Random) -> str:
    with open(path, "ab") as file:
        file.write(rng.randbytes(1000))
    return "junk at the end"


def _replace(path: Path, rng: random.Random) -> str:
    kind = rng.choice(("html", "directory", "missing", "fifo", "noise", "loop"))
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind != "missing":
        path.write_bytes(b"<!doctype html><p>404" if kind == "html" else rng.randbytes(5000))
    return f"replaced: {kind}"


def _nest(path: Path, rng: random.Random) -> str:
    path.write_text("[" * 100_000)
    return "100,000 brackets"


def _swap_json(path: Path, rng: random.Random) -> str:
    other = rng.choice([one for one in path.parent.rglob("*.json") if one != path] or [path])
    path.write_bytes(other.read_bytes())
    return f"swapped with {other.name}"


def _retype(value: Any, rng: random.Random, values: Sequence[Any]) -> tuple[Any, str]:
    """The value with something in it replaced or taken away, and where."""
    children: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value))) if _is_list(value) else []
    if not children or rng.random() < 0.15:
        return rng.choice(values), ""
    key = rng.choice(children)
    changed = dict(value) if isinstance(value, dict) else list(value)
    if rng.random() < 0.1:
        del changed[key]
        return changed, f".{key} deleted"
    changed[key], where = _retype(changed[key], rng, values)
    return changed, f".{key}{where}"


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _retype_json(path: Path, rng: random.Random) -> str:
    content = json.loads(path.read_text())
    entities = content.get("scene", {}).get("entities") if isinstance(content, dict) else None
    if entities and rng.random() < 0.2:
        entities["robot"] |= {"spec": "os:system", "spec_args": {"command": COMMAND}}
        where = "spec os:system"
    else:
        content, where = _retype(content, rng, VALUES)
    path.write_text(json.dumps(content))
    return f"retyped {where}"


def _retype_tensors(path: Path, rng: random.Random) -> str:
    import torch

    if path.suffix == ".zip":
        return _retype_entry(path, rng)
    content = torch.load(path, weights_only=True, map_location="cpu")
    values = (
        *(one for one in VALUES if one != 10**400),
        torch.zeros(3),
        torch.full((2, 2), float("nan")),
        torch.ones(0),
    )
    content, where = _retype(content, rng, values)
    torch.save(content, path)
    return f"retyped {where}"


def _retype_entry(path: Path, rng: random.Random) -> str:
    """One of the parts of an SB3 checkpoint."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(parts))
    part = path.with_name(f"part{Path(name).suffix or '.json'}")
    part.write_bytes(parts[name])
    if part.suffix == ".pth":
        part = part.rename(part.with_suffix(".pt"))
        done = _retype_tensors(part, rng)
    else:
        try:
            done = _retype_json(part, rng)
        except ValueError:
            done = _flip(part, rng)
    parts[name] = part.read_bytes()
    part.unlink()
    _write_archive(path, parts)
    return f"{name} {done}"


def _poison(path: Path, rng: random.Random) -> str:
    """A pickle that runs a command, as torch writes it, as it used to, or as a part of what was there."""
    import torch

    kind = rng.choice(("zip", "legacy", "pickle", "inside"))
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Bomb()))
    elif kind == "inside" and path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        for name in (name for name in parts if name.endswith(".pth")):
            torch.save({"state": Bomb()}, buffer := io.BytesIO())
            parts[name] = buffer.getvalue()
        _write_archive(path, parts)
    elif kind == "inside":
        content = torch.load(path, weights_only=True, map_location="cpu")
        content[rng.choice(sorted(content))] = Bomb()
        torch.save(content, path)
    else:
        torch.save({"model": Bomb()}, path, _use_new_zipfile_serialization=kind == "zip")
    return f"malicious {kind}"


def _change_archive(path: Path, rng: random.Random) -> str:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(parts))
    kind = rng.choice(("dropped", "emptied", "junk", "escapes"))
    if kind == "dropped":
        del parts[name]
    else:
        parts["../../outside" if kind == "escapes" else name] = b"" if kind == "emptied" else rng.randbytes(100)
    _write_archive(path, parts)
    return f"{name} {kind}"


def _write_archive(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def _retype_arrays(path: Path, rng: random.Random) -> str:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    old = arrays[name]
    kinds: dict[str, Callable[[], Any]] = {
        "bombs": lambda: np.array([Bomb()], dtype=object),
        "text": lambda: old.astype(str),
        "complex": lambda: old.astype(complex),
        "dates": lambda: np.zeros(old.shape, "datetime64[s]"),
        "records": lambda: np.zeros(old.shape, [("a", float)]),
        "scalar": lambda: np.float64(1),
        "empty": lambda: old[:0],
        "nan": lambda: np.full(old.shape, np.nan),
        "short": lambda: old[:-1],
    }
    kind = rng.choice(sorted(kinds))
    arrays[name] = kinds[kind]()
    np.savez(path, **arrays)
    return f"{name} {kind}"


WORDS = (
    *("", "nan", "inf", "-1", "0", "1e30", "9" * 400, "x", "é\u202e", '"""', "a\nb", "$name", "\x1b]0;x\x07"),
    *("/etc/passwd", "../outside", "file:///etc/passwd", "package://a/../../outside", f"$(touch {forked.CANARY})"),
    f'" + str(__import__("os").system("{COMMAND}")) + "',
)
"""Odd values for attributes of XML and cells of tables."""


def _retype_xml(path: Path, rng: random.Random) -> str:
    """An attribute is odd, an element is gone, doubled, or one that makes many of itself."""
    root = ET.fromstring(path.read_text())
    parents = [element for element in root.iter() if len(element)]
    kind = rng.choice(("attribute", "attribute", "attribute", "new attribute", "gone", "doubled", "replicated"))
    if kind == "attribute":
        element = rng.choice([element for element in root.iter() if element.attrib])
        key = rng.choice(sorted(element.attrib))
        element.set(key, rng.choice(WORDS).replace("\x1b", "").replace("\x07", ""))
        done = f"{element.tag} {key}={element.get(key)!r:.60}"
    elif kind == "new attribute":
        element = rng.choice(list(root.iter()))
        key = rng.choice(("file", "mesh", "name", "type", "class", "plugin", "content_type", "nrow", "width", "memory"))
        element.set(key, rng.choice(("/etc/passwd", "../outside", "x", "100000", "64G")))
        done = f"{element.tag} {key}={element.get(key)!r}"
    else:
        parent = rng.choice(parents)
        child = rng.choice(list(parent))
        if kind == "gone":
            parent.remove(child)
        elif kind == "doubled":
            parent.append(child)
        else:
            parent.append(ET.fromstring('<replicate count="10000000" offset="1 0 0"><geom size=".1"/></replicate>'))
        done = f"{child.tag} {kind}"
    path.write_bytes(ET.tostring(root))
    return done


def _entities(path: Path, rng: random.Random) -> str:
    """Entities that name a file, or multiply."""
    file = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    laughs = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "ha"}">' for i in range(10))
    kind = rng.choice(("file", "laughs"))
    text = path.read_text().replace('name="', f'name="&e{"" if kind == "file" else 9};', 1)
    path.write_text((file if kind == "file" else f"<!DOCTYPE x [{laughs}]>") + text.partition("?>")[2] or text)
    return f"entities: {kind}"


def _retype_csv(path: Path, rng: random.Random) -> str:
    rows = [line.split(",") for line in path.read_text().splitlines()]
    kind = rng.choice(("cell", "short row", "no rows", "one row", "header", "semicolons"))
    if kind == "cell":
        rows[rng.randrange(len(rows))][rng.randrange(len(rows[0]))] = rng.choice(WORDS)
    elif kind == "short row":
        rows[rng.randrange(len(rows))].pop()
    elif kind in ("no rows", "one row"):
        rows = rows[: kind == "one row"]
    elif kind == "header":
        rows.insert(0, ["a"] * len(rows[0]))
    path.write_text("\n".join((";" if kind == "semicolons" else ",").join(row) for row in rows))
    return f"csv {kind}"


def _retype_study(path: Path, rng: random.Random) -> str:
    """A row of the study is gone or holds something else."""
    with contextlib.closing(sqlite3.connect(path)) as study:
        names = [name for (name,) in study.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = [name for name in names if study.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]
        table = rng.choice(sorted(filled))
        columns = [row[1] for row in study.execute(f"PRAGMA table_info({table})")]
        column = rng.choice(columns)
        if rng.random() < 0.2:
            study.execute(f"DELETE FROM {table}")
            done = f"{table} emptied"
        else:
            value = rng.choice((None, "null", "x", -1, 10**12, "9" * 50, "nan", "{}"))
            with contextlib.suppress(sqlite3.IntegrityError):
                study.execute(f"UPDATE {table} SET {column} = ?", (value,))
            done = f"{table}.{column} = {value!r:.20}"
        study.commit()
    return done


def _script(path: Path, rng: random.Random) -> str:
    """A TorchScript policy that does something else when it is called."""
    import torch

    bodies = {
        "saves": f"torch.save(obs, '{forked.CANARY}')\n        return obs",
        "overwrites": "torch.from_file('../outside', shared=True, size=2)\n        return obs",
        "raises": "raise ValueError('no')",
        "narrow": "return obs[:, :0]",
        "text": "return 'left'",
        "nan": "return obs[:, :1] * float('nan')",
    }
    kind = rng.choice(sorted(bodies))
    source = f"import torch\nclass Policy(torch.nn.Module):\n    def forward(self, obs):\n        {bodies[kind]}\n"
    module = path.with_name("spoiled_policy.py")
    module.write_text(source)
    space: dict[str, Any] = {}
    try:
        exec(compile(source, str(module), "exec"), space)
        torch.jit.script(space["Policy"]()).save(str(path))
    except Exception as error:  # the compiler may not take it: then it is no policy anybody can be sent
        return f"{kind}: {type(error).__name__}, {_flip(path, rng)}"
    finally:
        module.unlink()
    return f"script {kind}"
