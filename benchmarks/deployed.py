"""Every shipped policy in every format, and run outside the lab: `python -m benchmarks.deployed`.

Each policy is written in all formats and for all targets; what a target cannot express is told by its own words. Then
the `run.py` of its folder for plain MuJoCo runs it, in a process that can import neither genelab nor torch, and what it
measures stands beside what `genelab eval` measured in the lab: the policy's `eval.json`, with whose overrides it is
exported, so that the ground is the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genelab import TASKS
from genelab.config import write_out
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import GenelabError, UsageError
from genelab.rl.exportable import ExportablePolicy, Format, exportable
from genelab.rl.locate import pretrained_policy
from genelab.rl.targets import Parcel, Target
from genelab.rl.targets.registry import TARGETS
from genelab.rl.world import eval_cfg

FORMATS: tuple[Format, ...] = ("torchscript", "onnx")
SETTINGS: dict[str, dict[str, Any]] = {"hub": {"episodes": 0, "film_steps": 0}}
"""What targets are told: a hub's folder without an evaluation and a film of its own."""
ALONE = """
import runpy, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("genelab", "torch"):
            raise ImportError(name)

sys.meta_path.insert(0, Nothing())
sys.argv = ["run.py", *sys.argv[1:]]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@dataclass(frozen=True)
class Measured:
    """One number, in the lab and by `run.py`."""

    what: str
    """For a velocity, its direction."""
    lab: float
    outside: float
    unit: str = ""
    """`%` for a share."""
    count: tuple[int, int] = (0, 0)
    """How many robots or episodes there were."""
    falls: tuple[int, int] = (0, 0)

    def text(self, value: float) -> str:
        """A value as one says it."""
        return f"{100 * value:.1f} %" if self.unit == "%" else f"{value:.3f} {self.unit}".strip()


@dataclass
class Row:
    """What became of a policy."""

    task: str
    written: dict[str, str] = field(default_factory=dict)
    """By format or target: how large, or why not."""
    measured: list[Measured] = field(default_factory=list)


def alone(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The folder's own program, in a process that can import neither genelab nor torch."""
    program = [sys.executable, "-c", ALONE, str(folder / "run.py"), *words]
    return subprocess.run(program, capture_output=True, text=True, cwd=folder.parent)


def returns(task: str, log: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the task pays for each episode of a log, by its own terms: every logged state is an environment."""
    count = len(log["qpos"])
    env = ManagerBasedRlEnv(eval_cfg(rl_cfg(task), count))
    env.scene.engine.write_qpos(torch.as_tensor(log["qpos"]), slice(None), None)
    env.scene.engine.write_qvel(torch.as_tensor(log["qvel"]), slice(None), None)
    actions = torch.as_tensor(log["action"], dtype=env.dtype)
    env.action_manager.action = actions
    env.action_manager.prev_action = torch.cat((torch.zeros_like(actions[:1]), actions[:-1]))
    env.action_manager.prev_action[torch.as_tensor(log["start"])] = 0.0
    paid = env.reward_manager.compute().cpu().numpy()
    env.close()
    return np.add.reduceat(paid, np.flatnonzero(log["start"]))


def written(
    policy: ExportablePolicy, overrides: Mapping[str, Any], out: Path, targets: Sequence[str]
) -> dict[str, str]:
    """The policy in all formats and for these targets, below `out`: how large each is, or why it cannot be."""
    found: dict[str, str] = {}
    for format in FORMATS:
        found[format] = _size(len(policy.write(format).data))
    for name in targets:
        entry = TARGETS.entry(name)
        settings = entry.settled(SETTINGS.get(name, {}))
        target: Target = entry.load_class()()
        try:
            target.check(settings)
            parcel = Parcel(policy=policy, settings=settings, overrides=overrides, notify=lambda message: None)
            files = target.files(parcel)
        except UsageError as error:
            found[name] = f"no: {error}"
            continue
        write_out({out / name / path: data for path, data in files.items()})
        found[name] = _size(sum(map(len, files.values())))
    return found


def _size(count: int) -> str:
    return f"{count / 1000:.0f} kB"


def measured(task: str, folder: Path, lab: Mapping[str, Any], robots: int) -> Iterator[Measured]:
    """What `run.py` measures beside what the lab did."""
    report, log = folder.parent / "report.json", folder.parent / "log.npz"
    about = json.loads((folder / "policy.onnx.metadata.json").read_text())
    kinds = {one["type"] for one in about["commands"].values()}
    more = ["--directions"] if "VelocityCommand" in kinds else ["--log", str(log)]
    answer = alone(folder, "--report", str(report), "--episodes", str(robots), *more)
    if answer.returncode != 0:
        raise GenelabError(answer.stderr.strip())
    told = json.loads(report.read_text())
    if "VelocityCommand" in kinds:
        here = lab["velocity_probe"]
        for name, one in told["directions"].items():
            inside = here["directions"][name]
            key, unit = ("achieved", "m/s") if one["fraction"] is None else ("fraction", "%")
            counts, falls = (here["envs_per_direction"], one["robots"]), (inside["falls"], one["falls"])
            yield Measured(name, inside[key], one[key], unit, counts, falls)
    elif "MotionCommand" in kinds:
        for name, one in told["clips"].items():
            inside = lab["motion_probe"]["clips"][name]
            counts = inside["robots"], one["robots"]
            yield Measured(f"{name}, to the end", inside["success"], one["success"], "%", counts)
            for error in ("mpkpe", "mpkpe_root"):
                yield Measured(f"{name}, {error}", 100 * inside[error], 100 * one[error], "cm", counts)
    elif "success_rate" in told:
        counts = lab["num_episodes"], robots
        yield Measured("success", lab["metrics"]["success_rate"], told["success_rate"], "%", counts)
    else:
        with np.load(log, allow_pickle=False) as file:
            earned = float(returns(task, {name: file[name] for name in file.files}).mean())
        yield Measured("return", lab["metrics"]["return_mean"], earned, "", (lab["num_episodes"], robots))


def deploy(task: str, out: Path, robots: int | None, targets: Sequence[str]) -> Row:
    """Write, run and measure the shipped policy of a task."""
    source = pretrained_policy(task)
    if source is None:
        raise UsageError(f"{task}: no policy is shipped")
    lab = json.loads((source.parent / "eval.json").read_text())
    overrides = dict(one.split("=", 1) for one in lab["overrides"])
    row = Row(task)
    with exportable(task, source, overrides=overrides) as policy:
        row.written = written(policy, overrides, out, targets)
        usual = _robots(policy.metadata["commands"].values())
    row.measured = list(measured(task, out / "mujoco", lab, robots or usual))
    return row


def _robots(commands: Iterable[Mapping[str, Any]]) -> int:
    """How many are compared unless it is said: one in each cell of rough ground, many on a motion or with goals."""
    for command in commands:
        if "ground" in command:
            return len(command["ground"]["kinds"]) * int(command["ground"]["levels"])
        if "goal_radius" in command or command["type"] == "MotionCommand":
            return 32
    return 4


def tables(rows: Sequence[Row]) -> str:
    """All of it, as Markdown."""
    names = list(rows[0].written)
    lines = [f"| policy | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    reasons: dict[str, int] = {}
    for row in rows:
        cells = []
        for name in names:
            text = row.written[name]
            if text.startswith("no: "):
                text = f"no ({reasons.setdefault(text.removeprefix('no: '), len(reasons) + 1)})"
            cells.append(text)
        lines.append(f"| {_short(row.task)} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {reason}" for reason, number in reasons.items()), ""]
    walkers = [row for row in rows if any(one.falls != (0, 0) or one.what == "stand" for one in row.measured)]
    if walkers:
        ways = [one.what for one in walkers[0].measured if one.unit == "%"]
        lines += [f"| share of the command, % | {' | '.join(ways)} | fell |", "|---" * (len(ways) + 2) + "|"]
        lines += [line for row in walkers for line in _walked(row, ways)]
    others = [(row, one) for row in rows if row not in walkers for one in row.measured]
    if others:
        lines += ["", "| policy | what | lab | `run.py` |", "|---|---|---|---|"]
        for row, one in others:
            cells = [f"{one.text(value)} ({n})" for value, n in zip((one.lab, one.outside), one.count, strict=True)]
            lines.append(f"| {_short(row.task)} | {one.what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _walked(row: Row, ways: Sequence[str]) -> Iterator[str]:
    """Two lines of a walker: in the lab, and outside."""
    found = {one.what: one for one in row.measured}
    for k, where in enumerate(("lab", "`run.py`")):
        shares = [f"{100 * (found[way].lab, found[way].outside)[k]:.1f}" for way in ways]
        fell, asked = (sum(getattr(one, name)[k] for one in row.measured) for name in ("falls", "count"))
        yield f"| {_short(row.task)}, {where} | {' | '.join(shares)} | {fell} of {asked} |"


def _short(task: str) -> str:
    return task.split("-", 1)[1].removesuffix("-v0")


def main(args: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", action="append", help="A task with a shipped policy; again for more [all].")
    parser.add_argument(
        "--robots",
        type=int,
        help="Robots in each direction, or episodes [4; one per cell of rough ground; 32 on a motion or with goals].",
    )
    parser.add_argument("--out", type=Path, help="Keep the exports here.")
    parser.add_argument("--for", dest="targets", nargs="+", default=TARGETS.names(), help="Besides mujoco [all].")
    options = parser.parse_args(args)
    targets = list(dict.fromkeys(("mujoco", *options.targets)))
    tasks = options.task or [task for task in TASKS.ids() if pretrained_policy(task) is not None]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for task in tasks:
            try:
                rows.append(deploy(task, (options.out or Path(scratch)) / task, options.robots, targets))
            except GenelabError as error:
                sys.exit(f"{task}: {error}")
            print(f"{task}: done", file=sys.stderr, flush=True)
    print(tables(rows))


if __name__ == "__main__":
    main()
