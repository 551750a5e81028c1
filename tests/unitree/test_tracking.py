"""G1 follows a motion: the published numbers, and what its terms say by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import ConfigError
from genelab.managers.marks import Ghost
from genelab.mdp.mirror import augment
from genelab.mdp.motion_action import MotionJointPositionActionCfg
from genelab.mdp.motion_command import MotionCommand, MotionCommandCfg
from genelab.motion import npz_bytes
from genelab.rl.world import eval_cfg
from genelab.scene.mirror import of_joints
from genelab.sim.mujoco_engine import MujocoEngine
from genelab_unitree.robots.g1 import g1_spec
from genelab_unitree.tracking import LEAD
from tests.narrow import as_kind

TASK = "Genelab-Tracking-Flat-Unitree-G1-v0"
FRAMES = 61
"""Of a second and a bit at 50 Hz."""


def write_clip(path: Path, joint_pos: np.ndarray, x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> Path:
    """A motion of the G1, its root in one place."""
    count = len(joint_pos)
    quat = np.tile([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)], (count, 1))
    root = {"root_pos": np.tile([x, y, 0.757], (count, 1)), "root_quat": quat}
    path.write_bytes(npz_bytes(fps=np.array([50.0]), joint_pos=joint_pos, **root))
    return path


def standing(angle: float = 0.0) -> np.ndarray:
    """The default pose, while the left elbow turns by an angle, evenly."""
    joints = [g1_spec().joints[i].name for i in range(1, 30)]
    pose = {"hip_pitch": -0.312, "knee": 0.669, "ankle_pitch": -0.363, "elbow": 0.6, "shoulder_pitch": 0.2}
    row = np.array([next((v for k, v in pose.items() if k in name), 0.0) for name in joints])
    row[joints.index("left_shoulder_roll_joint")], row[joints.index("right_shoulder_roll_joint")] = 0.2, -0.2
    rows = np.tile(row, (FRAMES, 1))
    rows[:, joints.index("left_elbow_joint")] += np.linspace(0.0, angle, FRAMES)
    return rows


def make(
    file: Path | str, *, play: bool = True, num_envs: int = 2, feed_forward: float = 1.0, **settings: str
) -> ManagerBasedRlEnv:
    cfg = rl_cfg(TASK, play=play)
    as_kind(cfg.actions["joint_pos"], MotionJointPositionActionCfg).feed_forward = feed_forward
    cfg.scene.num_envs = num_envs
    cfg.simulation.fresh_kinematics = True
    motion = as_kind(cfg.commands["motion"], MotionCommandCfg)
    motion.file = str(file)
    for name, value in settings.items():
        setattr(motion, name, value)
    return ManagerBasedRlEnv(cfg)


def motion_of(env: ManagerBasedRlEnv) -> MotionCommand:
    motion = env.commands.term("motion")
    assert isinstance(motion, MotionCommand)
    return motion


def put_where_asked(env: ManagerBasedRlEnv, **offset: float) -> dict[str, float]:
    """Put the robots where they are to be, off by this along each axis; returns the rate of every reward."""
    axes = torch.tensor([[offset.get(axis, 0.0) for axis in ("x", "y", "z", "roll", "pitch", "yaw")]])
    motion = motion_of(env)
    motion.put(None, motion.frame, axes.expand(env.num_envs, 6))
    env.scene.engine.refresh()
    env.reward_manager.compute()
    rates = env.reward_manager.step_reward[:, 0] / env.step_dt
    return dict(zip(env.reward_manager.terms, rates.tolist(), strict=True))


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerBasedRlEnv]:
    """Two robots that are asked to stand while an arm moves."""
    path = tmp_path_factory.mktemp("clips") / "still.npz"
    env = make(write_clip(path, standing(0.3), x=0.5, yaw=0.3))
    env.reset(seed=0)
    yield env
    env.close()


def test_the_published_numbers() -> None:
    cfg = rl_cfg(TASK)
    weights = {name: (term.weight, term.params.get("std")) for name, term in cfg.rewards.items()}
    assert weights == {
        "anchor_pos": (0.5, 0.3),
        "anchor_ori": (0.5, 0.4),
        "body_pos": (1.0, 0.3),
        "body_ori": (1.0, 0.4),
        "body_lin_vel": (1.0, 1.0),
        "body_ang_vel": (1.0, math.pi),
        "action_rate": (-0.1, None),
        "joint_pos_limits": (-10.0, None),
    }
    assert cfg.episode_length_s == 10.0
    assert cfg.simulation.dt * cfg.decimation == pytest.approx(0.02)
    play = rl_cfg(TASK, play=True)
    assert play.episode_length_s == 1e9
    assert eval_cfg(play, 4).episode_length_s == 30.0
    ends = {name: term.params.get("distance", term.params.get("limit")) for name, term in play.terminations.items()}
    assert ends == {"time_out": None, "anchor_height": 0.25, "anchor_tilt": 0.8, "end_effector_height": 0.25}


def test_what_is_seen_with_and_without_state_estimation(still: ManagerBasedRlEnv) -> None:
    groups = still.observation_manager.groups
    assert (groups["policy"].dim, groups["critic"].dim) == (160, 286)
    cfg = rl_cfg("Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0", play=True)
    assert rl_cfg(TASK, play=True).observations["policy"].terms.keys() - cfg.observations["policy"].terms.keys() == {
        "motion_anchor_pos",
        "base_lin_vel",
    }
    assert cfg.observations["critic"] == rl_cfg(TASK, play=True).observations["critic"]


def test_fourteen_bodies_around_the_torso(still: ManagerBasedRlEnv) -> None:
    motion = motion_of(still)
    assert len(motion.body_names) == 14
    assert motion.body_names[motion.anchor] == "torso_link"
    hands = [motion.body_names[i] for i in motion.end_effectors.tolist()]
    assert sorted(hands) == [
        "left_ankle_roll_link",
        "left_wrist_yaw_link",
        "right_ankle_roll_link",
        "right_wrist_yaw_link",
    ]


def test_a_perfect_match_is_paid_in_full(still: ManagerBasedRlEnv) -> None:
    still.reset(seed=0)
    rates = put_where_asked(still)
    assert {name: round(rate, 4) for name, rate in rates.items() if rate > 0} == {
        "anchor_pos": 0.5,
        "anchor_ori": 0.5,
        "body_pos": 1.0,
        "body_ori": 1.0,
        "body_lin_vel": 1.0,
        "body_ang_vel": 1.0,
    }
    assert all(error.abs().max() < 2e-3 for error in motion_of(still).errors.values())


def test_a_robot_that_does_it_elsewhere_loses_what_the_anchor_pays(still: ManagerBasedRlEnv) -> None:
    """0.3 m away is one standard deviation of the position; the bodies around the anchor are where they should be."""
    still.reset(seed=0)
    rates = put_where_asked(still, x=0.3)
    assert rates["anchor_pos"] == pytest.approx(0.5 * math.exp(-1.0), rel=1e-3)
    assert (rates["anchor_ori"], rates["body_pos"]) == (pytest.approx(0.5, rel=1e-3), pytest.approx(1.0, rel=1e-3))
    errors = motion_of(still).errors
    assert errors["mpkpe"].tolist() == pytest.approx([0.3, 0.3], rel=1e-3)
    assert errors["mpkpe_root"].abs().max() < 1e-3
    assert errors["end_effector_pos"].tolist() == pytest.approx([0.3, 0.3], rel=1e-3)


def test_a_robot_that_is_turned_is_compared_with_the_motion_turned(still: ManagerBasedRlEnv) -> None:
    still.reset(seed=0)
    rates = put_where_asked(still, yaw=0.4)
    assert rates["anchor_ori"] == pytest.approx(0.5 * math.exp(-1.0), rel=1e-3)
    assert (rates["body_pos"], rates["body_ori"]) == (pytest.approx(1.0, rel=1e-3), pytest.approx(1.0, rel=1e-3))
    assert motion_of(still).errors["end_effector_ori"].tolist() == pytest.approx([0.4, 0.4], rel=1e-2)


@pytest.mark.parametrize(
    ("offset", "ends"),
    [
        ({"z": 0.2}, set()),
        ({"z": 0.26}, {"anchor_height", "end_effector_height"}),
        ({"pitch": 1.2}, {"end_effector_height"}),  # feet half a metre up; cos 1.2 is not 0.8 below 1
        ({"pitch": 1.4}, {"anchor_tilt", "end_effector_height"}),
    ],
)
def test_what_ends_an_episode(still: ManagerBasedRlEnv, offset: dict[str, float], ends: set[str]) -> None:
    still.reset(seed=0)
    put_where_asked(still, **offset)
    still.termination_manager.compute()
    said = still.termination_manager.values[:, 0].tolist()
    found = {name for name, value in zip(still.termination_manager.terms, said, strict=True) if value}
    assert found == ends


def test_the_motion_is_seen_from_the_robots_anchor(still: ManagerBasedRlEnv) -> None:
    """It stands at x = 0.5 m with a heading of 0.3 rad. From 0.1 m behind that, in its own frame, it is 0.1 m ahead."""
    still.reset(seed=0)
    put_where_asked(still, x=-0.1 * math.cos(0.3), y=-0.1 * math.sin(0.3))
    layout = {term.name: term for term in still.observation_manager.groups["policy"].layout}
    seen = still.observation_manager.compute()["policy"][0]
    place, turn = (
        seen[layout[name].start :][:size] for name, size in (("motion_anchor_pos", 3), ("motion_anchor_ori", 6))
    )
    torch.testing.assert_close(place, torch.tensor([0.1, 0.0, 0.0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(turn, torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]), atol=1e-3, rtol=0)


def test_zero_action_aims_at_the_motion_ahead_of_the_servos_lag(tmp_path: Path) -> None:
    """The left elbow turns by 0.3 rad in 60 frames: 0.25 rad/s, and a servo that lags 64 ms is told 16 mrad more."""
    env = make(write_clip(tmp_path / "clip.npz", standing(0.3)), feed_forward=0.0)
    env.reset(seed=0)
    elbow = env.robot.joint_names.index("left_elbow_joint")
    env.action_manager.process(torch.zeros(2, 29))
    assert pytest.approx(2 / (math.pi * 10)) == LEAD  # 2 ζ / ω of a servo of 10 Hz with twice the critical damping
    asked = 0.6 + 0.3 / 60 + LEAD * 0.25
    assert env.robot.joint_pos_target[0, elbow].item() == pytest.approx(asked, abs=1e-4)
    env.close()


@pytest.mark.parametrize(("feed_forward", "low", "high"), [(1.0, 0.0, 0.005), (0.0, 0.015, 1.0)])
def test_a_robot_that_does_nothing_does_the_motion(
    feed_forward: float, low: float, high: float, tmp_path: Path
) -> None:
    """Half a second, while its servos carry it: with the torques under its action it hardly sinks."""
    env = make(write_clip(tmp_path / "clip.npz", standing(0.3)), feed_forward=feed_forward)
    env.reset(seed=0)
    for _ in range(25):
        env.step(torch.zeros(2, 29))
    assert low <= float(motion_of(env).errors["mpkpe"].max()) < high
    env.close()


def test_the_ghost_stands_beside_where_the_motion_is(still: ManagerBasedRlEnv) -> None:
    still.reset(seed=0)
    (ghost,) = motion_of(still).marks(0, 1.0)
    assert isinstance(ghost, Ghost)
    assert ghost.qpos[:3].tolist() == pytest.approx([0.5 - 0.7, -0.5, 0.757])
    scene = mujoco.MjvScene(still.scene.engine.model, maxgeom=200)
    from genelab.viewer.puppet import Puppet

    puppet = Puppet(still.scene)
    ghost.add_to(scene, puppet)
    shapes = sum(len(geoms) for geoms in ghost.shapes(puppet.model).values())
    drawn = [geom for geom in scene.geoms[: scene.ngeom] if geom.rgba[3] > 0]
    assert len(drawn) == shapes > 20
    assert all(geom.rgba[3] == pytest.approx(0.4) for geom in drawn)


def test_the_page_places_every_body_of_the_ghost(still: ManagerBasedRlEnv) -> None:
    pytest.importorskip("mjviser")
    from genelab.rl.player import Player
    from genelab.viewer import ViewerCfg
    from genelab.viewer.web import WebViewer
    from tests.viewer.pages import free_port

    still.reset(seed=0)
    page = WebViewer(Player(still, "zero", None, None), ViewerCfg(kind="web", port=free_port()))
    try:
        page._draw()
        (shapes,) = page._marks
        offset = page._scene.fixed_bodies_frame.position
        pelvis = shapes[still.robot.root_id].position - offset
        assert pelvis.tolist() == pytest.approx([0.5 - 0.7, -0.5, 0.757], abs=1e-5)
        assert len(shapes) > 20
    finally:
        page.close()


def test_an_episode_begins_on_the_motion_and_asks_for_the_next_frame(tmp_path: Path) -> None:
    env = make(write_clip(tmp_path / "a.npz", standing(0.3)), play=False, num_envs=8)
    env.cfg.schedules["starts"].start = 0.0
    env.event_manager.cfgs["reset_to_motion"].params["schedule"] = "starts"
    env.schedule_manager.terms["starts"].value = 0.0
    env._reset_envs(None)
    motion = motion_of(env)
    assert len(motion.start.unique()) > 3  # anywhere
    assert torch.equal(motion.frame, motion.start + 1)
    elbow = env.robot.joint_names.index("left_elbow_joint")
    torch.testing.assert_close(env.robot.joint_pos[:, elbow], 0.6 + 0.005 * motion.start, atol=1e-5, rtol=0)
    torch.testing.assert_close(env.robot.joint_vel[:, elbow], torch.full((8,), 0.25), atol=1e-4, rtol=0)
    env.close()


def test_a_motion_that_is_over_cuts_training_off_and_begins_anew_in_play(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.npz", standing(0.3))
    env = make(path, play=False)
    env.reset(seed=0)
    motion_of(env).frame[:] = torch.tensor([FRAMES - 1, FRAMES - 2])
    *_, terminated, truncated, info = env.step(torch.zeros(2, 29))
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [True, False])
    assert info["time_outs"].tolist() == [True, False]
    env.close()
    env = make(path)
    env.reset(seed=0)
    motion_of(env).frame[:] = FRAMES - 1
    env.step(torch.zeros(2, 29))
    assert motion_of(env).frame.tolist() == [1, 1]  # it does not close: the robot is on frame 0
    elbow = env.robot.joint_names.index("left_elbow_joint")
    assert env.robot.joint_pos[0, elbow].item() == pytest.approx(0.6, abs=1e-5)
    env.close()
    env = make(write_clip(path, standing(0.1)))
    env.reset(seed=0)
    motion_of(env).frame[:] = FRAMES - 1
    env.step(torch.zeros(2, 29))
    assert motion_of(env).frame.tolist() == [0, 0]  # it closes: the robot goes on from where it is
    assert env.robot.joint_pos[0, elbow].item() != pytest.approx(0.6, abs=1e-5)
    env.close()


def test_adaptive_starts_are_where_robots_fail(tmp_path: Path) -> None:
    rows = np.tile(standing()[:1], (500, 1))  # ten seconds
    env = make(write_clip(tmp_path / "a.npz", rows), play=False, num_envs=64, sampling="adaptive")
    env.reset(seed=0)
    motion = motion_of(env)
    assert len(motion.failures) == 10
    motion.frame[:] = 320  # in the seventh second
    env.termination_manager.terminated = torch.ones(64, dtype=torch.bool)
    for _ in range(100):
        motion.draw_start(None)
    assert motion.failures.argmax() == 6
    parts = torch.bincount(motion.bins[motion.start], minlength=10)
    assert parts[4:7].sum() > 45  # there, and in the two seconds before it
    env.close()


def test_several_motions_are_shared_among_the_robots(tmp_path: Path) -> None:
    first, second = (write_clip(tmp_path / f"{name}.npz", standing(), x=x) for name, x in (("a", 0.0), ("b", 1.0)))
    env = make(f"{first},{second}", num_envs=3)
    env.reset(seed=0)
    assert env.robot.root_pos_w[:, 0].tolist() == pytest.approx([0.0, 1.0, 0.0])
    assert list(motion_of(env).motions) == ["a", "b"]
    env.close()


def test_the_mirror_image_follows_the_mirrored_motion(tmp_path: Path) -> None:
    angles = standing() + 0.1 * np.sin(np.arange(FRAMES)[:, None] / 10 + np.arange(29))
    probe = make(write_clip(tmp_path / "a.npz", angles, x=0.2, y=0.1, yaw=0.3), num_envs=1)
    image = of_joints(probe.robot)
    probe.close()
    mirrored = angles[:, list(image.columns)] * np.array(image.signs)
    write_clip(tmp_path / "b.npz", mirrored, x=0.2, y=-0.1, yaw=-0.3)
    env = make(f"{tmp_path}/a.npz,{tmp_path}/b.npz")
    env.reset(seed=0)
    motion = motion_of(env)
    joints = 0.1 * torch.rand(29, generator=torch.Generator().manual_seed(0))
    both = torch.stack((joints, joints[list(image.columns)] * torch.tensor(image.signs)))
    pose = torch.tensor([[0.05, 0.03, 0.01, 0.1, 0.2, 0.3], [0.05, -0.03, 0.01, -0.1, 0.2, -0.3]])
    motion.put(None, motion.start, pose, 2 * pose, both)
    env.scene.engine.refresh()
    seen = env.observation_manager.compute(keep=False)
    batch, _ = augment(env, TensorDict(seen, batch_size=[2]), None)
    for name, group in seen.items():
        assert (group[0] - group[1]).abs().max() > 0.1
        torch.testing.assert_close(batch[name][2], group[1], atol=2e-5, rtol=0)
    env.close()


def test_a_hand_carries_the_robot_along_and_lets_go(tmp_path: Path) -> None:
    env = make(write_clip(tmp_path / "a.npz", standing()), play=False)
    env.reset(seed=0)
    motion = motion_of(env)
    motion.put(None, motion.frame, torch.tensor([[-0.1, 0.0, 0.0, 0.0, 0.0, 0.0]]).expand(2, 6))
    hand = env.event_manager.terms["hand"]
    hand(None)
    applied = as_kind(env.scene.engine, MujocoEngine)._views["xfrc_applied"]
    forces = applied[0, env.robot.root_id]
    assert forces[0].item() == pytest.approx(40.0, rel=1e-3)  # 0.1 m at 400 N/m
    assert forces[1:].abs().max() < 0.5
    env.schedule_manager.terms["hand"].value = 0.0
    hand(None)
    assert applied.abs().max() == 0.0
    env.close()


def test_the_probe_tells_who_reached_the_end(tmp_path: Path) -> None:
    from genelab.rl.backends.base import InferenceSetup
    from genelab.rl.policies import zero_policy
    from genelab.rl.probe import probes_of, run_probe

    first, second = (write_clip(tmp_path / f"{name}.npz", standing()[:count]) for name, count in (("a", 61), ("b", 11)))
    env = make(f"{first},{second}", num_envs=4)
    (probe,) = probes_of(env).values()
    report = run_probe(env, InferenceSetup(policy=zero_policy(env)), probe, seed=0).report()
    assert report["seconds"] == pytest.approx(1.2)
    short = report["clips"]["b"]  # nobody falls in a fifth of a second
    assert (short["robots"], short["reached_end"], short["success"]) == (2, 2, 1.0)
    assert short["success_ci95"][0] == pytest.approx(0.342, abs=1e-3)  # two of two say little
    assert 0.0 < short["mpkpe"] < 0.06
    assert len(report["clips"]["a"]["by_second"]["mpkpe"]) == 2
    env.close()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("dnce", "no motion is called 'dnce'. Did you mean 'dance'?"),
        ("none.npz", "none.npz: there is no such file"),
        ("", "which motion?"),
    ],
)
def test_a_wrong_motion_is_refused(file: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make(file, num_envs=1)
    assert str(error.value).startswith(f"env.commands.motion.file: {message}")
