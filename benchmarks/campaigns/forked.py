"""Commands in forked children of a process that has everything imported: quick, with limits, in a scratch directory."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

TASKS_MODULE = "benchmarks.campaigns.tasks"
CANARY = "CANARY"
"""A file of this name is what malicious words and files try to make."""
ALLOWED = (0, 1, 2, 130)
VERBS = (
    *("train", "play", "eval", "export", "deploy", "list", "info", "benchmark", "report", "sweep", "new-task"),
    *("motion", "doctor"),
)
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_CLONE_NEWNS, _MNT_DETACH = 0x20000, 2


class Broken(StrEnum):
    """Promises that a command can break, as the columns of the table."""

    CODE = "other codes"
    TRACEBACK = "tracebacks"
    SILENT = "no line"
    RAN = "code run"
    OUTSIDE = "files outside"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended."""

    args: Sequence[str]
    code: int
    """Exit code, or minus the signal."""
    output: str
    interrupted: bool
    """It went on until it was stopped."""
    seconds: float

    def complaints(self, scratch: Path) -> dict[Broken, str]:
        """What it did that it must not, by promise."""
        found = {} if self.code in ALLOWED else {Broken.CODE: f"exit code {self.code}"}
        if "Traceback (most recent call last)" in self.output:
            found[Broken.TRACEBACK] = f"traceback: {self.output.strip().splitlines()[-1][:200]}"
        if self.code in (1, 2) and not self.output.strip():
            found[Broken.SILENT] = "no line that says why"
        # A directory may be called like the word that tried: `--log-dir '$(touch CANARY)'` does as it is told.
        left = [path for path in scratch.rglob(f"*{CANARY}*") if "touch" not in path.name]
        if left or (scratch.parent / CANARY).exists():
            found[Broken.RAN] = "code was run"
        if (scratch.parent / "outside").read_text() != "untouched" or len(list(scratch.parent.iterdir())) != 2:
            found[Broken.OUTSIDE] = "a file outside of the working directory was changed"
        return found


def import_everything() -> None:
    """What the verbs import, once; what is slow to start or asks the network is as good as not installed."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["MPLBACKEND"] = "agg"
    for name in ("genesis", "wandb", "ray"):
        sys.modules[name] = None  # type: ignore[assignment]
    import matplotlib.pyplot  # noqa: F401
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import optuna.storages  # noqa: F401
    import rich.table  # noqa: F401
    import torch
    import torch.onnx
    import torch.utils.tensorboard

    import genelab.bench
    import genelab.cli.verbs
    import genelab.motion
    import genelab.report
    import genelab.rl.suite
    import genelab.rl.sweep
    import genelab.rl.targets.run
    import genelab.scaffold  # noqa: F401
    from genelab.config import TASKS
    from genelab.rl.backends import BACKENDS

    for library in BACKENDS.names():
        BACKENDS.entry(library).load()
    torch.set_num_threads(1)
    TASKS.import_module(TASKS_MODULE)


@contextlib.contextmanager
def sandbox() -> Iterator[Path]:
    """A directory, the only one that can be written to where the system allows it (as root on Linux)."""
    with tempfile.TemporaryDirectory(prefix="campaign-") as home:
        libc = ctypes.CDLL(None)
        if os.getuid() != 0 or libc.unshare(_CLONE_NEWNS) != 0:
            print("not root: files outside of the working directory are watched, not protected", file=sys.stderr)
            yield Path(home)
            return

        def mount(source: str | None, target: str, flags: int) -> None:
            libc.mount(None if source is None else source.encode(), target.encode(), None, flags, None)

        mount(None, "/", _MS_REC | _MS_PRIVATE)
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        points = [point for point in points if point not in ("/proc", "/dev/shm")]
        mount(home, home, _MS_BIND)
        for point in points:
            mount(None, point, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        try:
            yield Path(home)
        finally:
            for point in points:
                mount(None, point, _MS_REMOUNT | _MS_BIND)
            libc.umount2(home.encode(), _MNT_DETACH)


def fresh_scratch(home: Path, template: Path | None = None) -> Path:
    """A working directory for one try, as the template is, with a neighbour that must stay as it is."""
    around = home / "try"
    shutil.rmtree(around, ignore_errors=True)
    around.mkdir()
    (around / "outside").write_text("untouched")
    if template is None:
        (around / "work").mkdir()
    else:
        shutil.copytree(template, around / "work", symlinks=True)
    return around / "work"


def run(args: Sequence[str], scratch: Path, *, seconds: float = 10.0, memory: float = 4e9) -> Outcome:
    """Run `genelab` with these words; after so many seconds it gets Ctrl-C, twice if need be, then SIGKILL."""
    output = os.memfd_create("output")
    start = time.monotonic()
    child = start_child(args, scratch, output, memory)
    code = None
    # Ctrl-C ends after the iteration, a second one at once, and native code has ten more seconds.
    for number, patience in ((None, seconds), (signal.SIGINT, 20.0), (signal.SIGINT, 15.0), (signal.SIGKILL, 5.0)):
        if number is not None:
            os.kill(child, number)
        if (code := _wait(child, patience)) is not None:
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it may have started itself
    assert code is not None
    took = time.monotonic() - start
    with open(output, "rb") as file:
        file.seek(0)
        text = file.read().decode(errors="replace")
    return Outcome(args=args, code=code, output=text, interrupted=number is not None, seconds=took)


def start_child(args: Sequence[str], scratch: Path, output: int, memory: float = 4e9) -> int:
    """Fork a child that runs the command and writes to an open file; returns its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(scratch)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.environ.update(HOME=str(scratch), TMPDIR=str(scratch), XDG_CACHE_HOME=str(scratch))
        tempfile.tempdir = None
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = int(pages * resource.getpagesize() + memory)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        from genelab.cli.main import main

        sys.argv = ["genelab", *args]
        main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


class Tally:
    """Counts outcomes by verb and prints the bad ones as they come."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.rows: dict[str, Counter[str]] = {}
        self.verbose = verbose
        self.bad = 0

    def add(self, number: int, what: str, outcome: Outcome, complaints: Mapping[Broken, str]) -> None:
        """Count one more try."""
        row = self.rows.setdefault(verb_of(outcome.args), Counter())
        row.update(["tries", *(["stopped"] if outcome.interrupted else []), *complaints])
        row.update([str(outcome.code)] if outcome.code in ALLOWED else [])
        self.bad += bool(complaints)
        if complaints or self.verbose:
            words = shlex.join(outcome.args)
            said = outcome.output.strip().splitlines()[-1:] or [""]
            words, last = (text if len(text) < 400 else f"{text[:400]}…" for text in (words, said[0]))
            print(f"[{number}] {what}{words}\n    {outcome.code}, {outcome.seconds:.1f} s: {last}", flush=True)
            for complaint in complaints.values():
                print(f"    BAD: {complaint}", flush=True)

    def close(self) -> int:
        """Print the table; returns the exit code."""
        columns = ["tries", *map(str, ALLOWED), *Broken, "stopped"]
        print(f"{'verb':<18}" + "".join(f"{column:>15}" for column in columns))
        total: Counter[str] = sum(self.rows.values(), Counter())
        for verb, row in [*sorted(self.rows.items()), ("all", total)]:
            print(f"{verb:<18}" + "".join(f"{row[column]:>15}" for column in columns))
        print(f"{total['tries']} tries, {self.bad} bad")
        return 1 if self.bad else 0


def verb_of(args: Sequence[str]) -> str:
    """The row of the table that a command belongs to: its verb, and of an export whom it is for."""
    if not args or args[0] not in VERBS:
        return "no verb"
    if "--for" not in args[:-1] or args[0] != "export":
        return args[0]
    target = args[args.index("--for") + 1]
    return f"export {target}" if target.isalnum() and len(target) < 10 else "export ?"


def options(doc: str | None, tries: int) -> argparse.ArgumentParser:
    """The words that all campaigns take."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="what is tried depends on it alone [0]")
    parser.add_argument("--tries", type=int, default=tries, help=f"how many tries [{tries}]")
    parser.add_argument("--first", type=int, default=0, help="number of the first try, to repeat one with --tries 1")
    parser.add_argument("--only", metavar="WORD", help="leave out commands without this word: a verb, a target")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every try, not only the bad ones")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of a try before Ctrl-C [10]")
    return parser


ARM = """<mujoco model="arm">
  <worldbody>
    <body name="base">
      <geom type="cylinder" size=".1 .05"/>
      <body name="upper" pos="0 0 .1"><joint name="shoulder" axis="0 1 0" range="-1.5 1.5"/>
        <geom type="capsule" fromto="0 0 0 0 0 .3" size=".03"/>
        <body name="fore" pos="0 0 .3"><joint name="elbow" axis="0 1 0" range="-2 2"/>
          <geom type="capsule" fromto="0 0 0 0 0 .3" size=".03"/><site name="tip" pos="0 0 .3"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="shoulder" joint="shoulder" kp="50"/><position name="elbow" joint="elbow" kp="50"/>
  </actuator>
</mujoco>
"""
"""A robot as users have it, in MJCF."""
URDF = """<?xml version="1.0"?>
<robot name="arm">
  <link name="base"><inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="meshes/base.obj"/></geometry></visual></link>
  <link name="upper"><inertial><origin xyz="0 0 .1"/><mass value="1"/>
    <inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 .1"/><geometry><box size=".1 .1 .2"/></geometry></collision></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 .1"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="1" effort="10" velocity="5"/></joint>
</robot>
"""
"""The same kind of robot in URDF, with a mesh."""
MESH = "v 0 0 0\nv .1 0 0\nv 0 .1 0\nv 0 0 .1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
SWEEP = ("--param", "agent.algorithm.learning_rate=log(1e-4,1e-2)", "--trials", "2", "--max-iterations", "1")
"""A search of two trainings of one iteration."""


def make_robots(template: Path) -> None:
    """Write the robots that users bring."""
    (template / "arm.xml").write_text(ARM)
    (template / "arm.urdf").write_text(URDF)
    (template / "meshes").mkdir()
    (template / "meshes" / "base.obj").write_text(MESH)


def make_runs(template: Path, names: Sequence[str], home: Path) -> None:
    """Train the fixtures into `<template>/<name>`, with exported policies beside a run of rsl_rl's."""
    from benchmarks.campaigns.tasks import BUDGETS, task_id

    def must(*args: str, code: int = 0) -> None:
        outcome = run(args, template, seconds=120.0)
        assert outcome.code == code, (args, outcome.output)

    template.mkdir()
    for name in names:
        budget = ("--max-iterations", str(BUDGETS[name]))
        must("train", task_id(name), *budget, "--log-dir", name, "-q", code=1 if name == "Nan" else 0)
    if "Rsl" in names:
        for file in ("policy.ts", "policy.onnx"):
            must("export", task_id("Rsl"), "Rsl", "--out", file)
        sizes = ("--num-envs", "2", "--num-steps", "2", "--warmup-steps", "0")
        must("benchmark", "runtime", task_id("Rsl"), *sizes, "--out", "bundles")
        next((template / "bundles").glob("*.json")).rename(template / "bundle.json")
        shutil.rmtree(template / "bundles")
        must("export", task_id("Rsl"), "Rsl", "--for", "mujoco", "--out", "Deploy")
        shutil.copytree(template / "Deploy", template / "Bare")
        (template / "Bare" / "manifest.json").unlink()  # it would find every change first
        row = f'{{"task": "{task_id("Rsl")}", "checkpoint": "Rsl", "episodes": 2, "num_envs": 2}}'
        (template / "suite.json").write_text(f"[{row}]")
