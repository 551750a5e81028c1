"""From the policy's numbers to targets of the joints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.errors import ConfigError
from genelab.managers.base import Table
from genelab.managers.delay import DelayBuffer
from genelab.managers.meaning import Meaning
from genelab.scene.actuators import Target
from genelab.scene.mirror import Image, beside
from genelab.sim import EnvIds
from genelab.state import Stateful

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv


@dataclass(kw_only=True)
class ActionTermCfg:
    """Some columns of the action."""

    entity: str = "robot"
    """Name of the entity it acts on."""
    noise_std: float = 0.0
    """Gaussian noise added to the action before it is used; training only."""
    delay: tuple[int, int] = (0, 0)
    """Fewest and most control steps an action arrives late; drawn for each environment at its reset."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        """The running term."""
        raise NotImplementedError

    def end_schedules(self, ends: Mapping[str, float]) -> None:
        """Become what is left when schedules have ended, given their last shares by name."""


class ActionTerm(Stateful):
    """Acts with some columns of the action.

    What `settings`, `transforms` and `meaning` tell is exported with a policy, checked where that is loaded, mirrored.
    """

    dim: int
    target: Target | None = None
    """What of its joints it sets, if it sets the same of all."""
    joint_names: Sequence[str] = ()
    """The joints it acts on."""
    told_elsewhere: ClassVar[type[ActionTermCfg]] = ActionTermCfg
    """The config whose fields are no settings: other methods tell them, or they do not change what it does."""

    def __init__(self, name: str, cfg: ActionTermCfg, env: ManagerBasedEnv) -> None:
        self.name = name
        self.cfg = cfg
        self.env = env
        self._delay = None if cfg.delay == (0, 0) else DelayBuffer(cfg.delay, env.num_envs, env.rng)
        self._more_delay: DelayBuffer | None = None

    def process(self, action: Tensor) -> None:
        """Take this control step's action, `(N, dim)`."""
        if self.cfg.noise_std > 0:
            rng = self.env.rng
            noise = torch.randn(action.shape, generator=rng, device=rng.device, dtype=action.dtype)
            action = action + self.cfg.noise_std * noise
        if self._delay is not None:
            action = self._delay.push(action)
        if self._more_delay is not None:
            action = self._more_delay.push(action)
        self.apply(action)

    def delay_more(self, steps: Tensor | None) -> None:
        """Let actions arrive later than the config says, by control steps of each environment, `(N,)`; None: no
        longer."""
        self._more_delay = None if steps is None else DelayBuffer.held(steps, self.env.rng)

    def apply(self, action: Tensor) -> None:
        """Set the targets."""
        raise NotImplementedError

    def reset(self, env_ids: EnvIds) -> None:
        """Forget the past of these environments."""
        for delay in (self._delay, self._more_delay):
            if delay is not None:
                delay.reset(env_ids)

    def settings(self) -> dict[str, Any]:
        """What else decides what it does, in plain values: the fields of its own config."""
        elsewhere = {"joint_names", *(field.name for field in dataclasses.fields(self.told_elsewhere))}
        return {name: value for name, value in vars(self.cfg).items() if name not in elsewhere}

    def transforms(self) -> dict[str, Any]:
        """What a policy must have been trained with, by the field that sets it; a number per joint is a dict by name.

        A checkpoint or an exported policy with other values is refused.
        """
        return self.settings()

    def remedy(self, key: str, trained: Any) -> str | None:
        """How to get a transform to what it was in training, where no option of its name does."""
        return None

    def metadata(self) -> dict[str, Any]:
        """What it does with its columns, for whoever rebuilds it on a robot; numbers per joint are lists."""
        told = {} if self.target is None else {"target": self.target}
        joints = {"joint_names": list(self.joint_names)} if self.joint_names else {}
        numbers = {
            key: list(value.values()) if self.is_per_joint(value) else value for key, value in self.transforms().items()
        }
        return {**told, **joints, **numbers, **self.settings()}

    def tables(self) -> dict[str, np.ndarray]:
        """Numbers that are too many for the metadata, by name; asked for at the start of an episode.

        An export for plain MuJoCo has them in `tables.npz`.
        """
        return {}

    def is_per_joint(self, value: Any) -> bool:
        """Whether a transform is a number for each of the joints."""
        if not isinstance(value, dict) or not value or list(value) != list(self.joint_names):
            return False
        return not any(isinstance(one, list) for one in value.values())

    def meaning(self) -> Meaning:
        """What its columns are, before anything is done with them."""
        return Meaning()

    def describe(self) -> tuple[str, str]:
        """What it acts on, and how, for the table."""
        return "", ""


class ActionManager(Stateful):
    """Splits the action among its terms and remembers the last two."""

    kind = "action"
    parts = ("terms",)

    def __init__(self, cfgs: Mapping[str, ActionTermCfg], env: ManagerBasedEnv) -> None:
        self.env = env
        self.terms = {name: cfg.build(name, env) for name, cfg in cfgs.items()}
        self.dim = sum(term.dim for term in self.terms.values())
        self.action = torch.zeros(env.num_envs, self.dim, device=env.device, dtype=env.dtype)
        self.prev_action = torch.zeros_like(self.action)

    def process(self, action: Tensor) -> None:
        """Take the action of a control step."""
        if action.shape != self.action.shape:
            raise ConfigError(f"the action must have shape {tuple(self.action.shape)}, got {tuple(action.shape)}")
        self.prev_action = self.action
        self.action = action.to(self.env.device, self.env.dtype, copy=True)
        start = 0
        for term in self.terms.values():
            term.process(self.action[:, start : start + term.dim])
            start += term.dim

    def reset(self, env_ids: EnvIds) -> dict[str, Any]:
        """Forget the actions of these environments."""
        gm.fill(self.prev_action, env_ids)
        gm.fill(self.action, env_ids)
        for term in self.terms.values():
            term.reset(env_ids)
        return {}

    def meaning(self) -> Meaning:
        """What the columns of the whole action are."""
        units: list[str] = []
        columns: list[str] = []
        for term in self.terms.values():
            told = term.meaning()
            units += [told.unit] * term.dim if isinstance(told.unit, str) else told.unit
            columns += told.columns or [f"{term.name} {i}" for i in range(term.dim)]
        return Meaning(unit=tuple(units), columns=tuple(columns), mirror=self.image)

    def image(self) -> Image:
        """The mirror image of the whole action."""
        return beside(term.meaning().image(f"the action {name!r}", term.dim) for name, term in self.terms.items())

    def table(self) -> Table:
        """All terms, to print."""
        rows: list[Any] = [
            (name, str(term.dim), type(term).__name__, *term.describe()) for name, term in self.terms.items()
        ]
        return Table(
            "actions", ("term", "dim", "type", "joints", "scale"), [*rows, ("total", str(self.dim), "", "", "")]
        )

    def __str__(self) -> str:
        return str(self.table())
