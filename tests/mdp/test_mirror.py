"""What terms tell about their columns, and the mirror image that is put together from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from genelab import mdp
from genelab.cli.flags import in_flags
from genelab.cli.train import command as train
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import ConfigError
from genelab.managers import XYZ, Meaning, ObservationGroupCfg, ObservationTermCfg, SceneEntityCfg, observation
from genelab.mdp.mirror import augment, group_image
from genelab.scene import AXIAL, SAME, ArticulationCfg, IdealPdActuatorCfg, Image, SceneCfg, mjcf_text
from genelab.scene.mirror import of_joints
from genelab.sim import SimulationCfg

# The right hip turns about the opposite axis, the right shoulder is tilted as the left one is in a mirror.
GNOME = """
<mujoco>
  <worldbody>
    <body name="trunk" euler="0 0 90"><freejoint/><geom size=".1" mass="1"/>
      <body><joint name="neck" axis="0 0 1"/><geom size=".1" mass="1"/></body>
      <body><joint name="hip_l" axis="1 0 0"/><geom size=".1" mass="1"/></body>
      <body><joint name="hip_r" axis="-1 0 0"/><geom size=".1" mass="1"/></body>
      <body><joint name="knee_l" axis="0 1 0"/><geom size=".1" mass="1"/></body>
      <body><joint name="knee_r" axis="0 1 0"/><geom size=".1" mass="1"/></body>
      <body euler="30 0 0"><joint name="arm_l" axis="0 1 0"/><geom size=".1" mass="1"/></body>
      <body euler="-30 0 0"><joint name="arm_r" axis="0 1 0"/><geom size=".1" mass="1"/></body>
      <body><joint name="tray" type="slide" axis="0 1 0"/><geom size=".1" mass="1"/></body>
      <body><joint name="wheel_l" axis="0 1 1"/><geom size=".1" mass="1"/></body>
      <body><joint name="wheel_r" axis="0 1 1"/><geom size=".1" mass="1"/></body>
    </body>
  </worldbody>
</mujoco>
"""
LIMBS = ("neck", "hip_.*", "knee_.*", "arm_.*", "tray")
SELECTED = SceneEntityCfg(joint_names=LIMBS)


def undescribed(env: ManagerBasedRlEnv) -> Tensor:
    """How warm it is.

    In all environments alike.
    """
    return torch.zeros(env.num_envs, 1)


class Smooth:
    """A running mean that tells about itself by a method."""

    def __init__(self, cfg: ObservationTermCfg, env: ManagerBasedRlEnv) -> None:
        self.width = cfg.params["width"]

    def __call__(self, env: ManagerBasedRlEnv, width: int) -> Tensor:
        return torch.zeros(env.num_envs, width)

    def meaning(self) -> Meaning:
        return Meaning(unit="m", columns=tuple("abcdef"[: self.width]), mirror=SAME.repeat(self.width))


@observation(lambda width, unit: Meaning(unit=unit, mirror=SAME.repeat(width)))
class Told(Smooth):
    """A class that is decorated."""

    def __call__(self, env: ManagerBasedRlEnv, width: int, unit: str = "K") -> Tensor:
        return super().__call__(env, width)


@pytest.fixture
def env() -> Iterator[ManagerBasedRlEnv]:
    terms = {
        "spin": ObservationTermCfg(func=mdp.base_ang_vel),
        "joints": ObservationTermCfg(func=mdp.joint_pos_rel, params={"asset": SELECTED}),
        "smooth": ObservationTermCfg(func=Smooth, params={"width": 2}),
        "told": ObservationTermCfg(func=Told, params={"width": 1}),
        "last": ObservationTermCfg(func=mdp.last_action),
    }
    robot = ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": GNOME},
        actuators={"all": IdealPdActuatorCfg(joint_names=(".*",))},
        sides=(("_l", "_r"),),
    )
    cfg = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=2, entities={"robot": robot}),
        simulation=SimulationCfg(engine="mujoco", threads=1),
        episode_length_s=1.0,
        actions={"limbs": mdp.JointEffortActionCfg(joint_names=LIMBS)},
        observations={
            "policy": ObservationGroupCfg(terms=terms, history_length=2),
            "warm": ObservationGroupCfg(terms={"warmth": ObservationTermCfg(func=undescribed)}),
        },
    )
    env = ManagerBasedRlEnv(cfg)
    yield env
    env.close()


def test_joints_change_sides_and_their_axes_say_which_way_they_turn(env: ManagerBasedRlEnv) -> None:
    image = of_joints(env.robot, list(range(8)))
    assert image.columns == (0, 2, 1, 4, 3, 6, 5, 7)
    # About z: the other way. About opposite axes x: the same. About y, tilted or not: the same. Along y: the other.
    assert image.signs == (-1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0)


def test_joints_that_are_not_mirror_images_are_refused(env: ManagerBasedRlEnv) -> None:
    with pytest.raises(ConfigError, match="the joint 'wheel_r' of 'robot' is not the mirror image of 'wheel_l'"):
        of_joints(env.robot)
    with pytest.raises(
        ConfigError, match="the mirror image of 'hip_l' would be 'hip_r', which is not among neck, hip_l"
    ):
        of_joints(env.robot, [0, 1])


def test_frames_and_terms_are_mirrored_where_they_lie(env: ManagerBasedRlEnv) -> None:
    image = group_image(env.observation_manager.groups["policy"])
    joints = (3, 5, 4, 7, 6, 9, 8, 10)
    frame = (0, 1, 2, *joints, 11, 12, 13, *(column + 11 for column in joints))
    assert image.columns == (*frame, *(column + 22 for column in frame))
    assert image.signs[:3] == AXIAL.signs
    assert image.signs[22:] == image.signs[:22]


def test_what_tells_no_mirror_image_is_named(env: ManagerBasedRlEnv) -> None:
    seen = {name: torch.zeros(2, group.dim) for name, group in env.observation_manager.groups.items()}
    with pytest.raises(ConfigError, match="the mirror image of the observation 'warmth' is not known") as refused:
        augment(env, TensorDict(seen, batch_size=[2]), None)
    advice = in_flags(str(refused.value), train)
    assert "@observation(mirror=SAME), " in advice
    assert advice.endswith("Or learn without symmetry: --agent.algorithm.symmetry_cfg=none")
    with pytest.raises(ConfigError, match=r"@observation\(mirror=SAME\.repeat\(3\)\)"):
        Meaning().image("the thing", 3)
    with pytest.raises(ConfigError, match="the mirror image of the thing has 1 columns, but the thing has 2"):
        Meaning(mirror=SAME).image("the thing", 2)


def test_terms_tell_units_frames_and_names_of_their_columns(env: ManagerBasedRlEnv) -> None:
    terms = env.observation_manager.groups["policy"].terms
    spin, joints = terms["spin"].meaning(), terms["joints"].meaning()
    assert (spin.unit, spin.frame, spin.columns) == ("rad/s", "root", XYZ)
    assert spin.formula == "Angular velocity of the root in its own frame."
    assert joints.unit == ("rad",) * 7 + ("m",)
    assert joints.columns == ("neck", "hip_l", "hip_r", "knee_l", "knee_r", "arm_l", "arm_r", "tray")
    assert terms["last"].meaning().columns == joints.columns
    assert terms["smooth"].meaning().columns == ("a", "b")
    assert terms["told"].meaning() == Meaning(
        unit="K", formula="A class that is decorated.", mirror=Image((0,), (1.0,))
    )
    warmth = env.observation_manager.groups["warm"].terms["warmth"].meaning()
    assert warmth == Meaning(formula="How warm it is.")
    units = {row[1]: row[4] for row in env.observation_manager.table().rows}
    assert (units["spin"], units["joints"], units["warmth"]) == ("rad/s (root)", "rad, m", "")
