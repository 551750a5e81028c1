"""Whom a policy can be exported for, by name: `genelab export TASK CKPT --for NAME`.

To bring a target, subclass `genelab.rl.targets.Target` and call `register_target`, in a module that `--import` names or
that an entry point of the group `genelab.tasks` loads. A target is registered by the path of its class: offering the
choice imports neither torch nor what the target needs. `genelab.rl.targets.base` tells how one is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from genelab.config import TASKS
from genelab.config.offer import Offer, path_of
from genelab.errors import ConfigError, UsageError, did_you_mean

if TYPE_CHECKING:
    from genelab.rl.targets.base import Target

Setting = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class TargetEntry(Offer):
    """What is known of a target without importing it."""

    kind: ClassVar[str] = "target"

    about: str = ""
    """What it writes, in a few words, for the help."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Its own settings and their defaults; users set them with `--with NAME=VALUE`."""

    def settled(self, given: Mapping[str, str | Setting]) -> dict[str, Setting]:
        """Its settings with what a user gave, as the type of the default."""
        settled = dict(self.settings)
        for name, value in given.items():
            if name not in settled:
                has = ", ".join(self.settings) or "none"
                raise UsageError(
                    f"{self.name} has no setting {name!r}.{did_you_mean(name, self.settings)} It has {has}."
                )
            settled[name] = _as(value, type(settled[name]), f"{name} of {self.name}")
        return settled


class TargetRegistry:
    """The known targets. Looking at them loads the plugins first."""

    def __init__(self) -> None:
        self._entries: dict[str, TargetEntry] = {}

    def register(
        self,
        name: str,
        home: str | type[Target],
        *,
        about: str = "",
        extra: str | None = None,
        packages: Sequence[str] = (),
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Add a target: a class, or its path `module:Class`; adding it again changes nothing."""
        if not name.isidentifier():
            raise ConfigError(f"a target cannot be called {name!r}: take a word")
        known = self._entries.get(name)
        if known is not None and path_of(known.home) != path_of(home):
            raise ConfigError(f"target {name!r} from {path_of(known.home)!r} is registered again by {path_of(home)!r}")
        self._entries[name] = TargetEntry(
            name=name, home=home, about=about, extra=extra, packages=tuple(packages), settings=dict(settings or {})
        )

    def names(self) -> tuple[str, ...]:
        """All targets, in the order of their registration."""
        TASKS.load_plugins()  # a package of tasks may bring its target
        return tuple(self._entries)

    def entry(self, name: str) -> TargetEntry:
        """What is known of a target without importing it."""
        if name not in self.names():
            raise UsageError(
                f"unknown target {name!r}.{did_you_mean(name, self.names())} There are {', '.join(self.names())}."
            )
        return self._entries[name]


TARGETS = TargetRegistry()


def register_target(
    name: str,
    home: str | type[Target],
    *,
    about: str = "",
    extra: str | None = None,
    packages: Sequence[str] = (),
    settings: Mapping[str, Setting] | None = None,
) -> None:
    """Let users export for this name; see `TargetEntry` for what may be said about it."""
    TARGETS.register(name, home, about=about, extra=extra, packages=packages, settings=settings)


def _as(value: str | Setting, kind: type[Setting], what: str) -> Setting:
    """A value as a type, from what a user typed or passed."""
    words = {"true": True, "false": False}
    try:
        if kind is bool:
            return words[str(value).lower()]
        return kind(value)
    except (KeyError, ValueError) as error:
        needs = "true or false" if kind is bool else {int: "a whole number", float: "a number"}[kind]
        raise UsageError(f"{what}: {value!r} is not {needs}") from error
