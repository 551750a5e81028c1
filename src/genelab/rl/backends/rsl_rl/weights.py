"""Whether the weights of a checkpoint are for these networks, and what to do where they are for smaller ones."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.rl.backends.rsl_rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg
from genelab.rl.backends.rsl_rl.normalizer import widen_count
from genelab.rl.checkpoint import columns_in, schema_of, widen


def networks_of(agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    """The part of the config that the weights of a checkpoint are for, in plain values."""
    models = {name: dataclasses.asdict(model) for name, model in (("actor", agent.actor), ("critic", agent.critic))}
    return {**models, "clip_actions": agent.clip_actions}


def with_networks(agent: RslRlOnPolicyRunnerCfg, saved: dict[str, Any]) -> RslRlOnPolicyRunnerCfg:
    """The config with the networks of a checkpoint."""

    def model(values: dict[str, Any]) -> RslRlModelCfg:
        noise = values["distribution"]
        return RslRlModelCfg(**{**values, "distribution": None if noise is None else RslRlDistributionCfg(**noise)})

    actor, critic = model(saved["actor"]), model(saved["critic"])
    return dataclasses.replace(agent, actor=actor, critic=critic, clip_actions=saved["clip_actions"])


def layers_of(agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    """What must be the same for weights to mean the same; how they begin is free."""
    found: dict[str, Any] = {}
    for name, model in (("actor", agent.actor), ("critic", agent.critic)):
        keys = ["activation", "obs_normalization", "rnn_type"]
        keys += ["rnn_hidden_dim", "rnn_num_layers"] if model.rnn_type is not None else []
        found[f"{name}.hidden_dims"] = list(model.hidden_dims)
        found |= {f"{name}.{key}": getattr(model, key) for key in keys}
    return found


def widened(content: dict[str, Any], env: ManagerBasedRlEnv, alg: Any) -> dict[str, Any]:
    """The networks of a checkpoint for an environment that may have more to see than the one they come from."""
    saved, here = content["genelab"]["schema"]["observations"], schema_of(env)["observations"]
    groups = {"actor": "policy", "critic": "critic" if "critic" in here else "policy"}
    found = {}
    for name, model in (("actor", alg.actor), ("critic", alg.critic)):
        columns = columns_in(here[groups[name]], saved[groups[name]])
        state = widen(content[f"{name}_state_dict"], model.state_dict(), columns)
        found[f"{name}_state_dict"] = widen_count(state, model.obs_dim, columns)
    return found


@contextlib.contextmanager
def naming_the_network(checkpoint: Path, wanted: str) -> Iterator[None]:
    """Weights that do not fit are the user's to mend, in one line."""
    try:
        yield
    except RuntimeError as error:
        raise UsageError(f"{checkpoint}: its network is not the one that {wanted}") from error
