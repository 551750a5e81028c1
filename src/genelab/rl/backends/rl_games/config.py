"""Agent config of rl_games. Importing this module imports neither torch nor the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from genelab.config import Count, Finite, Limit, NonNegative, Positive, Share, Widths
from genelab.rl.backends.config import BackendConfig, check_parts


@dataclass(kw_only=True)
class RlGamesAgentCfg(BackendConfig):
    """Trains with rl_games' PPO."""

    timesteps: Count
    """Control steps of the vectorised environment; the last horizon is completed."""
    horizon_length: Count = 24
    """Control steps per iteration."""
    mini_epochs: Count = 5
    """Learning epochs: passes over each batch."""
    num_minibatches: Count = 4
    """Mini-batches: parts each batch is split into."""
    learning_rate: NonNegative = 1e-3
    """Learning rate of Adam; where it adapts, the first one."""
    lr_schedule: Literal["adaptive", "fixed"] = "adaptive"
    """Learning rate schedule of the policy: adapt it to the KL divergence, or keep it."""
    kl_threshold: NonNegative = 0.01
    """Desired KL divergence of an update, which the adaptive schedule aims at."""
    gamma: Share = 0.99
    """Discount factor: what a reward is worth one control step later."""
    tau: Share = 0.95
    """λ of generalised advantage estimation (GAE)."""
    e_clip: Positive = 0.2
    """Clip range of the probability ratio: the largest relative change of an action\'s probability."""
    entropy_coef: Finite = 0.005
    """Entropy coefficient: the bonus for exploring."""
    critic_coef: NonNegative = 2.0
    """Value loss coefficient, of half the squared error, where actor and critic see the same; else they learn apart."""
    grad_norm: Limit = 1.0
    """Gradient clipping: the largest norm."""
    hidden_dims: Widths = (128, 128)
    """Widths of the hidden layers of actor and critic."""
    activation: Literal["elu", "gelu", "relu", "selu", "swish", "tanh"] = "elu"
    """Non-linearity between them."""
    initial_std: Positive = 1.0
    """Standard deviation of the actions at the start."""
    normalize_input: bool = True
    """Normalise observations by their running mean and standard deviation."""
    normalize_value: bool = True
    """Normalise values by their running mean and standard deviation."""

    def validate_rollouts(self, num_envs: int, width: int = 1) -> None:
        super().validate_rollouts(num_envs, width)
        check_parts("agent.num_minibatches", self.num_minibatches, self.horizon_length * num_envs)

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.hidden_dims": self.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        return {"agent.horizon_length": self.horizon_length * num_envs}
