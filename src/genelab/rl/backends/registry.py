"""RL libraries by name and by agent config. A library is registered by the path of its backend, so that offering the
choice imports neither torch nor a library.

To bring one, subclass `genelab.rl.config.BackendConfig` and `genelab.rl.backends.Backend` and call `register_backend`,
in a module that `--import` names or that an entry point of the group `genelab.tasks` loads. Nothing else changes: the
type of a task's agent config chooses the library, and `--rl-library`, run records and benchmarks ask the registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from genelab.config import TASKS
from genelab.config.offer import Offer, path_of
from genelab.errors import ConfigError, UsageError, did_you_mean
from genelab.rl.backends.config import BackendConfig

if TYPE_CHECKING:
    from genelab.rl.backends.base import Backend


@dataclass(frozen=True, kw_only=True)
class BackendEntry(Offer):
    """What is known of a library without importing it."""

    kind: ClassVar[str] = "RL library"

    config: type[BackendConfig]
    """The type of its agent configs."""

    def load(self) -> Backend[Any]:
        """The backend, if what it runs on is installed."""
        kind: type[Backend[Any]] = self.load_class()
        return kind()


class BackendRegistry:
    """The known RL libraries. Looking at their names loads the plugins first."""

    def __init__(self) -> None:
        self._entries: dict[type[BackendConfig], BackendEntry] = {}

    def register(
        self,
        config: type[BackendConfig],
        home: str | type[Backend[Any]],
        *,
        name: str | None = None,
        extra: str | None = None,
        packages: Sequence[str] = (),
    ) -> None:
        """Train agents of this config type with a backend: a class, or its path `module:Class` and its name."""
        name = getattr(home, "name", None) if name is None else name
        if name is None or not name.isidentifier():
            raise ConfigError(f"the RL library of {path_of(home)!r} cannot be called {name!r}: take a word as its name")
        for known in self._entries.values():
            if known.name == name and path_of(known.home) != path_of(home):
                raise ConfigError(
                    f"RL library {name!r} from {path_of(known.home)!r} is registered again by {path_of(home)!r}"
                )
        TASKS.trust(config.__module__)  # its configs are read from files, too
        self._entries[config] = BackendEntry(name=name, config=config, home=home, extra=extra, packages=tuple(packages))

    def names(self) -> tuple[str, ...]:
        """All libraries, in the order of their registration."""
        TASKS.load_plugins()  # a package of tasks may bring its library
        return tuple(dict.fromkeys(entry.name for entry in self._entries.values()))

    def entry(self, name: str) -> BackendEntry:
        """What is known of a library without importing it."""
        if name not in self.names():
            raise UsageError(
                f"unknown RL library {name!r}.{did_you_mean(name, self.names())} There are {', '.join(self.names())}."
            )
        return next(entry for entry in reversed(self._entries.values()) if entry.name == name)

    def of(self, agent: BackendConfig | None) -> BackendEntry:
        """The library that an agent config asks for by its type, or by that of which it is a variant."""
        for kind in type(agent).__mro__:
            if kind in self._entries:
                return self._entries[kind]
        if agent is None:
            raise UsageError("this task has no agent config: it can be played, not trained")
        if isinstance(agent, type):
            raise UsageError(f"the agent is the class {agent.__name__}: pass an object of it, {agent.__name__}(...)")
        raise UsageError(f"no RL backend is registered for an agent config of type {type(agent).__name__}")

    def packages(self) -> list[str]:
        """Distributions that the libraries run on, installed or not: their versions shape results."""
        self.names()
        return list(dict.fromkeys(package for entry in self._entries.values() for package in entry.packages))


BACKENDS = BackendRegistry()


def register_backend(
    config: type[BackendConfig],
    backend: str | type[Backend[Any]],
    *,
    name: str | None = None,
    extra: str | None = None,
    packages: Sequence[str] = (),
) -> None:
    """Train agents of this config type with this backend: a class, or its path `module:Class` with its `name`.

    See `BackendEntry` for what else may be said about it.
    """
    BACKENDS.register(config, backend, name=name, extra=extra, packages=packages)


def select_backend(agent: BackendConfig | None) -> Backend[Any]:
    """The backend for an agent config, by its type."""
    return BACKENDS.of(agent).load()
