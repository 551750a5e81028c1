"""What must hold for every registered task, and the numbers of the pendulums."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import pytest
import torch

from genelab import TASKS
from genelab.config import dump_json, load_json, to_dict
from genelab.envs import ManagerBasedEnv, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, make_env, rl_cfg
from genelab.rl.config import RslRlOnPolicyRunnerCfg, SkrlAgentCfg
from tests.futures import assert_same_future, make_far, through_a_file
from tests.narrow import as_kind, present

ALL = TASKS.ids()
REFERENCE = Path(__file__).parents[1] / "reference"


@functools.cache
def playing(task: str) -> ManagerBasedEnv:
    """A task's play config, built once, with one environment; nobody steps it."""
    return make_env(TASKS.get(task).playing)


def test_the_bundled_tasks_are_there() -> None:
    assert {
        "GeneLab-Inverted-Pendulum-v0",
        "GeneLab-Inverted-Pendulum-Skrl-v0",
        "GeneLab-Double-Inverted-Pendulum-v0",
        "GeneLab-Inverted-Pendulum-Memory-Rnn-v0",
        "GeneLab-Inverted-Pendulum-Memory-Mlp-v0",
    } <= set(ALL)


@pytest.mark.parametrize("task", ALL)
def test_every_task_builds_steps_and_resets(task: str) -> None:
    cfg = TASKS.get(task).env
    cfg.scene.num_envs = 4
    env = make_env(cfg)
    observations, _ = env.reset(seed=0)
    for _ in range(30):
        observations, *_ = env.step(torch.rand(4, env.action_dim) * 2 - 1)
    assert all(values.isfinite().all() for values in observations.values())


@pytest.mark.parametrize("task", [task for task in ALL if isinstance(TASKS.get(task).env, ManagerBasedRlEnvCfg)])
def test_every_task_goes_on_from_a_saved_state_as_it_would_have(task: str) -> None:
    cfg = rl_cfg(task)
    cfg.simulation.engine, cfg.simulation.threads = "mujoco", 1
    first, second = make_far(cfg)
    second.load_state_dict(through_a_file(first.state_dict()))
    assert assert_same_future(first, second, steps=20) > 0


@pytest.mark.parametrize("task", ALL)
def test_every_config_survives_json(task: str, tmp_path: Path) -> None:
    cfg = TASKS.get(task)
    for name in ("env", "play_env", "agent"):
        value = getattr(cfg, name)
        dump_json(value, tmp_path / "cfg.json")
        json.loads((tmp_path / "cfg.json").read_text())  # plain JSON
        assert load_json(tmp_path / "cfg.json", type(value)) == value


@pytest.mark.parametrize("task", ALL)
def test_training_and_play_have_the_same_schema(task: str) -> None:
    cfg = TASKS.get(task).env
    cfg.scene.num_envs = 1
    train, play = make_env(cfg), playing(task)
    for name, group in train.observation_manager.groups.items():
        assert group.layout == play.observation_manager.groups[name].layout
    assert train.action_dim == play.action_dim


@pytest.mark.parametrize("task", ALL)
def test_every_observation_action_and_command_tells_what_its_columns_are(task: str) -> None:
    env = playing(task)
    groups = env.observation_manager.groups.values()
    told = [(term.name, term.dim, group.terms[term.name].meaning()) for group in groups for term in group.layout]
    told += [(name, term.dim, term.meaning()) for name, term in env.action_manager.terms.items()]
    if isinstance(env, ManagerBasedRlEnv):
        told += [(name, term.command.shape[1], term.meaning()) for name, term in env.command_manager.terms.items()]
    for name, dim, meaning in told:
        assert meaning.unit, name
        assert isinstance(meaning.unit, str) or len(meaning.unit) == dim, name
        assert len(meaning.columns) == dim, name


@pytest.mark.parametrize("task", ALL)
def test_play_has_no_noise_no_pushes_and_a_viewer(task: str) -> None:
    play = TASKS.get(task).playing
    assert not any(group.enable_noise for group in play.observations.values())
    assert {event.mode for event in play.events.values()} <= {"reset"}
    assert play.simulation.vis
    assert play.scene.num_envs == 1


def test_get_returns_a_copy() -> None:
    first = TASKS.get(ALL[0])
    first.env.scene.num_envs = 3
    assert TASKS.get(ALL[0]).env.scene.num_envs != 3
    assert to_dict(first.play_env) == to_dict(TASKS.get(ALL[0]).play_env)


def env_of(task: str) -> ManagerBasedRlEnv:
    cfg = rl_cfg(task)
    cfg.scene.num_envs = 2
    return ManagerBasedRlEnv(cfg)


def test_inverted_pendulum_numbers() -> None:
    env = env_of("GeneLab-Inverted-Pendulum-v0")
    assert (env.step_dt, env.max_episode_length) == (pytest.approx(0.01), 1000)
    assert env.observation_manager.groups["policy"].dim == 8
    layout = [(term.name, term.dim, term.scale) for term in env.observation_manager.groups["policy"].layout]
    assert layout == [("joint_pos", 2, 1.0), ("joint_vel", 2, 0.1), ("pole_ang_vel", 3, 0.2), ("last_action", 1, 1.0)]
    weights = {name: term.weight for name, term in env.reward_manager.cfgs.items()}
    assert weights == {
        "alive": 1.0,
        "upright": 3.0,
        "pole_position": -0.5,
        "cart_position": -0.05,
        "cart_velocity": -0.005,
        "pole_velocity": -0.01,
        "action_rate": -0.005,
    }
    model = env.scene.engine.model
    assert model.body("robot/cart").mass.item() == 1.0
    assert model.body("robot/cart").pos.tolist() == [0, 0, 0.12]
    assert model.body("robot/pole").mass.item() == pytest.approx(0.1)
    assert model.geom("robot/pole").size[:2].tolist() == pytest.approx([0.025, 0.4])
    assert model.joint("robot/cart").range.tolist() == [-3.0, 3.0]
    assert model.joint("robot/pole").range.tolist() == [-1.2, 1.2]
    assert model.dof_damping.tolist() == [0.05, 0.002]
    assert model.actuator("robot/cart").biasprm[:3].tolist() == [0.0, -80.0, -8.0]
    assert model.actuator_forcelimited.tolist() == [0]
    agent = TASKS.get("GeneLab-Inverted-Pendulum-v0").agent
    assert isinstance(agent, RslRlOnPolicyRunnerCfg)
    assert (agent.seed, agent.num_steps_per_env, agent.max_iterations, agent.save_interval) == (42, 24, 20, 10)
    assert agent.actor.hidden_dims == agent.critic.hidden_dims == (128, 128)


def test_skrl_variant_is_the_same_environment() -> None:
    skrl, rsl = TASKS.get("GeneLab-Inverted-Pendulum-Skrl-v0"), TASKS.get("GeneLab-Inverted-Pendulum-v0")
    assert skrl.env == rsl.env
    assert isinstance(skrl.agent, SkrlAgentCfg)
    assert (skrl.agent.timesteps, skrl.agent.rollouts) == (4800, 24)


def test_double_pendulum_numbers() -> None:
    env = env_of("GeneLab-Double-Inverted-Pendulum-v0")
    assert env.max_episode_length == 1200
    assert env.observation_manager.groups["policy"].dim == 10
    model = env.scene.engine.model
    assert model.body("robot/pole2").mass.item() == pytest.approx(0.08)
    assert model.body("robot/pole2").pos.tolist() == [0, 0, 0.55]
    assert model.actuator("robot/cart").biasprm[:3].tolist() == [0.0, -100.0, -10.0]
    env.reset(seed=0)
    env.robot.write_joint_state(torch.tensor([[0.0, 0.3, 0.5]] * 2), torch.zeros(2, 3), None)
    env.reward_manager.compute()
    rate = dict(zip(env.reward_manager.terms, (env.reward_manager.step_reward[:, 0] / 0.01).tolist(), strict=True))
    assert rate["upright"] == pytest.approx(4.0 * (math.cos(0.3) + math.cos(0.5)) / 2)
    assert rate["pole_alignment"] == pytest.approx(-0.5 * 0.2**2)
    assert sum(term.weight for term in env.reward_manager.cfgs.values() if term.weight > 0) * 12.0 == 60.0


def rsl_rl_agent(task: str) -> RslRlOnPolicyRunnerCfg:
    return as_kind(TASKS.get(task).agent, RslRlOnPolicyRunnerCfg)


@pytest.mark.parametrize("task", ["GeneLab-Inverted-Pendulum-v0"])
def test_a_pendulum_in_the_mirror_is_a_pendulum(task: str) -> None:
    cfg = rl_cfg(task, play=True)
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    side = torch.tensor([[1.0], [-1.0]])
    joints = torch.arange(1.0, len(env.robot.joint_names) + 1)
    env.robot.write_joint_state(0.02 * joints * side, 0.1 * joints * side, None)
    mirror = present(rsl_rl_agent(task).algorithm.symmetry_cfg).data_augmentation_func
    for step in range(20):
        action = torch.tensor([[math.sin(step)]])
        observations, reward, *_ = env.step(mirror(env, None, action)[1])
        for group in observations.values():
            torch.testing.assert_close(group, mirror(env, group[:1], None)[0])
        torch.testing.assert_close(reward[0], reward[1])


def test_the_memory_tasks_show_the_target_for_five_steps_only() -> None:
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-Memory-Rnn-v0", play=True)
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg)
    observations, _ = env.reset(seed=0)
    target = env.commands["target"].clone()
    assert target.abs().max() <= 0.8
    seen = [observations["policy"][:, 8:]]
    for _ in range(7):
        seen.append(env.step(torch.zeros(2, 1))[0]["policy"][:, 8:])
    assert all(torch.equal(cue, target) for cue in seen[:5])
    assert all(cue.abs().max() == 0 for cue in seen[5:])
    assert env.max_episode_length == 100
    env.robot.write_joint_state(target + 0.5, torch.zeros(2, 1), None, torch.tensor([0]))
    env.reward_manager.compute()
    index = list(env.reward_manager.terms).index("cart_position")
    torch.testing.assert_close(env.reward_manager.step_reward[index], torch.full((2,), -4.0 * 0.25 * 0.01))


def test_nothing_but_the_cue_tells_the_target_of_the_memory_tasks() -> None:
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-Memory-Rnn-v0", play=True)
    cfg.scene.num_envs = 2
    cfg.events["reset_joints"].params |= {"position_range": (0.02, 0.02), "velocity_range": (0.03, 0.03)}
    env = ManagerBasedRlEnv(cfg)
    observations, _ = env.reset(seed=0)
    target = env.commands["target"].clone()
    assert target[0] != target[1]
    for step in range(60):
        policy = observations["policy"]
        assert torch.equal(policy[0, :8], policy[1, :8]), f"step {step} shows more of the target than the cue"
        assert (policy[0, 8] != policy[1, 8]) == (step < 5)
        # What a policy would do that wants to leave itself a note: go where the cue says while it is seen.
        observations, *_ = env.step(policy[:, 8:] if step < 5 else torch.full((2, 1), 0.1))
    assert (env.robot.joint_pos[:, 0] > 0.05).all(), "afterwards the cart goes where it is told"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_the_reference_runs_a_memory_ends_ten_times_nearer_to_the_target(seed: int) -> None:
    errors = []
    for kind in ("Rnn", "Mlp"):
        home = REFERENCE / f"GeneLab-Inverted-Pendulum-Memory-{kind}-v0"
        (file,) = home.glob(f"*/seed_{seed}/eval.json")
        errors.append(json.loads(file.read_text())["task_metrics"]["final_target_error"])
    assert errors[0] < 0.1 * errors[1]


def test_the_memory_tasks_differ_only_in_the_network() -> None:
    tasks = [f"GeneLab-Inverted-Pendulum-Memory-{kind}-v0" for kind in ("Rnn", "Mlp")]
    assert rl_cfg(tasks[0]) == rl_cfg(tasks[1])
    rnn, mlp = (rsl_rl_agent(task) for task in tasks)
    assert (rnn.actor.rnn_type, mlp.actor.rnn_type) == ("lstm", None)
    assert rnn.num_steps_per_env == mlp.num_steps_per_env == 100
