"""kill -9 at random moments: nothing that was saved is lost, and what was killed can be resumed or done again.

A resumed training ends bit for bit as if undisturbed. A sweep is resumed, or begun again where nothing was recorded. An
export and a new task are written again by the same command, and no temporary file is left.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import sys
import time
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns import forked


class Job(ABC):
    """A command that is killed."""

    @abstractmethod
    def start(self, path: Path) -> list[str]:
        """The command, with what it writes at a path."""

    @abstractmethod
    def check(self, path: Path, reference: Path, bad: list[str]) -> str:
        """Resume or repeat it after it was killed, compare with what an undisturbed one wrote, and say how it ended."""


@dataclass(frozen=True, kw_only=True)
class Training(Job):
    """A training of one library."""

    task: str
    budget: int
    words: tuple[str, ...] = ()

    def start(self, path: Path) -> list[str]:
        """The command of the run in a directory."""
        budget = ("--max-iterations", str(self.budget))
        return ["train", self.task, *budget, "--log-dir", str(path), "-q", "--agent.save_interval=1", *self.words]

    def check(self, path: Path, reference: Path, bad: list[str]) -> str:
        for file in [*path.glob("model*"), *path.glob("resume.pt")]:
            try:
                weights(file)
            except Exception as error:
                bad.append(f"{file.name} does not load: {error!r}")
        had_state = (path / "resume.pt").exists()
        budget = ("--max-iterations", str(self.budget))
        outcome = again(["train", self.task, *budget, "--resume", str(path), "-q"], path, bad)
        if not had_state or "has spent its" in outcome.output:
            if outcome.code != 2:
                bad.append(f"resumed without a state: exit code {outcome.code}")
            return "refused" if not had_state else "complete"
        if outcome.code != 0:
            bad.append(f"resume ended with {outcome.code}: {outcome.output.strip()[-200:]}")
            return "failed"
        final = final_name(self.task)
        if not same(weights(reference / final), weights(path / final)):
            bad.append("other weights than the undisturbed run")
            return "different"
        left_behind(path, outcome, bad)
        return "bit for bit"


@dataclass(frozen=True, kw_only=True)
class Writer(Job):
    """A command that writes a directory, all of it or nothing."""

    words: tuple[str, ...]
    option: str
    """What the directory is given by."""
    dated: tuple[str, ...] = ()
    """Files that hold the time of day."""

    def start(self, path: Path) -> list[str]:
        return [*self.words, self.option, str(path)]

    def check(self, path: Path, reference: Path, bad: list[str]) -> str:
        wanted = self._content(reference)
        for name, data in self._content(path).items():
            if wanted.get(name) != data:
                bad.append(f"{name} is not whole")
        if self._content(path) == wanted and not any(path.rglob(".*.tmp")):
            return "complete"
        outcome = again(self.start(path), path, bad)
        if outcome.code != 0:
            bad.append(f"the same command ended with {outcome.code}: {outcome.output.strip()[-200:]}")
            return "failed"
        left_behind(path, outcome, bad)
        if self._content(path) != wanted:
            bad.append("other files than those of an undisturbed command")
            return "different"
        return "repeated"

    def _content(self, path: Path) -> dict[str, bytes]:
        files = [one for one in path.rglob("*") if one.is_file() and ".tmp" not in str(one.relative_to(path))]
        return {str(one.relative_to(path)): one.read_bytes() for one in files if one.name not in self.dated}


@dataclass(frozen=True, kw_only=True)
class Search(Job):
    """A sweep of two short trainings."""

    task: str

    def start(self, path: Path) -> list[str]:
        words = ("--num-envs", "2", "--import", forked.TASKS_MODULE, "-q")
        return ["sweep", self.task, *forked.SWEEP, *words, "--log-dir", str(path)]

    def check(self, path: Path, reference: Path, bad: list[str]) -> str:
        if not ended(path):
            bad.append("its trainings go on")
        resume = ["sweep", self.task, "--resume", str(path), "--import", forked.TASKS_MODULE, "-q"]
        outcome, end = again(resume, path, bad), "resumed"
        if outcome.code == 2:  # nothing was recorded yet, and the line says to begin again
            outcome, end = again(self.start(path), path, bad), "begun again"
        if outcome.code != 0:
            bad.append(f"neither resumed nor begun again: {outcome.code}: {outcome.output.strip()[-200:]}")
            return "failed"
        trials = [json.loads(file.read_text())["status"] for file in path.glob("trial_*/run.json")]
        if trials.count("completed") < 2:
            bad.append(f"trials ended as {trials}")
        if (report := again(["report", str(path), "--out", f"{path}.html"], path, bad)).code != 0:
            bad.append(f"report ended with {report.code}: {report.output.strip()[-200:]}")
        left_behind(path, outcome, bad)
        return end


def again(words: Sequence[str], path: Path, bad: list[str]) -> forked.Outcome:
    """Run a command beside what was killed; a traceback is bad."""
    outcome = forked.run(words, path.parent, seconds=600.0, memory=8e9)
    if "Traceback (most recent call last)" in outcome.output:
        bad.append(f"traceback: {outcome.output.strip().splitlines()[-1]}")
    return outcome


def left_behind(path: Path, outcome: forked.Outcome, bad: list[str]) -> None:
    """Temporary files and directories are bad, unless the command that came after names them."""
    leftovers = [one for one in path.rglob(".*.tmp") if one.name not in outcome.output]
    # What lies in a directory that was named goes with it.
    if leftovers := [one for one in leftovers if not any(folder.name.endswith(".tmp") for folder in one.parents)]:
        bad.append(f"{len(leftovers)} temporary files are left")


def ended(path: Path, seconds: float = 30.0) -> bool:
    """Whether the processes that write below a directory end by themselves."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(file.read_bytes())
            except OSError:  # it has ended
                continue
        if not any(f"{path}/".encode() in line for line in lines):
            return True
        time.sleep(0.2)
    return False


_SMALL_ARM = (
    *("--num-envs", "4", "--env.simulation.threads=1", "--agent.hidden_dims=[8]", "--agent.off_policy.batch_size=16"),
    *("--agent.off_policy.buffer_size=4000", "--agent.off_policy.iteration_steps=10", "--env.episode_length_s=0.4"),
    "--agent.off_policy.learning_starts=200",
)
JOBS: dict[str, Job] = {
    "rsl_rl": Training(task="Campaign-Rsl-v0", budget=30),
    "SAC": Training(task="Campaign-Sac-v0", budget=640),
    "skrl": Training(task="Campaign-Skrl-v0", budget=160),
    "Franka": Training(task="GeneLab-Franka-Pick-And-Place-v0", budget=400, words=_SMALL_ARM),
    "export": Writer(
        words=(
            *("export", "Campaign-Rsl-v0", "reference-rsl_rl", "--for", "hub"),
            *("--with", "episodes=2", "--with", "film_steps=0"),
        ),
        option="--out",
        dated=("policy.onnx", "policy.onnx.metadata.json", "manifest.json", "README.md", "eval.json"),
    ),
    "new-task": Writer(words=("new-task", "ab", "--from", "arm.xml", "--kind", "reach"), option="--dir"),
    "sweep": Search(task="Campaign-Rsl-v0"),
}


class Campaign:
    """Keeps what is known in a directory, so that it can be stopped and go on."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.seed = seed
        self._log = home / f"results-{seed}.jsonl"
        self._seconds: dict[str, float] = {}

    def results(self) -> list[dict[str, Any]]:
        """What was found so far."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def reference(self, name: str) -> Path:
        """The run that nobody disturbed; made on first use, and timed."""
        path = self.home / f"reference-{name}"
        clock = self.home / f"seconds-{name}.txt"
        if not clock.exists():
            if name == "export":
                self.reference("rsl_rl")
            (self.home / "arm.xml").write_text(forked.ARM)
            outcome = forked.run(JOBS[name].start(path), self.home, seconds=600.0, memory=8e9)
            assert outcome.code == 0, outcome.output
            clock.write_text(str(outcome.seconds))
        self._seconds[name] = float(clock.read_text())
        return path

    def attempt(self, number: int) -> dict[str, Any]:
        """Kill a run, look at what it left, resume it and compare."""
        rng = random.Random(f"{self.seed}:{number}")
        name = list(JOBS)[number % len(JOBS)]
        job, reference = JOBS[name], self.reference(name)
        path = self.home / f"killed-{self.seed}-{number}"
        killed = self._kill(job.start(path), path, rng, self._seconds[name])
        found: dict[str, Any] = {"number": number, "job": name, "killed": killed, "bad": []}
        if killed:
            found["end"] = job.check(path, reference, found["bad"])
        with self._log.open("a") as log:
            log.write(json.dumps(found) + "\n")
        return found

    def _kill(self, words: Sequence[str], path: Path, rng: random.Random, seconds: float) -> bool:
        """True if it was killed, False if it had ended before; two of three are killed while a file is written."""
        output = os.memfd_create("output")
        child = forked.start_child(words, self.home, output, memory=8e9)
        moment, in_writing = time.monotonic() + rng.uniform(0.1, 1.0) * seconds, rng.random() < 0.67
        while time.monotonic() < moment + in_writing * seconds:
            if os.waitpid(child, os.WNOHANG)[0]:
                os.close(output)
                return False
            if in_writing and time.monotonic() > moment and any(path.rglob(".*.tmp")):
                break
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(output)
        return True


def final_name(task: str) -> str:
    """The checkpoint at the end of a run."""
    from genelab.config import TASKS
    from genelab.rl.backends import select_backend

    backend = select_backend(TASKS.get(task).agent)
    return f"{backend.final_name}{backend.suffix}"


def weights(path: Path) -> Any:
    """Everything that a checkpoint or a state holds."""
    import torch

    if path.suffix != ".zip":
        return torch.load(path, weights_only=True, map_location="cpu")
    with zipfile.ZipFile(path) as archive:
        parts = [name for name in archive.namelist() if name.endswith(".pth")]
        return {name: torch.load(io.BytesIO(archive.read(name)), weights_only=True) for name in parts}


def same(first: Any, second: Any) -> bool:
    """Whether two contents are equal to the last bit."""
    import torch

    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.shape == second.shape and first.equal(second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


def table(results: Sequence[dict[str, Any]]) -> str:
    """What happened to each kind of job."""
    ends = ("bit for bit", "complete", "refused", "repeated", "resumed", "begun again", "failed", "different")
    lines = [f"{'job':<10} {'tries':>6} {'killed':>6} {' '.join(f'{end:>11}' for end in ends)} {'bad':>5}"]
    for name in JOBS:
        own = [result for result in results if result["job"] == name]
        counts, killed = Counter(result.get("end") for result in own), sum(one["killed"] for one in own)
        cells = " ".join(f"{counts[end]:>11}" for end in ends)
        lines.append(f"{name:<10} {len(own):>6} {killed:>6} {cells} {sum(bool(one['bad']) for one in own):>5}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign, or go on with it; returns 1 if a run broke a promise."""
    parser = forked.options(__doc__, tries=100)
    parser.add_argument("--dir", type=Path, default=Path("kills"), help="where runs and results go [kills]")
    options = parser.parse_args(argv)
    forked.import_everything()
    options.dir.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options.dir.resolve(), options.seed)
    done = {result["number"] for result in campaign.results()}
    for number in range(options.first, options.first + options.tries):
        if number in done or options.only not in (None, list(JOBS)[number % len(JOBS)]):
            continue
        result = campaign.attempt(number)
        if result["bad"] or options.verbose:
            print(f"[{number}] {result['job']}: {result.get('end')}: {'; '.join(result['bad'])}", flush=True)
        if not result["bad"]:
            shutil.rmtree(campaign.home / f"killed-{options.seed}-{number}", ignore_errors=True)
    results = campaign.results()
    print(table(results))
    return 1 if any(result["bad"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
