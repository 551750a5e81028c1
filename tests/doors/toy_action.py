"""An action with a history, and a command that is shown, steered and judged: one file outside the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genelab import TASKS, TaskCfg, mdp
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.managers import (
    ActionTerm,
    ActionTermCfg,
    CommandTerm,
    CommandTermCfg,
    Meaning,
    ObservationGroupCfg,
    ObservationTermCfg,
    Probe,
    RewardTermCfg,
    TerminationTermCfg,
)
from genelab.managers.marks import ASKED, Arrow, Mark
from genelab.mdp import augment
from genelab.rl.config import RslRlOnPolicyRunnerCfg, RslRlPpoAlgorithmCfg, RslRlSymmetryCfg
from genelab.scene import SAME, ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, mjcf_text
from genelab.scene.mirror import of_joints
from genelab.sim import EnvIds

# Two legs that swing forward and aside.
BIPED = """
<mujoco>
  <worldbody>
    <body name="trunk" pos="0 0 1"><geom size=".1" mass="1"/>
      <body name="left_leg" pos="0 .2 0">
        <joint name="left_pitch" axis="0 1 0"/><joint name="left_roll" axis="1 0 0"/>
        <geom size=".05" pos="0 0 -.3" mass="1" contype="0" conaffinity="0"/>
      </body>
      <body name="right_leg" pos="0 -.2 0">
        <joint name="right_pitch" axis="0 1 0"/><joint name="right_roll" axis="1 0 0"/>
        <geom size=".05" pos="0 0 -.3" mass="1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@dataclass(kw_only=True)
class MeanActionCfg(ActionTermCfg):
    """Sends joints to the mean of the last actions."""

    joint_names: tuple[str, ...] = (".*",)
    length: int = 3
    """Actions that are averaged."""
    reach: float = 0.5
    """Target at an action of 1, rad."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return MeanAction(name, self, env)


class MeanAction(ActionTerm):
    """Remembers actions."""

    cfg: MeanActionCfg
    target = "position"

    def __init__(self, name: str, cfg: MeanActionCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env)
        self.robot = env.scene.articulation(cfg.entity)
        self.joints = self.robot.find_joints(cfg.joint_names)
        self.joint_names = [self.robot.joint_names[i] for i in self.joints]
        self.dim = len(self.joints)
        self.history = [torch.zeros(env.num_envs, self.dim, device=env.device, dtype=env.dtype)] * cfg.length

    def apply(self, action: Tensor) -> None:
        self.history = [*self.history[1:], action]
        self.robot.joint_pos_target[:, self.joints] = self.cfg.reach * torch.stack(self.history).mean(dim=0)

    def reset(self, env_ids: EnvIds) -> None:
        super().reset(env_ids)
        rows = slice(None) if env_ids is None else env_ids
        self.history = [past.index_fill(0, torch.arange(len(past))[rows], 0.0) for past in self.history]

    def meaning(self) -> Meaning:
        image = of_joints(self.robot, self.joints)
        return Meaning(unit="1", columns=tuple(self.joint_names), formula="mean of the last actions", mirror=image)


@dataclass(kw_only=True)
class LeanCommandCfg(CommandTermCfg):
    """How far forward the legs are to swing."""

    angle: tuple[float, float] = (-0.3, 0.3)
    """Range, rad."""

    def build(self, name: str, env: ManagerBasedRlEnv) -> CommandTerm:
        return LeanCommand(name, self, env)


class LeanCommand(CommandTerm):
    """An angle for each environment, `(N, 1)`."""

    drawn_from = ("angle",)

    def __init__(self, name: str, cfg: LeanCommandCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.command = torch.zeros(env.num_envs, 1, device=env.device, dtype=env.dtype)

    def resample(self, env_ids: Tensor) -> None:
        low, high = self.ranges["angle"]
        share = torch.rand(len(env_ids), 1, generator=self.env.rng, dtype=self.env.dtype)
        self.command[env_ids] = low + (high - low) * share

    def meaning(self) -> Meaning:
        return Meaning(unit="rad", columns=("lean",), mirror=SAME)

    def marks(self, i: int, top: float) -> list[Mark]:
        place = self.env.robot.root_pos_w[i].double().numpy()
        return [Arrow(place, place * 0 + [float(self.command[i, 0]), 0.0, 0.0], ASKED)]

    def probe(self) -> Probe:
        return LeanProbe(self)


class LeanProbe(Probe):
    """How far the legs are from either end of the range after a while."""

    name = "lean"
    seconds = 0.2
    rounds = 2

    def __init__(self, term: LeanCommand) -> None:
        self.term = term
        self.errors: list[float] = []

    def begin(self, turn: int) -> None:
        self.term.fix(torch.full_like(self.term.command, self.term.ranges["angle"][turn]))
        self.errors.append(0.0)

    def step(self, step: int, terminated: Tensor, truncated: Tensor) -> None:
        self.errors[-1] = float(lean_error(self.term.env).mean())

    def end(self) -> None:
        self.term.release()

    def report(self) -> dict[str, Any]:
        return {"error": dict(zip(("back", "forward"), self.errors, strict=True))}


def lean_error(env: ManagerBasedRlEnv) -> Tensor:
    """How far the legs are from the command, (N,)."""
    pitch = env.robot.joint_pos[:, env.robot.find_joints((".*_pitch",))]
    return (pitch - env.commands["lean"]).abs().mean(dim=1)


def task() -> TaskCfg:
    """Swing the legs as told."""
    servo = ImplicitPdActuatorCfg(joint_names=(".*",), stiffness=40.0, damping=4.0)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": BIPED}, actuators={"servo": servo})
    terms = {
        "joint_pos": ObservationTermCfg(func=mdp.joint_pos_rel),
        "last_action": ObservationTermCfg(func=mdp.last_action),
        "lean": ObservationTermCfg(func=mdp.generated_command, params={"command": "lean"}),
    }
    env = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=4, entities={"robot": robot}),
        decimation=4,
        episode_length_s=0.4,
        actions={"legs": MeanActionCfg()},
        observations={"policy": ObservationGroupCfg(terms=terms)},
        commands={"lean": LeanCommandCfg(resampling_time_range=(0.1, 0.2))},
        rewards={"error": RewardTermCfg(func=lean_error, weight=-1.0)},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
    )
    symmetry = RslRlSymmetryCfg(data_augmentation_func=augment)
    agent = RslRlOnPolicyRunnerCfg(
        num_steps_per_env=8, max_iterations=2, algorithm=RslRlPpoAlgorithmCfg(symmetry_cfg=symmetry)
    )
    return TaskCfg(env=env, play_env=play_cfg(env), agent=agent)


TASKS.register("Toy-Lean-v0", "toy_action:task", description="Swing as told.", robot="biped", backend="rsl_rl PPO")
