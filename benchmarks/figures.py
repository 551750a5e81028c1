"""The project's own figures in one Markdown table: `python -m benchmarks.figures`.

Raw physics and `env.step` are measured in turns in one process (`benchmarks.throughput`), everything else by the
workflows of `genelab benchmark`, each in a process of its own; the bundles stay in the output directory. Ratios are
what to compare: each line says what it is held against. Runtime is `env.step` alone, play has the policy as well,
collecting storage, and training the updates; those three are held against `env.step` within them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.startup import COMMANDS, measure_commands
from benchmarks.throughput import TASK_SIZES, measure
from genelab import TASKS
from genelab.bench import read_bundle
from genelab.bench.schema import Bundle, MeanStd, PlayBundle, Runtime, RuntimeBundle, TrainingBundle
from genelab.rl.locate import pretrained_policy

GENELAB = str(Path(sys.executable).with_name("genelab"))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A line of the table."""

    what: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None

    def line(self) -> str:
        """In Markdown."""
        number = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.2f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return f"| {self.what} | {number} {self.unit} | {self.against} | {ratio} |"


def main() -> None:
    """Write the table, and print it line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", action="append", help="Task; may be given more than once.")
    parser.add_argument("--out", type=Path, default=Path("logs/bench"), help="Directory of the bundles and figures.md.")
    parser.add_argument("--num-envs", type=int, help="Environments, instead of each task's own number.")
    parser.add_argument("--steps", type=int, default=200, help="Control steps of runtime and play.")
    parser.add_argument("--iterations", type=int, default=5, help="Iterations of a training.")
    parser.add_argument("--rounds", type=int, default=5, help="Rounds of what is measured in turns.")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines = ["| what | value | against | ratio |", "|---|---|---|---|"]
    for line in lines:
        print(line)
    for figure in _figures(args):
        lines.append(figure.line())
        print(lines[-1], flush=True)
        (args.out / "figures.md").write_text("\n".join(lines) + "\n")


def _figures(args: argparse.Namespace) -> Iterator[Figure]:
    for task in args.task or TASK_SIZES:
        num_envs = args.num_envs or TASK_SIZES.get(task, 1024)
        yield from _speed(task, num_envs, args)
    seconds = measure_commands(args.rounds)
    for name in COMMANDS:
        ratio = seconds[name] / seconds["import torch"]
        yield Figure(what=f"`{name}`", value=seconds[name], unit="s", against="import torch", ratio=ratio)


def _speed(task: str, num_envs: int, args: argparse.Namespace) -> Iterator[Figure]:
    name, unit = f"{task}, {num_envs} envs", "steps/s"
    raw, stepped, ratio = measure(task, num_envs, steps=25, rounds=args.rounds)
    yield Figure(what=f"{name}: raw physics", value=raw, unit=unit)
    yield Figure(what=f"{name}: `env.step`, in turns", value=stepped, unit=unit, against="raw", ratio=ratio)
    size, steps = ["--num-envs", str(num_envs)], ["--num-steps", str(args.steps)]
    runtime = _run("runtime", task, args.out, *size, *steps)
    assert isinstance(runtime, RuntimeBundle)
    yield Figure(what=f"{name}: runtime", value=_rate(runtime.runtime.total_fps), unit=unit)
    times = runtime.runtime.startup_time_s
    imports = times.python_imports or 0.0
    rest = sum(value or 0.0 for value in (times.task_config, times.app_launch, times.env_creation, times.first_step))
    yield Figure(what=f"{name}: start after the imports", value=rest, unit="s", against="imports", ratio=rest / imports)
    if pretrained_policy(task) is not None:
        played = _run("play", task, args.out, *size, *steps, "--checkpoint", "pretrained")
        assert isinstance(played, PlayBundle)
        yield within(f"{name}: play", played.runtime.total_fps, played.runtime)
    iterations = ["--max-iterations", str(args.iterations)]
    trained = _run("training", task, args.out, *size, *iterations, "--quiet", *_demos(task, num_envs, args.out))
    assert isinstance(trained, TrainingBundle)
    library = trained.run.framework
    yield within(f"{name}: {library} collecting", trained.runtime.collection_fps, trained.runtime)
    yield within(f"{name}: {library} training", trained.runtime.total_fps, trained.runtime)


def within(what: str, rate: MeanStd | None, runtime: Runtime) -> Figure:
    """A rate against that of `env.step` in the same run; alone if nobody waited for the GPU that stepped."""
    fps, timing = _rate(rate), runtime.environment_step_timing
    if timing is None or timing.simulation_step_time_s is None:
        return Figure(what=what, value=fps, unit="steps/s")
    ratio = fps / timing.environment_step_fps.mean
    return Figure(what=what, value=fps, unit="steps/s", against="its own `env.step`", ratio=ratio)


def _demos(task: str, num_envs: int, out: Path) -> list[str]:
    """Demonstrations for a learner with hindsight, so that it learns in the first iteration as it does in the last."""
    if getattr(TASKS.get(task).agent, "her", None) is None:
        return []
    path = str(out / "demos.npz")
    words = ["--num-envs", str(num_envs), "--steps", "100", "--out", path]
    collect = [sys.executable, "-m", "genelab_franka.collect_demos", *words]
    subprocess.run(collect, check=True, stdout=subprocess.DEVNULL)
    return ["--agent.demo_path", path, "--agent.off_policy.learning_starts", "0"]


def _run(workflow: str, task: str, out: Path, *words: str) -> Bundle:
    """The bundle of a workflow in a process of its own."""
    before = set(out.glob("benchmark_*.json"))
    command = [GENELAB, "benchmark", workflow, task, "--seed", "0", "--out", str(out), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (path,) = set(out.glob("benchmark_*.json")) - before
    return read_bundle(path)


def _rate(value: MeanStd | None) -> float:
    assert value is not None
    return value.mean


if __name__ == "__main__":
    main()
