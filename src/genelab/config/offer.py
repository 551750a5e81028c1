"""What is imported only when somebody asks for it: engines and RL libraries by name, and what an extra installs."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import Any, ClassVar

from genelab.config.hints import import_name
from genelab.errors import ConfigError, UsageError, summary


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What is known of a class without importing it."""

    kind: ClassVar[str]
    """What it is, in messages."""

    name: str
    """What users type."""
    home: str | type[Any]
    """The class, best as "module:Class"."""
    extra: str | None = None
    """The extra of genelab that installs what it runs on; None: its packages are installed by their own names."""
    packages: tuple[str, ...] = ()
    """Distributions that it runs on; runs and benchmarks record their versions."""

    @property
    def title(self) -> str:
        """What a sentence calls it."""
        return self.name

    def load_class(self) -> Any:
        """The class, if what it runs on is installed."""
        if lacking := [package for package in self.packages if not _installed(package)]:
            what = " ".join(lacking) if self.extra is None else f"'genelab[{self.extra}]'"
            raise UsageError(f"{self.title} is not installed: pip install {what}")
        try:
            found = import_name(self.home) if isinstance(self.home, str) else self.home
        except Exception as error:
            raise UsageError(f"{self.title} cannot be imported: {summary(error)}") from error
        if found.name != self.name:
            raise ConfigError(f"{self.kind} {self.name!r}: {path_of(found)} calls itself {found.name!r}")
        return found


def need_library(module: str, extra: str) -> Any:
    """A library that an extra of genelab installs, or how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"{module} is not installed: pip install 'genelab[{extra}]'") from error


def path_of(home: str | type[Any]) -> str:
    """A class as "module:Class"."""
    return home if isinstance(home, str) else f"{home.__module__}:{home.__qualname__}"


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
