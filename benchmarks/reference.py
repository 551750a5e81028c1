"""The page of reference runs, from the files that runs leave: `python -m benchmarks.reference`.

`reference/<TASK>/<DATE>/seed_<S>/` has what is kept of a run: `eval.json` as `genelab eval` wrote it, `run.json` and,
where it was trained with evaluations, `evaluations.json`; `curves.png` may lie beside the seeds. The policies that come
with tasks count as runs, too (`src/genelab_*/pretrained/<TASK>/`). An `eval-<NAME>.json` beside an `eval.json` is of
the same policy, judged otherwise. `reference/published.json` has the numbers to hold them against. A file that is
missing or cannot be read is an empty cell. A `note.txt` beside an `eval.json` says why its numbers do not compare
with the others, for example because they were judged by another reward and the weights are gone.

`--collect logs/reference/<TASK>/<DATE>` takes the small files of new runs over first; `--check` only says whether the
page is up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from genelab import TASKS
from genelab.config import atomic_write_text, read_json
from genelab.errors import UsageError
from genelab.report.tables import duration

ROOT = Path(__file__).parents[1]
PAGE = Path("docs") / "reference-runs.md"
SEEDS = (1, 2, 3)
"""Those that a reference has; where one was not run its row is empty."""
CONVERGED = 0.01
"""A run has converged at the first evaluation from which on no return is worse than the last by more than this part."""
_DIRECTIONS = (
    "forward",
    "backward",
    "left",
    "right",
    "turn left",
    "turn right",
    "slow turn left",
    "slow turn right",
    "stand",
)
_ERRORS = ("mpkpe", "mpkpe_root", "joint_vel", "end_effector_pos", "end_effector_ori")
_OF_A_MACHINE = ("pid", "host", "resumed_with")
"""What `run.json` says that is no part of a result."""
_NUM_ENVS = 64
"""How many environments runs are judged in, unless the page says otherwise."""
_TOLD = ("genelab", "mujoco", "torch")
"""Whose versions the page has."""
_THREADS = "env.simulation.threads="
_OF_A_PLACE = ("--log-dir",)
"""Words of a command that tell where it ran."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is kept of one run."""

    path: Path
    seed: int | None
    shipped: bool
    """Whether its policy comes with the task."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """`eval.json`, or one that was judged otherwise."""
    again: str = ""
    """What that one is called."""
    record: Mapping[str, Any] = field(default_factory=dict)
    """`run.json`."""
    history: Sequence[Mapping[str, Any]] = ()
    """`evaluations.json`."""
    agent: Mapping[str, Any] = field(default_factory=dict)
    """`params/agent.json`."""
    env: Mapping[str, Any] = field(default_factory=dict)
    """`params/env.json`."""
    note: str = ""
    """`note.txt`: why its return is not comparable with the others."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The numbers of its evaluation."""
        return self.evaluation.get("metrics") or {}

    @property
    def probe(self) -> Mapping[str, Any] | None:
        """How it follows each direction by itself."""
        return self.evaluation.get("velocity_probe")

    def budget(self) -> str:
        """How much it was trained with, and in how many environments."""
        count = self.record.get("budget") or self.agent.get("max_iterations") or self.agent.get("timesteps")
        unit = self.record.get("unit") or ("iterations" if "max_iterations" in self.agent else "timesteps")
        envs = self.record.get("num_envs") or (self.env.get("scene") or {}).get("num_envs")
        return "" if count is None else f"{count:,} {unit}" + ("" if envs is None else f" × {envs}")

    def converged(self) -> str:
        """What was spent when its return came near its last one, to stay there."""
        if not self.history:
            return ""
        last = self.history[-1]["return_mean"]
        near = [one["return_mean"] >= last - CONVERGED * abs(last) for one in self.history]
        first = len(near) - next((i for i, fits in enumerate(reversed(near)) if not fits), len(near))
        return f"{self.history[first]['spent']:,}"


def read_runs(root: Path, task: str) -> list[Run]:
    """All runs of a task: the shipped one, and those in `reference/`, each with all its evaluations."""
    homes = [(path, True) for path in sorted(root.glob(f"src/*/pretrained/{task}"))]
    homes += [(path, False) for path in sorted(root.glob(f"reference/{task}/*/seed_*"), key=_by_seed)]
    found: list[Run] = []
    for path, shipped in homes:
        run = _read_run(path, shipped)
        ships = [i for i, one in enumerate(found) if one.shipped and _same_policy(one, run)]
        for i in ships:
            found[i] = replace(found[i], record=run.record, history=run.history)
        found += [] if ships else [run]
        found += [_read_run(path, shipped, file.stem) for file in sorted(path.glob("eval-*.json"))]
    return found


def _same_policy(shipped: Run, run: Run) -> bool:
    """Whether a policy that ships is that of a kept run: it was judged with the same result, to the last bit."""
    return bool(run.metrics) and (shipped.seed, shipped.metrics) == (run.seed, run.metrics)


def _by_seed(path: Path) -> tuple[str, int]:
    return path.parent.name, _seed_of(path) or 0


def _seed_of(path: Path) -> int | None:
    number = path.name.removeprefix("seed_")
    return int(number) if number.isdecimal() else None


def _read_run(path: Path, shipped: bool, name: str = "eval") -> Run:
    agent, record = _json(path / "params" / "agent.json", dict), _json(path / "run.json", dict)
    evaluation = _json(path / f"{name}.json", dict)
    for one in (evaluation.get("engines") or {}).values():
        evaluation = one  # of several engines, the first
        break
    seed = record.get("seed", agent.get("seed")) if shipped else _seed_of(path)
    return Run(
        path=path,
        seed=seed,
        shipped=shipped,
        evaluation=evaluation,
        again=name.removeprefix("eval").removeprefix("-").replace("-", " "),
        record=record,
        history=_json(path / "evaluations.json", list),
        agent=agent,
        env=_json(path / "params" / "env.json", dict),
        note=" ".join((path / "note.txt").read_text(encoding="utf-8").split()) if (path / "note.txt").is_file() else "",
    )


def _json(path: Path, kind: type) -> Any:
    """What a file says; nothing if there is none, or it is not what it should be."""
    if not path.is_file():
        return kind()
    try:
        found = read_json(path)
    except UsageError as error:
        print(error, file=sys.stderr)
        return kind()
    return found if isinstance(found, kind) else kind()


def render(root: Path = ROOT) -> str:
    """The whole page."""
    published = _json(root / "reference" / "published.json", dict).get("tasks") or {}
    tasks = [entry.id for entry in TASKS.entries() if entry.package.startswith("genelab_") and entry.backend]
    runs = {task: read_runs(root, task) for task in tasks}
    parts = [_HEAD, _overview(runs, published), _PROTOCOL, "## Numbers\n\n" + _LEGEND]
    for task in tasks:
        parts += _task(root, task, runs[task], published.get(task) or {})
    parts += [_probes(runs, published), _motions(runs), _metrics(runs)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _overview(runs: Mapping[str, Sequence[Run]], published: Mapping[str, Any]) -> str:
    rows = []
    for task, found in runs.items():
        best = [one["return"] for one in (published.get(task) or {}).get("runs") or ()]
        judged = [run for run in found if run.metrics and not run.again and not run.note]
        ours = [run.metrics["return_mean"] for run in judged]
        seeds = sorted({run.seed for run in judged if run.seed is not None})
        marked = "*" * any(_otherwise(run.evaluation) for run in judged)
        rows.append((f"[{task}](#{task.lower()})", _listed(seeds), _span(ours) + marked, _span(best)))
    return _markdown(("task", "seeds", "return", "published"), rows)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _span(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} … {high}"


def _task(root: Path, task: str, runs: Sequence[Run], published: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {task}\n"
    rows = [_row(run) for run in runs]
    judged = {run.seed for run in runs if run.metrics}
    rows += [(str(seed), *[""] * 9) for seed in SEEDS if seed not in judged]
    for one in published.get("runs") or ():
        success = "" if one.get("success") is None else f"{one['success']:.3f}"
        numbers = (f"{one['return']:.3f}", f"{one['std']:.3f}", f"{one['length']:.1f}", success, one["budget"])
        rest = (one.get("converged") or "", one["train"], one["eval"], one["hardware"])
        rows.append((f"published, {one['seed']}", *numbers, *rest))
    head = ("seed", "return", "std", "length", "success", "budget", "converged", "training", "evaluation", "hardware")
    yield _markdown(head, rows)
    yield "\n".join(_remarks(root, task, runs))


def _row(run: Run) -> tuple[str, ...]:
    metrics, record = run.metrics, run.record
    numbers = ["", "", "", ""]
    if metrics:
        rate = metrics.get("success_rate")
        numbers = [f"{metrics['return_mean']:.3f}", f"{metrics['return_std']:.3f}", f"{metrics['length_mean']:.1f}"]
        numbers.append("" if rate is None else f"{rate:.3f}")
    seconds, judged = record.get("wall_seconds"), run.evaluation.get("wall_clock_seconds")
    times = ("" if seconds is None else duration(seconds), "" if judged is None else f"{judged:.1f} s")
    return _who(run), *numbers, run.budget(), run.converged(), *times, _hardware(record)


def _hardware(record: Mapping[str, Any]) -> str:
    found = record.get("hardware") or {}
    if not found:
        return ""
    used = [word.partition("=")[2] for word in record.get("overrides") or () if word.startswith(_THREADS)]
    threads = [f"{used[-1]} thread" + "s" * (used[-1] != "1")] if used and used[-1] != "0" else []
    return ", ".join([f"{found.get('cores', '?')} × {found.get('cpu', '?')}", *threads, *(found.get("gpus") or [])])


def _remarks(root: Path, task: str, runs: Sequence[Run]) -> Iterator[str]:
    """The command, versions and settings behind the rows, once for those that share them."""
    told: dict[str, list[str]] = {}
    for run in runs:
        who = ("the shipped policy" if run.shipped else f"seed {run.seed}") + (f" on {run.again}" if run.again else "")
        words = []
        if command := run.record.get("command"):
            words.append(f"`{_without_seed(command)}`" + _commit(run.record) + _trained_with(run))
        elif run.shipped and (run.path / "README.md").is_file():
            words.append(f"trained as [its README](../{run.path.relative_to(root).as_posix()}/README.md) tells")
        if run.evaluation:
            words.append(_judged(run.evaluation))
        if run.note:
            words.append(f"**{run.note}**")
        if words:
            told.setdefault("; ".join(words), []).append(who)
    for text, names in told.items():
        yield f"- {', '.join(names)}: {text}"
    pictures = sorted(root.glob(f"reference/{task}/*/curves.png"))
    for picture in pictures or sorted(root.glob(f"src/*/pretrained/{task}/curves.png")):
        yield f"\n![Curves of {task}](../{picture.relative_to(root).as_posix()})"


def _commit(record: Mapping[str, Any]) -> str:
    git = record.get("genelab_git") or record.get("git") or {}
    commit = str(git.get("commit") or "")
    return f" at commit {commit[:7]}" + " (with uncommitted changes)" * bool(git.get("dirty")) if commit else ""


def _trained_with(run: Run) -> str:
    """The versions of the training, if they are not those of the evaluation."""
    versions, judged = run.record.get("versions"), run.evaluation.get("versions")
    if not versions or (judged and all(versions.get(name) == judged.get(name) for name in _TOLD)):
        return ""
    return _with(versions)


def _with(versions: Mapping[str, Any]) -> str:
    told = [f"{name} {versions[name]}" for name in _TOLD if versions.get(name)]
    return f" with {', '.join(told)}" if told else ""


def _without_seed(command: str) -> str:
    return re.sub(r" --seed[= ]\d+", "", command) + " --seed S"


def _judged(evaluation: Mapping[str, Any]) -> str:
    text = f"{evaluation.get('num_episodes', '?')} episodes on {evaluation.get('engine', '?')}"
    text += f" on {str(evaluation.get('evaluated_at', '?'))[:10]}"
    text += _with(evaluation.get("versions") or {})
    if overrides := _otherwise(evaluation):
        text += f", {' '.join(f'`{word}`' for word in overrides)}"
    return text


def _otherwise(evaluation: Mapping[str, Any]) -> list[str]:
    """What it was judged with besides; threads change no number."""
    words = [word for word in evaluation.get("overrides") or () if not word.startswith(_THREADS)]
    if evaluation.get("observation_noise") and not any("enable_noise" in word for word in words):
        words.append("--published-noise")
    count = evaluation.get("num_envs", _NUM_ENVS)
    return words if count == _NUM_ENVS else [f"--num-envs {count}", *words]


def _probes(runs: Mapping[str, Sequence[Run]], published: Mapping[str, Any]) -> str:
    rows = []
    for task, found in runs.items():
        for run in (one for one in found if one.probe):
            rows.append((_short(task), _who(run), *_directions(run.probe or {})))
        told = (published.get(task) or {}).get("probe")
        if told:
            cells = (told.get(name, "") for name in (*_DIRECTIONS, "falls"))
            rows.append((_short(task), "published", *cells))
    head = ("task", "seed", *_DIRECTIONS, "fell")
    return f"## Probes of the walkers\n\n{_PROBES}\n{_markdown(head, rows)}" if rows else ""


def _directions(probe: Mapping[str, Any]) -> Iterator[str]:
    found = probe.get("directions") or {}
    for name in _DIRECTIONS:
        one = found.get(name) or {}
        if one.get("fraction") is not None:
            yield f"{one['fraction']:.0%}".replace("%", " %")
        else:
            yield "" if one.get("achieved") is None else f"{one['achieved']:.3f}"
    robots = (probe.get("envs_per_direction") or 0) * len(found)
    alike = "trials" not in probe and "kinds" not in probe
    trials = f", {probe['trials']} trials" if "trials" in probe else " copies" * alike
    yield f"{probe.get('falls', '')} of {robots}{trials}"


def _motions(runs: Mapping[str, Sequence[Run]]) -> str:
    rows = []
    for task, found in runs.items():
        for run in found:
            clips = (run.evaluation.get("motion_probe") or {}).get("clips") or {}
            for clip, one in clips.items():
                numbers = [f"{one[name]:.4g}" if one.get(name) is not None else "" for name in _ERRORS]
                came = f"{one.get('reached_end', '')} of {one.get('robots', '')}"
                rows.append((_short(task), _who(run), clip, came, *numbers))
    head = ("task", "seed", "motion", "came to the end", *_ERRORS)
    return f"## Probes of the trackers\n\n{_MOTIONS}\n{_markdown(head, rows)}" if rows else ""


def _metrics(runs: Mapping[str, Sequence[Run]]) -> str:
    rows = []
    for task, found in runs.items():
        for run in found:
            for name, value in (run.evaluation.get("task_metrics") or {}).items():
                rows.append((_short(task), _who(run), name, "" if value is None else f"{value:.4g}"))
        if "Tracking" in task and not any(row[0] == _short(task) for row in rows):
            rows.append((_short(task), "", "", ""))
    head = ("task", "seed", "metric", "mean over the episodes")
    return f"## Metrics of the tasks\n\n{_markdown(head, rows)}" if rows else ""


def _who(run: Run) -> str:
    words = ("" if run.seed is None else str(run.seed), ", shipped" * run.shipped, f", {run.again}" * bool(run.again))
    return "".join(words) + "*" * bool(_otherwise(run.evaluation)) + "†" * bool(run.note)


def _short(task: str) -> str:
    return re.sub(r"^Gene[Ll]ab-|-v\d+$", "", task)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    assert all(len(line) == len(head) for line in lines)
    return "\n".join(re.sub(r"\| +(?=\|)", "| ", f"| {' | '.join(line)} |") for line in lines) + "\n"


def collect(source: Path, root: Path = ROOT) -> list[Path]:
    """Take over what is kept of the runs in `<TASK>/<DATE>/seed_<S>`; returns where it is now."""
    runs = sorted(path for path in source.glob("seed_*") if (path / "run.json").is_file())
    if not runs:
        raise UsageError(f"{source} has no seed_<S>/run.json: give the directory of a training with seeds")
    found = []
    for run in runs:
        record = read_json(run / "run.json")
        target = root / "reference" / record["task"] / source.name / run.name
        kept = {name: value for name, value in record.items() if name not in _OF_A_MACHINE}
        for name in ("git", "genelab_git"):
            kept |= (
                {name: {key: value for key, value in kept[name].items() if key != "branch"}} if kept.get(name) else {}
            )
        kept["command"] = tidy_command(str(record.get("command") or ""))
        atomic_write_text(target / "run.json", json.dumps(kept, indent=1) + "\n")
        for file in (*run.glob("eval.json"), *run.glob("eval-*.json")):
            evaluation = read_json(file)
            evaluation["checkpoint"] = f"seed_{record['seed']}/{Path(str(evaluation.get('checkpoint'))).name}"
            atomic_write_text(target / file.name, json.dumps(evaluation, indent=1) + "\n")
        for name in ("evaluations.json",):
            if (run / name).is_file():
                shutil.copyfile(run / name, target / name)
        found.append(target)
    if (source / "curves.png").is_file():
        shutil.copyfile(source / "curves.png", found[0].parent / "curves.png")
    return found


def tidy_command(command: str) -> str:
    """A training's command line without what only tells where it ran; of files elsewhere the name is left."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    words = words[words.index("train") :] if "train" in words else words
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _OF_A_PLACE:
            skip = True
        elif word.partition("=")[0] not in _OF_A_PLACE:
            name, equals, value = word.rpartition("=")
            kept.append(name + equals + (Path(value).name if Path(value).is_absolute() else value))
    return shlex.join(["genelab", *kept])


def main(args: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--collect", metavar="DIR", type=Path, action="append", default=[], help="new runs, with seeds")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    parser.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="the files and the page [this checkout]")
    options = parser.parse_args(args)
    try:
        for source in options.collect:
            for path in collect(source, options.root):
                print(f"kept {path.relative_to(options.root)}")
        if not (options.root / "reference").is_dir():
            raise UsageError(f"{options.root} has no directory `reference`: give the root of a checkout")
    except UsageError as error:
        print(f"genelab: {error}", file=sys.stderr)
        return 2
    text, page = render(options.root), options.root / PAGE
    if options.check:
        same = page.is_file() and page.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'not up to date: python -m benchmarks.reference'}")
        return 0 if same else 1
    atomic_write_text(page, text)
    print(f"written to {PAGE}")
    return 0


_HEAD = """<!-- Written by `python -m benchmarks.reference`. Change the files it reads, or it, and not this page. -->

# Reference runs

What to expect from training a bundled task and judging it, per task and seed, beside the [published](sources.md)
numbers. Every number is read from a file that a command left; a cell is empty where nothing was run. Returns are of
`genelab eval --num-envs 64 --episodes 100 --seed 0`. A star says that a result comes from other options; they stand in
the list below its table. A dagger says that a return is not to be compared with the others of its table, and why.
"""

_PROTOCOL = """## How to make them again

```sh
genelab train TASK --seeds 1,2,3 --parallel 1 --eval-every K --log-dir logs/reference/TASK/DATE
for s in 1 2 3; do
  genelab eval TASK logs/reference/TASK/DATE/seed_$s/model_final.pt --num-envs 64 --episodes 100 --seed 0 \\
    --out logs/reference/TASK/DATE/seed_$s/eval.json
done
python -m benchmarks.reference --collect logs/reference/TASK/DATE    # keeps the small files, and writes this page
```

`--eval-every K` gives the column *converged*; it changes no weights. The Franka's task needs demonstrations first
([how](manipulation.md)), and its last checkpoint is `model.zip`. What is kept of a run:

```
reference/TASK/DATE/seed_S/
├── eval.json           what `genelab eval` found; `eval-NAME.json` with other options
├── run.json            command, versions, hardware, times of the training
└── evaluations.json    what it found while it learned, with --eval-every
reference/TASK/DATE/curves.png    if `genelab report DIR --x minutes --out DIR/curves.html` drew it; else the page shows
                                  the curves of the shipped policy
reference/published.json          the numbers to hold them against
```

`python -m benchmarks.reference` writes this page from what is there, and `--check` fails if it is not up to date; a
test does the same. Files that are missing are empty cells.
"""

_LEGEND = """\
*Std* and *length* are of the episodes of the evaluation. *Budget* is what the learner was given, in its own unit, and
the number of environments. Timesteps of skrl are steps of each environment, those of Stable-Baselines3 are steps of all
environments together.
*Converged* is what was spent, in the unit of the budget, at the first evaluation while training from which on the
mean return stayed within 1 % of the last one or above. *Training* is the time of the whole `train` command,
*evaluation* that of `eval`, on a machine that may have been shared. *Shipped* is the policy that `genelab play TASK
--agent trained` plays; its run, if it is kept, is in the same row.
"""

_PROBES = """\
The share of the commanded speed in each direction by itself, ten seconds of one command; for standing, the velocity
that is left, m/s and rad/s together. The share is the velocity along the command: it says nothing about drift, and
more than 100 % is too much ([errors](eval-and-export.md#the-velocity-probe)). Where it says *copies*, the robots of a
direction differed by place and heading only and did the same: as many trials as directions. Later evaluations vary the
robots, and count how many of them are different trials.
"""
_MOTIONS = """\
Every motion once, from its first frame to its last, by robots that start up to 2 cm, 0.05 rad and 0.02 rad per joint
off; [errors](tracking.md#how-it-is-judged) in m, rad/s and rad.
"""


if __name__ == "__main__":
    sys.exit(main())
