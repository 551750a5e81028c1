"""Agent configs of Stable-Baselines3. Importing this module imports neither torch nor the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from genelab.config import Amount, Count, Finite, Limit, NonNegative, Positive, Share, Widths
from genelab.config.bounds import Bounds
from genelab.rl.backends.config import BackendConfig


@dataclass(kw_only=True)
class Sb3OnPolicyCfg:
    """What PPO and A2C have besides."""

    n_steps: Count = 24
    """Control steps of each environment per iteration."""
    n_epochs: Count = 5
    """Learning epochs: passes over each batch (PPO)."""
    batch_size: Annotated[int, Bounds(2, 2**31)] | None = None
    """Samples per gradient step (PPO); None: a quarter of what an iteration collects."""
    gae_lambda: Share = 0.95
    """λ of generalised advantage estimation (GAE)."""
    clip_range: Positive = 0.2
    """Clip range of the probability ratio: the largest relative change of an action\'s probability (PPO)."""
    ent_coef: Finite = 0.005
    """Entropy coefficient: the bonus for exploring."""
    vf_coef: NonNegative = 1.0
    """Value loss coefficient."""
    max_grad_norm: Limit = 1.0
    """Gradient clipping: the largest norm."""
    init_std: Positive = 1.0
    """Standard deviation of the actions at the start."""


@dataclass(kw_only=True)
class Sb3OffPolicyCfg:
    """What SAC, TD3 and DDPG have besides."""

    buffer_size: Count = 1_000_000
    """Transitions that the replay buffer holds, of all environments together."""
    batch_size: Count = 256
    """Transitions per gradient step."""
    learning_starts: Amount = 1000
    """Environment steps with random actions before learning begins."""
    train_freq: Count = 1
    """Control steps of each environment between two rounds of learning."""
    gradient_steps: Literal[-1] | Count = 4
    """Gradient steps per round; −1: as many as environment steps were made since the last one."""
    tau: Share = 0.02
    """Polyak averaging: how far the target networks follow in each gradient step."""
    ent_coef: Literal["auto"] | NonNegative = "auto"
    """Entropy coefficient (SAC); `auto` adapts it."""
    init_ent_coef: Positive = 0.01
    """Where `auto` starts: small, as the rewards of a control step are."""
    action_noise: NonNegative | None = None
    """Standard deviation of the noise on explored actions; None: 0.1 for TD3 and DDPG, no noise for SAC."""
    iteration_steps: Count = 50
    """Control steps of each environment that count as one iteration: for progress, evaluation and checkpoints."""


@dataclass(kw_only=True)
class Sb3HerCfg:
    """Hindsight experience replay: what was reached is learned from as if it had been the goal.

    The task needs the observation groups `observation`, `achieved_goal` and `desired_goal`.
    """

    compute_reward: Callable[..., Any]
    """The task's reward `(achieved, desired, infos) -> rewards` of numpy arrays with one row per transition."""
    n_sampled_goal: Amount = 4
    """Relabelled transitions for each real one."""
    goal_selection_strategy: Literal["future", "final", "episode"] = "future"
    """Where in the episode the new goal is taken from."""


@dataclass(kw_only=True)
class Sb3AgentCfg(BackendConfig):
    """Trains with Stable-Baselines3."""

    algorithm: Literal["PPO", "A2C", "SAC", "TD3", "DDPG"] = "PPO"
    """Which algorithm."""
    timesteps: Count
    """Environment steps of all environments together."""
    hidden_dims: Widths = (128, 128)
    """Widths of the hidden layers of all networks."""
    activation: Literal["elu", "relu", "tanh", "silu", "leaky_relu"] = "elu"
    """Non-linearity between them."""
    learning_rate: NonNegative = 1e-3
    """Learning rate of the optimizers."""
    gamma: Share = 0.99
    """Discount factor: what a reward is worth one control step later."""
    action_bound: Positive = 1.0
    """Actions lie within ± this."""
    obs_normalization: bool | None = None
    """Normalise observations by their running mean and standard deviation; None: for PPO and A2C only."""
    on_policy: Sb3OnPolicyCfg = field(default_factory=Sb3OnPolicyCfg)
    """For PPO and A2C."""
    off_policy: Sb3OffPolicyCfg = field(default_factory=Sb3OffPolicyCfg)
    """For SAC, TD3 and DDPG."""
    her: Sb3HerCfg | None = None
    """Hindsight experience replay, for SAC, TD3 and DDPG."""
    demo_path: str | None = None
    """Demonstrations (NPZ) to fill the replay buffer with; the variable GENELAB_SB3_DEMO_PATH overrides it."""

    @property
    def is_on_policy(self) -> bool:
        """Whether the algorithm learns only from what it has just done."""
        return self.algorithm in ("PPO", "A2C")

    @property
    def steps_per_iteration(self) -> int:
        """Control steps of each environment that count as one iteration."""
        return self.on_policy.n_steps if self.is_on_policy else self.off_policy.iteration_steps

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.hidden_dims": self.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        if self.is_on_policy:
            return {"agent.on_policy.n_steps": self.on_policy.n_steps * num_envs}
        return {"agent.off_policy.buffer_size": min(self.off_policy.buffer_size, self.timesteps)}
