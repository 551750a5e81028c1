"""What an RL library has to offer to be a backend.

A backend owns the algorithm, and says what only its library can know: what its budget counts, what an iteration spends
of it, which agent it has by default, whether it runs on several ranks and whether it reads the last observations of
episodes. Everything around it (the environment, the run directory, logs, checkpoints, evaluation, interruption) is the
lab's and the same for all. `genelab.rl.backends.registry` says how to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import gymnasium
import torch
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.config import BackendConfig
from genelab.rl.backends.registry import register_backend, select_backend
from genelab.rl.checkpoint import schema_of

if TYPE_CHECKING:
    from genelab.rl.monitor import TrainMonitor

__all__ = [
    "Actor",
    "Backend",
    "FlatPolicy",
    "InferenceSetup",
    "Learner",
    "Memory",
    "Observations",
    "TrainContext",
    "group_spaces",
    "in_32_bits",
    "register_backend",
    "select_backend",
]

Observations = dict[str, Tensor]
Cfg = TypeVar("Cfg", bound=BackendConfig)
"""The type of a library's agent configs."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The recurrent state of an actor."""

    rnn_type: Literal["lstm", "gru"]
    num_layers: int
    hidden_dim: int


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A deterministic policy as one network that can be written to a file."""

    network: nn.Module
    """From the groups' observations side by side, `(N, obs_dim)`, to the actions that the environment gets.

    With memory, from `(obs, h)` to `(actions, h)`, for an LSTM from `(obs, h, c)` to `(actions, h, c)`; the state has
    the shape `(num_layers, N, hidden_dim)`.
    """
    algorithm: str
    """What trained it, PPO for one."""
    normalizes: bool
    """Whether a learned normaliser is inside."""
    action_range: tuple[float, float] | None
    """Bounds of its output; None: it has none."""
    groups: tuple[str, ...] = ("policy",)
    """The observation groups it sees, in their order."""
    memory: Memory | None = None


class FlatPolicy(nn.Module):
    """A policy of observation groups, as a network that takes them side by side."""

    def __init__(self, policy: Callable[[Observations], Tensor], widths: Mapping[str, int], *parts: nn.Module) -> None:
        super().__init__()
        self._policy = policy
        self._widths = dict(widths)
        self.parts = nn.ModuleList(parts)  # what the policy acts with

    def forward(self, obs: Tensor) -> Tensor:
        columns = obs.split(list(self._widths.values()), dim=1)
        return self._policy(dict(zip(self._widths, columns, strict=True)))


@dataclass(kw_only=True)
class InferenceSetup:
    """A policy ready to act: what play, eval and export use, whatever library made it."""

    policy: Callable[[Observations], Tensor]
    """From observations by group to actions `(num_envs, action_dim)`."""
    reset: Callable[[Tensor | None], None] = lambda dones: None
    """Forget the recurrent state of the environments that ended, a boolean `(num_envs,)`; None: of all."""
    actor: Actor | None = None
    """The same policy for export, if it is deterministic and its library can."""


class Learner(ABC):
    """The live learner during training, as the monitor sees it."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write a checkpoint that `Backend.load` reads."""

    @abstractmethod
    def inference(self) -> InferenceSetup:
        """The policy as it is now, deterministic. Acting with it changes nothing in the learner."""

    def state(self) -> dict[str, Any]:
        """What a resumed run needs beyond the checkpoint."""
        return {}

    def weights(self) -> Mapping[str, Tensor]:
        """Its networks' numbers by name, which are looked at after each iteration: learning ends if one is none."""
        return {}


def in_32_bits(observations: Observations) -> Observations:
    """What a network takes, whatever the precision of the physics is."""
    return {name: value.float() for name, value in observations.items()}


@dataclass(kw_only=True)
class TrainContext(Generic[Cfg]):
    """What a backend gets to train with."""

    task_id: str
    env: ManagerBasedRlEnv
    agent: Cfg
    """The task's agent config, of the backend's own type."""
    backend: str
    """The backend's name."""
    budget: int
    """How much to train, in the backend's unit."""
    monitor: TrainMonitor
    """To be told of every iteration."""
    checkpoint: Path | None = None
    """Weights to start from."""
    resume: dict[str, Any] | None = None
    """State of an interrupted run to go on with, as `Learner.state` gave it."""
    on_ready: Callable[[], None] = lambda: None
    """To be called when the learner is complete, just before it starts: puts an interrupted run's state back."""
    notify: Callable[[str], None] = lambda message: None
    """Takes remarks to the user."""

    def stagger_episodes(self) -> None:
        """Give the environments' first episodes random ages, so that they do not all time out together."""
        ages = self.env.episode_length_buf
        self.env.episode_length_buf = torch.randint_like(ages, self.env.max_episode_length)

    def meta(self) -> dict[str, Any]:
        """What a checkpoint says about itself under `genelab`, by which it is checked when it is read."""
        return {"backend": self.backend, "task": self.task_id, "schema": schema_of(self.env)}


class Backend(ABC, Generic[Cfg]):
    """An RL library, whose agent configs are of the type `Cfg`."""

    name: ClassVar[str]
    """What users type, and the log directory: `logs/<name>/`."""
    suffix: ClassVar[str] = ".pt"
    """Suffix of its checkpoints."""
    final_name: ClassVar[str] = "model_final"
    """Name, without suffix, of the checkpoint at the end of a run."""
    unit: ClassVar[Literal["iterations", "timesteps"]] = "iterations"
    """What its budget counts."""
    distributed: ClassVar[bool] = False
    """Whether it trains on several ranks, which it keeps at the same weights."""
    reads_final_obs: ClassVar[bool] = True
    """Whether it reads `info["final_obs"]`, the last observations of episodes that ended. If not, training computes
    none, and its steps are cheaper."""

    @abstractmethod
    def default_agent(self) -> Cfg:
        """An agent config with the library's defaults, for a task that brings none; its budget is set afterwards."""

    @abstractmethod
    def budget(self, agent: Cfg) -> int:
        """The budget the agent config asks for."""

    @abstractmethod
    def set_budget(self, agent: Cfg, budget: int) -> None:
        """Write another budget into the agent config."""

    def budget_per_iteration(self, agent: Cfg, num_envs: int) -> int:
        """What an iteration spends of the budget, in its unit."""
        if self.unit == "iterations":
            return 1
        raise NotImplementedError(
            f"{type(self).__name__} counts {self.unit}, and does not say how many an iteration has"
        )

    def control_steps(self, agent: Cfg, num_envs: int) -> int | None:
        """Return how many control steps each environment makes in the budget; None if the library cannot tell."""
        return None

    def algorithm(self, agent: Cfg) -> str | None:
        """The algorithm that the agent config asks for; None if it does not say."""
        name = getattr(agent, "algorithm", None)
        return name if isinstance(name, str) else None

    def settle(self, agent: Cfg) -> None:
        """Write into the agent config what else decides, before it is kept: environment variables."""

    @abstractmethod
    def train(self, context: TrainContext[Cfg]) -> None:
        """Train until the budget is spent; the monitor may stop it by an exception."""

    @abstractmethod
    def load(
        self, env: ManagerBasedRlEnv, agent: Cfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        """The policy of a checkpoint, for an environment."""


def group_spaces(env: ManagerBasedRlEnv) -> dict[str, gymnasium.Space[Any]]:
    """What is seen in one environment, by group."""
    assert isinstance(env.single_observation_space, gymnasium.spaces.Dict)
    return env.single_observation_space.spaces
