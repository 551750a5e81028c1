"""What a playback knows of whoever looks on."""

from __future__ import annotations

from typing import Protocol


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
