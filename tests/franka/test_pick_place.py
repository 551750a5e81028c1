"""The task: what is seen and paid, how hand and cube move, and that hindsight tells no lies."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from genelab import TASKS
from genelab import math as gm
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.errors import GenelabError
from genelab.mdp.arm_actions import DifferentialIkAction
from genelab.rl import train_task
from genelab.rl.backends.sb3.env import GOAL_GROUPS, GenelabSb3VecEnv
from genelab.rl.backends.sb3.model import make_model
from genelab.rl.config import Sb3AgentCfg, Sb3OffPolicyCfg
from genelab.rl.exporter import export_task
from genelab.rl.nan_guard import NanGuard, load_replay
from genelab.scene import FrameSensor
from genelab_franka.collect_demos import Phase, Script
from genelab_franka.pick_place import compute_reward, cube_pos, ee_pos, is_success
from tests.kinematics import jacobian
from tests.narrow import as_kind

TASK = "GeneLab-Franka-Pick-And-Place-v0"


def make(num_envs: int = 4, *, noise: bool = False, **changes: Any) -> ManagerBasedRlEnv:
    cfg = rl_cfg(TASK)
    cfg.scene.num_envs, cfg.seed, cfg.simulation.threads = num_envs, 0, 1
    cfg.observations["observation"].enable_noise = noise
    for name, value in changes.items():
        setattr(cfg, name, value)
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    return env


@pytest.fixture(scope="module")
def shared() -> Iterator[ManagerBasedRlEnv]:
    """Six environments for tests that reset them."""
    env = make(6)
    yield env
    env.close()


@pytest.fixture
def env(shared: ManagerBasedRlEnv) -> ManagerBasedRlEnv:
    shared.reset(seed=0)
    return shared


# What is seen, asked and paid


def test_numbers_of_the_task(env: ManagerBasedRlEnv) -> None:
    assert (env.step_dt, env.max_episode_length, env.action_dim) == (pytest.approx(0.05), 100, 4)
    assert {name: group.dim for name, group in env.observation_manager.groups.items()} == {
        "observation": 35,
        "achieved_goal": 3,
        "desired_goal": 3,
    }
    layout = env.observation_manager.groups["observation"].layout
    assert [(term.name, term.dim, term.scale) for term in layout] == [
        ("joint_pos", 9, 1.0),
        ("joint_vel", 9, 0.1),
        ("ee_pos", 3, 1.0),
        ("cube_pos", 3, 1.0),
        ("ee_to_cube", 3, 1.0),
        ("cube_lin_vel", 3, 1.0),
        ("last_action", 4, 1.0),
        ("time_remaining", 1, 1.0),
    ]
    assert rl_cfg(TASK).scene.num_envs == 64
    agent = as_kind(TASKS.get(TASK).agent, Sb3AgentCfg)
    assert agent.off_policy.learning_starts >= 64 * 101


def test_the_observation_does_not_know_the_goal(env: ManagerBasedRlEnv) -> None:
    before = env.observation_manager.compute()
    env.commands["goal"][:] += 0.1
    after = env.observation_manager.compute()
    assert torch.equal(before["observation"], after["observation"])
    assert torch.equal(before["achieved_goal"], after["achieved_goal"])
    assert torch.allclose(after["desired_goal"] - before["desired_goal"], torch.tensor(0.1))


def test_cubes_and_goals_are_where_they_should_be() -> None:
    env = make(500)
    cube, goal = cube_pos(env), env.commands["goal"]
    for place in (cube, goal):
        assert place[:, 0].min() >= 0.35
        assert place[:, 0].max() <= 0.65
        assert place[:, 1].abs().max() <= 0.15
        assert place[:, :2].std(dim=0).tolist() == pytest.approx([0.3 / math.sqrt(12)] * 2, rel=0.1)
    assert cube[:, 2].tolist() == pytest.approx([0.02] * 500)
    assert (goal[:, 2] == 0.02).float().mean().item() == pytest.approx(0.3, abs=0.05)
    assert 0.18 < goal[:, 2].max() <= 0.2
    env.close()


@pytest.mark.parametrize(
    ("achieved", "desired", "reward"),
    [
        ((0.5, 0.0, 0.02), (0.5, 0.0, 0.02), 0.0),
        ((0.5, 0.0, 0.02), (0.5, 0.049, 0.02), 0.0),
        ((0.5, 0.0, 0.02), (0.5, 0.051, 0.02), -1.0),
        ((0.5, 0.0, 0.07), (0.5, 0.0, 0.17), -1.0 + 0.2 * 0.5),
        ((0.5, 0.0, 0.12), (0.5, 0.0, 0.12), 0.2),
        ((0.5, 0.0, 0.40), (0.5, 0.0, 0.12), -1.0 + 0.2),
        ((0.5, 0.0, -0.3), (0.5, 0.0, 0.02), -1.0),
    ],
)
def test_what_a_place_pays(env: ManagerBasedRlEnv, achieved: Any, desired: Any, reward: float) -> None:
    paid = compute_reward(np.array([achieved], np.float32), np.array([desired], np.float32), [{}])
    assert paid.tolist() == pytest.approx([reward], abs=1e-6)
    put_cubes(env, torch.tensor([achieved] * 6), torch.tensor([desired] * 6))
    assert env.reward_manager.compute().tolist() == pytest.approx([reward] * 6, abs=1e-6)
    assert env.extras["is_success"].tolist() == [reward > -0.5] * 6


def put_cubes(env: ManagerBasedRlEnv, places: Tensor, goals: Tensor) -> None:
    upright = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(env.num_envs, 4)
    env.scene["cube"].write_root_pose(torch.cat((places, upright), dim=1), None)
    env.scene.engine.refresh()
    env.commands["goal"][:] = goals


def test_a_cube_below_the_ground_ends_the_episode_for_good(env: ManagerBasedRlEnv) -> None:
    place = cube_pos(env).clone()
    place[2, 2] = -0.11
    put_cubes(env, place, env.commands["goal"].clone())
    env.termination_manager.compute()
    assert env.termination_manager.terminated.tolist() == [False, False, True, False, False, False]
    assert not env.termination_manager.truncated.any()


# How the hand moves


def grasp(env: ManagerBasedRlEnv) -> FrameSensor:
    sensor = env.scene.sensor("grasp")
    assert isinstance(sensor, FrameSensor)
    return sensor


def tilt(env: ManagerBasedRlEnv, held: Tensor) -> Tensor:
    """Angle between an orientation and the hand's, rad."""
    turned = gm.quat_mul(grasp(env).quat_w, held * torch.tensor([1.0, -1.0, -1.0, -1.0]))
    return 2 * turned[:, 1:].norm(dim=1).asin()


def test_jacobian_and_weight_are_mujocos(env: ManagerBasedRlEnv) -> None:
    torch.manual_seed(0)
    limits = env.robot.joint_pos_limits
    pose = limits[..., 0] + torch.rand(6, 9) * (limits[..., 1] - limits[..., 0])
    env.robot.write_joint_state(pose, torch.zeros(6, 9), None)
    env.scene.engine.refresh()
    engine, model = env.scene.engine, env.scene.engine.model
    term = env.action_manager.terms["hand"]
    assert isinstance(term, DifferentialIkAction)
    chain = term.chain
    chain.update()
    data = mujoco.MjData(model)
    stiffness = np.array([1000.0, 1000.0, 600.0, 600.0, 80.0, 80.0, 80.0])
    for i in range(6):
        expected = jacobian(model, engine.qpos[i], model.body("robot/hand").id, ee_pos(env)[i])[:, :7]
        torch.testing.assert_close(chain.jacobian()[i].mT.double(), expected, rtol=0, atol=1e-5)
        data.qpos[:] = engine.qpos[i].numpy()
        mujoco.mj_forward(model, data)  # at rest its bias force is the weight
        assert chain.yielding()[i].tolist() == pytest.approx(data.qfrc_bias[:7] / stiffness, abs=1e-5)


def test_zero_action_holds_still(env: ManagerBasedRlEnv) -> None:
    start, held = ee_pos(env).clone(), grasp(env).quat_w.clone()
    for _ in range(40):
        env.step(torch.zeros(6, 4))
    assert (ee_pos(env) - start).norm(dim=1).max() < 1e-4
    assert tilt(env, held).max() < 1e-3


def test_the_hand_goes_where_it_is_told_and_does_not_turn(env: ManagerBasedRlEnv) -> None:
    directions = torch.cat((torch.eye(3), -torch.eye(3)))  # one for each environment
    start, held = ee_pos(env).clone(), grasp(env).quat_w.clone()
    for _ in range(6):
        env.step(torch.cat((directions, torch.zeros(6, 1)), dim=1))
        assert tilt(env, held).max() < 0.03
    moved = ee_pos(env) - start
    along = (moved * directions).sum(dim=1)
    aside = (moved - along[:, None] * directions).norm(dim=1)
    assert along.min() > 0.08  # 6 steps of 5 cm, of which servos give two fifths
    assert along.max() < 0.13
    assert aside.max() < 0.015


def test_a_loop_around_the_hand_reaches_a_place_exactly(env: ManagerBasedRlEnv) -> None:
    target = ee_pos(env) + torch.tensor([-0.1, 0.08, -0.06])
    held = grasp(env).quat_w.clone()
    for _ in range(40):
        env.step(torch.cat((((target - ee_pos(env)) / 0.05).clamp(-1, 1), torch.zeros(6, 1)), dim=1))
    assert (ee_pos(env) - target).norm(dim=1).max() < 1e-3
    assert tilt(env, held).max() < 2e-3


def test_fingers_close_at_their_speed(env: ManagerBasedRlEnv) -> None:
    for _ in range(4):
        env.step(torch.tensor([0.0, 0.0, 0.0, -1.0]).repeat(6, 1))
    fingers = env.robot.joint_pos[:, 7:]
    assert fingers.mean().item() == pytest.approx(0.04 - 4 * 0.005, abs=0.004)
    assert (fingers[:, 0] - fingers[:, 1]).abs().max() < 1e-4


def test_a_gripped_cube_does_not_slip() -> None:
    env = make(6, episode_length_s=20.0)
    script = Script(env)
    env.commands["goal"][:] = torch.tensor([0.5, 0.0, 0.15])
    for _ in range(45):
        env.step(script.act())
    assert (script.phase == Phase.HOLD).all()
    offset = cube_pos(env) - ee_pos(env)

    def slip() -> float:
        return ((cube_pos(env) - ee_pos(env)) - offset).norm(dim=1).max().item()

    for _ in range(50):  # 2.5 s at rest
        env.step(torch.tensor([0.0, 0.0, 0.0, -1.0]).repeat(6, 1))
    assert slip() < 0.0015
    for step in range(50):  # 2.5 s to and fro
        swing = math.copysign(0.5, math.sin(step * 0.8))
        env.step(torch.tensor([swing, -swing, 0.0, -1.0]).repeat(6, 1))
    assert slip() < 0.007
    assert env.robot.joint_pos[:, 7:].tolist() == [pytest.approx([0.02, 0.02], abs=1e-3)] * 6  # pads do not sink in
    env.close()


def test_fingers_that_do_not_close_do_not_hold(env: ManagerBasedRlEnv) -> None:
    script = Script(env)
    env.commands["goal"][:] = torch.tensor([0.5, 0.0, 0.15])
    for _ in range(45):
        env.step(script.act())
    assert cube_pos(env)[:, 2].min() > 0.1
    for _ in range(20):
        env.step(torch.tensor([0.0, 0.0, 0.0, 1.0]).repeat(6, 1))
    assert cube_pos(env)[:, 2].max() < 0.03


def test_random_actions_explode_nothing() -> None:
    env = make(16)
    torch.manual_seed(0)
    for _ in range(100):
        observations, reward, *_ = env.step(torch.sign(torch.rand(16, 4) - 0.5))
        assert all(values.isfinite().all() for values in (*observations.values(), reward))
        assert env.robot.joint_vel[:, :7].abs().max() < 10.0
        assert env.scene["cube"].root_lin_vel_w.norm(dim=1).max() < 10.0
    limits = env.robot.joint_pos_limits
    assert (env.robot.joint_pos > limits[..., 0] - 0.05).all()
    assert (env.robot.joint_pos < limits[..., 1] + 0.05).all()
    env.close()


def test_a_saved_state_goes_on_as_before(env: ManagerBasedRlEnv) -> None:
    script = Script(env)
    for _ in range(15):
        env.step(script.act())
    state = env.state_dict()
    actions = 2 * torch.rand(5, 6, 4) - 1
    paths = []
    for _ in range(2):
        env.load_state_dict(state)
        paths.append([env.step(action)[0]["observation"] for action in actions])
    assert all(torch.equal(first, second) for first, second in zip(*paths, strict=True))


def test_success_is_told_whatever_the_reward_weighs() -> None:
    cfg = rl_cfg(TASK)
    cfg.scene.num_envs, cfg.seed, cfg.rewards["at_goal"].weight = 2, 0, 0.0
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    put_cubes(env, env.commands["goal"].clone(), env.commands["goal"].clone())
    _, reward, *_, info = env.step(torch.zeros(2, 4))
    assert info["is_success"].tolist() == [True, True]
    assert env.metrics_manager._max[1].tolist() == [1.0, 1.0]
    assert reward.tolist() == [0.0, 0.0]
    env.close()


def test_what_led_to_a_bad_number_is_seen_again(tmp_path: Path) -> None:
    env = make(2, noise=True)
    env.watchers.append(NanGuard(env, TASK, tmp_path))
    seen = [env.step(action)[0]["observation"] for action in torch.rand(6, 2, 4)]
    env.reward_manager.weights["at_goal"] = math.nan
    with pytest.raises(GenelabError, match="reward 'at_goal'"):
        env.step(torch.zeros(2, 4))
    replay = load_replay(tmp_path / "nan_dump.pt", TASK)
    again = [replay.env.step(action)[0]["observation"] for action in replay.actions]
    assert all(torch.equal(a, b) for a, b in zip(seen, again, strict=False))
    assert len(again) == 7
    env.close()


# Hindsight


def small_agent(num_envs: int, episode: int, **changes: Any) -> Sb3AgentCfg:
    agent = TASKS.get(TASK).agent
    assert isinstance(agent, Sb3AgentCfg)
    agent.hidden_dims = (16,)
    agent.off_policy = Sb3OffPolicyCfg(
        buffer_size=num_envs * 60, batch_size=32, learning_starts=num_envs * (episode + 1), gradient_steps=1
    )
    for name, value in changes.items():
        setattr(agent, name, value)
    return agent


@pytest.fixture(scope="module")
def replay() -> Iterator[Any]:
    """A replay buffer of four environments, two and a half episodes of one second each, and its task."""
    env = make(4, noise=True, episode_length_s=1.0)
    agent = small_agent(4, 20)
    model = make_model(GenelabSb3VecEnv(env, her=agent.her), agent)
    model.learn(4 * 50, log_interval=None)
    yield model.replay_buffer, env
    env.close()


def test_relabelled_rewards_are_what_the_environment_would_have_paid(replay: Any) -> None:
    buffer, env = replay
    batch = buffer.sample(200)
    achieved, desired = (batch.next_observations[name] for name in ("achieved_goal", "desired_goal"))
    paid = batch.rewards[:, 0]
    assert np.array_equal(paid.numpy(), compute_reward(achieved.numpy(), desired.numpy(), []))
    for start in range(0, 200, 4):
        rows = slice(start, start + 4)
        put_cubes(env, achieved[rows], desired[rows])
        torch.testing.assert_close(env.reward_manager.compute(), paid[rows], rtol=0, atol=1e-6)
        assert torch.equal(env.extras["is_success"], is_success(achieved[rows], desired[rows]))
    goals = {tuple(goal) for goal in buffer.observations["desired_goal"][: buffer.pos].reshape(-1, 3).tolist()}
    relabelled = np.array([tuple(goal) not in goals for goal in desired.tolist()])
    assert 0.65 < relabelled.mean() < 0.95  # four of five, where an episode has a later step
    assert (paid[torch.as_tensor(relabelled)] > -0.5).float().mean() > 0.5  # a cube that lay still has arrived
    assert torch.equal(batch.observations["desired_goal"], batch.next_observations["desired_goal"])


def test_stored_rewards_are_those_of_the_stored_places(replay: Any) -> None:
    buffer, _ = replay
    achieved, desired = (
        buffer.next_observations[name][: buffer.pos].reshape(-1, 3) for name in ("achieved_goal", "desired_goal")
    )
    np.testing.assert_allclose(
        buffer.rewards[: buffer.pos].ravel(), compute_reward(achieved, desired, []), rtol=0, atol=1e-6
    )


def test_last_observations_are_of_before_the_reset_and_time_outs_bootstrap(replay: Any) -> None:
    buffer, _ = replay
    ends = [19, 39]
    assert np.flatnonzero(buffer.dones[:50, 0]).tolist() == np.flatnonzero(buffer.timeouts[:50, 0]).tolist() == ends
    for name in GOAL_GROUPS:
        following, last = buffer.observations[name][1:50], buffer.next_observations[name][:49]
        same = (following == last).all(axis=2)
        assert same[[i for i in range(49) if i not in ends]].all()
        assert not same[ends].any()
    time_left = buffer.next_observations["observation"][ends, :, 34]
    np.testing.assert_allclose(time_left, 0.0, atol=1e-6)
    assert not buffer.sample(100).dones.any()


def test_a_cube_that_is_lifted_for_the_first_time_is_stored_where_it_was() -> None:
    env = make(4, noise=True, episode_length_s=1.0)
    agent = small_agent(4, 100)
    model = make_model(GenelabSb3VecEnv(env, her=agent.her), agent)
    model.learn(4 * 19, log_interval=None)  # cubes lie on the ground until the last step of the episode
    assert model.get_vec_normalize_env().obs_rms["observation"].var[23] < 0.01**2
    put_cubes(env, torch.tensor([[0.5, 0.0, 0.15 + 0.5 * 9.81 * 0.05**2]]).expand(4, 3), env.commands["goal"].clone())
    model.learn(4, reset_num_timesteps=False, log_interval=None)
    buffer = model.replay_buffer
    assert buffer.dones[19].all()
    np.testing.assert_allclose(buffer.next_observations["achieved_goal"][19, :, 2], 0.15, rtol=0, atol=2e-3)
    np.testing.assert_allclose(buffer.next_observations["observation"][19, :, 23], 0.15, rtol=0, atol=5e-3)
    env.close()


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = (
        *("--env.episode_length_s", "0.5", "--agent.hidden_dims", "[16]", "--agent.off_policy.buffer_size", "200"),
        *("--agent.off_policy.learning_starts", "24", "--agent.off_policy.gradient_steps", "1"),
    )
    start = ["train", TASK, "--num-envs", "2", "--seed", "0", "--quiet", "--no-final-eval", *settings]
    assert run([*start, "--max-iterations", "80", "--log-dir", "whole"]) == 0
    assert run([*start, "--max-iterations", "50", "--log-dir", "part"]) == 0
    assert run(["train", TASK, "--resume", "part", "--max-iterations", "80", "--quiet"]) == 0
    whole, part = (
        torch.load(io.BytesIO(zipfile.ZipFile(Path(name) / "model.zip").read("policy.pth")), weights_only=True)
        for name in ("whole", "part")
    )
    assert all(torch.equal(whole[name], part[name]) for name in whole)


# Out of the lab


def test_the_exported_policy_takes_one_row_of_41(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    task = TASKS.get(TASK)
    as_kind(task.env, ManagerBasedRlEnvCfg).episode_length_s = 0.5
    task.agent = small_agent(2, 10, timesteps=40)
    TASKS.register("Small-v0", lambda: task)
    run = train_task("Small-v0", num_envs=2, seed=0)
    result = export_task("Small-v0", run.checkpoint, out=Path("policy.ts"))
    metadata = result.metadata
    assert (metadata["obs_dim"], metadata["action_dim"]) == (41, 4)
    groups = metadata["obs_groups"]
    assert [(name, group["start"], group["dim"]) for name, group in groups.items()] == [
        ("observation", 0, 35),
        ("achieved_goal", 35, 3),
        ("desired_goal", 38, 3),
    ]
    hand, gripper = metadata["actions"]
    assert (hand["body"], hand["scale"], hand["damping"], hand["max_joint_step"]) == ("hand", 0.05, 0.05, 0.2)
    assert hand["joint_names"] == [f"joint{i}" for i in range(1, 8)]
    assert (gripper["speed"], gripper["joint_names"]) == (0.1, ["finger_joint1", "finger_joint2"])
    actions = torch.jit.load("policy.ts")(torch.zeros(3, 41))
    assert actions.shape == (3, 4)
