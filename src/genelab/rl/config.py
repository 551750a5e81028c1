"""Agent configs. The type of a task's agent config chooses the RL library that trains it.

Importing this module imports neither torch nor an RL library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal

from genelab.config import (
    Amount,
    Count,
    Finite,
    Limit,
    NonNegative,
    Override,
    Positive,
    Seed,
    Share,
    Widths,
    apply_overrides,
    check_memory,
    check_values,
)
from genelab.config.bounds import Bounds, NotEmpty
from genelab.errors import ConfigError

RslRlActivation = Literal[
    "elu", "selu", "relu", "crelu", "lrelu", "tanh", "sigmoid", "softplus", "gelu", "swish", "mish", "identity"
]


def configure(env: Any, agent: Any, overrides: Iterable[Override] = (), *, learns: bool = False) -> None:
    """Apply overrides to the configs of a task, and refuse what no run could be made of; a task may have no agent."""
    apply_overrides({"env": env} if agent is None else {"env": env, "agent": agent}, overrides)
    env.validate()
    if isinstance(agent, BackendConfig):
        agent.validate()
        if learns:
            agent.validate_rollouts(env.scene.num_envs)


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


@dataclass(kw_only=True)
class RslRlDistributionCfg:
    """Distribution of the actions."""

    class_name: Literal["GaussianDistribution", "HeteroscedasticGaussianDistribution"] = "GaussianDistribution"
    """Standard deviation as a parameter, or as an output of the network."""
    init_std: Positive = 1.0
    """Standard deviation at the start."""
    std_type: Literal["scalar", "log"] = "scalar"
    """How the standard deviation is stored."""
    std_range: tuple[Positive, Positive] = (1e-6, 1e6)
    """Bounds of the standard deviation."""


@dataclass(kw_only=True)
class RslRlModelCfg:
    """A network."""

    hidden_dims: Widths = (128, 128)
    """Widths of the hidden layers."""
    activation: RslRlActivation = "elu"
    """Non-linearity between them."""
    obs_normalization: bool = True
    """Normalise observations by their running mean and standard deviation."""
    distribution: RslRlDistributionCfg | None = None
    """For an actor: how actions are drawn. None for a critic."""
    rnn_type: Literal["lstm", "gru"] | None = None
    """Puts a recurrent layer before the network; None: no memory."""
    rnn_hidden_dim: Count = 256
    """Width of the recurrent layer."""
    rnn_num_layers: Count = 1
    """Depth of the recurrent layer."""
    rnn_memory_steps: Annotated[int, Bounds(3, 2**31)] | None = None
    """Control steps over which the recurrent layer remembers before it has learned anything, by the biases of its gates
    (chrono initialisation); None: those of torch, which forget half with every step."""


@dataclass(kw_only=True)
class RslRlSymmetryCfg:
    """What a robot learns on one side it learns for the other. Networks with memory have to be `equivariant`."""

    data_augmentation_func: Callable[..., Any]
    """`(env, obs, actions) -> (obs, actions)`, called by these names: the given batch with its mirror images below it.

    `env.unwrapped` is the task, `obs` a TensorDict by group. Either of obs and actions may be None and stays so.
    """
    use_data_augmentation: bool = True
    """Learn from the mirror images too."""
    equivariant: bool = False
    """Instead, tie the weights so that mirrored observations give mirrored actions: what mirror images teach, without
    their cost. Hidden layers need an even number of units."""
    use_mirror_loss: bool = False
    """Punish actions that are not mirrored where the observations are."""
    mirror_loss_coeff: Finite = 0.0
    """Price of that."""


@dataclass(kw_only=True)
class RslRlRndScheduleCfg:
    """How the weight of the intrinsic reward changes, over control steps."""

    mode: Literal["step", "linear"] = "linear"
    """All at once at the final step, or evenly between the initial and the final step."""
    initial_step: Amount = 0
    """Control step up to which the weight stays (linear)."""
    final_step: Amount
    """Control step from which the weight is the final one."""
    final_value: Finite = 0.0
    """Weight at the end."""


@dataclass(kw_only=True)
class RslRlRndCfg:
    """Random network distillation: a reward for what was not seen before.

    The observation group `rnd_state`, if the task has one, says what counts as seen; `policy` otherwise.
    """

    weight: Finite
    """Reward per second and unit of surprise."""
    weight_schedule: RslRlRndScheduleCfg | None = None
    """None: the weight stays."""
    num_outputs: Count = 1
    """Outputs of the fixed random network, which the predictor learns."""
    predictor_hidden_dims: Annotated[tuple[Literal[-1] | Count, ...], NotEmpty()] = (-1,)
    """Widths of the predictor's hidden layers; −1: that of the observation."""
    target_hidden_dims: Annotated[tuple[Literal[-1] | Count, ...], NotEmpty()] = (-1,)
    """Widths of the fixed network's hidden layers."""
    activation: RslRlActivation = "elu"
    """Non-linearity between them."""
    state_normalization: bool = False
    """Normalise what is seen by its running mean and standard deviation."""
    reward_normalization: bool = False
    """Divide the surprise by the running standard deviation of its discounted sum."""
    learning_rate: NonNegative = 1e-3
    """Step size of Adam for the predictor."""


@dataclass(kw_only=True)
class RslRlPpoAlgorithmCfg:
    """Proximal policy optimisation."""

    num_learning_epochs: Count = 5
    """Passes over each batch."""
    num_mini_batches: Count = 4
    """Parts each batch is split into."""
    learning_rate: NonNegative = 1e-3
    """Initial step size of Adam."""
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """Adapt the step size to the KL divergence, or keep it."""
    desired_kl: Positive = 0.01
    """KL divergence the adaptive schedule aims at."""
    final_kl: Positive | None = None
    """KL divergence it aims at in the end, reached by a constant factor per iteration; None: the same all the time.
    Large strides find a gait, small ones make it steady."""
    gamma: Share = 0.99
    """Discount."""
    lam: Share = 0.95
    """Decay of the generalised advantage estimate."""
    clip_param: Positive = 0.2
    """Largest relative change of an action's probability."""
    entropy_coef: Finite = 0.005
    """Price of the entropy."""
    value_loss_coef: NonNegative = 1.0
    """Price of the value error."""
    use_clipped_value_loss: bool = True
    """Clip the change of the value, too."""
    max_grad_norm: Limit = 1.0
    """Gradients are cut to this norm."""
    symmetry_cfg: RslRlSymmetryCfg | None = None
    """Learn from mirror images; None: do not."""
    use_mixed_precision: bool = False
    """Compute hidden layers in bfloat16, where the device does so in hardware: about twice as fast on a CPU that does.
    Weights, last layers, losses and whatever is saved have 32 bits."""
    rnd_cfg: RslRlRndCfg | None = None
    """Be curious; None: do not."""


@dataclass(kw_only=True)
class RslRlOnPolicyRunnerCfg(BackendConfig):
    """Trains with rsl_rl's PPO."""

    num_steps_per_env: Count = 24
    """Control steps of each environment per iteration."""
    max_iterations: Count
    """Iterations of collecting and learning."""
    random_episode_ages: bool = True
    """Begin in the middle of episodes, so that they do not all time out together. Off where an iteration is one
    episode: then it holds the whole of what a network with memory has to learn from."""
    clip_actions: Limit | None = 100.0
    """Actions are cut to ± this before the environment sees them."""
    actor: RslRlModelCfg = field(default_factory=lambda: RslRlModelCfg(distribution=RslRlDistributionCfg()))
    """The policy network."""
    critic: RslRlModelCfg = field(default_factory=RslRlModelCfg)
    """The value network."""
    algorithm: RslRlPpoAlgorithmCfg = field(default_factory=RslRlPpoAlgorithmCfg)
    """How they learn."""

    def validate_rollouts(self, num_envs: int, width: int = 1) -> None:
        super().validate_rollouts(num_envs, width)
        recurrent = self.actor.rnn_type is not None or self.critic.rnn_type is not None
        samples = num_envs if recurrent else self.num_steps_per_env * num_envs
        what = (
            "environments (a network with memory takes their rollouts whole)"
            if recurrent
            else "samples of an iteration"
        )
        _check_parts("agent.algorithm.num_mini_batches", self.algorithm.num_mini_batches, samples, what)

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.actor.hidden_dims": self.actor.hidden_dims, "agent.critic.hidden_dims": self.critic.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        return {"agent.num_steps_per_env": self.num_steps_per_env * num_envs}


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
    """Step size of Adam; where it adapts, the first one."""
    discount_factor: Share = 0.99
    """Discount."""

    learning_epochs: Count = 5
    """Passes over each rollout (PPO)."""
    mini_batches: Count = 4
    """Parts each rollout is split into (on-policy)."""
    gae_lambda: Share = 0.95
    """Decay of the generalised advantage estimate (on-policy)."""
    kl_threshold: NonNegative = 0.01
    """KL divergence that the step size adapts to; 0: it stays (PPO)."""
    ratio_clip: Positive = 0.2
    """Largest relative change of an action's probability (PPO)."""
    entropy_loss_scale: Finite = 0.005
    """Price of the entropy (on-policy)."""
    value_loss_scale: NonNegative = 1.0
    """Price of the value error (PPO)."""
    grad_norm_clip: NonNegative = 1.0
    """Gradients are cut to this norm (on-policy)."""
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
    """Share of the networks that goes into the target networks with each update (off-policy).

    Many environments make few updates; with less than this their values do not look far enough ahead.
    """
    entropy_coefficient: NonNegative = 0.2
    """Price of the entropy, at the start if it is learned (SAC)."""
    learn_entropy: bool = True
    """Adapt the price of the entropy to the target (SAC)."""
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
            _check_parts("agent.mini_batches", self.mini_batches, self.rollouts * num_envs)

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.hidden_dims": self.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        if self.is_on_policy:
            return {"agent.rollouts": self.rollouts * num_envs}
        return {"agent.memory_size": min(self.memory_size, self.timesteps * num_envs)}


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
        _check_parts("agent.num_minibatches", self.num_minibatches, self.horizon_length * num_envs)

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.hidden_dims": self.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        return {"agent.horizon_length": self.horizon_length * num_envs}


@dataclass(kw_only=True)
class Sb3OnPolicyCfg:
    """What PPO and A2C have besides."""

    n_steps: Count = 24
    """Control steps of each environment per iteration."""
    n_epochs: Count = 5
    """Passes over each batch (PPO)."""
    batch_size: Annotated[int, Bounds(2, 2**31)] | None = None
    """Samples per gradient step (PPO); None: a quarter of what an iteration collects."""
    gae_lambda: Share = 0.95
    """Decay of the generalised advantage estimate."""
    clip_range: Positive = 0.2
    """Largest relative change of an action's probability (PPO)."""
    ent_coef: Finite = 0.005
    """Price of the entropy."""
    vf_coef: NonNegative = 1.0
    """Price of the value error."""
    max_grad_norm: Limit = 1.0
    """Gradients are cut to this norm."""
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
    """How far the target networks follow in each gradient step."""
    ent_coef: Literal["auto"] | NonNegative = "auto"
    """Price of the entropy (SAC); `auto` adapts it."""
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
    """Step size of the optimizers."""
    gamma: Share = 0.99
    """Discount."""
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

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.hidden_dims": self.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        if self.is_on_policy:
            return {"agent.on_policy.n_steps": self.on_policy.n_steps * num_envs}
        return {"agent.off_policy.buffer_size": min(self.off_policy.buffer_size, self.timesteps)}


def _check_parts(path: str, parts: int, samples: int, what: str = "samples of an iteration") -> None:
    if parts > samples:
        raise ConfigError(f"{path}: {parts:,} parts cannot be made of {samples:,} {what}")
