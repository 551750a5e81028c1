"""What a playback and whoever looks on know of each other."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from genelab.envs import ManagerBasedEnv

ViewerKind = Literal["window", "web"]


@dataclass(frozen=True, kw_only=True)
class ViewerCfg:
    """How to look at a playback."""

    kind: ViewerKind | None = None
    """A window on this machine's display, or a page for a browser; None: a window if there is a display."""
    host: str = "127.0.0.1"
    """Address the page is served on; 0.0.0.0 is open to everyone who can reach this machine."""
    port: int | None = None
    """Port of the page; None: 8080, or the next one that is free."""

    def resolved(self) -> ViewerKind:
        """What it is on this machine."""
        return self.kind or ("window" if has_display() else "web")


class Onlooker(Protocol):
    """Looks on while a task is played."""

    def before_step(self) -> bool:
        """A control step is about to be made; False ends the playback."""
        ...

    def after_step(self) -> None:
        """A control step was made."""
        ...

    def close(self) -> None:
        """The playback is over."""
        ...


class Player(Protocol):
    """A task being played, as a viewer sees and steers it. Its methods are called between two steps."""

    @property
    def env(self) -> ManagerBasedEnv:
        """The environments."""
        ...

    @property
    def steps(self) -> int:
        """Control steps made so far."""
        ...

    @property
    def reward(self) -> Tensor | None:
        """Rewards of the last step, `(N,)`; None without rewards or steps."""
        ...

    @property
    def environment(self) -> int:
        """The environment to look at first."""
        ...

    @property
    def steerable(self) -> bool:
        """Whether a viewer may change what happens: pace, commands, resets, policies. If not, it only shows."""
        ...

    @property
    def policy(self) -> str:
        """Who acts."""
        ...

    @property
    def checkpoints(self) -> Mapping[str, Path]:
        """Policies that could act instead, by name."""
        ...

    def restart(self) -> None:
        """Start all environments anew."""
        ...

    def load(self, name: str) -> None:
        """Let one of the checkpoints act."""
        ...


def has_display() -> bool:
    """Whether a window could be opened here."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
