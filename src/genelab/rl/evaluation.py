"""What the episodes of an evaluation say, and how two evaluations differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError
from genelab.rl.episodes import Episode, Episodes
from genelab.rl.world import DEALT_CELLS
from genelab.scene import GeneratedTerrain
from genelab.statistics import mean_interval, share_interval, spread


class Cell(NamedTuple):
    """A cell of generated ground; cells sort by their columns."""

    column: int
    level: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Episodes of an evaluation: the first ones of all environments, then the second ones."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None
    """None if the task publishes no `is_success`."""
    places: list[int] = field(default_factory=list)
    """The place of each episode among all: its number × the environments, plus its environment."""
    cells: list[Cell] | None = None
    """The cell that each episode began on; None: the ground is not generated."""
    task_metrics: dict[str, float | None] = field(default_factory=dict)
    """Mean over the episodes of each metric of the task; None if it is no finite number."""
    rewards: dict[str, float] = field(default_factory=dict)
    """What each reward term contributed to the mean return."""
    terminations: dict[str, float] = field(default_factory=dict)
    """Share of the episodes that each termination ended; one may be ended by several."""

    @property
    def return_mean(self) -> float:
        """Mean return of the episodes."""
        return statistics.fmean(self.returns)

    @property
    def kinds(self) -> list[str] | None:
        """The kind of ground of each episode: the strata of the intervals."""
        return None if self.cells is None else [cell.kind for cell in self.cells]

    @property
    def identical(self) -> bool:
        """Whether several episodes are all the same one, so that they say nothing about others."""
        return len(self.returns) > 1 and not spread(self.returns) and not spread(self.lengths)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the spec's `metrics`, and the spread of lengths."""
        done = self.successes
        return {
            "return_mean": self.return_mean,
            "return_std": statistics.pstdev(self.returns),
            "length_mean": statistics.fmean(self.lengths),
            "length_std": statistics.pstdev(self.lengths),
            "success_rate": None if done is None else sum(done) / len(done),
        }

    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """Return the 95 % intervals of the means; None where nothing can be said."""
        done = None if self.identical else self.successes
        return {
            "return_ci95": mean_interval(self.returns, self.kinds),
            "length_ci95": mean_interval(self.lengths, self.kinds),
            "success_ci95": None if done is None else share_interval(sum(done), len(done)),
        }

    def by_ground(self) -> dict[str, Any] | None:
        """Return episodes, mean return and mean length on each kind and on each level of generated ground."""
        if self.cells is None:
            return None
        kinds = dict.fromkeys(cell.kind for cell in sorted(self.cells))
        levels = sorted({cell.level for cell in self.cells})
        return {
            "kinds": {kind: self._some([cell.kind == kind for cell in self.cells]) for kind in kinds},
            "levels": {str(level): self._some([cell.level == level for cell in self.cells]) for level in levels},
        }

    def _some(self, chosen: Sequence[bool]) -> dict[str, float]:
        return {
            "episodes": sum(chosen),
            "return_mean": statistics.fmean(compress(self.returns, chosen)),
            "length_mean": statistics.fmean(compress(self.lengths, chosen)),
        }


def difference(first: Evaluation, second: Evaluation) -> dict[str, Any]:
    """Return the second's means minus the first's, episode by episode, with 95 % intervals of the mean difference.

    Episodes are pairs where they have the same place: they begin alike, with the same commands. What both have in
    common falls out, so that the interval is narrower than those of the two means.
    """
    places = {place: i for i, place in enumerate(first.places)}
    pairs = [(places[place], j) for j, place in enumerate(second.places) if place in places]
    kinds = None if first.kinds is None else [first.kinds[i] for i, _ in pairs]
    both: dict[str, tuple[Sequence[float] | None, Sequence[float] | None]] = {
        "return_mean": (first.returns, second.returns),
        "length_mean": (first.lengths, second.lengths),
        "success_rate": (first.successes, second.successes),
    }
    result: dict[str, Any] = {"pairs": len(pairs)}
    for key, (before, after) in both.items():
        changes = (
            [float(after[j]) - float(before[i]) for i, j in pairs] if before is not None and after is not None else []
        )
        result[key] = statistics.fmean(changes) if changes else None
        result[f"{key.partition('_')[0]}_ci95"] = mean_interval(changes, kinds)
    return {**result, "task_metrics": _minus(first.task_metrics, second.task_metrics)}


def _minus(first: dict[str, float | None], second: dict[str, float | None]) -> dict[str, float | None]:
    both = {name: (first[name], second[name]) for name in first if name in second}
    return {name: None if a is None or b is None else b - a for name, (a, b) in both.items()}


def sum_up(env: ManagerBasedRlEnv, book: Episodes, episodes: int, names: Sequence[Sequence[str]]) -> Evaluation:
    """Return what came of the first episodes of a book.

    Args:
        env: The environment they were run in.
        book: The episodes.
        episodes: How many of them count.
        names: The metrics, rewards and terminations in their details.

    Raises:
        GenelabError: No episode ended, or returns are no finite numbers.
    """
    kept = book.first(episodes)
    if not kept:
        raise GenelabError("no episode ended in the steps allowed: raise `max_steps`")
    broken = sum(not math.isfinite(episode.total) for episode in kept)
    if broken:
        raise GenelabError(
            f"{broken} of {len(kept)} episodes have a return that is no finite number: the rewards are too large"
        )
    columns = torch.tensor([episode.details for episode in kept], dtype=torch.float64).T.contiguous()
    means = iter(columns.mean(dim=1).tolist())
    metrics, rewards, terminations = ({name: next(means) for name in each} for each in names)
    return Evaluation(
        returns=[episode.total for episode in kept],
        lengths=[episode.length for episode in kept],
        successes=[episode.success for episode in kept] if book.tells_success else None,
        places=[episode.number * env.num_envs + episode.environment for episode in kept],
        cells=dealt_cells(env, kept),
        task_metrics={name: value if math.isfinite(value) else None for name, value in metrics.items()},
        rewards=rewards,
        terminations=terminations,
    )


def dealt_cells(env: ManagerBasedRlEnv, episodes: Sequence[Episode]) -> list[Cell] | None:
    """Return the cell that each episode began on; None where the environment deals none."""
    term = env.curriculum_manager.terms.get(DEALT_CELLS)
    if term is None:
        return None
    terrain = env.scene.terrain
    assert isinstance(terrain, GeneratedTerrain)
    cells = term.instance.of([episode.number for episode in episodes], [episode.environment for episode in episodes])
    return [Cell(column, level, terrain.kind_names[column]) for level, column in cells.tolist()]
