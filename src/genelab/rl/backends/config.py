"""What every agent config has. Importing this module imports neither torch nor an RL library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from genelab.config import Count, Seed, check_memory, check_values
from genelab.errors import ConfigError


@dataclass(kw_only=True)
class BackendConfig:
    """What every agent config has."""

    seed: Seed = 42
    """Seed of networks, exploration and environment."""
    experiment_name: str = ""
    """Free text that goes into the run's record."""
    save_interval: Count = 50
    """Iterations between checkpoints."""

    def validate(self) -> None:
        """Refuse what no learner can be made of."""
        check_values(self, "agent")
        for path, dims in self.networks().items():
            check_memory(path, list(dims), 4.0 * sum(a * b for a, b in pairwise((1, *dims))))

    def validate_rollouts(self, num_envs: int, width: int = 1) -> None:
        """Refuse what cannot learn from so many environments.

        `width` is how many numbers a transition has, observations and actions: at least one, as long as there is no
        environment to ask.
        """
        for path, transitions in self.transitions(num_envs).items():
            check_memory(path, f"{transitions:,} transitions", 4.0 * width * transitions)

    def networks(self) -> dict[str, Sequence[int]]:
        """Widths of the hidden layers, by the path of the setting."""
        return {}

    def transitions(self, num_envs: int) -> dict[str, int]:
        """How many transitions are kept at a time, by the path of the setting that says so."""
        return {}


def check_parts(path: str, parts: int, samples: int, what: str = "samples of an iteration") -> None:
    """Refuse to split what an iteration collects into more parts than it has samples."""
    if parts > samples:
        raise ConfigError(f"{path}: {parts:,} parts cannot be made of {samples:,} {what}")
