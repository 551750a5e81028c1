"""Training with rsl_rl: what a run leaves, and that it can be repeated, resumed and loaded."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rsl_rl.env import VecEnv
from rsl_rl.models import MLPModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensordict import TensorDict

import genelab
from genelab import TASKS
from genelab.config import TaskCfg, load_json
from genelab.envs import ManagerBasedRlEnv, play_cfg, rl_cfg
from genelab.errors import UsageError
from genelab.managers import metric, reward
from genelab.rl import EvalSettings, Progress, TrainResult, evaluate_task, resume_task, train_task
from genelab.rl.backends import RslRlVecEnvWrapper, select_backend
from genelab.rl.backends.rsl_rl.learner import kl_at
from genelab.rl.backends.rsl_rl.networks import remember
from genelab.rl.backends.rsl_rl.normalizer import accept_counts, meet_new_columns, widen_count
from genelab.rl.config import RslRlOnPolicyRunnerCfg
from genelab.rl.evaluator import evaluate
from genelab.rl.world import eval_cfg
from genelab_pendulum import memory
from tests.narrow import as_kind, present

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
RNN = "GeneLab-Inverted-Pendulum-Memory-Rnn-v0"
BLIND = {f"env.observations.{group}.terms.pole_ang_vel": None for group in ("policy", "critic")}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(name: str, task: str = PENDULUM, iterations: int = 4, **options: Any) -> TrainResult:
    options.setdefault("seed", 3)
    return train_task(task, num_envs=16, max_iterations=iterations, log_dir=Path(name), **options)


def weights(path: Path) -> dict[str, torch.Tensor]:
    content = torch.load(path, weights_only=True)
    return {**content["actor_state_dict"], **{f"critic.{k}": v for k, v in content["critic_state_dict"].items()}}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def play_env(task: str = PENDULUM, num_envs: int = 8) -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(eval_cfg(rl_cfg(task, play=True), num_envs))


def test_a_run_leaves_what_the_design_says() -> None:
    result = train("run", overrides={"agent.save_interval": "2"})
    assert result.status == "completed"
    files = {path.name for path in result.path.iterdir()}
    assert {"params", "run.json", "resume.pt", "model_2.pt", "model_4.pt", "model_final.pt"} <= files
    assert any(name.startswith("events.out.tfevents") for name in files)
    assert not any(name.startswith(".") or name.endswith(".tmp") for name in files)
    record = json.loads((result.path / "run.json").read_text())
    assert record["status"] == "completed"
    assert (record["task"], record["backend"], record["engine"], record["seed"]) == (PENDULUM, "rsl_rl", "mujoco", 3)
    assert record["experiment"] == "inverted_pendulum_flat"
    assert record["env_steps"] == 4 * 24 * 16
    assert record["wall_seconds"] > 0
    assert record["versions"]["torch"].startswith("2.")
    env, agent = (load_json(result.path / "params" / f"{name}.json") for name in ("env", "agent"))
    assert (env.scene.num_envs, agent.max_iterations, agent.save_interval, env.seed) == (16, 4, 2, 3)


def test_the_default_directory_is_named_by_backend_task_and_time() -> None:
    result = train_task(PENDULUM, num_envs=4, max_iterations=1)
    assert result.path.parts[:3] == ("logs", "rsl_rl", PENDULUM)


def logged(result: TrainResult) -> EventAccumulator:
    events = EventAccumulator(str(result.path))
    events.Reload()
    return events


def test_tensorboard_has_isaacs_keys() -> None:
    events = logged(train("run", iterations=8))
    tags = set(events.Tags()["scalars"])
    assert {
        "Train/mean_reward",
        "Train/mean_episode_length",
        "Episode_Reward/upright",
        "Episode_Termination/pole_fell",
        "Loss/value",
        "Loss/learning_rate",
        "Policy/mean_std",
        "Perf/total_fps",
    } <= tags
    assert [event.step for event in events.Scalars("Loss/value")] == list(range(1, 9))


def test_another_seed_gives_other_weights() -> None:
    first, other = train("a", iterations=1), train("b", iterations=1, seed=4)
    assert not equal(weights(first.checkpoint), weights(other.checkpoint))


def test_the_network_is_the_checkpoints_whatever_the_config_says() -> None:
    words = {"agent.actor.hidden_dims": "[8, 4]", "agent.actor.activation": "tanh", "agent.clip_actions": "0.5"}
    words |= {"agent.actor.rnn_type": "gru", "agent.actor.rnn_hidden_dim": "6"}
    changed = train("run", iterations=1, overrides=words)
    env, told = play_env(), load_json(changed.path / "params" / "agent.json")
    observations, _ = env.reset(seed=0)
    setups = [select_backend(told).load(env, agent, changed.checkpoint) for agent in (told, TASKS.get(PENDULUM).agent)]
    with torch.inference_mode():
        there, here = (setup.policy(observations) for setup in setups)
    assert torch.equal(there, here)
    assert setups[1].actor is not None
    assert (setups[1].actor.action_range, present(setups[1].actor.memory).hidden_dim) == ((-0.5, 0.5), 6)


def test_a_checkpoint_that_does_not_tell_its_network_loads_by_the_config() -> None:
    result = train("run", iterations=1)
    content = torch.load(result.checkpoint, weights_only=True)
    del content["genelab"]["agent"]
    torch.save(content, "old.pt")
    env, agent = play_env(), as_kind(TASKS.get(PENDULUM).agent, RslRlOnPolicyRunnerCfg)
    select_backend(agent).load(env, agent, Path("old.pt"))
    train("next", iterations=1, checkpoint=Path("old.pt"))
    agent.actor.hidden_dims = (8,)
    with pytest.raises(UsageError, match=r"old\.pt: its network is not the one that agent\.actor describes"):
        select_backend(agent).load(env, agent, Path("old.pt"))


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_network_can_be_born_with_a_memory(kind: Any) -> None:
    """How much of the first input is left after fifty steps, over the steps after it."""

    def left(rnn: Any) -> float:
        inputs = torch.zeros(51, 1, 3)
        inputs[0] = 5.0
        seen, silent = rnn(inputs)[0], rnn(torch.zeros_like(inputs))[0]
        return ((seen - silent)[-1].norm() / (seen - silent)[0].norm()).item()

    torch.manual_seed(0)
    rnn = kind(3, 64)
    assert left(rnn) < 1e-3
    remember(rnn, 100)
    assert left(rnn) > 0.1


def test_memory_is_set_in_the_networks_that_ask_for_it() -> None:
    few = {"agent.actor.rnn_memory_steps": "50", "agent.critic.rnn_type": "lstm", "agent.critic.rnn_hidden_dim": "64"}
    result = train("run", RNN, iterations=1, overrides=few)
    forget = {name: value[64:128] for name, value in weights(result.checkpoint).items() if "rnn.bias_ih" in name}
    actor, critic = (next(v for n, v in forget.items() if n.startswith("critic.") == side) for side in (False, True))
    assert 2.0 < actor.mean() < 4.0  # log of 1 … 49 is 2.9 in the mean
    assert critic.mean().abs() < 0.5
    with pytest.raises(UsageError, match="rnn_memory_steps: must be at least 3, got 2"):
        train("other", RNN, iterations=1, overrides={"agent.actor.rnn_memory_steps": "2"})


@pytest.mark.parametrize("ages", [True, False])
def test_episodes_begin_at_random_ages_or_together(ages: bool) -> None:
    few = {"agent.random_episode_ages": str(ages), "agent.num_steps_per_env": "4"}
    result = train("run", iterations=1, overrides=few)
    lengths = torch.load(result.path / "resume.pt", weights_only=True)["env"]["episode_length_buf"]
    assert (len(set(lengths.tolist())) > 4) is ages


def test_a_stochastic_policy_differs_from_the_deterministic_one() -> None:
    result = train("run", iterations=1)
    env = play_env()
    agent = load_json(result.path / "params" / "agent.json")
    observations, _ = env.reset(seed=0)
    with torch.inference_mode():
        mean, again, sample = (
            select_backend(agent).load(env, agent, result.checkpoint, deterministic=mode).policy(observations)
            for mode in (True, True, False)
        )
    assert torch.equal(mean, again)
    assert not torch.equal(mean, sample)


def test_a_second_stage_may_see_more() -> None:
    first = train("first", overrides=BLIND)
    second = train(
        "second", iterations=1, checkpoint=first.checkpoint, overrides={"agent.algorithm.learning_rate": "0"}
    )
    before, after = weights(first.checkpoint), weights(second.checkpoint)
    for name in ("mlp.0.weight", "critic.mlp.0.weight"):
        assert torch.equal(before[name], after[name][:, [0, 1, 2, 3, 7]])
        assert not after[name][:, 4:7].any()


def test_the_wrapper_is_an_environment_of_rsl_rl() -> None:
    env = play_env(num_envs=2)
    assert isinstance(RslRlVecEnvWrapper(env, None), VecEnv)


def test_new_columns_are_normalised_by_their_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """First 4 iterations of 24 steps of 16 robots, 1536 rows; then one more, in which columns 4 to 6 are new."""
    alone = {"agent.algorithm.symmetry_cfg": "null"}  # without what the mirror image would have been
    first = train("first", overrides={**BLIND, **alone})
    seen: list[Any] = []
    get = RslRlVecEnvWrapper.get_observations

    def look(env: RslRlVecEnvWrapper) -> Any:
        seen.append(get(env))
        return seen[-1]

    monkeypatch.setattr(RslRlVecEnvWrapper, "get_observations", look)
    second = train("second", iterations=1, checkpoint=first.checkpoint, overrides=alone)
    before, after = weights(first.checkpoint), weights(second.checkpoint)
    for prefix, group in (("", "policy"), ("critic.", "critic")):
        count, mean, std = (f"{prefix}obs_normalizer.{name}" for name in ("count", "_mean", "_std"))
        data = torch.cat([observations[group] for observations in seen[1:25]])
        assert (before[count].item(), len(data)) == (1536, 384)
        assert after[count].tolist() == [[1920] * 4 + [384] * 3 + [1920]]
        torch.testing.assert_close(after[mean][0, 4:7], data[:, 4:7].mean(dim=0))
        torch.testing.assert_close(after[std][0, 4:7], data[:, 4:7].std(dim=0, correction=0))
        old = [0, 1, 2, 3, 7]
        pooled = (1536 * before[mean][0] + 384 * data[:, old].mean(dim=0)) / 1920
        torch.testing.assert_close(after[mean][0, old], pooled)


def test_new_columns_are_normalised_before_anything_is_learned_from_them() -> None:
    model = MLPModel(
        TensorDict({"policy": torch.zeros(1, 3)}), {"actor": ["policy"]}, "actor", 1, obs_normalization=True
    )
    accept_counts(model)
    fresh = model.state_dict()
    model.load_state_dict(widen_count({**fresh, "obs_normalizer.count": torch.tensor(100)}, 3, [0, 2]))
    rollout = TensorDict({"policy": torch.tensor([[[5.0, 1.0, 5.0]], [[5.0, 3.0, 5.0]]])}, batch_size=[2, 1])
    meet_new_columns(model, rollout)
    normalizer = model.obs_normalizer
    assert normalizer.mean.tolist() == [0.0, 2.0, 0.0]
    assert normalizer.std.tolist() == [1.0, 1.0, 1.0]
    assert normalizer.count.tolist() == [[100, 0, 100]]
    model.update_normalization(rollout.flatten(0, 1))
    assert normalizer.mean.tolist() == pytest.approx([10 / 102, 2.0, 10 / 102])
    assert normalizer.count.tolist() == [[102, 2, 102]]


def test_a_policy_that_came_to_see_more_is_resumed_loaded_and_learned_on() -> None:
    first = train("first", iterations=1, overrides=BLIND)
    straight = train("straight", iterations=2, checkpoint=first.checkpoint)
    resumed = resume_task(train("stopped", iterations=1, checkpoint=first.checkpoint).path, max_iterations=2)
    assert equal(weights(straight.checkpoint), weights(resumed.checkpoint))
    env, agent = play_env(), load_json(straight.path / "params" / "agent.json")
    loaded = select_backend(agent).load(env, agent, straight.checkpoint)
    assert loaded.policy(env.reset(seed=0)[0]).isfinite().all()
    third = train("third", iterations=1, checkpoint=straight.checkpoint)
    assert weights(third.checkpoint)["obs_normalizer.count"].tolist() == [[1536] * 4 + [1152] * 3 + [1536]]


def test_a_second_stage_may_scale_its_actions_otherwise() -> None:
    first = train("first", iterations=1)
    scaled = {"env.actions.cart.scale": "0.5"}
    assert train("second", iterations=1, checkpoint=first.checkpoint, overrides=scaled).status == "completed"


def test_the_strides_get_shorter_towards_the_end() -> None:
    agent = as_kind(TASKS.get(PENDULUM).agent, RslRlOnPolicyRunnerCfg)
    assert [kl_at(agent, share) for share in (0.0, 1.0)] == [0.01, 0.01]
    agent.algorithm.desired_kl, agent.algorithm.final_kl = 0.04, 0.01
    assert [kl_at(agent, share) for share in (0.0, 0.5, 1.0)] == pytest.approx([0.04, 0.02, 0.01])


def test_noise_falls_to_its_bound_in_the_end() -> None:
    run = train("run", overrides={"agent.actor.distribution.final_std": "0.01"})
    noise = [event.value for event in logged(run).Scalars("Policy/mean_std")]
    assert all(value <= 0.01 ** (i / 4) + 1e-6 for i, value in enumerate(noise))  # from 1.0, in four iterations
    assert noise[-1] == pytest.approx(0.01**0.75)


def test_a_resumed_run_goes_on_with_the_stride_and_the_noise_it_had(learners: list[Any]) -> None:
    shorter = {
        "agent.algorithm.final_kl": "0.0025",
        "agent.actor.distribution.final_std": "0.25",
        "agent.save_interval": "2",
    }
    whole = train("whole", overrides=shorter)
    assert learners[-1]._runner.alg.desired_kl == pytest.approx(0.0025)
    assert learners[-1]._runner.alg.actor.distribution.std_range[1] == pytest.approx(0.25)
    stop = lambda progress: progress.done == 2  # noqa: E731
    cut = train("cut", overrides=shorter, report=stop)
    assert cut.status == "interrupted"
    assert learners[-1]._runner.alg.desired_kl == pytest.approx(0.005)
    assert learners[-1]._runner.alg.actor.distribution.std_range[1] == pytest.approx(0.5)
    assert equal(weights(whole.checkpoint), weights(resume_task(cut.path).checkpoint))


def test_the_speed_of_a_resumed_run_is_that_of_its_last_part() -> None:
    first = train("run", iterations=1)
    resumed = resume_task(first.path, max_iterations=2)
    record = json.loads((first.path / "run.json").read_text())
    assert record["env_steps"] == 2 * 24 * 16
    assert record["steps_per_second"] == pytest.approx(24 * 16 / resumed.seconds, abs=0.1)


def test_a_resumed_run_tells_its_first_command_and_the_time_of_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/.venv/bin/genelab", "train", "it", "--x=[1, 2]"])
    first = train("run", iterations=1)
    state = torch.load(first.path / "resume.pt", weights_only=True)
    assert 0.0 < state["monitor"]["seconds"] < 600.0
    state["monitor"]["seconds"] += 1000.0
    torch.save(state, first.path / "resume.pt")
    monkeypatch.setattr(sys, "argv", [genelab.__file__.replace("__init__", "__main__"), "train", "--resume", "run"])
    resume_task(first.path, max_iterations=2)
    record = json.loads((first.path / "run.json").read_text())
    assert record["command"] == "genelab train it '--x=[1, 2]'"
    assert record["resumed_with"] == "genelab train --resume run"
    assert record["resumed_from"] == "model_final.pt"
    assert 1000.0 < record["wall_seconds"] < 1600.0
    again = torch.load(first.path / "resume.pt", weights_only=True)
    assert again["monitor"]["seconds"] > 1000.0


def test_progress_counts_to_the_budget_and_has_an_eta_from_the_first_iteration() -> None:
    seen: list[Progress] = []
    train("run", report=seen.append)
    assert [progress.done for progress in seen] == [1, 2, 3, 4]
    assert seen[0].eta > 0
    assert seen[-1].eta == 0
    assert seen[-1].env_steps == 4 * 24 * 16
    assert 0 < seen[0].learn_share < 1


def test_a_directory_with_a_run_is_not_written_over() -> None:
    train("run", iterations=1)
    with pytest.raises(UsageError, match="already holds a run"):
        train("run", iterations=1)


def test_a_directory_that_cannot_be_written_is_refused_before_training() -> None:
    with pytest.raises(UsageError, match="cannot write to /proc/nowhere"):
        train("/proc/nowhere/run")


def test_resume_explains_what_is_missing() -> None:
    with pytest.raises(UsageError, match="is not a run directory"):
        resume_task(Path("nothing"))
    result = train("run", iterations=1)
    with pytest.raises(UsageError, match="has spent its iterations"):
        resume_task(result.path)
    with pytest.raises(UsageError, match="is a run of GeneLab-Inverted-Pendulum-v0, not of Other-v0"):
        resume_task(result.path, task_id="Other-v0")


def test_the_policy_learns_to_balance() -> None:
    result = train_task(PENDULUM, seed=1, log_dir=Path("run"))
    env = play_env(num_envs=16)
    agent = load_json(result.path / "params" / "agent.json")
    setup = select_backend(agent).load(env, agent, result.checkpoint)
    evaluation = evaluate(env, setup, episodes=16, seed=0)
    assert evaluation.return_mean > 39.9  # of 40; zero actions earn about 2


def missed(env: ManagerBasedRlEnv) -> torch.Tensor:
    """How far the action is from the target once that is hidden: to say it again is all there is to do."""
    hidden = env.episode_length_buf > memory.CUE_STEPS
    return torch.where(hidden, (env.action_manager.action - env.commands["target"]).abs().sum(dim=1), 0.0)


def recall(*, recurrent: bool) -> TaskCfg:
    """The memory task without its cart: 15 steps, of which the first 5 show the target."""
    env, agent = memory.env_cfg(), memory.ppo_cfg(recurrent=recurrent)
    env.scene.num_envs, env.simulation.threads, env.episode_length_s = 64, 1, 0.15
    env.rewards = {"missed": reward(missed, -10.0)}
    env.terminations = {"time_out": env.terminations["time_out"]}
    env.metrics = {"missed": metric(missed, "last")}
    agent.max_iterations, agent.num_steps_per_env = 30, 15
    agent.algorithm.entropy_coef, agent.algorithm.num_mini_batches, agent.algorithm.learning_rate = 0.0, 2, 3e-3
    assert agent.actor.distribution is not None
    agent.actor.distribution.init_std = 0.5
    return TaskCfg(env=env, play_env=play_cfg(env), agent=agent)


def test_a_network_with_memory_recalls_and_one_without_cannot() -> None:
    errors = []
    with TASKS.temporarily():
        for kind in (True, False):
            TASKS.register(f"Recall-{kind}-v0", functools.partial(recall, recurrent=kind))
            result = train_task(f"Recall-{kind}-v0", seed=1, log_dir=Path(str(kind)))
            report = evaluate_task(f"Recall-{kind}-v0", result.checkpoint, EvalSettings(episodes=100, num_envs=100))
            errors.append(report["task_metrics"]["missed"])
    with_memory, without = errors
    assert without > 0.3, "nobody can know a target drawn from ±0.8 any better"
    assert with_memory < 0.1 * without
