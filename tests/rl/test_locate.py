"""The checkpoint a user means is the one that is found, or the answer says what there is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from genelab import TASKS, TaskCfg
from genelab.envs import ManagerBasedEnvCfg
from genelab.errors import UsageError
from genelab.rl.config import Sb3AgentCfg
from genelab.rl.locate import find_checkpoint, pretrained_policy
from genelab.scene import SceneCfg

TASK = "GeneLab-Inverted-Pendulum-v0"


def make_run(path: Path, *files: str, status: str = "completed", started: str = "2026-01-01", **facts: str) -> Path:
    path.mkdir(parents=True)
    for file in files:
        (path / file).touch()
    record = {"status": status, "started_at": f"{started}T00:00:00+00:00", "backend": "rsl_rl", **facts}
    (path / "run.json").write_text(json.dumps(record))
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_entries", {**TASKS._entries})  # tasks of a test go with it
    return tmp_path


def refusal(word: str | Path, *, task: str = TASK, best: bool = False) -> str:
    with pytest.raises(UsageError) as error:
        find_checkpoint(task, word, best=best)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_is_itself() -> None:
    Path("some.pt").touch()
    assert find_checkpoint(TASK, "some.pt") == Path("some.pt")
    assert (
        refusal("other.pt")
        == "other.pt: no such checkpoint; give a file, a run directory, latest, pretrained or an address"
    )
    assert refusal("some.pt", best=True) == "`best` chooses among the checkpoints of a run; some.pt is a file"


def test_a_completed_run_gives_its_final_checkpoint() -> None:
    run = make_run(Path("run"), "model_50.pt", "model_200.pt", "model_final.pt", "best_model.pt", "resume.pt")
    assert find_checkpoint(TASK, run) == run / "model_final.pt"
    assert find_checkpoint(TASK, "run", best=True) == run / "best_model.pt"


def test_another_run_gives_its_newest_by_number() -> None:
    """A run that was completed, resumed and interrupted has gone beyond its final checkpoint."""
    run = make_run(Path("run"), "model_50.pt", "model_200.pt", "model_final.pt", status="interrupted")
    assert find_checkpoint(TASK, run) == run / "model_200.pt"
    assert find_checkpoint(TASK, make_run(Path("new"), "model_final.pt", status="running")).name == "model_final.pt"


def test_suffix_and_final_name_are_the_backends() -> None:
    TASKS.register("Test-Locate-Sb3-v0", _sb3_task)
    run = make_run(Path("run"), "model_50.zip", "model_final.pt", "model.zip", backend="sb3")
    assert find_checkpoint("Test-Locate-Sb3-v0", run) == run / "model.zip"
    assert refusal(run) == "run: made with sb3, but this task's agent is of rsl_rl"


def _sb3_task() -> TaskCfg:
    return TaskCfg(env=ManagerBasedEnvCfg(scene=SceneCfg()), agent=Sb3AgentCfg(experiment_name="test", timesteps=1))


def test_directories_that_are_no_run_say_so() -> None:
    make_run(Path("run"), "resume.pt")
    assert refusal("run") == "run: a directory without a checkpoint (model_*.pt)"
    assert refusal("run", best=True) == "run has no best_model.pt: it was trained without `train_task.evaluation`"
    for seed in (1, 12):
        make_run(Path(f"many/seed_{seed}"), "model_final.pt")
    assert refusal("many") == "many has one run per seed, give one of them: seed_1, seed_12"


def test_latest_is_the_newest_start_that_left_a_checkpoint() -> None:
    assert refusal("latest") == f"latest: no run of {TASK} with a checkpoint in logs/rsl_rl/{TASK}"
    runs = Path("logs/rsl_rl") / TASK
    make_run(runs / "b", "model_final.pt", started="2026-01-02")
    make_run(runs / "c", "model_final.pt", started="2026-01-01")
    make_run(runs / "d", "resume.pt", started="2026-01-09")
    make_run(Path("logs/rsl_rl/GeneLab-Double-Inverted-Pendulum-v0/e"), "model_final.pt", started="2026-01-09")
    (runs / "f").mkdir()
    assert find_checkpoint(TASK.lower(), "latest") == runs / "b" / "model_final.pt"
    seed = make_run(Path("logs/multi-seed") / TASK / "a" / "seed_2", "model_10.pt", started="2026-01-03")
    assert find_checkpoint(TASK, "latest") == seed / "model_10.pt"
    assert "has no best_model.pt" in refusal("latest", best=True)
    other = Path("logs/multi-seed") / TASK / "b" / "seed_1"
    make_run(other, "model_final.pt", started="2026-01-04", backend="skrl")
    assert find_checkpoint(TASK, "latest") == seed / "model_10.pt"


def test_a_file_called_latest_can_be_meant() -> None:
    Path("latest").touch()
    assert find_checkpoint(TASK, "./latest") == Path("latest")
    assert find_checkpoint(TASK, Path("latest")) == Path("latest")
    assert refusal("latest").startswith("latest: no run of")


def test_pretrained_is_in_the_package_of_the_task(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = here / "lab_of_others"
    policies = package / "pretrained" / "Test-Shipped-v0"
    policies.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(here)
    TASKS.register("Test-Shipped-v0", "lab_of_others.tasks:task")
    TASKS.register("Test-Not-Shipped-v0", "lab_of_others.tasks:task")
    assert pretrained_policy("Test-Shipped-v0") is None
    (policies / "policy.pt").touch()
    assert find_checkpoint("Test-Shipped-v0", "pretrained") == policies / "policy.pt"
    (policies / "policy.onnx").touch()
    assert find_checkpoint("test-shipped-v0", "pretrained") == policies / "policy.onnx"
    line = refusal("pretrained", task="Test-Not-Shipped-v0")
    assert line.startswith("Test-Not-Shipped-v0 has no pretrained policy; these have: ")
    assert "Test-Shipped-v0" in line
    assert "is one policy" in refusal("pretrained", task="Test-Shipped-v0", best=True)
    sys.modules.pop("lab_of_others", None)
