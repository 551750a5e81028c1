"""Agent config of skrl. Importing this module imports neither torch nor the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from genelab.config import Amount, Count, Finite, NonNegative, Positive, Share, Widths
from genelab.rl.backends.config import BackendConfig, check_parts


@dataclass(kw_only=True)
class SkrlAgentCfg(BackendConfig):
    """Trains with skrl. PPO and A2C learn on-policy, from each rollout once; SAC, TD3 and DDPG from a memory."""

    algorithm: Literal["PPO", "A2C", "SAC", "TD3", "DDPG"] = "PPO"
    """Which algorithm."""
    timesteps: Count
    """Control steps of the vectorised environment."""
    rollouts: Count = 24
    """Control steps per iteration; on-policy, also per update."""
    hidden_dims: Widths = (128, 128)
    """Widths of the hidden layers of all networks."""
    activation: Literal["elu", "gelu", "leaky_relu", "relu", "selu", "silu", "tanh"] = "elu"
    """Non-linearity between them."""
    normalize_observations: bool = True
    """Normalise observations by their running mean and standard deviation."""
    learning_rate: NonNegative = 1e-3
    """Learning rate of Adam; where it adapts, the first one."""
    discount_factor: Share = 0.99
    """Discount factor: what a reward is worth one control step later."""

    learning_epochs: Count = 5
    """Learning epochs: passes over each rollout (PPO)."""
    mini_batches: Count = 4
    """Mini-batches: parts each rollout is split into (on-policy)."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation (GAE) (on-policy)."""
    kl_threshold: NonNegative = 0.01
    """Desired KL divergence of an update, which the learning rate adapts to; 0: it stays (PPO)."""
    ratio_clip: Positive = 0.2
    """Clip range of the probability ratio: the largest relative change of an action\'s probability (PPO)."""
    entropy_loss_scale: Finite = 0.005
    """Entropy coefficient: the bonus for exploring (on-policy)."""
    value_loss_scale: NonNegative = 1.0
    """Value loss coefficient (PPO)."""
    grad_norm_clip: NonNegative = 1.0
    """Gradient clipping: the largest norm (on-policy)."""
    initial_std: Positive = 1.0
    """Standard deviation of the actions at the start (on-policy)."""
    normalize_values: bool = True
    """Normalise values by their running mean and standard deviation (on-policy)."""

    batch_size: Count = 256
    """Transitions per gradient step (off-policy)."""
    memory_size: Count = 200_000
    """Transitions to remember, of all environments together (off-policy)."""
    learning_starts: Amount = 50
    """Control steps of random actions before learning starts (off-policy)."""
    gradient_steps: Count = 1
    """Gradient steps per control step (off-policy)."""
    polyak: Share = 0.05
    """Polyak averaging: share of the networks that goes into the target networks with each update (off-policy).

    Many environments make few updates; with less than this their values do not look far enough ahead.
    """
    entropy_coefficient: NonNegative = 0.2
    """Entropy coefficient, at the start if it is learned (SAC)."""
    learn_entropy: bool = True
    """Adapt the entropy coefficient to the target entropy (SAC)."""
    target_entropy: Finite | None = None
    """Entropy to aim at; None: minus the number of actions (SAC)."""
    exploration_noise: NonNegative = 0.4
    """Standard deviation of the noise on the actions while collecting (TD3, DDPG)."""
    target_noise: NonNegative = 0.2
    """Standard deviation of the noise on the target actions, cut at ± 0.5 (TD3)."""
    policy_delay: Count = 2
    """Updates of the critics per update of the policy (TD3)."""

    @property
    def is_on_policy(self) -> bool:
        """Whether the algorithm learns only from what it has just done."""
        return self.algorithm in ("PPO", "A2C")

    def validate_rollouts(self, num_envs: int, width: int = 1) -> None:
        super().validate_rollouts(num_envs, width)
        if self.is_on_policy:
            check_parts("agent.mini_batches", self.mini_batches, self.rollouts * num_envs)

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.hidden_dims": self.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        if self.is_on_policy:
            return {"agent.rollouts": self.rollouts * num_envs}
        return {"agent.memory_size": min(self.memory_size, self.timesteps * num_envs)}
