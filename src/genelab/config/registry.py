"""Tasks by id. A task is registered by the path of the function that makes it, so that listing stays light."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from genelab.config.hints import import_name, names_in
from genelab.errors import ConfigError, UsageError, did_you_mean, summary

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnvCfg
    from genelab.rl.config import BackendConfig

ASK = "?"
"""A learner that nobody named: the listing makes the task to find out."""
ENTRY_POINT_GROUP = "genelab.tasks"
PUBLISHED = "@published"
"""Ending of an id that asks for a task at its published settings."""


@dataclass(kw_only=True)
class TaskCfg:
    """What a task is made of."""

    env: ManagerBasedEnvCfg
    """Config of the training environment."""
    play_env: ManagerBasedEnvCfg | None = None
    """Config used by play, eval and export; the training env when None."""
    agent: BackendConfig | None = None
    """Agent config; its type selects the RL backend. None: playback only."""

    @property
    def playing(self) -> ManagerBasedEnvCfg:
        """The environment to watch and to judge in."""
        return self.env if self.play_env is None else self.play_env


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """What the listing shows of a task without making it."""

    id: str
    """The name users type, in any case."""
    factory: str | Callable[[], TaskCfg]
    """The function that makes the config, best as "module:function"."""
    description: str = ""
    """One line for the listing."""
    robot: str = ""
    """The robot, for the listing."""
    backend: str | None = ASK
    """The learner, for the listing, e.g. "rsl_rl PPO"; None for playback only, `ASK` if only the task itself knows."""
    published: str | Callable[[], TaskCfg] | None = None
    """The function that makes the task at its published settings, if it has any of its own."""
    package: str
    """Top-level module of the factory: who brought the task."""


@dataclass(frozen=True)
class PluginFailure:
    """A task plugin that did not load."""

    name: str
    """Name of its entry point."""
    error: BaseException
    """What it raised."""


class TaskRegistry:
    """The known tasks. Looking at them loads the plugins first; ids match in any case."""

    def __init__(self) -> None:
        self.failures: list[PluginFailure] = []
        self.imported: list[str] = []
        """Modules that the user named with `--import`, for commands that are printed."""
        self.named: set[str] = set()
        """What the configs of the tasks made so far name, as "module:name"."""
        self.watchers: list[Callable[[TaskEntry], None]] = []
        """Told of each task that is registered from now on."""
        self._entries: dict[str, TaskEntry] = {}
        self._packages: set[str] = set()
        self._plugins_loaded = False

    def register(
        self,
        id: str,
        factory: str | Callable[[], TaskCfg],
        *,
        description: str = "",
        robot: str = "",
        backend: str | None = ASK,
        published: str | Callable[[], TaskCfg] | None = None,
    ) -> None:
        """Add a task; adding it again from the same factory changes nothing.

        Args:
            id: The name that users type, in any case.
            factory: Function that makes the config, best as "module:function".
            description: One line for the listing.
            robot: The robot, for the listing.
            backend: The learner, for the listing; None for playback only.
            published: Function that makes the same task at its published settings: no training aids, published
                physics step, budget and number of environments. Its id is the task's with "@published" behind it.
        """
        name = _factory_name(factory)
        if not all(name.partition(":")):
            raise ConfigError(f"task {id!r}: the factory must be 'module:function' or a function, got {name!r}")
        self.trust(name)
        known = self._entries.get(id.casefold())
        if known is None:
            entry = self._entries[id.casefold()] = TaskEntry(
                id=id,
                factory=factory,
                description=description,
                robot=robot,
                backend=backend,
                published=published,
                package=name.partition(":")[0].partition(".")[0],
            )
            for tell in self.watchers:
                tell(entry)
        elif not _same_factory(known.factory, factory):
            raise ConfigError(
                f"task {known.id!r} from {_factory_name(known.factory)!r} is registered again by {name!r}"
            )

    def get(self, id: str) -> TaskCfg:
        """Make the config of a task: a copy that the caller may change."""
        entry = self.entry(id)
        try:
            factory = import_name(entry.factory) if isinstance(entry.factory, str) else entry.factory
            cfg = factory()
            if not isinstance(cfg, TaskCfg):
                raise TypeError(f"it returned a {type(cfg).__name__}, not a TaskCfg")
        except (Exception, SystemExit, GeneratorExit) as error:
            made_by = _factory_name(entry.factory)
            place = _place(error, entry.package)
            raise UsageError(f"task {entry.id!r} cannot be made by {made_by!r}: {summary(error)}{place}") from error
        self.named.update(names_in(cfg))
        return copy.deepcopy(cfg)

    @property
    def packages(self) -> frozenset[str]:
        """The top-level packages that brought tasks: configs in files may name their functions and classes."""
        self.load_plugins()
        return frozenset(self._packages)

    def trust(self, module: str) -> None:
        """Let configs name what is in the package of this module, though it brings no task."""
        package = module.partition(":")[0].partition(".")[0]
        if package not in sys.stdlib_module_names:  # as a factory made by `functools.partial` would name
            self._packages.add(package)

    @contextmanager
    def temporarily(self) -> Iterator[None]:
        """Forget afterwards which tasks the block registers and which packages it trusts."""
        self.load_plugins()
        entries, packages = dict(self._entries), set(self._packages)
        try:
            yield
        finally:
            self._entries, self._packages = entries, packages

    def entry(self, id: str) -> TaskEntry:
        """What is known of a task without making it."""
        if not isinstance(id, str):
            how = "register a function that returns it, TASKS.register('Mine-v0', my_task)"
            raise UsageError(f"a task is named by its id, not given as a {type(id).__name__}: {how}")
        self.load_plugins()
        known = self._entries.get(id.casefold().removesuffix(PUBLISHED))
        if known is None:
            near = did_you_mean(id, self.ids())
            raise UsageError(f"unknown task {id!r}.{near} `genelab list` shows all {len(self)}.")
        if not id.casefold().endswith(PUBLISHED):
            return known
        if known.published is None:
            raise UsageError(f"{known.id} has no published settings of its own")
        return replace(known, id=known.id + PUBLISHED, factory=known.published)

    def entries(self) -> list[TaskEntry]:
        """All tasks, sorted by id."""
        self.load_plugins()
        return [self._entries[key] for key in sorted(self._entries)]

    def ids(self) -> list[str]:
        """All task ids, sorted."""
        return [entry.id for entry in self.entries()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids())

    def __len__(self) -> int:
        return len(self.entries())

    def __contains__(self, id: object) -> bool:
        self.load_plugins()
        return isinstance(id, str) and id.casefold().removesuffix(PUBLISHED) in self._entries

    def load_plugins(self) -> None:
        """Import the installed task packages, once; one that fails is reported and the others still load."""
        if self._plugins_loaded:
            return
        self._plugins_loaded = True  # first, since a plugin may look at the registry while it loads
        for plugin in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda plugin: plugin.name):
            try:
                loaded = plugin.load()
                self.trust(plugin.value)
                if callable(loaded):
                    loaded()
            except (Exception, SystemExit, GeneratorExit) as error:
                self.failures.append(PluginFailure(plugin.name, error))
                message = " ".join(str(error).split())
                logging.getLogger("genelab").warning(
                    "task plugin %r did not load: %s: %s", plugin.name, type(error).__name__, message
                )

    def import_module(self, name: str) -> ModuleType:
        """Import a module that registers tasks, by name or by the path of a .py file; the current directory counts."""
        try:
            if name.endswith(".py"):
                module = _import_file(Path(name).resolve())
            else:
                _make_importable(Path.cwd())
                module = importlib.import_module(name)
        except (Exception, SystemExit, GeneratorExit) as error:
            package = Path(name).stem if name.endswith(".py") else name.partition(".")[0]
            raise UsageError(f"cannot import {name!r}: {summary(error)}{_place(error, package)}") from error
        self.trust(module.__name__)
        if name not in self.imported:
            self.imported.append(name)
        return module


def _factory_name(factory: str | Callable[[], TaskCfg]) -> str:
    if isinstance(factory, str):
        return factory
    return f"{factory.__module__}:{getattr(factory, '__qualname__', repr(factory))}"


def _same_factory(first: str | Callable[[], TaskCfg], second: str | Callable[[], TaskCfg]) -> bool:
    name = _factory_name(first)
    # A reloaded module brings a new function of the same name; `<lambda>` and `<locals>` name no one function.
    return first == second or (name == _factory_name(second) and "<" not in name)


def _place(error: BaseException, package: str) -> str:
    """File and line of a package's own code where an error came up, as ` (mine.py:12)`, or nothing if there is none."""
    frames = traceback.walk_tb(error.__traceback__)
    mine = [
        (frame.f_code.co_filename, line)
        for frame, line in frames
        if frame.f_globals.get("__name__", "").partition(".")[0] == package
    ]
    if not mine:
        return ""
    file, line = mine[-1]
    here = os.path.relpath(file)
    return f" ({file if here.startswith(os.pardir) else here}:{line})"


def _make_importable(directory: Path) -> None:
    # For good and not only during the import: factories are looked up by name later.
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _import_file(path: Path) -> ModuleType:
    known = sys.modules.get(path.stem)
    if known is not None:
        if os.path.realpath(getattr(known, "__file__", None) or "") == str(path):
            return known
        raise ImportError(f"another module is called {path.stem!r}; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    _make_importable(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


TASKS = TaskRegistry()
