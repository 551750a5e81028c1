"""rsl_rl's networks from an agent config, to learn, to act and to be exported."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from rsl_rl import models
from torch import Tensor, nn

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl.backends.base import Actor, InferenceSetup, Memory, Observations
from genelab.rl.backends.rsl_rl.config import RslRlModelCfg, RslRlOnPolicyRunnerCfg
from genelab.rl.backends.rsl_rl.normalizer import accept_counts
from genelab.rl.backends.rsl_rl.wrapper import tensordict


def make_actor(env: ManagerBasedRlEnv, agent: RslRlOnPolicyRunnerCfg) -> Any:
    """The policy network alone."""

    cfg = model_cfg(agent.actor)
    observations = {name: torch.zeros(1, group.dim) for name, group in env.observation_manager.groups.items()}
    make = getattr(models, cfg.pop("class_name"))
    actor = make(tensordict(observations, 1), {"actor": ["policy"]}, "actor", env.action_dim, **cfg).to(env.device)
    accept_counts(actor)
    return actor


def model_cfg(model: RslRlModelCfg) -> dict[str, Any]:
    """A network as rsl_rl's dict."""
    cfg: dict[str, Any] = {
        "class_name": "MLPModel" if model.rnn_type is None else "RNNModel",
        "hidden_dims": list(model.hidden_dims),
        "activation": model.activation,
        "obs_normalization": model.obs_normalization,
    }
    if model.distribution is not None:
        cfg["distribution_cfg"] = dataclasses.asdict(model.distribution)
        del cfg["distribution_cfg"]["final_std"]  # the lab's own
    if model.rnn_type is not None:
        cfg |= {
            "rnn_type": model.rnn_type,
            "rnn_hidden_dim": model.rnn_hidden_dim,
            "rnn_num_layers": model.rnn_num_layers,
        }
    return cfg


@torch.no_grad()
def remember(rnn: torch.nn.LSTM | torch.nn.GRU, steps: int) -> None:
    """Set the gates' biases so that units remember for times spread over `steps` (Tallec and Ollivier, 2018)."""
    if steps < 3:
        raise UsageError(f"rnn_memory_steps: at least 3, got {steps}")
    size = rnn.hidden_size
    for layer in range(rnn.num_layers):
        inputs, hidden = getattr(rnn, f"bias_ih_l{layer}"), getattr(rnn, f"bias_hh_l{layer}")
        keep = torch.log(1.0 + (steps - 2.0) * torch.rand(size, device=inputs.device))
        hidden[: 2 * size] = 0.0
        inputs[size : 2 * size] = keep  # an LSTM's forget gate, a GRU's update gate: open
        if isinstance(rnn, torch.nn.LSTM):
            inputs[:size] = -keep  # and its input gate closed


def inference_of(actor: Any, agent: RslRlOnPolicyRunnerCfg, *, deterministic: bool = True) -> InferenceSetup:
    actor.eval()
    clip = agent.clip_actions

    def policy(observations: Observations) -> Tensor:
        count = len(next(iter(observations.values())))
        action = actor(tensordict(observations, count), stochastic_output=not deterministic)
        return action if clip is None else action.clamp(-clip, clip)

    def reset(dones: Tensor | None) -> None:
        actor.reset(dones)

    return InferenceSetup(policy=policy, reset=reset, actor=_actor(actor, agent) if deterministic else None)


def _actor(model: Any, agent: RslRlOnPolicyRunnerCfg) -> Actor:
    cfg, clip = agent.actor, agent.clip_actions
    memory = None
    if cfg.rnn_type is not None:
        memory = Memory(rnn_type=cfg.rnn_type, num_layers=cfg.rnn_num_layers, hidden_dim=cfg.rnn_hidden_dim)
    return Actor(
        network=_Network(model, clip),
        algorithm="PPO",
        normalizes=cfg.obs_normalization,
        action_range=None if clip is None else (-clip, clip),
        memory=memory,
    )


class _Network(nn.Module):
    """rsl_rl's own form of a model for export, which has the normaliser inside, and the clip after it."""

    def __init__(self, model: Any, clip: float | None) -> None:
        super().__init__()
        self.model = model.as_onnx(verbose=False)
        self._clip = clip

    def forward(self, obs: Tensor, *state: Tensor) -> Any:
        action, *after = self.model(obs, *state) if state else (self.model(obs),)
        if self._clip is not None:
            action = action.clamp(-self._clip, self._clip)
        return (action, *after[: len(state)]) if state else action
