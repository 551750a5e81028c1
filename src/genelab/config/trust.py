"""Whose code a config may name.

Configs name functions and classes as "module:name". A name is looked up only if its code is already trusted: genelab's
vocabulary for configs, the packages that brought tasks (entry points, `--import`), and whatever a registered task's own
config names. Everything else is refused before anything is imported. Of a package that brought a task, a file may name
a function only if the task's own config does, or if the function is declared for its place by what it says to return:
`spec` calls nothing that is not annotated `-> mujoco.MjSpec`.
"""

import builtins
import importlib
import inspect
import re
import sys
from dataclasses import is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any, Literal, get_args

from genelab.config.hints import UNTYPED, origin_of, resolve, union_members
from genelab.config.registry import TASKS
from genelab.errors import ConfigError, summary

Kind = Literal["dataclass", "enum", "callable"]
CALLABLE_MODULES = ("genelab.mdp", "genelab.scene")
"""Where genelab has functions for configs; its others start processes and write files."""
_NAME = re.compile(r"[^\s.:][^\n.:]*(\.[^\s.:][^\n.:]*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""A module, which may be any file that Python can import, and a name in it."""


def look_up(name: str, kind: Kind, hint: Any = Any) -> Any:
    """Return the object that a config names, if it may be named and is what its place asks for; nothing is called.

    Args:
        name: `module:name`.
        kind: What the object must be.
        hint: Annotation of the place: of a function that it calls `Callable[..., T]`, T must be what is returned.

    Raises:
        ConfigError: It may not be named, cannot be imported, or does not fit.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not of the form 'module:name'")
    module, _, qualname = name.partition(":")
    if not _may_name(module, qualname, kind):
        raise ConfigError(f"{name!r} may not be used here: {_who(module)}")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
            if isinstance(found, ModuleType):
                raise ConfigError(f"{name!r} is no {kind}")  # `genelab.mdp:torch.save` reaches through it
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"cannot import {name!r}: {summary(error)}") from error
    is_class = isinstance(found, type)
    fits = {
        "dataclass": is_class and is_dataclass(found),
        "enum": is_class and issubclass(found, Enum),
        "callable": callable(found),
    }
    if not fits[kind]:
        raise ConfigError(f"{name!r} is no {kind}")
    home = str(getattr(found, "__module__", None))
    if not _may_name(home, getattr(found, "__qualname__", qualname), kind, name):
        raise ConfigError(f"{name!r} may not be used here: it is {home}'s, and {_who(home)}")
    if kind == "callable":
        named = f"{home}:{getattr(found, '__qualname__', qualname)}"
        _check_returns(found, hint, name, named=bool({name, named} & TASKS.named))
    return found


def _may_name(module: str, qualname: str, kind: Kind, alias: str = "") -> bool:
    package = module.partition(".")[0]
    if {f"{module}:{qualname}", alias} & TASKS.named:
        return True
    if module.endswith(".__main__"):
        return False  # to import it is to run it
    if package == "genelab":
        return kind != "callable" or any(f"{module}.".startswith(f"{home}.") for home in CALLABLE_MODULES)
    return package in TASKS.packages


def _who(module: str) -> str:
    package = module.partition(".")[0]
    if package == "genelab":
        return f"of genelab itself, only functions of {' and '.join(CALLABLE_MODULES)} are for configs"
    if package in sys.stdlib_module_names:
        return f"{package} is Python's own"
    return f"{package} brings no task; if you trust it, pass `TASKS.import_module({package!r})`"


def _check_returns(function: Any, hint: Any, name: str, *, named: bool) -> None:
    """Refuse a function that is not declared for its place by the annotation of what it returns.

    A function that a task itself names (`named`) needs no annotation, but must not have another one.
    """
    wanted = [returned for member in union_members(hint) if (returned := _returned(member)) is not None]
    given = [function] if isinstance(function, type) else union_members(_says(function))
    classes = [origin_of(one) for one in given]
    said = isinstance(function, type) or "return" in getattr(function, "__annotations__", {})
    if wanted:
        said = said and all(isinstance(one, type) and one not in UNTYPED for one in classes)
    names = " | ".join(kind.__name__ for kind in wanted)
    if not said and not named:
        example = names or "Tensor"
        raise ConfigError(f"{name!r} does not say what it returns: annotate it, such as `def ...(...) -> {example}`")
    if said and wanted and not any(issubclass(one, kind) for one in classes for kind in wanted):
        raise ConfigError(f"{name!r} does not return {names}, which is needed here")


def _returned(hint: Any) -> type | None:
    """T of `Callable[..., T]`; None where anything will do."""
    args = get_args(hint)
    kind = origin_of(args[-1]) if len(args) == 2 else None
    return kind if isinstance(kind, type) and kind not in UNTYPED else None


def _says(function: Any) -> Any:
    """What a function is annotated to return; `Any` if it is not, or by a name that cannot be resolved."""
    annotation = getattr(function, "__annotations__", {}).get("return", Any)
    return resolve(annotation, {**vars(builtins), **getattr(inspect.unwrap(function), "__globals__", {})})
