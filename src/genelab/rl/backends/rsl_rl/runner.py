"""rsl_rl's own runner and algorithm, from an agent config, with what the lab adds to them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from typing import Any

import torch
from rsl_rl import algorithms, runners
from torch import Tensor, nn

from genelab.errors import UsageError
from genelab.rl.backends.rsl_rl.config import RslRlOnPolicyRunnerCfg, RslRlSymmetryCfg
from genelab.rl.backends.rsl_rl.networks import model_cfg, remember
from genelab.rl.backends.rsl_rl.normalizer import accept_counts, meet_new_columns
from genelab.rl.backends.rsl_rl.precision import MixedPrecision, computes_bfloat16
from genelab.rl.backends.rsl_rl.symmetry import Tied, images
from genelab.rl.backends.rsl_rl.wrapper import RslRlVecEnvWrapper
from genelab.rl.rank import Rank


class Algorithm(algorithms.PPO):
    """Does not learn from observations that nothing has normalised, where others are."""

    tied: tuple[Tied, ...] = ()
    """Networks that are kept their own mirror image."""

    def update(self) -> dict[str, float]:
        for model in (self.actor, self.critic):
            meet_new_columns(model, self.storage.observations)
        losses = super().update()
        for network in self.tied:
            network.normalize_both_sides()
        return losses


class Runner(runners.OnPolicyRunner):
    """Takes its rank from the lab, on any device; what the ranks' group is, the lab has decided already."""

    def _configure_multi_gpu(self) -> None:
        rank = Rank.current()
        self.is_distributed = False  # or `learn` synchronises the weights itself, and prints that it does
        self.gpu_world_size, self.gpu_global_rank, self.gpu_local_rank = rank.world_size, rank.index, rank.index
        multi_gpu = {"global_rank": rank.index, "local_rank": rank.index, "world_size": rank.world_size}
        self.cfg["multi_gpu"] = None if rank.alone else multi_gpu

    def learn(self, *args: Any, **options: Any) -> None:
        if self.alg.is_multi_gpu:
            self.alg.broadcast_parameters()
        super().learn(*args, **options)


def make_runner(env: RslRlVecEnvWrapper, agent: RslRlOnPolicyRunnerCfg) -> Runner:
    """The runner of an agent config, with its networks."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
        runner = Runner(env, _runner_cfg(env, agent), log_dir=None, device=str(env.device))
    symmetry = runner.alg.symmetry
    if symmetry is not None and symmetry.use_data_augmentation and not symmetry.use_mirror_loss:
        symmetry.compute_loss = functools.partial(_asymmetry, symmetry)
    for model, cfg in ((runner.alg.actor, agent.actor), (runner.alg.critic, agent.critic)):
        accept_counts(model)
        if cfg.rnn_type is not None and cfg.rnn_memory_steps is not None:
            remember(model.rnn.rnn, cfg.rnn_memory_steps)
        if agent.algorithm.use_mixed_precision and computes_bfloat16(env.device):
            model.mlp = MixedPrecision(*model.mlp)
    if agent.algorithm.symmetry_cfg is not None and agent.algorithm.symmetry_cfg.equivariant:
        runner.alg.tied = _tie(runner.alg, env, agent.algorithm.symmetry_cfg)
    return runner


def _tie(alg: Any, env: RslRlVecEnvWrapper, cfg: RslRlSymmetryCfg) -> tuple[Tied, ...]:
    of_groups, of_actions = images(cfg.data_augmentation_func, env, env.get_observations(), env.num_actions)
    networks = ((alg.actor, of_actions), (alg.critic, None))
    tied = tuple(Tied(model, [of_groups[name] for name in model.obs_groups], image) for model, image in networks)
    for network in tied:
        network.begin()
    return tied


@torch.no_grad()
def _asymmetry(symmetry: Any, actor: Any, batch: Any, size: int) -> Tensor:
    """The mirror loss where it is only logged: the actor has just seen the mirror images, and need not see them again.

    rsl_rl would, which takes a seventh of the time that learning takes.
    """
    means = actor.output_mean
    _, mirrored = symmetry.data_augmentation_func(env=symmetry.env, obs=None, actions=means[:size])
    return nn.functional.mse_loss(means[size:], mirrored[size:])


def _runner_cfg(env: RslRlVecEnvWrapper, agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    """The config as rsl_rl's dict."""
    groups = env.env.observation_manager.groups
    symmetry = agent.algorithm.symmetry_cfg
    if symmetry is not None and not symmetry.equivariant and (agent.actor.rnn_type or agent.critic.rnn_type):
        raise UsageError(
            "agent.algorithm.symmetry_cfg: networks with memory cannot learn from mirror images; "
            "with equivariant=true they are their own"
        )
    return {
        "num_steps_per_env": agent.num_steps_per_env,
        "save_interval": agent.save_interval,
        "check_for_nan": False,  # the lab has a guard of its own, which names the term
        "obs_groups": {
            "actor": ["policy"],
            "critic": ["critic" if "critic" in groups else "policy"],
            "rnd_state": ["rnd_state" if "rnd_state" in groups else "policy"],
        },
        "actor": model_cfg(agent.actor),
        "critic": model_cfg(agent.critic),
        "algorithm": {"class_name": Algorithm, **_algorithm_cfg(env, agent)},
    }


def _algorithm_cfg(env: RslRlVecEnvWrapper, agent: RslRlOnPolicyRunnerCfg) -> dict[str, Any]:
    cfg = dataclasses.asdict(agent.algorithm)
    del cfg["final_kl"], cfg["use_mixed_precision"]  # the lab's own
    if cfg["symmetry_cfg"] is not None and cfg["symmetry_cfg"].pop("equivariant"):
        cfg["symmetry_cfg"] = None
    if cfg["rnd_cfg"] is not None and cfg["rnd_cfg"]["weight_schedule"] is not None:
        cfg["rnd_cfg"]["weight_schedule"]["final_value"] *= env.env.step_dt  # rsl_rl does so with the first weight only
    return cfg
