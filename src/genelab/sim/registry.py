"""Engines by name. An engine is registered by the path of its class, so that offering the choice imports no simulator.

To bring one, subclass `genelab.sim.Engine` and call `register_engine`, in a module that `--import` names or that an
entry point of the group `genelab.tasks` loads; an installed package may also name the class itself in the group
`genelab.engines`. Nothing else changes: `--engine`, `simulation.engine`, `--engine all`, run records and benchmarks ask
the registry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar, Literal

from genelab.config import TASKS
from genelab.config.offer import Offer, path_of
from genelab.errors import ConfigError, UsageError, did_you_mean

if TYPE_CHECKING:
    from genelab.sim.engine import Engine

ENTRY_POINT_GROUP = "genelab.engines"
AUTO = "auto"
"""Stands for the engine that is the default on the device in use."""
_RESERVED = (AUTO, "all")

Device = Literal["cpu", "cuda"]
Setting = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class EngineEntry(Offer):
    """What is known of an engine without importing it."""

    kind: ClassVar[str] = "engine"

    default_on: Device | None = None
    """The kind of device on which `auto` stands for it."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Its own settings and their defaults, see `SimulationCfg.engine_settings`."""

    @property
    def title(self) -> str:
        return f"the {self.name} engine"


class EngineRegistry:
    """The known engines. Looking at them loads the plugins first."""

    def __init__(self) -> None:
        self._entries: dict[str, EngineEntry] = {}
        self._plugins_loaded = False

    def register(
        self,
        name: str,
        home: str | type[Engine],
        *,
        extra: str | None = None,
        packages: Sequence[str] = (),
        default_on: Device | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Add an engine: a class, or its path `module:Class`; adding it again changes nothing."""
        if not name.isidentifier() or name in _RESERVED:
            raise ConfigError(f"an engine cannot be called {name!r}: take a word other than {' and '.join(_RESERVED)}")
        known = self._entries.get(name)
        if known is not None and path_of(known.home) != path_of(home):
            raise ConfigError(f"engine {name!r} from {path_of(known.home)!r} is registered again by {path_of(home)!r}")
        for other in self._entries.values():
            if default_on is not None and other.default_on == default_on and other.name != name:
                raise ConfigError(f"engine {name!r} cannot be the default on {default_on}: {other.name!r} is")
        self._entries[name] = EngineEntry(
            name=name,
            home=home,
            extra=extra,
            packages=tuple(packages),
            default_on=default_on,
            settings=dict(settings or {}),
        )

    def names(self) -> tuple[str, ...]:
        """All engines, in the order of their registration."""
        self._load_plugins()
        return tuple(self._entries)

    def choices(self) -> tuple[str, ...]:
        """What `simulation.engine` may be."""
        return (AUTO, *self.names())

    def entry(self, name: str) -> EngineEntry:
        """What is known of an engine without importing it."""
        if name not in self.names():
            raise UsageError(
                f"unknown engine {name!r}.{did_you_mean(name, self.names())} There are {', '.join(self.names())}."
            )
        return self._entries[name]

    def resolve(self, name: str, device: Device) -> str:
        """The engine that a choice stands for on a kind of device."""
        if name != AUTO:
            return self.entry(name).name
        return next(one for one in self.names() if self._entries[one].default_on == device)

    def settings(self) -> dict[str, dict[str, Setting]]:
        """The settings of the engines that have some, by engine; a copy."""
        return {name: dict(found) for name in self.names() if (found := self._entries[name].settings)}

    def load(self, name: str) -> type[Engine]:
        """The class of an engine, if it can run here."""
        kind: type[Engine] = self.entry(name).load_class()
        if reason := kind.cannot_run():
            raise UsageError(f"the {kind.called()} engine cannot run here: {reason}")
        return kind

    def runnable(self) -> tuple[list[str], dict[str, str]]:
        """The engines that can run here, and of the others why not."""
        able: list[str] = []
        unable: dict[str, str] = {}
        for name in self.names():
            try:
                able.append(self.load(name).name)
            except UsageError as error:
                unable[name] = str(error)
        return able, unable

    def packages(self) -> list[str]:
        """Distributions that the engines run on, installed or not: their versions shape results."""
        return list(dict.fromkeys(package for name in self.names() for package in self._entries[name].packages))

    def _load_plugins(self) -> None:
        """Add the engines of installed packages, once; one that cannot be added is reported."""
        TASKS.load_plugins()  # a package of tasks may bring its engine
        if self._plugins_loaded:
            return
        self._plugins_loaded = True
        for plugin in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda plugin: plugin.name):
            try:
                self.register(plugin.name, plugin.value, packages=[plugin.dist.name] if plugin.dist else [])
            except ConfigError as error:
                logging.getLogger("genelab").warning("engine plugin %r did not load: %s", plugin.name, error)


ENGINES = EngineRegistry()


def register_engine(
    name: str,
    home: str | type[Engine],
    *,
    extra: str | None = None,
    packages: Sequence[str] = (),
    default_on: Device | None = None,
    settings: Mapping[str, Setting] | None = None,
) -> None:
    """Let users choose an engine by this name; see `EngineEntry` for what may be said about it."""
    ENGINES.register(name, home, extra=extra, packages=packages, default_on=default_on, settings=settings)
