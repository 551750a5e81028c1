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
    """Passes over each batch."""
    num_minibatches: Count = 4
    """Parts each batch is split into."""
    learning_rate: NonNegative = 1e-3
    """Step size of Adam; where it adapts, the first one."""
    lr_schedule: Literal["adaptive", "fixed"] = "adaptive"
    """Adapt the policy's step size to the KL divergence, or keep it."""
    kl_threshold: NonNegative = 0.01
    """KL divergence the adaptive schedule aims at."""
    gamma: Share = 0.99
    """Discount."""
    tau: Share = 0.95
    """Decay of the generalised advantage estimate."""
    e_clip: Positive = 0.2
    """Largest relative change of an action's probability."""
    entropy_coef: Finite = 0.005
    """Price of the entropy."""
    critic_coef: NonNegative = 2.0
    """Price of half the squared value error, where actor and critic see the same; else they learn apart."""
    grad_norm: Limit = 1.0
    """Gradients are cut to this norm."""
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
