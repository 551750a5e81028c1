"""Stable-Baselines3: training, checkpoints, resuming, hindsight replay, demonstrations."""

from __future__ import annotations

import json
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from genelab import TASKS, mdp
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.errors import UsageError
from genelab.managers import EventTermCfg, ObservationGroupCfg, ObservationTermCfg, RewardTermCfg, TerminationTermCfg
from genelab.rl import TrainResult, resume_task, train_task
from genelab.rl.backends import InferenceSetup, select_backend
from genelab.rl.backends.sb3.env import GOAL_GROUPS, GenelabSb3VecEnv, get_statistics, normalized, set_statistics
from genelab.rl.backends.sb3.learner import Sb3Learner
from genelab.rl.backends.sb3.model import make_model
from genelab.rl.backends.sb3.state import buffer_bytes
from genelab.rl.config import Sb3AgentCfg, Sb3HerCfg, Sb3OffPolicyCfg, Sb3OnPolicyCfg
from genelab.rl.evaluator import evaluate
from genelab.rl.policies import random_policy
from genelab.rl.world import eval_cfg
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, mjcf_text
from genelab.sim import SimulationCfg
from genelab_pendulum.memory import TargetCommandCfg
from tests.narrow import present

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
Train = Callable[..., TrainResult]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A directory of its own, and one thread: the machine may be busy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GENELAB_SB3_DEMO_PATH", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def learners(monkeypatch: pytest.MonkeyPatch) -> list[Sb3Learner]:
    """The learners that are made."""
    made: list[Sb3Learner] = []
    make = Sb3Learner.__init__

    def remember(self: Sb3Learner, *args: Any) -> None:
        make(self, *args)
        made.append(self)

    monkeypatch.setattr(Sb3Learner, "__init__", remember)
    return made


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Train:
    """Train a task that is registered for the test only."""
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))

    def run(agent: Sb3AgentCfg, env: ManagerBasedRlEnvCfg | None = None, *, num_envs: int = 4, **options: Any) -> Any:
        cfg = TaskCfg(env=env or rl_cfg(PENDULUM), agent=agent)
        TASKS._entries.pop("test-v0", None)
        TASKS.register("Test-v0", lambda: cfg)
        return train_task("Test-v0", num_envs=num_envs, **options)

    return run


def tiny(algorithm: Any, timesteps: int = 320, **changes: Any) -> Sb3AgentCfg:
    off_policy = Sb3OffPolicyCfg(
        buffer_size=2000, learning_starts=100, batch_size=32, gradient_steps=1, iteration_steps=20
    )
    settings: dict[str, Any] = {"hidden_dims": (16,), "off_policy": off_policy, "save_interval": 1000, **changes}
    return Sb3AgentCfg(
        algorithm=algorithm, timesteps=timesteps, on_policy=Sb3OnPolicyCfg(n_steps=20, n_epochs=2), **settings
    )


def some_observations(env: ManagerBasedRlEnv) -> dict[str, Tensor]:
    act = random_policy(env)
    observations, _ = env.reset(seed=3)
    for _ in range(10):
        observations, *_ = env.step(act(observations))
    return observations


def pendulum(num_envs: int = 16) -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(eval_cfg(rl_cfg(PENDULUM, play=True), num_envs))


# Training


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_loaded_policy_acts_as_the_library_itself_predicts(
    algorithm: str, train: Train, learners: list[Sb3Learner], capfd: pytest.CaptureFixture[str]
) -> None:
    progress: list[Any] = []
    agent = tiny(algorithm)
    result = train(agent, report=progress.append)
    assert (result.status, result.checkpoint.name, result.env_steps) == ("completed", "model.zip", 320)
    assert [p.done for p in progress] == [80, 160, 240, 320]
    assert (result.path / "params" / "agent.json").is_file()
    assert capfd.readouterr() == ("", "")
    env = pendulum()
    observations = some_observations(env)
    loaded = select_backend(agent).load(env, agent, result.checkpoint).policy(observations)
    assert torch.equal(loaded, learners[0].inference().policy(observations))
    model = learners[0].model
    seen = observations["policy"].numpy()
    normalizer = model.get_vec_normalize_env()
    assert (normalizer is not None) == (algorithm in ("PPO", "A2C"))
    if normalizer is not None:
        seen = normalizer.normalize_obs(seen)
    assert np.array_equal(loaded.numpy(), model.predict(seen, deterministic=True)[0])


def score(setup: InferenceSetup, env: ManagerBasedRlEnv) -> float:
    return evaluate(env, setup, episodes=env.num_envs, seed=1).return_mean


@pytest.mark.parametrize(
    ("agent", "num_envs"),
    [
        (Sb3AgentCfg(algorithm="PPO", timesteps=30_000), 64),
        (Sb3AgentCfg(algorithm="SAC", timesteps=7_000, off_policy=Sb3OffPolicyCfg(gradient_steps=2)), 16),
    ],
    ids=["PPO", "SAC"],
)
def test_it_learns(agent: Sb3AgentCfg, num_envs: int, train: Train) -> None:
    result = train(agent, num_envs=num_envs)
    env = pendulum()
    by_chance = score(InferenceSetup(policy=random_policy(env)), env)
    assert score(select_backend(agent).load(env, agent, result.checkpoint), env) > 3 * by_chance


def test_a_warm_start_takes_networks_and_normaliser(train: Train, learners: list[Sb3Learner]) -> None:
    result = train(tiny("PPO"))
    agent = tiny("PPO", timesteps=80, learning_rate=0.0)
    train(agent, checkpoint=result.checkpoint)
    first, second = (learner.model for learner in learners)
    assert all(torch.equal(a, b) for a, b in zip(first.policy.parameters(), second.policy.parameters(), strict=True))
    assert second.get_vec_normalize_env().obs_rms.count == pytest.approx(320 + 4 + 80 + 4, abs=1)
    with pytest.raises(UsageError, match="trained with PPO, but this task's agent is SAC"):
        train(tiny("SAC"), checkpoint=result.checkpoint)
    with pytest.raises(UsageError, match="other layers"):
        train(tiny("PPO", hidden_dims=(8,)), checkpoint=result.checkpoint)


# The environment as SB3 sees it


def test_the_last_observation_is_of_before_the_reset_and_time_outs_are_no_terminals() -> None:
    cfg = rl_cfg(PENDULUM)
    cfg.scene.num_envs, cfg.seed, cfg.episode_length_s = 8, 1, 0.3
    cfg.events.pop("push_cart")
    cfg.observations["policy"].enable_noise = False
    env = GenelabSb3VecEnv(ManagerBasedRlEnv(cfg))
    model = make_model(env, tiny("SAC", off_policy=Sb3OffPolicyCfg(buffer_size=8 * 60, learning_starts=10_000)))
    model.learn(8 * 60, log_interval=None)
    buffer = model.replay_buffer
    ended = buffer.dones.astype(bool)
    cut = buffer.timeouts.astype(bool)
    assert cut.sum() > 8
    assert (ended & ~cut).sum() > 0  # some fall
    assert not (cut & ~ended).any()
    following, next_ = buffer.observations[1:], buffer.next_observations[:-1]
    same = (following == next_).all(axis=2)
    assert np.array_equal(same, ~ended[:-1])
    fell = np.abs(buffer.next_observations[..., 1]) > 0.4  # the pole's angle
    assert np.array_equal(fell, ended & ~cut)
    samples = buffer._get_samples(np.arange(60))
    assert samples.dones.shape == (60, 1)
    assert samples.dones.sum() < ended.sum()


def test_one_step_of_the_vector_environment() -> None:
    cfg = rl_cfg(PENDULUM)
    cfg.scene.num_envs, cfg.seed, cfg.episode_length_s = 4, 1, 0.02
    env = GenelabSb3VecEnv(ManagerBasedRlEnv(cfg), action_bound=2.0)
    assert (env.action_space.low, env.action_space.high) == (-2.0, 2.0)
    assert env.reset().dtype == np.float32
    _, rewards, dones, infos = env.step(np.zeros((4, 1), np.float32))
    assert (rewards.dtype, rewards.shape, dones.any(), infos) == (np.float32, (4,), False, [{}] * 4)
    observations, _, dones, infos = env.step(np.zeros((4, 1), np.float32))
    assert dones.all()
    assert [info["TimeLimit.truncated"] for info in infos] == [True] * 4
    assert not any(np.array_equal(info["terminal_observation"], observations[i]) for i, info in enumerate(infos))
    env.close()


# Goals: a slider that has to reach a place


RADIUS = 0.1
STEPS = 10


def reached(achieved: Any, desired: Any) -> Any:
    return abs(achieved - desired)[..., 0] < RADIUS


def compute_reward(achieved: np.ndarray, desired: np.ndarray, infos: Any) -> np.ndarray:
    return reached(achieved, desired).astype(np.float32) - 1.0


def at_goal(env: ManagerBasedRlEnv) -> Tensor:
    success = reached(env.robot.joint_pos, env.commands["goal"])
    env.extras["is_success"] = success
    return success.to(env.dtype) - 1.0


def slider(num_envs: int = 4) -> ManagerBasedRlEnvCfg:
    body = '<body><joint name="x" type="slide" axis="1 0 0"/><geom size=".1"/></body>'
    xml = f"<mujoco><worldbody>{body}</worldbody></mujoco>"
    servo = ImplicitPdActuatorCfg(joint_names=("x",), stiffness=400.0, damping=60.0)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": xml}, actuators={"x": servo})
    terms = {
        "observation": {"vel": ObservationTermCfg(func=mdp.joint_vel_rel, scale=0.1)},
        "achieved_goal": {"pos": ObservationTermCfg(func=mdp.joint_pos_rel)},
        "desired_goal": {"goal": ObservationTermCfg(func=mdp.generated_command, params={"command": "goal"})},
    }
    spread = {"position_range": (-0.5, 0.5), "velocity_range": (0.0, 0.0)}
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=num_envs, entities={"robot": robot}),
        simulation=SimulationCfg(engine="mujoco", dt=0.02),
        decimation=5,
        episode_length_s=STEPS * 0.1,
        seed=1,
        actions={"x": mdp.JointPositionActionCfg(joint_names=("x",), scale=1.0)},
        commands={"goal": TargetCommandCfg(position_range=(-0.8, 0.8))},
        observations={name: ObservationGroupCfg(terms=dict(value)) for name, value in terms.items()},
        events={"spread": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=spread)},
        rewards={"at_goal": RewardTermCfg(func=at_goal, weight=1.0)},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
        scale_rewards_by_dt=False,
    )


def her_agent(timesteps: int = 400, **off_policy: Any) -> Sb3AgentCfg:
    settings = {
        "buffer_size": 4000,
        "learning_starts": 100,
        "batch_size": 64,
        "tau": 0.05,
        "iteration_steps": 20,
        "gradient_steps": 1,
    }
    return Sb3AgentCfg(
        algorithm="SAC",
        timesteps=timesteps,
        gamma=0.8,
        learning_rate=3e-3,
        hidden_dims=(32, 32),
        off_policy=Sb3OffPolicyCfg(**{**settings, **off_policy}),
        her=Sb3HerCfg(compute_reward=compute_reward),
    )


def test_relabelled_rewards_are_those_of_the_relabelled_goals(train: Train, learners: list[Sb3Learner]) -> None:
    train(her_agent(), slider())
    buffer = learners[0].model.replay_buffer
    goals = {float(goal) for goal in buffer.observations["desired_goal"][: buffer.pos].flat}
    batch = buffer.sample(500)
    achieved, desired = (batch.next_observations[name].numpy() for name in ("achieved_goal", "desired_goal"))
    assert np.array_equal(batch.rewards.numpy()[:, 0], compute_reward(achieved, desired, []))
    relabelled = [float(goal) not in goals for goal in desired[:, 0]]
    assert 0.7 < np.mean(relabelled) < 0.9
    assert torch.equal(batch.observations["desired_goal"], batch.next_observations["desired_goal"])
    assert not batch.dones.any()  # episodes only time out
    assert len(learners[0].model.ep_success_buffer) > 20


def test_goals_are_normalised_too(train: Train, learners: list[Sb3Learner]) -> None:
    agent = her_agent(200)
    agent.obs_normalization, agent.action_bound = True, 1.5
    result = train(agent, slider())
    env = ManagerBasedRlEnv(slider())
    observations = some_observations(env)
    loaded = select_backend(agent).load(env, agent, result.checkpoint).policy(observations)
    model = learners[0].model
    arrays = {name: value.numpy() for name, value in observations.items()}
    seen = model.get_vec_normalize_env().normalize_obs(arrays)
    assert not np.array_equal(seen["desired_goal"], arrays["desired_goal"])
    assert np.array_equal(loaded.numpy(), model.predict(seen, deterministic=True)[0])
    by_chance = select_backend(agent).load(env, agent, result.checkpoint, deterministic=False).policy(observations)
    assert not torch.equal(loaded, by_chance)
    assert by_chance.abs().max() < 1.5


def test_goals_reached_and_asked_for_have_one_scale_and_old_statistics_keep_theirs() -> None:
    env = GenelabSb3VecEnv(ManagerBasedRlEnv(slider()), her=her_agent().her)
    normalizer = normalized(env, replay=True)
    normalizer.reset()
    here = get_statistics(normalizer)
    assert here is not None
    assert here["achieved_goal"] == here["desired_goal"]
    assert here["desired_goal"]["count"] == pytest.approx(8, abs=1e-3)  # of four robots, both
    assert here["observation"]["epsilon"] == 1e-4  # what does not move is divided by 0.01
    old = {name: {key: value for key, value in group.items() if key != "epsilon"} for name, group in here.items()}
    old["desired_goal"] = {"mean": [3.0], "var": [4.0], "count": 5.0}
    set_statistics(normalizer, old)
    assert get_statistics(normalizer) == {name: {**group, "epsilon": 1e-8} for name, group in old.items()}
    normalizer.step(np.zeros((4, 1), np.float32))
    assert normalizer.obs_rms["desired_goal"].count == 9.0
    env.close()


def test_goals_are_learned_and_success_is_reported(train: Train) -> None:
    agent = her_agent(3000, gradient_steps=4, learning_starts=400)
    result = train(agent, slider(), num_envs=16)
    env = ManagerBasedRlEnv(eval_cfg(slider(), 32))
    learned = evaluate(env, select_backend(agent).load(env, agent, result.checkpoint), episodes=64, seed=0)
    by_chance = evaluate(env, InferenceSetup(policy=random_policy(env)), episodes=64, seed=0)
    assert by_chance.summary()["success_rate"] < 0.3
    assert learned.summary()["success_rate"] > 0.8


@pytest.mark.parametrize("with_demos", [False, True])
def test_a_resumed_run_keeps_its_episodes_to_relabel(
    with_demos: bool, train: Train, learners: list[Sb3Learner]
) -> None:
    def agent() -> Sb3AgentCfg:
        agent = her_agent()
        if with_demos:
            write_demos(Path("demos.npz"))
            agent.demo_path, agent.obs_normalization = "demos.npz", True
        return agent

    train(agent(), slider())

    def stop(progress: Any) -> None:
        if progress.done == 240:
            signal.raise_signal(signal.SIGINT)

    resume_task(train(agent(), slider(), report=stop).path)
    first, _, last = (learner.model for learner in learners)
    for name in ("ep_start", "ep_length", "rewards", "actions"):
        assert np.array_equal(getattr(first.replay_buffer, name), getattr(last.replay_buffer, name))
    for a, b in zip(first.policy.parameters(), last.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_learning_may_not_start_before_an_episode_can_end(train: Train) -> None:
    with pytest.raises(UsageError, match=r"learning_starts: 40 is before .* 4 environments needs at least 44"):
        train(her_agent(learning_starts=40), slider())


def test_what_only_a_replay_buffer_can_do(train: Train) -> None:
    with pytest.raises(UsageError, match=r"agent.her: PPO has no replay buffer"):
        train(tiny("PPO", her=Sb3HerCfg(compute_reward=compute_reward)), slider())
    with pytest.raises(UsageError, match=r"agent.demo_path: A2C has no replay buffer"):
        train(tiny("A2C", demo_path="demos.npz"))
    with pytest.raises(UsageError, match="no observation group 'observation', only policy, critic"):
        train(tiny("SAC", her=Sb3HerCfg(compute_reward=compute_reward)))


def test_it_says_what_the_replay_buffer_will_take(train: Train, learners: list[Sb3Learner]) -> None:
    said: list[str] = []
    agent = her_agent(80)
    agent.off_policy.buffer_size = 1_000_000
    train(agent, slider(), notify=said.append)
    # 32 bits each for three groups of one column before and after, the action, the reward and two flags; 64 each for
    # where the episode began and how long it was.
    assert buffer_bytes(learners[0].model.replay_buffer) == 1_000_000 * (10 * 4 + 2 * 8)
    assert "replay buffer: the last 1,000,000 transitions, 56 MB when full" in said
    assert "no demonstrations; agent.demo_path names a file of them" in said
    assert not learners[0].model.replay_buffer.infos.size


# Demonstrations


def write_demos(path: Path, num_envs: int = 4, steps: int = 15) -> dict[str, Any]:
    """Two episodes: ten steps that time out, or fail in the last environment, and five that the file breaks off."""
    rng = np.random.default_rng(0)
    demos: dict[str, Any] = {
        f"{when}_{name}": rng.uniform(-1, 1, (steps, num_envs, 1))
        for when in ("obs", "next_obs")
        for name in GOAL_GROUPS
    }
    demos["actions"] = rng.uniform(-1, 1, (steps, num_envs, 1))
    demos["rewards"] = rng.uniform(-1, 0, (steps, num_envs))
    demos["dones"], demos["truncateds"] = np.zeros((2, steps, num_envs), bool)
    demos["dones"][9] = True
    demos["truncateds"][9, :-1] = True
    np.savez(path, **demos)
    return demos


def check_filled(buffer: Any, demos: dict[str, np.ndarray]) -> None:
    for name in GOAL_GROUPS:
        assert np.allclose(buffer.observations[name][:15], demos[f"obs_{name}"])
        assert np.allclose(buffer.next_observations[name][:15], demos[f"next_obs_{name}"])
    assert np.allclose(buffer.actions[:15], demos["actions"], atol=1e-6)
    assert np.allclose(buffer.rewards[:15], demos["rewards"])
    ends = [9, 14]
    assert np.flatnonzero(buffer.dones[:15, 0]).tolist() == np.flatnonzero(buffer.timeouts[:15, 0]).tolist() == ends
    assert np.flatnonzero(buffer.dones[:15, -1]).tolist() == ends
    assert np.flatnonzero(buffer.timeouts[:15, -1]).tolist() == [14]
    assert 0 < buffer.sample(1000).dones.mean() < 0.05  # what was lost has no future, what was cut off has
    assert (buffer.ep_length[:10] == 10).all()
    assert (buffer.ep_length[10:15] == 5).all()
    assert (buffer.ep_start[15] == 15).all()


@pytest.mark.parametrize("by_variable", [False, True])
def test_demonstrations_come_first_in_the_buffer(
    by_variable: bool, train: Train, learners: list[Sb3Learner], monkeypatch: pytest.MonkeyPatch
) -> None:
    demos = write_demos(Path("demos.npz"))
    agent = her_agent(80, learning_starts=0)  # whole episodes are there from the beginning
    agent.demo_path = "not-there.npz" if by_variable else "demos.npz"
    if by_variable:
        monkeypatch.setenv("GENELAB_SB3_DEMO_PATH", "demos.npz")
    said: list[str] = []
    result = train(agent, slider(), notify=said.append)
    check_filled(learners[0].model.replay_buffer, demos)
    assert learners[0].model.replay_buffer.pos == 15 + 20
    assert "60 transitions of demonstrations from demos.npz" in said
    assert json.loads((result.path / "params" / "agent.json").read_text())["demo_path"] == "demos.npz"


def test_the_normaliser_sees_the_demonstrations(train: Train, learners: list[Sb3Learner]) -> None:
    write_demos(Path("demos.npz"))
    agent = her_agent(80, learning_starts=0)
    agent.demo_path, agent.obs_normalization = "demos.npz", True
    train(agent, slider())
    model = learners[0].model
    buffer, last = model.replay_buffer, model._last_original_obs
    seen = {name: np.append(buffer.observations[name][:35], last[name]) for name in GOAL_GROUPS}
    goals = np.append(seen["achieved_goal"], seen["desired_goal"])
    statistics = present(get_statistics(model.get_vec_normalize_env()))
    for name, values in {"observation": seen["observation"], "achieved_goal": goals, "desired_goal": goals}.items():
        assert statistics[name]["count"] == pytest.approx(values.size, abs=1e-3)
        assert statistics[name]["mean"] == pytest.approx([values.mean()], abs=1e-4)
        assert statistics[name]["var"] == pytest.approx([values.var()], abs=1e-4)


def test_demonstrations_that_do_not_fit(train: Train) -> None:
    path = Path("demos.npz")
    agent = her_agent(80)
    agent.demo_path = str(path)

    def refusal() -> str:
        with pytest.raises(UsageError) as caught:
            train(agent, slider(), num_envs=32)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix("demos.npz: ")

    assert refusal() == "no such file of demonstrations"
    path.write_text("<html>")
    assert refusal() == "not an NPZ file of demonstrations"
    demos = write_demos(path, num_envs=64)
    assert refusal() == "the demonstrations have 64 environments, training runs 32: pass `num_envs=64`"
    demos = write_demos(path, num_envs=32)
    np.savez(path, **{**demos, "actions": demos["actions"] * 3})
    assert refusal().endswith("beyond the agent's action_bound of 1")
    np.savez(path, **{**demos, "obs_observation": np.zeros((15, 32, 2))})
    assert refusal() == "obs_observation must have shape (15, 32, 1), got (15, 32, 2)"
    del demos["rewards"]
    np.savez(path, **demos)
    assert refusal().startswith("demonstrations lack rewards; they have obs_observation,")


# Checkpoints


def test_what_is_not_a_fitting_checkpoint_is_refused_in_one_line(train: Train, tmp_path: Path) -> None:
    agent = tiny("SAC", timesteps=80)
    good = train(agent).checkpoint
    env = pendulum(2)

    def refusal(path: Path, env: ManagerBasedRlEnv = env) -> str:
        with pytest.raises(UsageError) as caught:
            select_backend(agent).load(env, agent, path)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"{path}: ")

    bad = tmp_path / "bad.zip"
    assert refusal(bad) == "no such checkpoint"
    bad.write_text("<!DOCTYPE html><html>404</html>")
    assert refusal(bad) == "not a checkpoint, but an HTML page"
    bad.write_bytes(good.read_bytes()[:-300])
    assert "damaged" in refusal(bad)
    data = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        start = archive.getinfo("policy.pth").header_offset
    data[start + 200 : start + 400] = bytes(200)
    bad.write_bytes(data)
    assert "damaged" in refusal(bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("data", "{}")
    assert refusal(bad) == "not a checkpoint made with sb3, or a damaged one"
    other = ManagerBasedRlEnv(eval_cfg(slider(), 2))
    assert refusal(good, other).startswith("trained on Test-v0 with other actions: cart is 1 there, missing here")


def test_pickled_objects_in_an_archive_are_not_read(train: Train, tmp_path: Path) -> None:
    agent = tiny("TD3", timesteps=80)
    good, poisoned = train(agent).checkpoint, tmp_path / "poisoned.zip"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(poisoned, "w") as target:
        for name in source.namelist():
            target.writestr(name, "not even JSON" if name == "data" else source.read(name))
    env = pendulum(2)
    assert select_backend(agent).load(env, agent, poisoned).policy(some_observations(env)).shape == (2, 1)
