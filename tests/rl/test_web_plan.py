"""What the page in a browser must know beside the metadata, and what it refuses by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import UsageError
from genelab.managers import CommandTerm, CommandTermCfg, ObservationGroupCfg, obs
from genelab.mdp.actions import JointPositionAction
from genelab.rl.targets.web import plan_of, readable, title_of
from genelab.scene import (
    ArticulationCfg,
    DcMotorActuatorCfg,
    ImplicitPdActuatorCfg,
    InitialStateCfg,
    SceneCfg,
    mjcf_text,
)
from genelab.scene.terrains import FlatCfg, TerrainGeneratorCfg
from genelab.sim import SimulationCfg

ARM = """
<mujoco>
  <worldbody>
    <body name="base" pos="0 0 1">
      <freejoint/>
      <geom size=".1"/>
      <body name="a" pos="1 0 0"><joint name="a"/><geom size=".1"/>
        <body name="b" pos="1 0 0"><joint name="b"/><geom size=".1"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
GROUPS: dict[str, Any] = {"obs_groups": {"policy": {}}}
SERVOS = ImplicitPdActuatorCfg(joint_names=("a",), stiffness=10.0, damping=1.0)
MOTOR = DcMotorActuatorCfg(
    joint_names=("b",), stiffness=20.0, damping=2.0, saturation_effort=8.0, velocity_limit=5.0, effort_limit=6.0
)


def secret(env: ManagerBasedEnv) -> Tensor:
    """What no page can know."""
    return torch.zeros(env.num_envs, 1)


class Riddle(CommandTerm):
    def __init__(self, name: str, cfg: CommandTermCfg, env: ManagerBasedRlEnv) -> None:
        super().__init__(name, cfg, env)
        self.command = torch.zeros(env.num_envs, 1)

    def resample(self, env_ids: Tensor) -> None:
        pass


class RiddleCfg(CommandTermCfg):
    def build(self, name: str, env: ManagerBasedRlEnv) -> Riddle:
        return Riddle(name, self, env)


class OwnAction(JointPositionAction):
    """Looks like ours, and may do anything."""


class OwnActionCfg(mdp.JointPositionActionCfg):
    def build(self, name: str, env: ManagerBasedEnv) -> OwnAction:
        return OwnAction(name, self, env)


def arm_env(**changes: Any) -> ManagerBasedRlEnv:
    robot = ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": ARM},
        init_state=InitialStateCfg(pos=(0.0, 0.0, 2.0), joint_pos={"b": 0.5}),
        actuators={"servo": SERVOS, "motor": MOTOR},
    )
    terms = {"joint_pos": obs(mdp.joint_pos_rel), "gravity": obs(mdp.projected_gravity)}
    parts: dict[str, Any] = {
        "scene": SceneCfg(num_envs=1, entities={"robot": robot}),
        "simulation": SimulationCfg(engine="mujoco", threads=1),
        "actions": {"joints": mdp.JointPositionActionCfg()},
        "observations": {"policy": ObservationGroupCfg(terms=terms)},
        "episode_length_s": 1.0,
    }
    terrain = changes.pop("terrain", None)
    env_cfg = ManagerBasedRlEnvCfg(**{**parts, **changes})
    env_cfg.scene.terrain = terrain
    return ManagerBasedRlEnv(env_cfg)


@pytest.fixture
def plan() -> Iterator[dict[str, Any]]:
    env = arm_env()
    yield plan_of(env, GROUPS)
    env.close()


def test_it_tells_where_the_numbers_are(plan: dict[str, Any]) -> None:
    assert plan["root"] == {"quat": 3, "vel": 0}
    assert plan["start"] == [0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    (group,) = plan["observations"]
    pos, gravity = group["terms"]
    assert (pos["kind"], pos["joints"], pos["qpos"], pos["rest"]) == ("joint_pos", ["a", "b"], [7, 8], [0.0, 0.5])
    assert gravity == {"name": "gravity", "kind": "projected_gravity"}
    assert plan["size"] == pytest.approx(4.0, abs=0.2)  # two metres to either side
    servo, motor = plan["joints"]["joints"]
    assert servo == {"joint": "a", "target": "position", "ctrl": 0, "law": "model", "factor": 1.0}
    assert motor["law"] == "motor"
    assert (motor["stiffness"], motor["stall"], motor["no_load_speed"], motor["limit"]) == (20.0, 8.0, 5.0, 6.0)
    assert (motor["qpos"], motor["qvel"], motor["rest"]) == (8, 7, 0.5)
    assert plan["computed"] == [motor]


GENERATED = TerrainGeneratorCfg(rows=1, columns=1, cell_size=4.0, sub_terrains={"flat": FlatCfg()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observations": {"policy": ObservationGroupCfg(terms={"guess": obs(secret)})}},
            "the page cannot make the observation 'policy/guess', which is secret: it has base_ang_vel, ",
        ),
        (
            {"observations": {"policy": ObservationGroupCfg(terms={"pos": obs(mdp.joint_pos_rel).then(delay=(0, 2))})}},
            r"the observation 'policy/pos', which arrives late: its delay is \(0, 2\)",
        ),
        ({"actions": {"joints": OwnActionCfg()}}, "the page cannot do the action 'joints', a OwnAction: it has Joint"),
        (
            {"commands": {"what": RiddleCfg()}},
            "the page cannot ask for the command 'what', a Riddle: it has no sliders",
        ),
        ({"terrain": GENERATED}, "this task's ground is generated"),
    ],
    ids=["observation", "late", "action", "command", "ground"],
)
def test_what_it_cannot_do_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    env = arm_env(**changes)
    with pytest.raises(UsageError, match=message):
        plan_of(env, GROUPS)
    env.close()


def test_the_world_is_written_for_an_older_reader() -> None:
    xml = (
        b'<mujoco><actuator><general name="a" input="pos" gainprm="3"/><pid name="b" input="pos"/></actuator></mujoco>'
    )
    assert readable(xml) == xml.replace(b' input="pos" gainprm', b" gainprm").replace(b'"/>', b'" />')


@pytest.mark.parametrize(
    ("task", "title"),
    [
        ("Genelab-Velocity-Flat-Unitree-Go1-v0", "Unitree Go1, velocity, flat"),
        ("GeneLab-Inverted-Pendulum-v0", "Inverted Pendulum"),
        ("My-Robot", "My Robot"),
    ],
)
def test_a_task_has_a_title(task: str, title: str) -> None:
    assert title_of(task) == title
