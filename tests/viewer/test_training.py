"""A training that somebody looks at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, StepResult, rl_cfg
from genelab.rl import train_task
from genelab.rl.live_view import LiveView
from genelab.viewer import ViewerCfg, web
from tests.viewer.pages import PENDULUM, free_port


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(run_dir: str) -> dict[str, Tensor]:
    return torch.load(f"{run_dir}/model_final.pt", weights_only=True)["actor_state_dict"]


def test_a_training_that_is_watched_learns_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    drawn: list[int] = []
    draw = web.WebViewer._draw

    def note(viewer: web.WebViewer) -> None:
        drawn.append(viewer.player.steps)
        draw(viewer)

    make = web.WebViewer.__init__

    def make_watched(viewer: web.WebViewer, *args: Any) -> None:
        make(viewer, *args)
        viewer.server.get_clients = lambda: {0: None}  # somebody whose browser sends nothing

    monkeypatch.setattr(web.WebViewer, "_draw", note)
    monkeypatch.setattr(web.WebViewer, "__init__", make_watched)
    monkeypatch.setattr(web, "_FRAME", 0.0)
    words = ["train", PENDULUM, "--num-envs", "4", "--max-iterations", "2", "--seed", "3", "-q", "--no-final-eval"]
    assert run([*words, "--log-dir", "unseen"]) == 0
    assert drawn == []
    assert run([*words, "--log-dir", "seen", "--viewer", "web", "--port", str(free_port())]) == 0
    assert drawn == list(range(1, 2 * 24 + 1))
    assert "look at http://127.0.0.1:" in capfd.readouterr().err
    seen, unseen = weights("seen"), weights("unseen")
    assert seen.keys() == unseen.keys()
    assert all(torch.equal(seen[name], unseen[name]) for name in seen)


def test_the_task_says_whether_it_is_shown_and_the_viewer_how() -> None:
    cfg = ViewerCfg(kind="web", port=free_port())
    result = train_task(PENDULUM, num_envs=2, max_iterations=1, viewer=cfg)  # no `vis`: nobody is asked to look
    assert result.status == "completed"


class Window:
    """A window that is closed before the third step."""

    def __init__(self) -> None:
        self.seen = 0
        self.closed = False

    def before_step(self) -> bool:
        return self.seen < 2

    def after_step(self) -> None:
        self.seen += 1

    def close(self) -> None:
        self.closed = True


def test_a_window_that_is_closed_does_not_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window()
    said: list[str] = []
    monkeypatch.setattr("genelab.rl.live_view.open_viewer", lambda *args: window)
    cfg = rl_cfg(PENDULUM)
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    view = LiveView(env, ViewerCfg(), said.append)
    with env.watched_by(view):
        for _ in range(4):
            step: StepResult = env.step(torch.zeros(2, 1))
    assert (window.seen, window.closed, view.steps) == (2, True, 4)
    assert view.reward is step.reward
    assert said == ["the window is closed; the training goes on"]


def test_a_page_of_a_training_has_nothing_to_steer_with() -> None:
    cfg = rl_cfg("Genelab-Velocity-Flat-Unitree-Go1-v0")
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    view = LiveView(env, ViewerCfg(kind="web", port=free_port()), lambda message: None)
    try:
        page = view._viewer
        assert isinstance(page, web.WebViewer)
        assert page.pace.speed == math.inf
        assert page._wheels == []
        assert not hasattr(page, "_buttons")
        page._select(1)
        assert page._selected == 1
        for term in env.command_manager.terms.values():
            assert term.fixed is None or not term.fixed.any()
    finally:
        view.close()
        env.close()
