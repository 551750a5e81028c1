"""Actions: from the policy's columns to targets of joints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv
from genelab.errors import ConfigError, UsageError
from genelab.managers import ActionTerm, ActionTermCfg, TerminationTermCfg
from genelab.mdp.actions import JointPositionAction, JointPositionActionCfg
from genelab.rl.export_metadata import describe_actions
from genelab.rl.transforms import check_transforms, transforms_of
from genelab.scene import IdealPdActuatorCfg, ImplicitPdActuatorCfg, ImplicitVelocityActuatorCfg

MakeEnv = Callable[..., ManagerBasedRlEnv]

SERVO = ImplicitPdActuatorCfg(joint_names=(".*",), stiffness=100.0, damping=10.0)


def after(env: ManagerBasedRlEnv, steps: tuple[int, ...]) -> Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def act(env: ManagerBasedRlEnv, *columns: float) -> None:
    env.step(torch.tensor([columns], dtype=torch.float64).repeat(env.num_envs, 1))


def test_a_position_is_relative_to_the_default_pose(make_env: MakeEnv) -> None:
    cfg = mdp.JointPositionActionCfg(scale=0.5, offset={"x": 0.0, "y": 0.125})
    env = make_env(actions={"joints": cfg}, actuator=SERVO, joint_pos={"x": 0.25, "y": -0.5})
    env.reset()
    act(env, 1.0, -1.0)
    assert env.robot.joint_pos_target.tolist() == [[0.25 + 0.5, -0.5 + 0.125 - 0.5]] * 4


def test_a_position_without_the_default_pose(make_env: MakeEnv) -> None:
    cfg = mdp.JointPositionActionCfg(joint_names=("y",), use_default_offset=False, offset=0.5)
    env = make_env(actions={"joints": cfg}, actuator=SERVO, joint_pos={"x": 0.25, "y": -0.5})
    env.reset()
    act(env, 0.25)
    assert env.robot.joint_pos_target.tolist() == [[0.25, 0.75]] * 4  # x stays at its default


def test_a_velocity_moves_the_joint(make_env: MakeEnv) -> None:
    drive = ImplicitVelocityActuatorCfg(joint_names=(".*",), damping=1e4)
    env = make_env(actions={"speed": mdp.JointVelocityActionCfg(joint_names=("x",), scale=2.0)}, actuator=drive)
    env.reset()
    for _ in range(10):
        act(env, 0.25)
    assert env.robot.joint_vel_target.tolist() == [[0.5, 0.0]] * 4
    assert env.robot.joint_vel[0].tolist() == pytest.approx([0.5, 0.0], abs=1e-3)


def test_an_effort_accelerates_the_joint(make_env: MakeEnv) -> None:
    env = make_env(actions={"push": mdp.JointEffortActionCfg(scale=10.0)})
    env.reset()
    act(env, 0.6, -0.3)
    assert env.robot.joint_effort.flatten().tolist() == pytest.approx([6.0, -3.0] * 4)
    # 2 kg along x, 1 kg along y, for 0.02 s
    assert env.robot.joint_vel[0].tolist() == pytest.approx([6.0 / 2 * 0.02, -3.0 * 0.02])


def test_a_scale_by_joint(make_env: MakeEnv) -> None:
    env = make_env(actions={"joints": mdp.JointEffortActionCfg(scale={"y": 3.0, "x": 2.0})})
    env.reset()
    act(env, 1.0, 1.0)
    assert env.robot.joint_effort_target.tolist() == [[2.0, 3.0]] * 4


def test_a_clip_comes_before_the_scale(make_env: MakeEnv) -> None:
    env = make_env(actions={"joints": mdp.JointEffortActionCfg(scale=10.0, clip=(-0.5, 0.25))})
    env.reset()
    act(env, 4.0, -4.0)
    assert env.robot.joint_effort_target.tolist() == [[2.5, -5.0]] * 4
    assert env.action_manager.action.tolist() == [[4.0, -4.0]] * 4  # the policy's own, unclipped


def test_noise_is_added_to_what_is_used_not_to_what_is_remembered(make_env: MakeEnv) -> None:
    env = make_env(actions={"joints": mdp.JointEffortActionCfg(scale=2.0, noise_std=0.1)}, num_envs=1000)
    env.reset()
    act(env, 1.0, 1.0)
    target = env.robot.joint_effort_target
    assert len(target.unique()) == 2000
    assert target.mean().item() == pytest.approx(2.0, abs=0.02)
    assert target.std().item() == pytest.approx(0.2, rel=0.1)
    assert env.action_manager.action.unique().tolist() == [1.0]


def test_a_delay_is_a_number_of_control_steps(make_env: MakeEnv) -> None:
    end = TerminationTermCfg(func=after, params={"steps": (99, 3, 99, 99)})
    cfg = mdp.JointEffortActionCfg(joint_names=("x",), delay=(2, 2))
    env = make_env(actions={"late": cfg}, terminations={"end": end})
    env.reset()
    arrived = []
    for step in range(1, 6):
        act(env, float(step))
        arrived.append(env.robot.joint_effort_target[:2, 0].tolist())
    # The reset after the third step puts the target back to zero; then the new episode's first action has no past.
    assert arrived == [[1, 1], [1, 1], [1, 0], [2, 4], [3, 4]]


def test_each_environment_has_its_own_delay(make_env: MakeEnv) -> None:
    cfg = mdp.JointEffortActionCfg(joint_names=("x",), delay=(0, 2))
    env = make_env(actions={"late": cfg}, num_envs=64, episode_length_s=100.0)
    env.reset()
    lags = []
    for step in range(1, 7):
        act(env, float(step))
        lags.append(step - env.robot.joint_effort_target[:, 0])
    assert lags[-1].unique().tolist() == [0, 1, 2]
    assert torch.equal(lags[-1], lags[-2])


def test_columns_are_shared_out_in_the_order_of_the_terms(make_env: MakeEnv) -> None:
    actions = {
        "push_y": mdp.JointEffortActionCfg(joint_names=("y",)),
        "push_x": mdp.JointEffortActionCfg(joint_names=("x",)),
    }
    env = make_env(actions=actions)
    env.reset()
    assert env.action_dim == 2
    act(env, 1.0, 2.0)
    assert env.robot.joint_effort_target.tolist() == [[2.0, 1.0]] * 4


def test_the_last_two_actions_are_remembered_until_a_reset(make_env: MakeEnv) -> None:
    end = TerminationTermCfg(func=after, params={"steps": (99, 2, 99, 99)})
    env = make_env(actions={"push": mdp.JointEffortActionCfg(joint_names=("x",))}, terminations={"end": end})
    env.reset()
    manager = env.action_manager
    given = torch.full((4, 1), 1.0, dtype=torch.float64)
    env.step(given)
    given[:] = 7.0  # the caller's tensor is the caller's
    assert manager.action.flatten().tolist() == [1.0] * 4
    assert manager.prev_action.flatten().tolist() == [0.0] * 4
    act(env, 2.0)
    assert manager.action.flatten().tolist() == [2.0, 0.0, 2.0, 2.0]
    assert manager.prev_action.flatten().tolist() == [1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("action", "actuator", "message"),
    [
        (
            mdp.JointVelocityActionCfg(),
            SERVO,
            r"^env\.actions\.joints: the actuator 'drive' \(ImplicitPdActuatorCfg\) does not follow velocity targets$",
        ),
        (
            mdp.JointPositionActionCfg(joint_names=("x",)),
            ImplicitVelocityActuatorCfg(joint_names=(".*",), damping=1.0),
            r"\(ImplicitVelocityActuatorCfg\) does not follow position targets$",
        ),
        (mdp.JointEffortActionCfg(), SERVO, "does not follow effort targets$"),
        (
            mdp.JointEffortActionCfg(),
            IdealPdActuatorCfg(joint_names=("x",)),
            r"^env\.actions\.joints: no actuator drives y$",
        ),
        (mdp.JointEffortActionCfg(joint_names=("z",)), None, "^robot joint: nothing is called 'z'"),
        (mdp.JointEffortActionCfg(scale={"x": 1.0}), None, r"^env\.actions\.joints\.scale: no value for y$"),
        (mdp.JointEffortActionCfg(entity="robt"), None, "^no entity is called 'robt'. Did you mean 'robot'"),
    ],
)
def test_actions_that_cannot_be(
    make_env: MakeEnv, action: mdp.JointEffortActionCfg, actuator: IdealPdActuatorCfg | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(actions={"joints": action}, actuator=actuator)


def test_an_action_of_the_wrong_shape(make_env: MakeEnv) -> None:
    env = make_env(actions={"joints": mdp.JointEffortActionCfg()})
    env.reset()
    with pytest.raises(ConfigError, match=r"^the action must have shape \(4, 2\), got \(4, 3\)$"):
        env.step(torch.zeros(4, 3))
    with pytest.raises(ConfigError, match=r"^the action must have shape \(4, 2\), got \(2,\)$"):
        env.step(torch.zeros(2))


@dataclass(kw_only=True)
class SluggishCfg(JointPositionActionCfg):
    """Somebody else's action on joints."""

    share: float = 0.5
    words: tuple[str, ...] = ("slow", "steady")

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return Sluggish(name, self, env)


class Sluggish(JointPositionAction):
    """Goes a share of the way; says nothing about itself."""

    cfg: SluggishCfg

    def apply(self, action: Tensor) -> None:
        super().apply(self.cfg.share * action)


@dataclass(kw_only=True)
class ForceCfg(ActionTermCfg):
    """Somebody else's action on no joint."""

    strength: float

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return Force(name, self, env)


class Force(ActionTerm):
    dim = 1

    def apply(self, action: Tensor) -> None:
        """Nothing."""


def test_what_somebody_elses_action_does_is_told_and_checked(make_env: MakeEnv) -> None:
    scale = {"x": 0.25, "y": 0.5}
    env = make_env(
        actions={"slow": SluggishCfg(scale=scale), "push": ForceCfg(strength=2.0)},
        joint_pos={".*": 0.1},
        actuator=SERVO,
    )
    slow, push = describe_actions(env.action_manager.terms.values())
    common = {"entity": "robot", "delay": (0, 0)}
    untold = dict.fromkeys(("unit", "frame", "columns", "formula"))
    assert push == {"name": "push", "type": "Force", "start": 2, "dim": 1, **common, **untold, "strength": 2.0}
    own = {"share": 0.5, "words": ("slow", "steady")}
    joints = {"target": "position", "joint_names": ["x", "y"], "scale": [0.25, 0.5], "offset": [0.1, 0.1], "clip": None}
    columns = {**untold, "unit": "1", "columns": ("x", "y")}
    assert slow == {"name": "slow", "type": "Sluggish", "start": 0, "dim": 2, **common, **columns, **joints, **own}
    told = transforms_of(env)
    assert told == {
        "env.actions.slow.scale": scale,
        "env.actions.slow.offset": 0.1,
        "env.actions.slow.clip": None,
        "env.actions.slow.share": 0.5,
        "env.actions.slow.words": ["slow", "steady"],
        "env.actions.push.strength": 2.0,
    }
    for key, value, message in (
        ("env.actions.slow.share", 0.7, "trained with env.actions.slow.share 0.7, here 0.5: pass `env.actions"),
        ("env.actions.slow.words", ["fast"], r'pass `env.actions.slow.words=\["fast"\]`'),
        ("env.actions.push.strength", 1.0, "pass `env.actions.push.strength=1`"),
        ("env.actions.slow.offset", 0.2, "make env.actions.slow.offset and the robot's default pose add up to that"),
    ):
        with pytest.raises(UsageError, match=message):
            check_transforms({**told, key: value}, env, Path("model.pt"))
