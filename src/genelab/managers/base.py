"""What all managers share: terms, the parts of the scene they name, and a table to look at."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers.meaning import Meaning
from genelab.scene import Articulation, Entity
from genelab.sim import EnvIds
from genelab.state import Stateful, load_state, state_of

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

_OPEN = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


@dataclass(kw_only=True)
class SceneEntityCfg:
    """Names a part of the scene in a term's parameters; the term receives it as a `Selection`."""

    name: str = "robot"
    """Name of the entity."""
    joint_names: tuple[str, ...] | None = None
    """Regular expressions of joints; None: all of them."""
    body_names: tuple[str, ...] | None = None
    """Regular expressions of bodies; None: all of them."""


@dataclass(frozen=True)
class Selection:
    """An entity and some of its joints and bodies, ready to index with."""

    entity: Entity
    joint_ids: gm.Columns
    body_ids: gm.Columns

    @property
    def joints(self) -> list[int]:
        """Which of the entity's joints they are."""
        count, device = len(self.entity.joint_names), self.entity.engine.device
        return torch.arange(count, device=device)[self.joint_ids].tolist()

    @property
    def robot(self) -> Articulation:
        """The entity, which must have driven joints."""
        if not isinstance(self.entity, Articulation):
            raise ConfigError(f"{self.entity.name!r} is not an articulation")
        return self.entity


ROBOT: Any = SceneEntityCfg()
"""Default of a term's parameter: the whole robot."""


@dataclass(kw_only=True)
class TermCfg:
    """A term: something to compute, and with what."""

    func: Callable[..., Any]
    """A function `(env, **params)`, or a class with `__init__(cfg, env)`, `__call__(env, **params)` and `reset`."""
    params: dict[str, Any] = field(default_factory=dict)
    """Arguments of the function."""


@dataclass
class Table:
    """A manager's terms as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, title_justify="left")
        for column in self.columns:
            table.add_column(column, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        text = StringIO()
        Console(file=text, width=120, color_system=None).print(table)
        return text.getvalue().rstrip()


class Term(Stateful):
    """A term bound to an environment; it remembers what its instance does, if it is one of a class."""

    parts = ("instance",)

    def __init__(
        self, name: str, cfg: TermCfg, env: ManagerBasedEnv, where: str, *, takes_env_ids: bool = False
    ) -> None:
        self.name = name
        self._given = 1 + takes_env_ids + isinstance(cfg.func, type)  # env, env_ids, and self of a class
        self.where = f"{where} term {name!r}"
        self._env = env
        self._params = self._resolve(cfg, env)
        self._func: Callable[..., Any] = cfg.func
        self._reset: Callable[[EnvIds], None] | None = None
        self.instance: Any = None
        if isinstance(cfg.func, type):
            try:
                self._func = self.instance = cfg.func(cfg, env)
            except TypeError as error:
                self._refuse_call(error)
                raise
            self._reset = getattr(self.instance, "reset", None)

    def _resolve(self, cfg: TermCfg, env: ManagerBasedEnv) -> dict[str, Any]:
        """Check the parameters against the function and replace names of scene parts by the parts."""
        target = cfg.func.__call__ if inspect.isclass(cfg.func) else cfg.func
        signature = inspect.signature(target)
        known = signature.parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
        for key in cfg.params:
            if key not in known and not open_ended:
                raise ConfigError(f"{self.where}: {_name(cfg.func)} has no parameter {key!r}")
        for parameter in list(known.values())[self._given :]:
            needed = parameter.default is parameter.empty and parameter.kind not in _OPEN
            if needed and parameter.name not in cfg.params:
                raise ConfigError(f"{self.where}: {_name(cfg.func)} needs the parameter {parameter.name!r}")
        params = {key: p.default for key, p in known.items() if isinstance(p.default, SceneEntityCfg)}
        params.update(cfg.params)
        return {
            key: select(value, env) if isinstance(value, SceneEntityCfg) else value for key, value in params.items()
        }

    def __call__(self, *args: Any) -> Any:
        try:
            return self._func(self._env, *args, **self._params)
        except TypeError as error:
            self._refuse_call(error)
            raise

    def _refuse_call(self, error: TypeError) -> None:
        """Say what is wrong if it was the call itself that failed, not something in what was called."""
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise ConfigError(f"{self.where}: {_name(self._func)} cannot be called so: {error}") from error

    def reset(self, env_ids: EnvIds) -> None:
        """Let a term with memory forget these environments."""
        if self._reset is not None:
            self._reset(env_ids)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.instance is None else state_of(self.instance)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.instance is not None:
            load_state(self.instance, state)

    def meaning(self) -> Meaning:
        """What its columns are, as its function or class tells; the formula is in the docstring if nowhere else."""
        told = getattr(self._func, "meaning", Meaning())
        if callable(told):
            known = {key: p.default for key, p in inspect.signature(self._func).parameters.items()}
            known |= {"env": self._env, **self._params}
            told = told(**{key: known[key] for key in inspect.signature(told).parameters})
        if told.formula:
            return told
        return replace(told, formula=" ".join((inspect.getdoc(self._func) or "").split("\n\n")[0].split()))

    def vector(self) -> Tensor:
        """The value, which must be one number per environment."""
        value = self()
        if not isinstance(value, Tensor) or value.shape != (self._env.num_envs,):
            raise ConfigError(f"{self.where} must return shape ({self._env.num_envs},), got {_shape(value)}")
        self.check_real(value)
        return value

    def check_real(self, value: Tensor) -> None:
        """Refuse complex numbers, of which a conversion would drop half."""
        if value.is_complex():
            raise ConfigError(f"{self.where} must return real numbers, got {value.dtype}")


Cfg = TypeVar("Cfg", bound=TermCfg)


class Manager(Stateful, Generic[Cfg]):
    """Runs the terms of one kind, each with its config."""

    parts = ("terms",)

    kind: str
    takes_env_ids: ClassVar[bool] = False
    """Whether its terms are called with the environments they are to act on."""

    def __init__(self, cfgs: Mapping[str, Cfg], env: ManagerBasedEnv) -> None:
        self.env = env
        self.cfgs = dict(cfgs)
        self.terms = {
            name: Term(name, cfg, env, self.kind, takes_env_ids=self.takes_env_ids) for name, cfg in self.cfgs.items()
        }

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Forget these environments; returns what to log of their episodes."""
        for term in self.terms.values():
            term.reset(env_ids)
        return {}

    def table(self) -> Table:
        """The terms, to print."""
        return Table(f"{self.kind} terms", ("name", "function"), [(n, _name(c.func)) for n, c in self.cfgs.items()])

    def __str__(self) -> str:
        return str(self.table())


def select(cfg: SceneEntityCfg, env: ManagerBasedEnv) -> Selection:
    """The part of the scene that a config names."""
    entity = env.scene[cfg.name]

    def ids(found: list[int] | None) -> gm.Columns:
        return slice(None) if found is None else gm.columns(found, env.device)

    joints = None if cfg.joint_names is None else entity.find_joints(cfg.joint_names)
    bodies = None if cfg.body_names is None else entity.find_bodies(cfg.body_names)
    return Selection(entity, ids(joints), ids(bodies))


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", str(func))


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
