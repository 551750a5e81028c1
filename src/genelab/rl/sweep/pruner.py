"""What ends a hopeless trial. Imports Optuna: it is imported when a study is opened."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState


class WorseThanHalf(BasePruner):
    """Stops a trial whose best evaluation is worse than the best that half of the completed ones had by then.

    By then is after so many control steps. Optuna's median pruner looks only at trials that were evaluated at the same
    moment; here one that was over by then, since it had reached its target, counts with what it reached.
    """

    def __init__(self, startup: int) -> None:
        self._startup = startup
        """Trials that are completed before one is stopped."""

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to stop a trial now."""
        step, more = trial.last_step, study.direction == StudyDirection.MAXIMIZE
        if step is None:
            return False
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        others = [one for other in done if (one := _best_by(other.intermediate_values, step, more)) is not None]
        own = _best_by(trial.intermediate_values, step, more)
        if own is None or len(others) < self._startup:
            return False
        middle = statistics.median(others)
        return own < middle if more else own > middle


def _best_by(curve: Mapping[int, float], step: int, more: bool) -> float | None:
    """The best that a trial had found by then."""
    known = [value for at, value in curve.items() if at <= step and not math.isnan(value)]
    return None if not known else max(known) if more else min(known)
