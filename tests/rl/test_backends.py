"""A library is added by registering it: nothing in the dispatcher or the command line knows it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from genelab import TASKS, TaskCfg
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import UsageError
from genelab.managers import TerminationTermCfg
from genelab.rl.backends import (
    BACKENDS,
    Backend,
    InferenceSetup,
    Learner,
    TrainContext,
    register_backend,
    select_backend,
)
from genelab.rl.checkpoint import load_checkpoint, save_atomically, schema_of
from genelab.rl.config import BackendConfig, RslRlOnPolicyRunnerCfg

PENDULUM = "GeneLab-Inverted-Pendulum-v0"


@dataclass(kw_only=True)
class ToyCfg(BackendConfig):
    """Holds the cart at a place."""

    rounds: int = 3
    save_interval: int = 1


class ToyLearner(Learner):
    """Learns a place by adding one to it."""

    def __init__(self, context: TrainContext[ToyCfg]) -> None:
        self.context = context
        self.place = 0.0

    def save(self, path: Path) -> None:
        meta = {"backend": "toy", "task": self.context.task_id, "schema": schema_of(self.context.env)}
        save_atomically({"place": self.place, "genelab": meta}, path)

    def inference(self) -> InferenceSetup:
        return _hold(self.place)


class ToyBackend(Backend[ToyCfg]):
    """The smallest library there is."""

    name = "toy"

    def default_agent(self) -> ToyCfg:
        return ToyCfg()

    def budget(self, agent: ToyCfg) -> int:
        return agent.rounds

    def set_budget(self, agent: ToyCfg, budget: int) -> None:
        agent.rounds = budget

    def train(self, context: TrainContext[ToyCfg]) -> None:
        learner = ToyLearner(context)
        context.on_ready()
        observations, _ = context.env.reset()
        for done in range(1, context.budget + 1):
            action = learner.inference().policy(observations)
            observations, reward, *_ = context.env.step(action)
            learner.place += 0.1
            context.monitor.iteration(
                learner, done=done, env_steps=len(reward), collect_seconds=0.1, learn_seconds=0.1, scalars={}
            )

    def load(
        self, env: ManagerBasedRlEnv, agent: ToyCfg, checkpoint: Path, *, deterministic: bool = True
    ) -> InferenceSetup:
        return _hold(load_checkpoint(checkpoint, self.name, env)["place"])


def _hold(place: float) -> InferenceSetup:
    return InferenceSetup(policy=lambda observations: torch.full((len(observations["policy"]), 1), place))


def toy_task() -> TaskCfg:
    cfg = TASKS.get(PENDULUM)
    cfg.agent = ToyCfg()
    return cfg


register_backend(ToyCfg, ToyBackend)
TASKS.register("Test-Toy-v0", toy_task)


def test_a_toy_library_trains_evaluates_and_plays_through_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["train", "Test-Toy-v0", "--num-envs", "2", "--max-iterations", "4", "--eval-every", "2"]
    assert run([*command, "--eval-episodes", "2"]) == 0
    (path,) = Path("logs/toy/Test-Toy-v0").iterdir()
    assert json.loads((path / "run.json").read_text())["backend"] == "toy"
    assert torch.load(path / "model_final.pt", weights_only=True)["place"] == pytest.approx(0.4)
    assert (path / "best_model.pt").is_file()
    assert run(["eval", "Test-Toy-v0", str(path / "model_final.pt"), "--episodes", "2"]) == 0
    assert run(["play", "Test-Toy-v0", "--checkpoint", str(path / "model_final.pt"), "--steps", "3"]) == 0
    assert "3 steps" in capfd.readouterr().out


def _ends(env: ManagerBasedRlEnv, steps: list[int]) -> torch.Tensor:
    return env.episode_length_buf >= torch.tensor(steps)


def _time_outs(library: str, env: ManagerBasedRlEnv) -> list[bool]:
    """Which episodes a library is told to have timed out, after a step without action."""
    action = torch.zeros(env.num_envs, 1)
    if library == "rsl_rl":
        from genelab.rl.backends import RslRlVecEnvWrapper

        return RslRlVecEnvWrapper(env, None).step(action)[3]["time_outs"].tolist()
    if library == "skrl":
        from genelab.rl.backends import GenelabSkrlWrapper

        return GenelabSkrlWrapper(env, 1.0).step(action)[3].flatten().tolist()
    if library == "rl_games":
        from genelab.rl.backends import GenelabRlGamesVecEnv

        return GenelabRlGamesVecEnv(env).step(action)[3]["time_outs"].tolist()
    from genelab.rl.backends.sb3.env import GenelabSb3VecEnv

    wrapper = GenelabSb3VecEnv(env)
    wrapper.reset()
    infos = wrapper.step(action.numpy())[3]
    return [info.get("TimeLimit.truncated", False) for info in infos]


@pytest.mark.parametrize("library", ["rsl_rl", "skrl", "rl_games", "sb3"])
def test_a_failure_in_the_step_of_a_time_out_is_a_failure(library: str) -> None:
    cfg = TASKS.get(PENDULUM).play_env
    cfg.scene.num_envs = 4
    cfg.terminations = {  # the first fails, the second times out, the third does both, the fourth goes on
        "fell": TerminationTermCfg(func=_ends, params={"steps": [1, 9, 1, 9]}),
        "late": TerminationTermCfg(func=_ends, params={"steps": [9, 1, 1, 9]}, time_out=True),
    }
    env = ManagerBasedRlEnv(cfg)
    assert _time_outs(library, env) == [False, True, False, False]
    env.close()


def test_the_type_of_the_config_chooses() -> None:
    assert select_backend(RslRlOnPolicyRunnerCfg(max_iterations=1)).name == "rsl_rl"

    @dataclass(kw_only=True)
    class Mine(ToyCfg):
        """A variant of a config goes the way of its base."""

    assert select_backend(Mine()).name == "toy"


def test_no_config_or_an_unknown_one_is_one_line() -> None:
    with pytest.raises(UsageError, match="has no agent config: it can be played, not trained"):
        select_backend(None)
    with pytest.raises(UsageError, match="no RL backend is registered for an agent config of type BackendConfig"):
        select_backend(BackendConfig())


@pytest.mark.parametrize(
    ("library", "how"),
    [
        ("rsl_rl", "rsl-rl-lib"),
        ("skrl", "'genelab[skrl]'"),
        ("rl_games", "'genelab[rl-games]'"),
        ("sb3", "'genelab[sb3]'"),
    ],
)
def test_a_missing_library_says_how_to_install_it(library: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = BACKENDS.entry(library).load().default_agent()
    monkeypatch.setattr("genelab.rl.backends.registry._installed", lambda package: False)
    with pytest.raises(UsageError, match=re.escape(f"{library} is not installed: pip install {how}")):
        select_backend(agent)
