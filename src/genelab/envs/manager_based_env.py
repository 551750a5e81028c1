"""An environment without rewards: a scene that can be acted in and looked at."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from genelab.config import Amount, check_values
from genelab.config.bounds import Bounds
from genelab.envs.watch import Watcher
from genelab.errors import GenelabError
from genelab.managers import (
    ActionManager,
    ActionTermCfg,
    EventManager,
    EventTermCfg,
    ObservationGroupCfg,
    ObservationManager,
)
from genelab.scene import Articulation, Scene, SceneCfg
from genelab.sim import EnvIds, SimulationCfg
from genelab.state import Stateful, settle, snapshot


@dataclass(kw_only=True)
class ManagerBasedEnvCfg:
    """A scene, how it is stepped, and what acts on it. What is deleted from a dict is left out."""

    scene: SceneCfg
    """What is in the world."""
    simulation: SimulationCfg = field(default_factory=SimulationCfg)
    """How it is stepped and shown."""
    decimation: Annotated[int, Bounds(1, 2**31 - 1)] = 1
    """Physics steps per control step."""
    actions: dict[str, ActionTermCfg] = field(default_factory=dict)
    """From an action to targets."""
    observations: dict[str, ObservationGroupCfg] = field(default_factory=dict)
    """What is seen, by group."""
    events: dict[str, EventTermCfg] = field(default_factory=dict)
    """What happens from outside."""
    seed: Amount | None = None
    """Seed of all random numbers; None draws one."""
    playback: Callable[..., Tensor] | None = None
    """For scenes without a policy: a function `(env, step)` that gives the action of each control step."""

    def validate(self) -> None:
        """Refuse what cannot be built."""
        check_values(self, "env")
        self.simulation.validate()
        self.scene.validate()


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Torch on one thread, where it would use the CPU's.

    The operations of a step are too small to share, and a thread of torch that waits for the next one spins on a core
    that the physics needs: on a busy machine a step took ten times as long.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class ManagerBasedEnv(Stateful):
    """A scene in `num_envs` copies, stepped at the control rate."""

    parts: ClassVar[tuple[str, ...]] = ("scene", "event_manager", "action_manager", "observation_manager")
    not_state: ClassVar[tuple[str, ...]] = ("seed", "_closed")

    cfg: ManagerBasedEnvCfg

    def __init__(self, cfg: ManagerBasedEnvCfg, *, notify: Callable[[str], None] | None = None) -> None:
        cfg.validate()
        self.cfg = cfg
        self.scene = Scene(cfg.scene, cfg.simulation, notify)
        self.num_envs = cfg.scene.num_envs
        self.device = self.scene.engine.device
        self.dtype = self.scene.engine.dtype
        self.physics_dt = cfg.simulation.dt
        self.step_dt = cfg.simulation.dt * cfg.decimation
        self.rng = torch.Generator(device=self.device)
        self.seed = secrets.randbits(31) if cfg.seed is None else cfg.seed
        self.common_step_counter = 0
        self._closed = False
        self._seed(self.seed)
        self._load_managers()
        settle(self)
        self.event_manager.apply("startup", None)
        self.scene.engine.refresh()

    def _seed(self, seed: int) -> None:
        self.seed = seed
        self.rng.manual_seed(seed)

    def _load_managers(self) -> None:
        # Terms look at the state when they are made, so it must be a valid one.
        self.scene.reset(None)
        self.scene.refresh(None)
        self.scene.reset_sensors(None)
        self.event_manager = EventManager(self.cfg.events, self)
        self.action_manager = ActionManager(self.cfg.actions, self)
        self.observation_manager = ObservationManager(self.cfg.observations, self)

    @property
    def robot(self) -> Articulation:
        """The entity called `robot`."""
        return self.scene.articulation("robot")

    @property
    def action_dim(self) -> int:
        """Width of the action."""
        return self.action_manager.dim

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Start all environments anew; with a seed, everything that follows depends only on it."""
        if seed is not None:
            self._seed(seed)
            self.scene.restart()
            self.event_manager.apply("startup", None)
        self._reset_envs(None)
        return self.observation_manager.compute(), {}

    def step(self, action: Tensor) -> Any:
        """One control step with an action `(num_envs, action_dim)`: observations, and an empty dict."""
        with one_thread(self.device):
            self._advance(action)
            self.event_manager.advance(self.step_dt)
            self.scene.engine.refresh()
            return self.observation_manager.compute(), {}

    def _advance(self, action: Tensor, watchers: Sequence[Watcher] = ()) -> None:
        """Act and let the physics run for a control step."""
        self.action_manager.process(action)
        self.scene.step(self.cfg.decimation, watchers)
        self.common_step_counter += 1
        self.scene.update(self.step_dt)

    def _reset_envs(self, env_ids: EnvIds) -> dict[str, Any]:
        """Give environments a new initial state; returns what the managers log of the old episodes."""
        self.scene.reset(env_ids)
        self.event_manager.apply("reset", env_ids)
        self.scene.refresh(env_ids)
        self.scene.reset_sensors(env_ids)
        log: dict[str, Any] = {}
        for manager in (self.observation_manager, self.action_manager, self.event_manager):
            log.update(manager.reset(env_ids))
        return log

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on but the config, to go on from here as if nothing had been between; plain
        data with copies of the tensors on the CPU."""
        return snapshot({**super().state_dict(), "rng": self.rng.get_state()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state_dict` gave, in an environment of the same config."""
        try:
            self.rng.set_state(state["rng"])
        except (KeyError, TypeError, RuntimeError) as error:
            raise GenelabError("the saved state is of another environment: its random numbers are not here") from error
        super().load_state_dict(snapshot({key: value for key, value in state.items() if key != "rng"}, self.device))

    def close(self) -> None:
        """Free the engine."""
        if not self._closed:
            self._closed = True
            self.scene.engine.close()
