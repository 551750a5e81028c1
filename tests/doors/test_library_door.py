"""An RL library comes in as one file from outside: every verb takes it, and nothing of the package knows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from genelab import TASKS
from genelab.cli.main import run
from genelab.errors import ConfigError, UsageError
from genelab.rl.backends import BACKENDS, register_backend
from genelab.rl.config import BackendConfig, RslRlOnPolicyRunnerCfg
from genelab.sim import ENGINES
from genelab.testing import BackendContract
from tests.doors.helpers import TOYS, doors_closed_again, lacking_engine

TOY, ENGINE = str(TOYS / "toy_library.py"), str(TOYS / "toy_engine.py")
TASK = "Toy-Climb-v0"
PENDULUM = "GeneLab-Inverted-Pendulum-v0"


class TestToyLibrary(BackendContract):
    library = "toy"

    @pytest.fixture(autouse=True, scope="class")
    def _imported(self) -> Iterator[None]:
        with doors_closed_again():
            TASKS.import_module(TOY)
            yield


def genelab(verb: str, *words: str) -> None:
    assert run([*verb.split(), *words, "--import", TOY]) == 0


def read(path: str | Path) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def bundle(directory: str) -> dict[str, Any]:
    (path,) = Path(directory).glob("*.json")
    return read(path)


def test_every_verb_takes_a_library_from_outside(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    genelab("list")
    assert TASK in capfd.readouterr().out
    genelab("info", TASK)
    assert "agent.horizon: int = 8" in capfd.readouterr().out
    genelab("play", TASK, "--steps", "5", "--agent", "random")

    genelab("train", TASK, "--max-iterations", "16", "--quiet", "--eval-every", "1", "--eval-episodes", "4")
    (path,) = Path("logs/toy", TASK).iterdir()
    record = read(path / "run.json")
    assert (record["backend"], record["status"], record["unit"]) == ("toy", "completed", "timesteps")
    assert record["versions"]["psutil"] == version("psutil")  # what the toy says it runs on
    assert (path / "best_model.pt").is_file()
    genelab("train", TASK, "--resume", str(path), "--max-iterations", "24", "--quiet", "--no-final-eval")
    assert read(path / "run.json")["env_steps"] == 24 * 4
    genelab("play", TASK, "--checkpoint", "latest", "--steps", "5")
    assert "5 steps" in capfd.readouterr().out

    genelab("export", TASK, "latest", "--out", "policy.ts")
    made = read("policy.ts.metadata.json")
    assert (made["backend"], made["algorithm"]) == ("toy", "hill climbing")
    assert run(["report", str(path), "--out", "report.html"]) == 0
    assert TASK in Path("report.html").read_text()

    for name in ("genesis", "warp"):
        monkeypatch.setitem(ENGINES._entries, name, lacking_engine(name))
    words = ("--import", ENGINE, "--engine", "all", "--episodes", "4", "--num-envs", "4", "--out", "eval.json")
    genelab("eval", TASK, str(path), *words)
    assert list(read("eval.json")["engines"]) == ["mujoco", "toy"]  # the engine from outside, too


def test_every_benchmark_takes_a_library_from_outside(capfd: pytest.CaptureFixture[str]) -> None:
    few = ("--num-steps", "2", "--warmup-steps", "1")
    genelab("benchmark runtime", TASK, *few, "--out", "runtime")
    assert bundle("runtime")["run"]["framework"] is None
    genelab("benchmark startup", TASK, "--out", "startup")
    genelab("benchmark training", TASK, "--max-iterations", "3", "--quiet", "--out", "training")
    made = bundle("training")
    assert (made["run"]["framework"], made["run"]["max_iterations"]) == ("toy", 3)
    assert (made["run"]["config"]["algorithm"], made["run"]["config"]["budget_unit"]) == ("hill climbing", "timesteps")
    assert made["versions"]["packages"]["psutil"] == version("psutil")
    checkpoint = made["checkpoint_path"]
    assert read(Path(checkpoint).parent / "run.json")["budget"] == 3 * 8
    genelab("benchmark play", TASK, "--checkpoint", checkpoint, "--num-envs", "4", *few, "--out", "play")
    assert bundle("play")["run"]["framework"] == "toy"

    other = ("--rl-library", "toy", "--num-envs", "2", "--max-iterations", "2", "--quiet", "--out", "other")
    genelab("benchmark training", PENDULUM, *other)
    assert bundle("other")["run"]["framework"] == "toy"
    capfd.readouterr()
    assert run(["benchmark", "training", PENDULUM, "--import", TOY, "--rl-library", "toi"]) == 2
    assert "'toi' is not one of 'rl_games', 'rsl_rl', 'sb3', 'skrl', 'toy'" in capfd.readouterr().err
    assert run(["train", TASK, "--import", TOY, "--ranks", "2"]) == 2
    message = f"toy, which trains {TASK}, does not train on many devices: start it on one"
    assert capfd.readouterr().err == f"genelab: {message}\n"


def test_a_name_belongs_to_one_library() -> None:
    home = "genelab.rl.backends.rsl_rl.backend:RslRlBackend"
    register_backend(RslRlOnPolicyRunnerCfg, home, name="rsl_rl", packages=["rsl-rl-lib"])  # again
    with pytest.raises(
        ConfigError, match=r"RL library 'rsl_rl' from 'genelab.*' is registered again by 'mine:Backend'"
    ):
        register_backend(RslRlOnPolicyRunnerCfg, "mine:Backend", name="rsl_rl")
    for name in (None, "two words"):
        with pytest.raises(ConfigError, match=r"the RL library of 'mine:Backend' cannot be called"):
            register_backend(RslRlOnPolicyRunnerCfg, "mine:Backend", name=name)


def test_a_library_that_is_not_there_is_one_line() -> None:
    class MineCfg(BackendConfig):
        """Of a library that cannot be imported."""

    register_backend(MineCfg, "no_such_module:Backend", name="mine")
    with pytest.raises(UsageError, match="mine cannot be imported: ModuleNotFoundError"):
        BACKENDS.of(MineCfg()).load()
    register_backend(MineCfg, "no_such_module:Backend", name="mine", packages=["no-such-package"])
    with pytest.raises(UsageError, match="mine is not installed: pip install no-such-package"):
        BACKENDS.of(MineCfg()).load()
    with pytest.raises(UsageError, match=r"unknown RL library 'mina'. Did you mean 'mine'\?"):
        BACKENDS.entry("mina")
