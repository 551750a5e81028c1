"""Runs that are stopped in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from genelab.rl import resume_task

TASK = "GeneLab-Inverted-Pendulum-v0"
GENELAB = str(Path(sys.executable).with_name("genelab"))


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    command = [GENELAB, "train", TASK, "--num-envs", "8", "--max-iterations", "100000", "--log-dir", "run", *words]
    return subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_checkpoint(process: subprocess.Popen[str], tmp_path: Path, count: int = 2) -> None:
    for _ in range(600):
        if len(list((tmp_path / "run").glob("model_*.pt"))) >= count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("no checkpoint in a minute")


def status(tmp_path: Path) -> str:
    return json.loads((tmp_path / "run" / "run.json").read_text())["status"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_and_can_be_resumed(number: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path, "agent.save_interval=5")
    wait_for_checkpoint(process, tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopping after this iteration" in err
    assert status(tmp_path) == "interrupted"
    assert f"genelab train {TASK} --resume run" in out
    done = torch.load(tmp_path / "run" / "resume.pt", weights_only=True)["monitor"]["done"]
    assert (tmp_path / "run" / f"model_{done}.pt").is_file()
    resumed = resume_task(tmp_path / "run", max_iterations=done + 2)
    assert resumed.env_steps == (done + 2) * 24 * 8
    assert status(tmp_path) == "completed"


def test_kill_leaves_checkpoints_that_load(tmp_path: Path) -> None:
    process = start(tmp_path, "agent.save_interval=1")
    wait_for_checkpoint(process, tmp_path, count=5)
    process.kill()
    process.communicate()
    models = list((tmp_path / "run").glob("model_*.pt"))
    assert models
    for path in models:
        assert "actor_state_dict" in torch.load(path, weights_only=True)
    done = torch.load(tmp_path / "run" / "resume.pt", weights_only=True)["monitor"]["done"]
    assert status(tmp_path) == "running"
    assert resume_task(tmp_path / "run", max_iterations=done + 1).status == "completed"


def test_a_full_disk_stops_the_run_cleanly(tmp_path: Path) -> None:
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)); "
    code = limit + (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from genelab.cli.main import run; "
        f"sys.exit(run(['train', '{TASK}', '--num-envs', '8', '--max-iterations', '3', '--log-dir', 'run', '-q']))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "cannot write" in result.stderr
    assert not list((tmp_path / "run").glob("model_*"))
