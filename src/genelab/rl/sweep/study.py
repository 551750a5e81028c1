"""The file that remembers a sweep: a study of Optuna in SQLite, with the settings of the sweep in it.

It is data. What it says is checked as what a user types is, and it names no code to import.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from genelab.config import expect
from genelab.config.files import remove_leftovers, replacing
from genelab.config.offer import need_library
from genelab.errors import UsageError, refusing
from genelab.rl.sweep.objective import Goal, Objective

if TYPE_CHECKING:
    import optuna

STUDY_FILE = "study.db"
"""Its name in the directory of a sweep."""
STARTUP = 5
"""Trials that are drawn at random before the sampler learns from them, and that end before one is pruned."""
_STUDY = "sweep"
_SETTINGS = "genelab"

State = Literal["waiting", "running", "completed", "pruned", "failed", "killed"]


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What a sweep searches, for what, and how each training is made."""

    task: str
    """Id of the task that is trained."""
    params: tuple[str, ...]
    """`PATH=RANGE` each."""
    trials: int
    """Trainings that come to an end of their own: those that were killed do not count."""
    objective: Goal = "return"
    """What is to be as large as can be (return, success, length) or as small (iterations, steps, seconds)."""
    target: float | None = None
    """The return that ends the count of iterations, steps or seconds."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """What all trainings have in common."""
    num_envs: int | None = None
    """Environments of every training; None: the task's own number."""
    max_iterations: int | None = None
    """Budget of every training, in the unit of its library; None: the task's own."""
    seed: int
    """Of every training, and of the sampler."""
    eval_every: int
    """Iterations between evaluations."""
    eval_episodes: int = 10
    """Episodes of every evaluation."""
    eval_num_envs: int | None = None
    """Environments of every evaluation; None: one per episode."""
    eval_seed: int = 0
    """Seed of every evaluation."""
    sampler: Literal["tpe", "random"] = "tpe"
    """Where the next trial is drawn: near what was good (tree-structured Parzen estimator), or anywhere."""
    prune: bool = True
    """Whether a training is stopped that is worse than half of the others were after as many control steps."""

    @property
    def goal(self) -> Objective:
        """What is looked for."""
        return Objective(goal=self.objective, target=self.target)


_KINDS: dict[str, Any] = {
    "task": str,
    "params": list[str],
    "trials": int,
    "objective": Goal,
    "target": float | None,
    "overrides": dict[str, str],
    "num_envs": int | None,
    "max_iterations": int | None,
    "seed": int,
    "eval_every": int,
    "eval_episodes": int,
    "eval_num_envs": int | None,
    "eval_seed": int,
    "sampler": Literal["tpe", "random"],
    "prune": bool,
}
"""What a study says of its sweep."""


_OF_A_TRIAL: dict[str, Any] = {
    "seconds": float | None,
    "retry_of": int | None,
    "params": dict[str, float | str],
    "intermediate_values": dict[int, float],
}
"""What a study says of a trial."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of a sweep."""

    number: int
    state: State
    params: Mapping[str, Any]
    """What was tried, by path."""
    value: float | None
    """The objective, infinite where a target was not reached; None if it did not come to its end."""
    curve: Mapping[int, float]
    """What evaluations found on the way, by control steps, in the direction of the objective."""
    seconds: float | None
    """How long the training took."""
    reason: str
    """Why it failed."""
    is_own: bool
    """Whether it tried what the task has of its own."""
    retry_of: int | None
    """The killed trial that it tries again."""

    @property
    def has_value(self) -> bool:
        """Whether it came to a result that can be compared."""
        return self.value is not None and math.isfinite(self.value)


def best_of(trials: Sequence[Trial], objective: Objective) -> Trial | None:
    """The completed trial with the best objective, the first of several; None if no one has any."""
    best = None
    for trial in trials:
        if trial.state == "completed" and trial.has_value:
            assert trial.value is not None
            if best is None or best.value is None or objective.is_better(trial.value, best.value):
                best = trial
    return best


def create_study(path: Path, settings: SweepSettings, first: Mapping[str, Any] | None = None) -> optuna.Study:
    """Make a study in a directory, and open it.

    Its file gets its name when all is in it: a process that is killed before leaves none.

    Args:
        path: Directory of the sweep.
        settings: What is searched.
        first: Settings of the first trial, the task's own; None: the sampler draws it.
    """
    remove_leftovers(path)
    with replacing(path / STUDY_FILE) as file:
        storage = _storage(file)
        study = _optuna().create_study(study_name=_STUDY, storage=storage, direction=settings.goal.direction)
        study.set_user_attr(_SETTINGS, dataclasses.asdict(settings))
        if first is not None:
            study.enqueue_trial(dict(first), user_attrs={"own": True})
        storage.remove_session()
        storage.engine.dispose()
    return open_study(path)[1]


def open_study(path: Path) -> tuple[SweepSettings, optuna.Study]:
    """The study of a directory, with its settings."""
    file = path / STUDY_FILE
    if not file.is_file():
        raise UsageError(f"{path} has no {STUDY_FILE}: it is no directory of a sweep")
    library = _optuna()
    with refusing(file):
        storage = _storage(file)
        if not any(one.study_name == _STUDY for one in storage.get_all_studies()):
            raise UsageError(
                f"{file} is empty, since its sweep was killed at its beginning: delete it and start the sweep again"
            )
        study = library.load_study(study_name=_STUDY, storage=storage)
        found = expect(study.user_attrs.get(_SETTINGS), _KINDS, file)
        known = {name: found[name] for name in _KINDS if name in found}
        settings = SweepSettings(**{**known, "params": tuple(found["params"])})
        study.pruner = _pruner(settings)
        for trial in study.get_trials(deepcopy=False):
            expect(_told(trial), _OF_A_TRIAL, f"{file}: trial {trial.number}")
    return settings, study


def change_trials(study: optuna.Study, settings: SweepSettings, trials: int) -> SweepSettings:
    """Ask for another number of trials."""
    settings = dataclasses.replace(settings, trials=trials)
    study.set_user_attr(_SETTINGS, dataclasses.asdict(settings))
    return settings


def read_study(path: Path) -> tuple[SweepSettings, list[Trial]]:
    """What a sweep has found so far."""
    settings, study = open_study(path)
    return settings, trials_of(study)


def trials_of(study: optuna.Study) -> list[Trial]:
    """All trials, in their order."""
    return [_trial(one) for one in study.get_trials(deepcopy=False)]


def _told(found: optuna.trial.FrozenTrial) -> dict[str, Any]:
    """What a study says of a trial, by the names in `_OF_A_TRIAL`."""
    params = found.params or found.system_attrs.get("fixed_params", {})
    return {**found.user_attrs, "params": params, "intermediate_values": found.intermediate_values}


def _trial(found: optuna.trial.FrozenTrial) -> Trial:
    states: dict[str, State] = {
        "RUNNING": "running",
        "WAITING": "waiting",
        "COMPLETE": "completed",
        "PRUNED": "pruned",
        "FAIL": "failed" if "reason" in found.user_attrs else "killed",
    }
    state = states[found.state.name]
    return Trial(
        number=found.number,
        state=state,
        params=_told(found)["params"],
        value=found.value if state == "completed" else None,
        curve=dict(sorted(found.intermediate_values.items())),
        seconds=found.user_attrs.get("seconds"),
        reason=str(found.user_attrs.get("reason", "")),
        is_own=bool(found.user_attrs.get("own")),
        retry_of=found.user_attrs.get("retry_of"),
    )


def make_sampler(settings: SweepSettings, index: int) -> optuna.samplers.BaseSampler:
    """What chooses the next settings. Its random numbers depend on the seed and on how many trials there were, so that
    a sweep which was interrupted goes on with those it would have had."""
    library = _optuna()
    seed = (settings.seed * 1_000_003 + index) % 2**32
    if settings.sampler == "random":
        return library.samplers.RandomSampler(seed=seed)
    return library.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)


def _pruner(settings: SweepSettings) -> optuna.pruners.BasePruner:
    library = _optuna()
    if not settings.prune:
        return library.pruners.NopPruner()
    from genelab.rl.sweep.pruner import WorseThanHalf

    return WorseThanHalf(STARTUP)


def _storage(file: Path) -> Any:
    return _optuna().storages.RDBStorage(f"sqlite:///{file.absolute()}")


def _optuna() -> Any:
    library = need_library("optuna", "sweep")
    library.logging.set_verbosity(library.logging.ERROR)
    return library
