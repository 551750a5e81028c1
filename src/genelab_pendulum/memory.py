"""Go to a place that is shown only at the beginning, with a network that has a memory and with one that has not.

The environment is the inverted pendulum's with one-second episodes. A target for the cart is drawn at each reset and
seen for the first five steps; the reward for the cart's position is about that target. Actions do nothing in these
steps. Otherwise a network without memory would write the target into the angle of the pole while it sees it, and read
it there afterwards.

To go somewhere the cart must first go the wrong way, or its pole would fall, so standing still is a local optimum, for
networks that see the target all the time as well (docs/pendulums.md). Hence the large entropy coefficient, and a lambda
that looks further ahead.

Source of what is called published: docs/sources.md.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genelab import math as gm
from genelab import mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import (
    ROBOT,
    ActionTerm,
    CommandTerm,
    CommandTermCfg,
    Meaning,
    Selection,
    metric,
    obs,
    observation,
    reward,
)
from genelab.mdp.actions import FORMULA, JointPositionAction
from genelab.rl.config import RslRlDistributionCfg, RslRlModelCfg, RslRlOnPolicyRunnerCfg, RslRlSymmetryCfg
from genelab_pendulum import inverted_pendulum
from genelab_pendulum.common import CART, mirror, ppo

CUE_STEPS = 5
"""Control steps for which the target is seen, and the cart is held."""


@dataclass(kw_only=True)
class HeldJointPositionActionCfg(mdp.JointPositionActionCfg):
    """Positions of joints that stay at their default in the first steps of an episode."""

    hold_steps: int
    """Control steps in which the action counts as zero."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return HeldJointPositionAction(name, self, env)


class HeldJointPositionAction(JointPositionAction):
    """Ignores the action while the target is shown."""

    cfg: HeldJointPositionActionCfg

    def process(self, action: Tensor) -> None:
        # In place: these are columns of the manager's own copy. The observation `last_action` must show zero as well,
        # or it would show the target to the first step that may act.
        assert isinstance(self.env, ManagerBasedRlEnv)
        action.masked_fill_((self.env.episode_length_buf < self.cfg.hold_steps)[:, None], 0.0)
        super().process(action)

    def metadata(self) -> dict[str, Any]:
        held = f"{FORMULA}; the action is 0 in the first {self.cfg.hold_steps} control steps of an episode"
        return {**super().metadata(), "formula": held}


@dataclass(kw_only=True)
class TargetCommandCfg(CommandTermCfg):
    """A place for the cart, drawn at each reset."""

    position_range: tuple[float, float]
    """Where it may be, m."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        return TargetCommand(name, self, env)


class TargetCommand(CommandTerm):
    """Holds the targets, `(N, 1)`."""

    cfg: TargetCommandCfg
    drawn_from = ("position_range",)

    def __init__(self, name: str, cfg: TargetCommandCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.command = torch.zeros(env.num_envs, 1, device=env.device, dtype=env.dtype)

    def meaning(self) -> Meaning:
        return Meaning(unit="m", columns=("target",))

    def resample(self, env_ids: Tensor) -> None:
        shape = (len(env_ids), 1)
        self.command[env_ids] = gm.uniform(*self.ranges["position_range"], shape, self.env.rng, self.env.dtype)


@observation(unit="m", columns=("target",))
def target_cue(env: ManagerBasedRlEnv, command: str, steps: int) -> Tensor:
    """The target in the first steps of the episode, then zero."""
    visible = env.episode_length_buf < steps
    return torch.where(visible[:, None], env.commands[command], 0.0)


def target_error_l2(env: ManagerBasedRlEnv, command: str, asset: Selection = ROBOT) -> Tensor:
    """Squared distance of the cart from its target."""
    return target_error(env, command, asset).square()


def target_error(env: ManagerBasedRlEnv, command: str, asset: Selection = ROBOT) -> Tensor:
    """Distance of the cart from its target, m."""
    return (asset.entity.joint_pos[:, asset.joint_ids] - env.commands[command]).abs().sum(dim=1)


def env_cfg() -> ManagerBasedRlEnvCfg:
    """The inverted pendulum with a hidden target, a cart that is held while it is shown, and without pushes."""
    cfg = inverted_pendulum.env_cfg()
    cfg.scene.num_envs = 256
    cfg.episode_length_s = 1.0
    cfg.commands = {"target": TargetCommandCfg(position_range=(-0.8, 0.8))}
    cfg.actions = {"cart": HeldJointPositionActionCfg(joint_names=("cart",), hold_steps=CUE_STEPS)}
    cfg.observations["policy"].terms["target_cue"] = obs(target_cue, command="target", steps=CUE_STEPS)
    cfg.observations["critic"].terms["target"] = obs(mdp.generated_command, command="target")
    cfg.rewards["cart_position"] = reward(target_error_l2, -4.0, command="target", asset=CART)
    cfg.metrics = {
        "target_error": metric(target_error, "mean", command="target", asset=CART),
        "final_target_error": metric(target_error, "last", command="target", asset=CART),
    }
    del cfg.events["push_cart"]
    return cfg


def ppo_cfg(*, recurrent: bool) -> RslRlOnPolicyRunnerCfg:
    """One episode per iteration and environment, so that learning reaches back to the cue.

    Published: an LSTM of 128 for actor and critic, 400 iterations of 4096 environments. Here the critic sees the target
    (privileged observations), so it needs no memory.
    """
    actor = RslRlModelCfg(hidden_dims=(128, 128), distribution=RslRlDistributionCfg(init_std=1.0))
    if recurrent:
        actor = dataclasses.replace(actor, hidden_dims=(64,), rnn_type="lstm", rnn_hidden_dim=64, rnn_memory_steps=100)
    return RslRlOnPolicyRunnerCfg(
        experiment_name=f"inverted_pendulum_memory_{'rnn' if recurrent else 'mlp'}",
        num_steps_per_env=100,
        random_episode_ages=False,
        max_iterations=200,
        save_interval=50,
        actor=actor,
        critic=RslRlModelCfg(hidden_dims=(128, 128)),
        algorithm=dataclasses.replace(
            ppo(RslRlSymmetryCfg(data_augmentation_func=mirror, equivariant=True)),
            num_mini_batches=8,
            desired_kl=0.02,
            final_kl=0.005,
            lam=0.99,
            entropy_coef=0.03,
        ),
    )


def rnn_task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-Memory-Rnn-v0."""
    env = env_cfg()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=ppo_cfg(recurrent=True))


def mlp_task() -> TaskCfg:
    """GeneLab-Inverted-Pendulum-Memory-Mlp-v0."""
    env = env_cfg()
    return TaskCfg(env=env, play_env=play_cfg(env), agent=ppo_cfg(recurrent=False))
