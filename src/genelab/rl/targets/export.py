"""Write a policy as a directory that somebody else's program reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from genelab.config import check_out, write_out
from genelab.errors import ConfigError, UsageError
from genelab.rl.exportable import exportable
from genelab.rl.locate import find_checkpoint
from genelab.rl.targets.base import Parcel, Target
from genelab.rl.targets.registry import TARGETS


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """What an export for somebody wrote."""

    source: Path
    """The checkpoint."""
    out: Path
    """The directory."""
    sizes: dict[str, int]
    """Bytes of each file, by its path in the directory."""
    metadata: dict[str, Any]
    next_steps: Sequence[str]
    """What to do with it."""


def export_for(
    target: str,
    task_id: str,
    checkpoint: str | Path,
    *,
    best: bool = False,
    out: str | Path | None = None,
    settings: Mapping[str, Any] = {},
    overrides: Mapping[str, Any] = {},
    assets: Sequence[str | Path] = (),
    notify: Callable[[str], None] = lambda message: None,
) -> TargetResult:
    """Write the policy of a checkpoint for a target, all of its files or none; without `out` into a directory of its
    name.

    `checkpoint` and `best` are as for `find_checkpoint`. Meshes and textures are copied from below the folders of the
    models and of `assets` only. Files of an earlier export are replaced; others are left.
    """
    entry = TARGETS.entry(target)
    settled = entry.settled(settings)
    out = Path(target) if out is None else Path(out)
    check_out_dir(out)
    source = find_checkpoint(task_id, checkpoint, best=best)
    writer: Target = entry.load_class()()
    writer.check(settled)
    with exportable(task_id, source, overrides=overrides, notify=notify) as policy:
        folders = [Path(folder) for folder in assets]
        parcel = Parcel(policy=policy, settings=settled, overrides=overrides, notify=notify, assets=folders)
        files = writer.files(parcel)
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ConfigError(f"target {target!r}: {name} is no path in a directory")
        metadata = policy.metadata
        steps = writer.next_steps(out, metadata)
    write_out({out / name: data for name, data in files.items()})
    sizes = {name: len(data) for name, data in files.items()}
    return TargetResult(source=source, out=out, sizes=sizes, metadata=metadata, next_steps=steps)


def check_out_dir(out: Path) -> None:
    """Refuse a directory that could not be written in the end."""
    if out.is_file() or out.suffix in (".ts", ".onnx"):
        raise UsageError(f"`out`: {out} is {'a file' if out.is_file() else 'the name of a file'}; give a directory")
    check_out(out / "policy.onnx")
