"""kill -9 at random moments: nothing that was saved is lost, and the resumed run ends bit for bit as if undisturbed."""

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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns import forked


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is killed."""

    task: str
    budget: int
    words: tuple[str, ...] = ()

    def start(self, path: Path) -> list[str]:
        """The command of the run in a directory."""
        budget = ("--max-iterations", str(self.budget))
        return ["train", self.task, *budget, "--log-dir", str(path), "-q", "--agent.save_interval=1", *self.words]

    def resume(self, path: Path) -> list[str]:
        """The command that goes on with it."""
        return ["train", self.task, "--max-iterations", str(self.budget), "--resume", str(path), "-q"]


_SMALL_ARM = (
    *("--num-envs", "4", "--env.simulation.threads=1", "--agent.hidden_dims=[8]", "--agent.off_policy.batch_size=16"),
    *("--agent.off_policy.buffer_size=4000", "--agent.off_policy.iteration_steps=10", "--env.episode_length_s=0.4"),
    "--agent.off_policy.learning_starts=200",
)
TRAININGS = {
    "rsl_rl": Training(task="Campaign-Rsl-v0", budget=30),
    "SAC": Training(task="Campaign-Sac-v0", budget=640),
    "skrl": Training(task="Campaign-Skrl-v0", budget=160),
    "Franka": Training(task="GeneLab-Franka-Pick-And-Place-v0", budget=400, words=_SMALL_ARM),
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
        clock = path / "seconds.txt"
        if not clock.exists():
            outcome = forked.run(TRAININGS[name].start(path), self.home, seconds=300.0, memory=8e9)
            assert outcome.code == 0, outcome.output
            clock.write_text(str(outcome.seconds))
        self._seconds[name] = float(clock.read_text())
        return path

    def attempt(self, number: int) -> dict[str, Any]:
        """Kill a run, look at what it left, resume it and compare."""
        rng = random.Random(f"{self.seed}:{number}")
        name = list(TRAININGS)[number % len(TRAININGS)]
        training, reference = TRAININGS[name], self.reference(name)
        path = self.home / f"killed-{self.seed}-{number}"
        killed = self._kill(training.start(path), path, rng, self._seconds[name])
        found: dict[str, Any] = {"number": number, "training": name, "killed": killed, "checkpoints": 0, "bad": []}
        for file in [*path.glob("model*"), *path.glob("resume.pt")]:
            found["checkpoints"] += 1
            try:
                weights(file)
            except Exception as error:
                found["bad"].append(f"{file.name} does not load: {error!r}")
        if killed:
            found["resume"] = self._resume(training, path, reference, found["bad"])
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
            if in_writing and time.monotonic() > moment and any(path.glob(".*.tmp")):
                break
            time.sleep(0.0005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(output)
        return True

    def _resume(self, training: Training, path: Path, reference: Path, bad: list[str]) -> str:
        had_state = (path / "resume.pt").exists()
        outcome = forked.run(training.resume(path), self.home, seconds=300.0, memory=8e9)
        if "Traceback" in outcome.output:
            bad.append(f"traceback: {outcome.output.strip().splitlines()[-1]}")
        if not had_state or "has spent its" in outcome.output:
            if outcome.code != 2:
                bad.append(f"resumed without a state: exit code {outcome.code}")
            return "refused" if not had_state else "complete"
        if outcome.code != 0:
            bad.append(f"resume ended with {outcome.code}: {outcome.output.strip()[-200:]}")
            return "failed"
        final = final_name(training.task)
        if not same(weights(reference / final), weights(path / final)):
            bad.append("other weights than the undisturbed run")
            return "different"
        if leftovers := list(path.glob(".*.tmp")):
            bad.append(f"{len(leftovers)} temporary files are left")
        return "bit for bit"


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
    """What happened to each kind of training."""
    ends = ("bit for bit", "complete", "refused", "failed", "different")
    lines = [
        f"{'training':<10} {'tries':>6} {'killed':>6} {'files':>6} {' '.join(f'{end:>11}' for end in ends)} {'bad':>5}"
    ]
    for name in TRAININGS:
        own = [result for result in results if result["training"] == name]
        counts = Counter(result.get("resume") for result in own)
        files, killed = sum(one["checkpoints"] for one in own), sum(one["killed"] for one in own)
        cells = " ".join(f"{counts[end]:>11}" for end in ends)
        lines.append(f"{name:<10} {len(own):>6} {killed:>6} {files:>6} {cells} {sum(bool(o['bad']) for o in own):>5}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign, or go on with it; returns 1 if a run broke a promise."""
    parser = forked.options(__doc__, count=200)
    parser.add_argument("--dir", type=Path, default=Path("kills"), help="where runs and results go [kills]")
    options = parser.parse_args(argv)
    forked.import_everything()
    options.dir.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options.dir.resolve(), options.seed)
    done = {result["number"] for result in campaign.results()}
    for number in range(options.first, options.first + options.count):
        if number in done:
            continue
        result = campaign.attempt(number)
        if result["bad"] or options.verbose:
            print(f"[{number}] {result['training']}: {result.get('resume')}: {'; '.join(result['bad'])}", flush=True)
        if not result["bad"]:
            shutil.rmtree(campaign.home / f"killed-{options.seed}-{number}", ignore_errors=True)
    results = campaign.results()
    print(table(results))
    return 1 if any(result["bad"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
