"""Tasks to be shown on a page."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from genelab import TASKS
from genelab.envs import make_env
from genelab.rl.player import Player
from genelab.viewer import ViewerCfg
from genelab.viewer.web import WebViewer

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
FRANKA = "GeneLab-Franka-Pick-And-Place-v0"
GO1 = "Genelab-Velocity-Flat-Unitree-Go1-v0"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))  # on all addresses, as some pages are
        return probe.getsockname()[1]


def make_player(task: str, num_envs: int = 2, policy: Path | None = None) -> Player:
    cfg = TASKS.get(task)
    assert cfg.play_env is not None
    cfg.play_env.scene.num_envs = num_envs
    return Player(make_env(cfg.play_env), "zero" if policy is None else "trained", cfg.agent, policy)


@contextmanager
def being_played(task: str) -> Iterator[tuple[Player, WebViewer]]:
    """A task that is played and shown in a thread of its own, which ends with the page."""
    player = make_player(task)
    viewer = WebViewer(player, ViewerCfg(port=free_port()))
    thread = threading.Thread(target=player.play, args=(None, None, [viewer], lambda step, total: None), daemon=True)
    thread.start()
    yield player, viewer
    viewer.pace.closed = True
    thread.join(timeout=10)
    assert not thread.is_alive()
    viewer.close()
    player.env.close()
