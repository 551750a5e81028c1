"""Agent configs of rsl_rl. Importing this module imports neither torch nor the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from genelab.config import Amount, Count, Finite, Limit, NonNegative, Positive, Share, Widths
from genelab.config.bounds import Bounds, NotEmpty
from genelab.rl.backends.config import BackendConfig, check_parts

RslRlActivation = Literal[
    "elu", "selu", "relu", "crelu", "lrelu", "tanh", "sigmoid", "softplus", "gelu", "swish", "mish", "identity"
]


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
    final_std: Positive | None = None
    """Upper bound of the standard deviation in the end, which falls to it from the first one by a constant factor per
    iteration; None: the same bound all the time. Noise finds a gait; smoothness is learned with little of it."""


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
    """Mirror loss coefficient."""


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
    """Learning rate of Adam for the predictor."""


@dataclass(kw_only=True)
class RslRlPpoAlgorithmCfg:
    """Proximal policy optimisation."""

    num_learning_epochs: Count = 5
    """Learning epochs: passes over each batch."""
    num_mini_batches: Count = 4
    """Mini-batches: parts each batch is split into."""
    learning_rate: NonNegative = 1e-3
    """Learning rate of Adam, at the start."""
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """Learning rate schedule: adapt it to the KL divergence, or keep it."""
    desired_kl: Positive = 0.01
    """Desired KL divergence of an update, which the adaptive schedule aims at."""
    final_kl: Positive | None = None
    """KL divergence it aims at in the end, reached by a constant factor per iteration; None: the same all the time.
    Large strides find a gait, small ones make it steady."""
    gamma: Share = 0.99
    """Discount factor: what a reward is worth one control step later."""
    lam: Share = 0.95
    """λ of generalised advantage estimation (GAE)."""
    clip_param: Positive = 0.2
    """Clip range of the probability ratio: the largest relative change of an action\'s probability."""
    entropy_coef: Finite = 0.005
    """Entropy coefficient: the bonus for exploring."""
    value_loss_coef: NonNegative = 1.0
    """Value loss coefficient."""
    use_clipped_value_loss: bool = True
    """Clipped value loss: the value may not change by more than the clip range either."""
    max_grad_norm: Limit = 1.0
    """Gradient clipping: the largest norm."""
    symmetry_cfg: RslRlSymmetryCfg | None = None
    """Symmetry: learn from mirror images; None: do not."""
    use_mixed_precision: bool = False
    """Compute hidden layers in bfloat16, where the device does so in hardware: about twice as fast on a CPU that does.
    Weights, last layers, losses and whatever is saved have 32 bits."""
    rnd_cfg: RslRlRndCfg | None = None
    """Random network distillation: be curious; None: do not."""


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
        check_parts("agent.algorithm.num_mini_batches", self.algorithm.num_mini_batches, samples, what)

    def networks(self) -> dict[str, Sequence[int]]:
        return {"agent.actor.hidden_dims": self.actor.hidden_dims, "agent.critic.hidden_dims": self.critic.hidden_dims}

    def transitions(self, num_envs: int) -> dict[str, int]:
        return {"agent.num_steps_per_env": self.num_steps_per_env * num_envs}
