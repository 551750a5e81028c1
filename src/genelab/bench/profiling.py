"""The phases of a start: timed, and profiled with cProfile if asked."""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

from genelab.bench.schema import CProfileFunction, StartupPhase, StartupTime
from genelab.config import read_json
from genelab.errors import UsageError

PhaseName = Literal["python_imports", "task_config", "app_launch", "env_creation", "first_step"]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
"""In the order in which they happen."""
Whitelist = Mapping[str, Sequence[str]]
"""Patterns of module:function, by phase."""


class Phases:
    """Takes the time of each phase; one that fails has none."""

    def __init__(self, *, profile: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self.profiles: dict[str, cProfile.Profile] = {}
        self._profile = profile

    @contextmanager
    def phase(self, name: PhaseName) -> Iterator[None]:
        """What happens inside is this phase, or more of it."""
        profiler = self.profiles.get(name, cProfile.Profile()) if self._profile else None
        start = time.perf_counter()
        if profiler is not None:
            profiler.enable()
        try:
            yield
        finally:
            if profiler is not None:
                profiler.disable()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        if profiler is not None:
            self.profiles[name] = profiler

    @property
    def times(self) -> StartupTime:
        """How long each phase took, None for what did not happen."""
        return StartupTime(**{name: self.seconds.get(name) for name in PHASES})

    def report(self, top_n: int, whitelist: Whitelist | None = None) -> dict[str, StartupPhase]:
        """The profiled phases: the functions with the most own time or, with a whitelist, those it names."""
        found = {}
        for name, profiler in self.profiles.items():
            functions = profiled_functions(profiler)
            if whitelist is not None:
                functions = [one for one in functions if _named(one, whitelist.get(name, ()))]
            found[name] = StartupPhase(total_time_s=self.seconds[name], top_functions=tuple(functions[:top_n]))
        return found

    def unmatched(self, whitelist: Whitelist) -> list[str]:
        """Patterns, as phase/pattern, that no function of their phase answers to."""
        missing = []
        for name, patterns in whitelist.items():
            functions = profiled_functions(self.profiles[name]) if name in self.profiles else []
            missing += [f"{name}/{one}" for one in patterns if not any(_named(known, (one,)) for known in functions)]
        return missing


def profiled_functions(profiler: cProfile.Profile) -> list[CProfileFunction]:
    """Every function of a profile, those of one module and name together; the one with the most own time first."""
    modules = {getattr(module, "__file__", None): name for name, module in list(sys.modules.items())}
    sums: dict[str, tuple[float, float, int]] = {}
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (file, _, function), (_, calls, own, cumulative, _) in stats.items():
        name = _name(file, function, modules)
        before = sums.get(name, (0.0, 0.0, 0))
        sums[name] = before[0] + own, before[1] + cumulative, before[2] + calls
    functions = [
        CProfileFunction(name=name, own_time_s=own, cum_time_s=cumulative, calls=calls)
        for name, (own, cumulative, calls) in sums.items()
    ]
    return sorted(functions, key=lambda one: (-one.own_time_s, one.name))


def _name(file: str, function: str, modules: Mapping[str | None, str]) -> str:
    if file == "~":
        return f"builtins:{function}"
    if file.startswith("<frozen "):
        return f"{file[8:-1]}:{function}"
    return f"{modules.get(file, Path(file).stem)}:{function}"


def _named(function: CProfileFunction, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(function.name, pattern) for pattern in patterns)


def read_whitelist(path: Path) -> dict[str, tuple[str, ...]]:
    """A JSON file of the patterns for each phase."""
    try:
        content = read_json(path)
    except UsageError as error:
        raise UsageError(f"`whitelist`: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(patterns, list) for patterns in content.values()):
        raise UsageError(f'`whitelist`: {path} must be like {{"env_creation": ["genelab.*:__init__"]}}')
    for name in content:
        if name not in PHASES:
            raise UsageError(f"`whitelist`: there is no phase {name!r}, only {', '.join(PHASES)}")
    return {name: tuple(str(pattern) for pattern in patterns) for name, patterns in content.items()}
