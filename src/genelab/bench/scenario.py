"""What is run: a task with its settings, from words to an environment, a phase after the other.

Nothing heavy is imported before its phase, so that the time of the imports can be told.
"""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from genelab.bench.backend_descriptor import BackendDescriptor
from genelab.bench.builders import RunFacts
from genelab.bench.library import agent_of
from genelab.bench.profiling import Phases
from genelab.config import TASKS, as_words
from genelab.errors import UsageError
from genelab.rl.backends.registry import BACKENDS

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the user asks to run."""

    task: str
    num_envs: int | None = None
    """None: as many as the task says."""
    seed: int | None = None
    """None: one that is drawn or, in training, the agent's."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    rl_library: str | None = None
    """A registered library, with its default settings unless it is the task's own; None: the task's."""


@dataclass(kw_only=True)
class Scenario:
    """A workload with everything decided."""

    workload: Workload
    task: str
    """The task's id, as it is registered."""
    env_cfg: ManagerBasedRlEnvCfg
    agent: Any
    """Agent config; None for a task without one."""
    seed: int
    phases: Phases
    backend: BackendDescriptor
    """The engine and, once it is imported and where one is involved, the RL library."""
    max_iterations: int | None = None
    """Learning iterations, once they are known."""

    @property
    def num_envs(self) -> int:
        """Environments side by side."""
        return self.env_cfg.scene.num_envs

    def identity(self, workflow: str) -> RunFacts:
        """What is known of the run before it has ended."""
        return RunFacts(
            workflow=workflow,
            backend=self.backend,
            task=self.task,
            seed=self.seed,
            num_envs=self.num_envs,
            overrides=as_words(self.workload.overrides),
            max_iterations=self.max_iterations,
        )


def load_scenario(workload: Workload, phases: Phases, *, play: bool = False, learns: bool = False) -> Scenario:
    """Import what is needed and make the config; `play` takes the config to judge a policy with."""
    with phases.phase("python_imports"):
        importlib.import_module("genelab.envs")
        importlib.import_module("genelab.rl.evaluator")
        if workload.rl_library is not None:
            BACKENDS.entry(workload.rl_library).load()
    with phases.phase("task_config"):
        scenario = _decide(workload, phases, play=play, learns=learns)
    if play or learns:
        with phases.phase("python_imports"):  # only now it is known which library that is
            scenario.backend = scenario.backend.with_agent(scenario.agent)
    return scenario


def start_engine(scenario: Scenario, notify: Callable[[str], None]) -> None:
    """What an engine does once per process."""
    cfg = scenario.env_cfg.simulation
    with scenario.phases.phase("app_launch"):
        from genelab.sim.engine import device_of, engine_of

        device_of(cfg)
        engine_of(cfg).start(cfg, notify)


def _decide(workload: Workload, phases: Phases, *, play: bool, learns: bool) -> Scenario:
    from genelab.envs import ManagerBasedRlEnvCfg
    from genelab.rl.config import configure
    from genelab.rl.world import eval_defaults, eval_needs

    task = TASKS.entry(workload.task).id
    cfg = TASKS.get(task)
    env_cfg = eval_defaults(cfg.playing) if play else cfg.env
    if not isinstance(env_cfg, ManagerBasedRlEnvCfg):
        raise UsageError(f"{task} is a scene to play: a benchmark needs a task with rewards")
    if workload.num_envs is not None:
        env_cfg.scene.num_envs = workload.num_envs
    agent = _agent(workload, task, cfg.agent, env_cfg.scene.num_envs) if play or learns else cfg.agent
    configure(env_cfg, agent, workload.overrides, learns=learns)
    if play:
        eval_needs(env_cfg, env_cfg.scene.num_envs)
    if learns:
        assert agent is not None  # `_agent` refuses a task without one
        seed = agent.seed if workload.seed is None else workload.seed
    else:
        given = workload.seed if workload.seed is not None else env_cfg.seed
        seed = secrets.randbits(31) if given is None else given
    env_cfg.seed = seed
    return Scenario(
        workload=workload,
        task=task,
        env_cfg=env_cfg,
        agent=agent,
        seed=seed,
        phases=phases,
        backend=BackendDescriptor.of_simulation(env_cfg.simulation),
    )


def _agent(workload: Workload, task: str, own: Any, num_envs: int) -> Any:
    agent = agent_of(workload.rl_library, own, num_envs)
    if agent is None:
        raise UsageError(f"{task} has no agent config: pass `rl_library={'|'.join(BACKENDS.names())}`")
    return agent


@contextmanager
def made_env(scenario: Scenario, notify: Callable[[str], None]) -> Iterator[ManagerBasedRlEnv]:
    """The environment, reset with the scenario's seed."""
    from genelab.envs import ManagerBasedRlEnv

    env = None
    try:
        with scenario.phases.phase("env_creation"):
            env = ManagerBasedRlEnv(scenario.env_cfg, notify=notify)
            env.reset(seed=scenario.seed)
        yield env
    finally:
        if env is not None:
            env.close()
