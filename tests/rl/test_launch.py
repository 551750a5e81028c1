"""Training in several processes: many seeds, many ranks. Everything is run for real, and tiny."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.cli.main import run
from genelab.config import load_json
from genelab.errors import UsageError
from genelab.rl import train_task
from genelab.rl.launch.seeds import train_seeds
from genelab.rl.rank import Rank, torchrun_number

TASK = "GeneLab-Inverted-Pendulum-v0"
TRAIN = ["train", TASK, "--num-envs", "8", "--max_iterations", "1", "--no-final-eval"]

KEEP_WEIGHTS = """
import os
import psutil
import torch
from genelab.rl.rank import FollowerMonitor, Rank
from genelab.rl.monitor import TrainMonitor

def keep_weights(save):
    def wrapper(self, stem):
        alg, env = self.learner._runner.alg, self._env
        weights = {**alg.actor.state_dict(), **{f"critic.{k}": v for k, v in alg.critic.state_dict().items()}}
        content = {"weights": weights, "seed": env.cfg.seed, "threads": torch.get_num_threads()}
        content["positions"] = self.learner._env.get_observations()["policy"]
        torchrun = psutil.Process().parent()
        sockets = [one for process in (torchrun, *torchrun.children()) for one in process.connections("inet")]
        content["listens"] = [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]
        torch.save(content, f"rank_{Rank.current().index}.pt")
        return save(self, stem)
    return wrapper

if "RANK" in os.environ:
    for kind in (FollowerMonitor, TrainMonitor):
        kind.save = keep_weights(kind.save)
"""

LAUNCHER_OF_SLEEPERS = f"""
from genelab.rl.launch.seeds import train_seeds

train_seeds("{TASK}", [1, 2], words=["-c", "import time; time.sleep(600)"], parallel=2)
"""

RANK_1_BREAKS = """
import os
from genelab.errors import GenelabError
from genelab.rl.backends import RslRlVecEnvWrapper

def step(self, actions):
    raise GenelabError("rank 1 breaks")

if os.environ.get("RANK") == "1":
    RslRlVecEnvWrapper.step = step
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(path: Path) -> dict[str, torch.Tensor]:
    content = torch.load(path, weights_only=True)
    return {**content["actor_state_dict"], **{f"critic.{k}": v for k, v in content["critic_state_dict"].items()}}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def record(path: Path) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())


def fails(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that a wrong command answers with, leaving nothing behind."""
    assert run(["train", *words]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1, captured.err
    assert not list(Path().iterdir())
    return captured.err


def processes_about(text: str) -> list[str]:
    """Command lines of the live processes that name this."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words and entry.name != str(os.getpid()):
            found.append(words)
    return found


def wait_until(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_each_seed_is_the_run_it_would_be_alone_and_one_that_fails_stops_none(
    capfd: pytest.CaptureFixture[str],
) -> None:
    parent = Path("many")
    parent.mkdir()
    (parent / "seed_2").write_text("in the way")
    words = ["--seeds", "1,2,3", "--parallel", "2", "--log-dir", str(parent), "agent.algorithm.learning_rate=0.002"]
    assert run([*TRAIN, *words, "--final-eval", "--eval-episodes", "2"]) == 1
    captured = capfd.readouterr()
    assert "seed 2 failed, exit code 2: genelab: --log-dir: cannot write to" in captured.out
    assert "seed 3: completed · iteration 1/1" in captured.err
    for seed in (1, 3):
        path = parent / f"seed_{seed}"
        assert (record(path)["seed"], record(path)["status"], record(path)["num_envs"]) == (seed, "completed", 8)
        log = (parent / f"seed_{seed}.log").read_text()
        assert "completed: 1 iteration, 192 env steps" in log
        final = re.search(r"final evaluation: return (\d+\.\d\d)", log)
        assert final is not None
        assert f"│ {final[1]} " in captured.out  # in the table, beside the return while exploring
        assert load_json(path / "params" / "agent.json").algorithm.learning_rate == 0.002
        cores = len(os.sched_getaffinity(0))
        assert load_json(path / "params" / "env.json").simulation.threads == max(1, cores // 2)
    assert run([*TRAIN, "--seed", "3", "--log-dir", "alone", "agent.algorithm.learning_rate=0.002"]) == 0
    assert equal(weights(Path("alone/model_final.pt")), weights(parent / "seed_3" / "model_final.pt"))
    assert not equal(weights(Path("alone/model_final.pt")), weights(parent / "seed_1" / "model_final.pt"))


def test_seeds_do_not_touch_runs_that_are_there(capfd: pytest.CaptureFixture[str]) -> None:
    run_dir = Path("many/seed_2")
    run_dir.mkdir(parents=True)
    files = {run_dir / "run.json": "{}", run_dir / "progress.json": "old", Path("many/seed_2.log"): "last words"}
    for path, text in files.items():
        path.write_text(text)
    assert run(["train", TASK, "--seeds", "1,2", "--log-dir", "many"]) == 2
    message = capfd.readouterr().err
    assert "many already holds runs of these seeds: seed_2; choose another, leave them out of --seeds" in message
    assert {path: path.read_text() for path in files} == files
    assert not Path("many/seed_1.log").exists()


def test_ctrl_c_stops_all_seeds_as_it_would_stop_each(tmp_path: Path) -> None:
    words = ["--num-envs", "8", "--max-iterations", "100000", "--seeds", "1,2", "--parallel", "2", "--log-dir", "many"]
    command = [sys.executable, "-m", "genelab.cli.main", "train", TASK, *words]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        progress = [tmp_path / "many" / f"seed_{seed}" / "progress.json" for seed in (1, 2)]
        assert wait_until(lambda: all(file.exists() for file in progress), 60)
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=60)
    finally:
        launcher.kill()
    assert not processes_about(str(tmp_path))
    assert launcher.returncode == 130
    assert output.count("interrupted") == 2
    for file in progress:
        assert record(file.parent)["status"] == "interrupted"
        assert (file.parent / "resume.pt").is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_seed_outlives_its_launcher(number: signal.Signals, tmp_path: Path) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER_OF_SLEEPERS])
    try:
        assert wait_until(lambda: len(processes_about(str(tmp_path))) == 2, 60)
        launcher.send_signal(number)
        launcher.wait(timeout=30)
        assert wait_until(lambda: not processes_about(str(tmp_path)), 10), processes_about(str(tmp_path))
    finally:
        launcher.kill()


def test_the_default_directory_of_seeds_has_task_and_time() -> None:
    (done,) = train_seeds(TASK.lower(), [5], words=["-c", "print('no training')"])
    assert done.path.relative_to(Path.cwd()).parts[:3] == ("logs", "multi-seed", TASK)
    assert done.path.name == "seed_5"
    assert (done.state, done.last_words) == ("completed", "no training")


def test_seeds_on_ray(capfd: pytest.CaptureFixture[str]) -> None:
    Path("many").mkdir()
    (Path("many") / "seed_2").write_text("in the way")
    words = ["--seeds", "1,2", "--parallel", "2", "--launcher", "ray", "--log-dir", "many"]
    assert run([*TRAIN, *words]) == 1
    assert "--log-dir: cannot write to" in capfd.readouterr().out
    assert record(Path("many/seed_1"))["status"] == "completed"
    alone = train_task(TASK, num_envs=8, max_iterations=1, seed=1, log_dir=Path("alone"))
    assert equal(weights(alone.checkpoint), weights(Path("many/seed_1/model_final.pt")))


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    line = fails([TASK, "--seeds", "1", "--launcher", "ray"], capfd)
    assert "ray is not installed: pip install 'genelab[ray]'" in line


def test_ranks_share_the_environments_and_end_with_the_same_weights(capfd: pytest.CaptureFixture[str]) -> None:
    Path("keep_weights.py").write_text(KEEP_WEIGHTS)
    train = [word for word in TRAIN if word != "--no-final-eval"]  # several processes leave it out
    assert run([*train, "--ranks", "2", "--log-dir", "run", "--import", "keep_weights.py", "--seed", "7"]) == 0
    assert not Path("run/evaluations.json").exists()
    captured = capfd.readouterr()
    assert captured.out.count("completed: 1 iteration, 192 env steps") == 1
    assert captured.err.count("iteration 1/1") == 1
    assert (record(Path("run"))["num_envs"], record(Path("run"))["ranks"]) == (8, 2)
    assert len(list(Path("run").glob("events.out.tfevents*"))) == 1
    assert load_json(Path("run/params/env.json")).scene.num_envs == 4
    first, second = (torch.load(f"rank_{index}.pt", weights_only=True) for index in (0, 1))
    assert equal(first["weights"], second["weights"])
    assert equal(first["weights"], weights(Path("run/model_final.pt")))
    assert (first["seed"], second["seed"]) == (7, Rank(index=1, world_size=2).seed(7))
    assert not torch.equal(first["positions"], second["positions"])
    assert set(first["listens"]) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, "no other machine can connect"


def test_no_rank_has_the_random_numbers_of_another_run() -> None:
    seeds = [[Rank(index=index, world_size=4).seed(base) for index in range(4)] for base in range(50)]
    assert [first for first, *_ in seeds] == list(range(50))
    others = {seed for _, *rest in seeds for seed in rest}
    assert len(others) == 150
    assert all(2**62 <= seed < 2**63 for seed in others)


def test_half_of_what_torchrun_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "TORCHELASTIC_RUN_ID is set, as torchrun does, but there is no RANK: unset TORCHELASTIC_RUN_ID"
    command = [sys.executable, "-m", "genelab.cli.main", *TRAIN, "--log-dir", "run"]
    done = subprocess.run(command, env={**os.environ, "TORCHELASTIC_RUN_ID": "1"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"genelab: {why}\n")
    monkeypatch.setenv("LOCAL_RANK", "1e3")
    with pytest.raises(UsageError, match="LOCAL_RANK is '1e3'"):
        torchrun_number("LOCAL_RANK")


def test_a_rank_that_fails_ends_all(capfd: pytest.CaptureFixture[str]) -> None:
    Path("breaks.py").write_text(RANK_1_BREAKS)
    assert run([*TRAIN, "--ranks", "2", "--log-dir", "run", "--import", "breaks.py"]) == 1
    captured = capfd.readouterr()
    assert "genelab: rank 1 breaks" in captured.err
    assert "genelab: a rank failed, and all were ended" in captured.err
    assert "Traceback" not in captured.err
    assert record(Path("run"))["status"] == "failed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1,x"], "--seeds: expected whole numbers with commas between them, such as 1,2,3, got '1,x'"),
        (["--seeds", ""], "--seeds: expected whole numbers with commas between them, such as 1,2,3, got ''"),
        (["--seeds", "1,,2"], "--seeds: expected whole numbers"),
        (["--seeds", "1,-2"], "--seeds: expected whole numbers"),
        (["--seeds", "1,2,1"], "--seeds: each seed only once, got '1,2,1'"),
        (["--seeds", "1", "--seed", "1"], "neither --seed nor --resume goes with it"),
        (["--seeds", "1", "--resume", "x"], "neither --seed nor --resume goes with it"),
        (["--seeds", "1", "--parallel", "0"], "Invalid value for '--parallel'"),
        (["--seeds", "1", "env.simulation.dtt=1"], "env.simulation.dtt: no such key"),
        (["--seeds", "1", "--log-dir", "/proc/no"], "--log-dir: cannot write to /proc/no"),
        (["--parallel", "2"], "--parallel goes with --seeds"),
        (["--launcher", "ray"], "--launcher goes with --seeds"),
        (["--seeds", "1", "--ray-address", "x:1"], "--ray-address goes with --launcher ray"),
        (["--seeds", "1", "--launcher", "ray", "--ray-address", "localhost:1"], "no Ray cluster answers at 'localhost"),
        (["--ranks", "2", "--num-envs", "9"], "--num-envs: 9 does not divide by 2 ranks; --num-envs-per-gpu 4 would"),
        (["--ranks", "2", "env.scene.num_envs=9"], "--num-envs: 9 does not divide by 2 ranks"),
        (["--ranks", "2", "--num-envs", "8", "--num-envs-per-gpu", "4"], "pass one of them"),
        (["--ranks", "2", "--gpus", "2"], "--gpus and --ranks exclude each other"),
        (["--ranks", "2", "--gpu"], "--ranks is for the CPU: use --gpus 2"),
        (["--ranks", "2", "--resume", "x"], "--resume goes on in one process"),
        (["--ranks", "2", "--nnodes", "2"], "--nnodes needs --rdzv-endpoint HOST:PORT"),
        (["--num-envs-per-gpu", "4"], "--num-envs-per-gpu goes with --gpus or --ranks"),
        (["--nnodes", "2"], "--nnodes goes with --gpus or --ranks"),
    ],
)
def test_wrong_words_are_answered_in_one_line(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in fails([TASK, *words], capfd)


def test_gpus_without_cuda_names_the_way_without(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    line = fails([TASK, "--gpus", "2"], capfd)
    assert "--gpus 2: no CUDA device was found; --ranks 2 runs on the CPU" in line
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "--gpus 2: this machine has 1" in fails([TASK, "--gpus", "2"], capfd)


def test_a_library_of_one_device_has_no_ranks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from genelab.rl.backends.rsl_rl.backend import RslRlBackend

    monkeypatch.setattr(RslRlBackend, "distributed", False)
    line = fails([TASK, "--ranks", "2"], capfd)
    assert f"rsl_rl, which trains {TASK}, does not train on many devices: start it on one" in line
