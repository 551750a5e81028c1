"""Networks for skrl's agents. The actor sees the group `policy`, the critic `critic` if there is one."""

from __future__ import annotations

import math
from typing import Any

import torch
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv
from genelab.rl.backends.base import Actor, FlatPolicy, InferenceSetup, Observations, group_spaces
from genelab.rl.backends.skrl.config import SkrlAgentCfg

ON_POLICY = ("PPO", "A2C")
CRITICS = {"PPO": (), "A2C": (), "SAC": ("critic_1", "critic_2"), "TD3": ("critic_1", "critic_2"), "DDPG": ("critic",)}
ACTIVATIONS = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}
MAX_ACTION = 100.0
"""Actions of the on-policy algorithms are cut to ± this before the environment sees them."""


class _Network(Model):
    """A multi-layer perceptron with the spaces of a task."""

    def __init__(self, env: ManagerBasedRlEnv, cfg: SkrlAgentCfg, inputs: int, outputs: int) -> None:
        super().__init__(
            observation_space=group_spaces(env)["policy"],
            state_space=group_spaces(env).get("critic"),
            action_space=env.single_action_space,
            device=env.device,
        )
        widths = (inputs, *cfg.hidden_dims)
        layers: list[nn.Module] = []
        for width, following in zip(widths, cfg.hidden_dims, strict=False):
            layers += [nn.Linear(width, following), ACTIVATIONS[cfg.activation]()]
        self.net = nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def random_act(self, inputs: dict[str, Any], *, role: str = "") -> tuple[Tensor, dict[str, Any]]:
        """Uniform actions, drawn by torch: skrl's own depend on a seed that is never set."""
        count = len(inputs["observations"])
        return torch.rand(count, self.num_actions, device=self.device) * 2 - 1, {}


class _GaussianPolicy(GaussianMixin, _Network):
    """Actions without bounds, and one standard deviation for each."""

    def __init__(self, env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> None:
        _Network.__init__(self, env, cfg, env.observation_manager.groups["policy"].dim, env.action_dim)
        GaussianMixin.__init__(self)
        self.log_std = nn.Parameter(torch.full((env.action_dim,), math.log(cfg.initial_std)))

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        return self.net(inputs["observations"]), {"log_std": self.log_std}

    def mode(self, observations: Tensor) -> Tensor:
        return self.net(observations).clamp(-MAX_ACTION, MAX_ACTION)

    def sample(self, observations: Tensor) -> Tensor:
        mean = self.net(observations)
        return torch.normal(mean, self.log_std.exp().expand_as(mean)).clamp(-MAX_ACTION, MAX_ACTION)


class _SquashedGaussianPolicy(_Network):
    """Actions within ± 1: the tanh of a normal distribution whose mean and deviation the network gives."""

    def __init__(self, env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> None:
        super().__init__(env, cfg, env.observation_manager.groups["policy"].dim, 2 * env.action_dim)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        mean, log_std = self.net(inputs["observations"]).chunk(2, dim=-1)
        return mean, {"log_std": log_std.clamp(-5.0, 2.0)}

    def act(self, inputs: dict[str, Any], *, role: str = "") -> tuple[Tensor, dict[str, Any]]:
        mean, outputs = self.compute(inputs)
        normal = torch.distributions.Normal(mean, outputs["log_std"].exp())
        raw = normal.rsample()
        # log(1 - tanh²), in a form that keeps its precision where tanh is flat
        log_slope = 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))
        log_prob = (normal.log_prob(raw) - log_slope).sum(dim=-1, keepdim=True)
        return raw.tanh(), {"log_prob": log_prob, "mean_actions": mean.tanh(), **outputs}

    def mode(self, observations: Tensor) -> Tensor:
        return self.compute({"observations": observations})[0].tanh()

    def sample(self, observations: Tensor) -> Tensor:
        mean, outputs = self.compute({"observations": observations})
        return torch.normal(mean, outputs["log_std"].exp()).tanh()


class _DeterministicPolicy(DeterministicMixin, _Network):
    """Actions within ± 1; chance comes from the noise of the algorithm, not from the policy."""

    def __init__(self, env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> None:
        _Network.__init__(self, env, cfg, env.observation_manager.groups["policy"].dim, env.action_dim)
        DeterministicMixin.__init__(self)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        return self.mode(inputs["observations"]), {}

    def mode(self, observations: Tensor) -> Tensor:
        return self.net(observations).tanh()

    sample = mode


class _Critic(DeterministicMixin, _Network):
    """The value of what the critic sees, and, off-policy, of an action there."""

    def __init__(self, env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> None:
        groups = env.observation_manager.groups
        seen = groups.get("critic", groups["policy"]).dim
        of_actions = cfg.algorithm not in ON_POLICY
        _Network.__init__(self, env, cfg, seen + env.action_dim * of_actions, 1)
        DeterministicMixin.__init__(self)
        self._of_actions = of_actions

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Tensor, dict[str, Any]]:
        states = inputs.get("states")
        seen = inputs["observations"] if states is None else states
        return self.net(torch.cat([seen, inputs["taken_actions"]], dim=1) if self._of_actions else seen), {}


POLICIES = {"PPO": _GaussianPolicy, "A2C": _GaussianPolicy, "SAC": _SquashedGaussianPolicy}


def make_policy(env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> Any:
    """The network that acts."""
    policy = POLICIES.get(cfg.algorithm, _DeterministicPolicy)(env, cfg).to(env.device)
    if cfg.algorithm not in ON_POLICY:
        policy.net[-1].weight.data *= 0.01  # begin with actions near zero, where tanh is not flat
    return policy


def make_scaler(env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> Any:
    """The normaliser of what the policy sees, or None."""
    if not cfg.normalize_observations:
        return None
    return RunningStandardScaler(group_spaces(env)["policy"], device=env.device)


def make_models(env: ManagerBasedRlEnv, cfg: SkrlAgentCfg) -> dict[str, Any]:
    """All networks of the algorithm, by the names that skrl has for them."""
    models = {"policy": make_policy(env, cfg)}
    if cfg.algorithm in ON_POLICY:
        models["value"] = _Critic(env, cfg)
    if cfg.algorithm in ("TD3", "DDPG"):
        models["target_policy"] = make_policy(env, cfg)
    for name in CRITICS[cfg.algorithm]:
        models[name], models[f"target_{name}"] = _Critic(env, cfg), _Critic(env, cfg)
    return models


def network_of(cfg: SkrlAgentCfg) -> dict[str, Any]:
    """The part of the config that the weights of a checkpoint are for."""
    keys = ("algorithm", "activation", "normalize_observations", "normalize_values")
    return {"hidden_dims": tuple(cfg.hidden_dims), **{key: getattr(cfg, key) for key in keys}}


def inference_of(policy: Any, scaler: Any, cfg: SkrlAgentCfg, *, deterministic: bool = True) -> InferenceSetup:
    policy.eval().requires_grad_(False)
    choose = policy.mode if deterministic else policy.sample

    def act(observations: Observations) -> Tensor:
        seen = observations["policy"].float()
        return choose(seen if scaler is None else scaler(seen))

    if not deterministic:
        return InferenceSetup(policy=act)
    parts = (policy,) if scaler is None else (policy, scaler)
    bound = MAX_ACTION if cfg.algorithm in ON_POLICY else 1.0
    actor = Actor(
        network=FlatPolicy(act, {"policy": policy.num_observations}, *parts),
        algorithm=cfg.algorithm,
        normalizes=scaler is not None,
        action_range=(-bound, bound),
    )
    return InferenceSetup(policy=act, actor=actor)
