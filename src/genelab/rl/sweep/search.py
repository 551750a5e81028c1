"""The search itself: ask for settings, train with them in another process, tell what its evaluations found."""

from __future__ import annotations

import dataclasses
import datetime
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from genelab.config import as_words, read_json
from genelab.errors import GenelabError, UsageError
from genelab.rl.backends import select_backend
from genelab.rl.eval_callback import EVALUATIONS_FILE
from genelab.rl.launch.children import POLL_SECONDS, Child, Nursery, make_parent, open_launcher
from genelab.rl.launch.process import Job, Stop
from genelab.rl.launch.task import load_cfg
from genelab.rl.run import Lock
from genelab.rl.sweep.objective import Goal, Objective, told
from genelab.rl.sweep.space import Range, check_ranges, parse_ranges
from genelab.rl.sweep.study import (
    STUDY_FILE,
    SweepSettings,
    Trial,
    best_of,
    change_trials,
    create_study,
    make_sampler,
    open_study,
    trials_of,
)

if TYPE_CHECKING:
    import optuna

EVALUATIONS = 10
"""Evaluations of a training, if nobody says how often."""
HOPELESS = 3
"""Trials that fail before any other ends: then all would."""

ENDED = ("completed", "pruned", "failed")
"""How a trial may end that is not tried again."""
_SUCCESS = "the task publishes no `is_success`: look for another `objective`"


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep has found so far."""

    path: Path
    """Its directory."""
    settings: SweepSettings
    status: Literal["completed", "interrupted"]
    trials: Sequence[Trial]

    @property
    def best(self) -> Trial | None:
        """The best trial; None if none reached the target, or none was completed."""
        return best_of(self.trials, self.settings.goal)

    @property
    def own(self) -> Trial | None:
        """The trial of the task's own settings, if it was completed."""
        return next((one for one in self.trials if one.is_own and one.state == "completed"), None)


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where the trainings of a sweep run."""

    words: Sequence[str]
    """What follows `python` in the command line of a training, up to its task."""
    parallel: int = 1
    """Trainings at a time."""
    ray: bool = False
    ray_address: str | None = None


def sweep_task(
    task: str,
    params: Sequence[str],
    *,
    where: Where,
    trials: int,
    objective: Goal = "return",
    target: float | None = None,
    overrides: Mapping[str, Any] = {},
    num_envs: int | None = None,
    max_iterations: int | None = None,
    seed: int | None = None,
    eval_every: int | None = None,
    eval_episodes: int = 10,
    eval_num_envs: int | None = None,
    eval_seed: int = 0,
    sampler: Literal["tpe", "random"] = "tpe",
    prune: bool = True,
    log_dir: Path | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> SweepResult:
    """Search the ranges `params`, `PATH=RANGE` each, for the settings with which a task is learned best.

    The first trial is the task's own settings, if they are within the ranges.
    """
    goal = Objective(goal=objective, target=target)
    ranges = parse_ranges(params)
    task_id, cfg = load_cfg(task, overrides)
    backend = select_backend(cfg.agent)
    if num_envs is not None:
        cfg.env.scene.num_envs = num_envs
    if max_iterations is not None:
        backend.set_budget(cfg.agent, max_iterations)
    if eval_every is None:
        one = backend.budget_per_iteration(cfg.agent, cfg.env.scene.num_envs)
        eval_every = max(1, backend.budget(cfg.agent) // max(one, 1) // EVALUATIONS)
    settings = SweepSettings(
        task=task_id,
        params=tuple(f"{one.path}={one.text}" for one in ranges),
        trials=trials,
        objective=goal.goal,
        target=goal.target,
        overrides=dict(word.split("=", 1) for word in as_words(overrides)),
        num_envs=num_envs,
        max_iterations=max_iterations,
        seed=cfg.agent.seed if seed is None else seed,
        eval_every=eval_every,
        eval_episodes=eval_episodes,
        eval_num_envs=eval_num_envs,
        eval_seed=eval_seed,
        sampler=sampler,
        prune=prune,
    )
    ranges, own = check_ranges(task_id, ranges, settings.overrides)
    path = (log_dir or _default_path(task_id)).absolute()
    if (path / STUDY_FILE).exists():
        raise UsageError(f"`log_dir`: {path} already holds a sweep; choose another, or `resume_sweep('{path}')`")
    with open_launcher(where.ray, where.ray_address, where.parallel, gpu=cfg.env.simulation.gpu) as nursery:
        make_parent(path)
        with Lock.take(path):
            whole = len(own) == len(ranges)
            study = create_study(path, settings, own if whole else None)
            if not whole:
                outside = ", ".join(one.path for one in ranges if one.path not in own)
                notify(f"the task's own {outside} is not in its range: its own settings are no trial")
            return _Search(settings, ranges, study, path, where, nursery, notify).run(cfg.env.simulation.threads)


def resume_sweep(
    path: Path,
    *,
    where: Where,
    task: str | None = None,
    trials: int | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> SweepResult:
    """Go on with a sweep that was interrupted, with its own settings, or with more trials.

    Trials that were killed count as failed and are tried again from their beginning.
    """
    path = path.absolute()
    settings, study = open_study(path)
    if task is not None and task.lower() != settings.task.lower():
        raise UsageError(f"`resume`: {path} is a sweep of {settings.task}, not of {task}")
    ranges, _ = check_ranges(settings.task, parse_ranges(settings.params), settings.overrides)
    _, cfg = load_cfg(settings.task, settings.overrides)
    with (
        Lock.take(path),
        open_launcher(where.ray, where.ray_address, where.parallel, gpu=cfg.env.simulation.gpu) as nursery,
    ):
        if trials is not None:
            settings = change_trials(study, settings, trials)
        search = _Search(settings, ranges, study, path, where, nursery, notify)
        search.try_killed_again()
        return search.run(cfg.env.simulation.threads)


def _default_path(task_id: str) -> Path:
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    base = path = Path("logs") / "sweep" / task_id / stamp
    number = 1
    while path.exists():
        number += 1
        path = base.with_name(f"{stamp}_{number}")
    return path


@dataclass(kw_only=True)
class _Running:
    """A training of the sweep, in its process."""

    trial: optuna.Trial
    child: Child
    job: Job
    started: float
    stop: Stop = field(default_factory=Stop)
    """Ends it before its budget is spent."""
    verdict: Literal["reached", "pruned"] | None = None
    """Why it is being ended."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)


class _Search:
    """Starts trainings as others end, until as many as asked for have come to their end."""

    def __init__(
        self,
        settings: SweepSettings,
        ranges: Sequence[Range],
        study: optuna.Study,
        path: Path,
        where: Where,
        nursery: Nursery,
        notify: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._goal = settings.goal
        self._ranges = ranges
        self._study = study
        self._path = path
        self._where = where
        self._nursery = nursery
        self._notify = notify
        self._stop = Stop(lambda message: notify("stopping; once more to stop at once"))
        self._running: list[_Running] = []

    def try_killed_again(self) -> None:
        """What was running when the sweep was killed has failed; it and what was interrupted is put in the queue."""
        import optuna

        for running in self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            self._study.tell(running.number, state=optuna.trial.TrialState.FAIL)
        trials = trials_of(self._study)
        again = {trial.retry_of for trial in trials}
        for trial in trials:
            if trial.state == "killed" and trial.number not in again:
                marks = {"retry_of": trial.number} | ({"own": True} if trial.is_own else {})
                self._study.enqueue_trial(dict(trial.params), user_attrs=marks)
                self._notify(f"trial {trial.number} was killed: it counts as failed, and is tried again")

    def run(self, threads: int) -> SweepResult:
        """Search; `threads` is what the task asks for."""
        more = self._nursery.thread_words(threads)
        try:
            with self._stop.on_signals():
                while self._next(more) or self._running:
                    self._stop.apply(one.job for one in self._running)
                    for one in list(self._running):
                        self._look_at(one)
                    time.sleep(POLL_SECONDS if self._running else 0)
        finally:
            for one in self._running:
                one.job.signal(signal.SIGKILL)
        trials = trials_of(self._study)
        done = ended_of(trials) >= self._settings.trials
        return SweepResult(
            path=self._path, settings=self._settings, status="completed" if done else "interrupted", trials=trials
        )

    def _next(self, more: Sequence[str]) -> bool:
        """Start what there is room for; whether anything was."""
        started = False
        while not self._stop.requested and len(self._running) < self._where.parallel:
            trials = trials_of(self._study)
            ended = [trial for trial in trials if trial.state in ENDED]
            if len(ended) >= HOPELESS and all(trial.state == "failed" for trial in ended):
                raise GenelabError(f"the first {len(ended)} trials failed, the last one with: {ended[-1].reason}")
            index = len(ended) + len(self._running)
            if index >= self._settings.trials:
                break
            self._start(index, more)
            started = True
        return started

    def _start(self, index: int, more: Sequence[str]) -> None:
        self._study.sampler = make_sampler(self._settings, index)
        trial = self._study.ask()
        values = {one.path: one.suggest(trial) for one in self._ranges}
        child = Child(path=self._path / f"trial_{trial.number:04}", state="running")
        words = [*self._where.words, *more, *self._words(), *(f"--{word}" for word in as_words(values))]
        job = self._nursery.start(child, [*words, "--log-dir", str(child.path)])
        self._running.append(_Running(trial=trial, child=child, job=job, started=time.monotonic()))

    def _words(self) -> list[str]:
        """What all trainings are given."""
        given = dataclasses.asdict(self._settings)
        names = ("num_envs", "max_iterations", "seed", "eval_every", "eval_episodes", "eval_num_envs", "eval_seed")
        words = [f"--{name.replace('_', '-')}={given[name]}" for name in names if given[name] is not None]
        return words + [f"--{word}" for word in as_words(self._settings.overrides)]

    def _look_at(self, one: _Running) -> None:
        one.child.seconds = time.monotonic() - one.started
        one.child.exit_code = one.job.poll()
        self._read_evaluations(one)
        if one.child.exit_code is not None:
            self._running.remove(one)
            self._tell(one, one.child.exit_code)
        elif one.verdict is not None:
            one.stop.apply([one.job])

    def _read_evaluations(self, one: _Running) -> None:
        """Tell the study of new evaluations, and end a training that has won or cannot."""
        try:
            found = read_json(one.child.path / EVALUATIONS_FILE)
        except UsageError:
            return  # there is none yet
        for evaluation in found[len(one.evaluations) :]:
            one.evaluations.append(evaluation)
            value = self._goal.on_the_way(evaluation)
            if value is not None:
                one.trial.report(value, evaluation["env_steps"])  # an iteration may be of another length
            if one.verdict is not None:
                continue
            if self._goal.is_reached(evaluation):
                one.verdict = "reached"
            elif one.trial.should_prune():
                one.verdict = "pruned"
            if one.verdict is not None:
                one.stop.request()

    def _tell(self, one: _Running, exit_code: int) -> None:
        """A training has ended."""
        from optuna.trial import TrialState

        trial, value = one.trial, self._goal.value(one.evaluations)
        trial.set_user_attr("seconds", round(one.child.seconds, 1))
        if one.verdict == "reached" or (exit_code == 0 and value is not None):
            self._study.tell(trial, value)
        elif one.verdict == "pruned":
            self._study.tell(trial, state=TrialState.PRUNED)
        elif self._stop.requested:
            self._study.tell(trial, state=TrialState.FAIL)  # without a reason: it is none of its own
        else:
            said = _SUCCESS if exit_code == 0 else one.child.last_words or f"exit code {exit_code}"
            trial.set_user_attr("reason", said[:500])
            self._study.tell(trial, state=TrialState.FAIL)
        self._say(trial.number)

    def _say(self, number: int) -> None:
        trials = trials_of(self._study)
        trial, best = trials[number], best_of(trials, self._goal)
        found = "" if trial.value is None else f", {told(trial.value)}"
        of = "" if best is None or best is trial else f"; best {told(best.value)}, trial {best.number}"
        why = f": {trial.reason}" if trial.reason else ""
        settings = " ".join(as_words(trial.params))
        count = f"{ended_of(trials)}/{self._settings.trials}"
        self._notify(f"{count} trial {number} {trial.state}{found}{why} ({trial.seconds:.0f} s{of}) {settings}")


def ended_of(trials: Sequence[Trial]) -> int:
    """How many trials came to an end of their own."""
    return sum(trial.state in ENDED for trial in trials)
