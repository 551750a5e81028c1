"""The mirror image of a robot sees the mirror image of what the robot sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import ConfigError
from genelab.managers import ObservationTermCfg
from genelab.mdp import GaitClockCfg
from genelab.mdp.clock import get_clock
from genelab.mdp.mirror import augment
from genelab.scene.mirror import of_joints
from genelab.scene.terrains import HeightFieldCfg
from tests.narrow import present

GO2W = ("Flat-Unitree-Go2W", "Flat-Unitree-Go2W-CrabStage1")
SIDES = torch.tensor([1.0, -1.0, 1.0])


def valley() -> np.ndarray:
    return np.linspace(0, 1, 101)[:, None] + 0.3 * np.abs(np.linspace(-5, 5, 101))[None]


def mirrored_pair(task: str) -> ManagerBasedRlEnv:
    """Two robots in the air, the second the mirror image of the first about the plane y = 0."""
    cfg = rl_cfg(task, play=True)
    cfg.scene.num_envs = 2
    if "Rough" in task:  # ground that is its own mirror image
        cfg.scene.terrain = HeightFieldCfg(heights=valley, resolution=0.1)
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    robot = env.robot
    image = of_joints(robot)
    columns, signs = torch.tensor(image.columns), torch.tensor(image.signs)
    random = torch.rand(4, max(6, len(robot.joint_names)), generator=generator) - 0.5
    pos = robot.default_joint_pos[0] + 0.2 * random[0, : len(robot.joint_names)]
    vel = random[1, : len(robot.joint_names)]
    mirror = robot.default_joint_pos[0] + ((pos - robot.default_joint_pos[0])[columns] * signs)
    robot.write_joint_state(torch.stack((pos, mirror)), torch.stack((vel, vel[columns] * signs)), None)
    quat = torch.nn.functional.normalize(torch.tensor([1.0, 0.2, -0.1, 0.3]), dim=0)
    place = torch.cat((torch.tensor([0.3, 0.4, 2.0]), quat))
    flip = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0])
    robot.write_root_pose(torch.stack((place, place * flip)), None)
    speed = random[2, :6]
    robot.write_root_velocity(torch.stack((speed, speed * torch.cat((SIDES, -SIDES)))), None)
    env.commands.term("twist").fix(torch.tensor([[0.5, 0.3, 0.2], [0.5, -0.3, -0.2]]))
    clock = get_clock(env, "gait")
    clock.phase[:] = torch.tensor([0.3, 0.8])  # the other feet, half a period later
    clock.update()
    action = torch.rand(env.action_dim, generator=generator)
    mirrored = augment(env, None, action[None])[1]
    assert mirrored is not None
    env.action_manager.action = mirrored
    env.observation_manager.reset(None)  # stacks of frames begin anew
    env.scene.engine.refresh()
    return env


@pytest.mark.parametrize(
    "task", ["Flat-Unitree-Go1", "Rough-Unitree-Go1", "Flat-Unitree-G1", "Rough-Unitree-G1", *GO2W]
)
def test_it_sees_the_mirror_image(task: str) -> None:
    env = mirrored_pair(f"Genelab-Velocity-{task}-v0")
    seen = env.observation_manager.compute(keep=False)
    batch, _ = augment(env, TensorDict(seen, batch_size=[2]), None)
    for name, group in seen.items():
        assert (group[0] - group[1]).abs().max() > 0.1  # the two are not the same
        torch.testing.assert_close(batch[name][2], group[1], atol=2e-5, rtol=0)
        torch.testing.assert_close(batch[name][3], group[0], atol=2e-5, rtol=0)
        assert torch.equal(batch[name][:2], group)
    env.close()


def test_twice_is_not_at_all() -> None:
    env = mirrored_pair("Genelab-Velocity-Flat-Unitree-G1-v0")
    actions = torch.rand(3, 29)
    once = present(augment(env, None, actions)[1])[3:]
    assert torch.equal(present(augment(env, None, once)[1])[3:], actions)
    assert not torch.equal(once, actions)
    env.close()


def test_images_are_in_the_precision_of_networks_whatever_that_of_the_physics_is() -> None:
    cfg = rl_cfg("Genelab-Velocity-Flat-Unitree-Go1-v0")
    cfg.scene.num_envs = 2
    cfg.simulation.precision = 64
    env = ManagerBasedRlEnv(cfg)
    seen = {name: value.float() for name, value in env.reset(seed=0)[0].items()}
    batch, actions = augment(env, TensorDict(seen, batch_size=[2]), torch.ones(2, 12))
    assert {present(actions).dtype, *(value.dtype for value in batch.values())} == {torch.float32}
    env.close()


@pytest.mark.parametrize(("right", "signs"), [(0.5, [-1.0, -1.0]), (0.0, [1.0, 1.0]), (0.25, None)])
def test_the_mirror_image_of_a_clock(right: float, signs: list[float] | None) -> None:
    """What the left foot does, the right one does later: the clock of the mirror image is ahead by as much."""
    cfg = rl_cfg("Genelab-Velocity-Flat-Unitree-G1-v0", play=True)
    cfg.commands["gait"] = GaitClockCfg(frequency=1.5, offsets={"left_.*": 0.0, "right_.*": right})
    shown = ObservationTermCfg(func=mdp.generated_command, params={"command": "gait"})
    cfg.observations["policy"].terms = {"gait": shown}
    env = ManagerBasedRlEnv(cfg)
    seen = env.reset(seed=0)[0]
    if signs is None:
        with pytest.raises(ConfigError, match="the mirror image of the command 'gait' is not known"):
            augment(env, TensorDict(seen, batch_size=[1]), None)
    else:
        batch, _ = augment(env, TensorDict(seen, batch_size=[1]), None)
        assert torch.equal(batch["policy"][1], batch["policy"][0] * torch.tensor(signs))
    env.close()
