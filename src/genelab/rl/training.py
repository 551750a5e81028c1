"""One training: what it is, what is done around the learner, and what it leaves."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from genelab.config import as_words
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import GenelabError, refusing
from genelab.managers import ScheduleCfg
from genelab.rl.backends import Backend, TrainContext
from genelab.rl.config import BackendConfig
from genelab.rl.eval_callback import EvalCallback
from genelab.rl.evaluator import EvalSettings
from genelab.rl.film_callback import FilmCallback, FilmOptions
from genelab.rl.live_view import LiveView
from genelab.rl.loggers import LoggerName, open_logger
from genelab.rl.monitor import (
    CallHook,
    IterationHook,
    LogHook,
    Progress,
    ReportHook,
    SaveHook,
    TrainingInterrupted,
    TrainMonitor,
    Writer,
)
from genelab.rl.nan_guard import NanGuard, blaming_the_learner
from genelab.rl.profiling import ProfileCfg, Tracer, profiler
from genelab.rl.rank import FollowerMonitor, Rank
from genelab.rl.run import RunDirectory, Status
from genelab.rl.stop import stop_on_signals
from genelab.rl.world import eval_needs, world_of_run
from genelab.sim.engine import remark_on_idle_gpu
from genelab.viewer import ViewerCfg

UNCONVERGED_SHARE = 0.01
"""Of the physics steps; above it a run is remarked on."""
_LAST_SHARE = 0.95
"""Of a run; help that is given up before it is given up early."""


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a training run left."""

    path: Path
    """The run directory."""
    checkpoint: Path
    """Its last checkpoint."""
    best: Path | None
    """The policy that evaluation while training found best; None without such an evaluation."""
    status: Literal["completed", "interrupted"]
    spent: int
    """What it has spent of its budget since it began."""
    unit: str
    """What the budget counts, in the plural."""
    env_steps: int
    """Control steps of all environments since it began."""
    env_steps_here: int
    """Those of them since it was resumed."""
    seconds: float
    """How long it took, since it was resumed; evaluations do not count."""
    final: Mapping[str, Any] | None = None
    """What the evaluation after the last iteration found, as in `evaluations.json`; None without one."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the run's config was changed by, also if the run was resumed."""
    traces: Sequence[Path] = ()
    """What the profiler wrote."""


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """A training, with everything decided before it starts."""

    task_id: str
    env: ManagerBasedRlEnvCfg
    agent: BackendConfig
    backend: Backend[Any]
    """The library that the agent asks for."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What was changed of the task's own configs."""
    logger: LoggerName = "tensorboard"
    evaluation: EvalSettings | None = None
    film: FilmOptions | None = None
    profile: ProfileCfg | None = None
    viewer: ViewerCfg | None = None
    """How the training is shown while it learns, if the environment asks for it."""
    nan_guard: bool = True
    """Whether somebody looks at the numbers of the steps."""
    hooks: Sequence[IterationHook] = ()
    """What is called after every iteration, after `report`."""
    report: Callable[[Progress], bool | None] = lambda progress: None
    """Is told of every iteration, and stops the run by answering True."""
    on_env: Callable[[ManagerBasedRlEnv], None] = lambda env: None
    """Is given the environment before anything is learned."""
    notify: Callable[[str], None] = lambda message: None
    """Takes remarks to the user."""

    def __post_init__(self) -> None:
        if self.evaluation is not None:
            self.evaluation.check_for_training()


def remark_on_solver(env: ManagerBasedRlEnv, notify: Callable[[str], None]) -> None:
    """Say so if the physics of a run cannot be trusted."""
    engine = env.scene.engine
    share = engine.unconverged / max(engine.solved, 1)
    if share > UNCONVERGED_SHARE:
        most = engine.model.opt.iterations
        notify(
            f"the solver had not converged after {most} iterations in {share:.1%} of the physics steps it was looked "
            "at: raise `env.simulation.solver.iterations`, or shorten `env.simulation.dt`"
        )
    if env.diverged:
        notify(f"the physics diverged {env.diverged} times; those episodes were cut off")


def remark_on_schedules(schedules: Mapping[str, ScheduleCfg], total: int | None, notify: Callable[[str], None]) -> None:
    """Say so if schedules, which count control steps, do not end with a run of so many."""
    if total is None:
        return
    late = {name: one.over_after for name, one in schedules.items() if one.over_after > total}
    early = {
        name: one.until for name, one in schedules.items() if one.until is not None and one.until < _LAST_SHARE * total
    }
    remarks = (
        (late, "not over by then, so the last policy has not learned on the task's own rewards"),
        (early, "over long before, so what they taught may be unlearned"),
    )
    parts = [
        f"{what}: {', '.join(f'{name!r} (ends at {end:,})' for name, end in found.items())}"
        for found, what in remarks
        if found
    ]
    if parts:
        notify(
            f"schedules are for another budget than this run's {total:,} control steps; {'; '.join(parts)}. "
            "Change the budget, or `env.schedules.NAME.begin`, `.steps` and `.until`"
        )


class Training:
    """One run, from its configs to its last checkpoint."""

    def __init__(self, spec: TrainSpec, run: RunDirectory) -> None:
        self.spec = spec
        self.run = run
        self.learned = False
        """Whether an iteration has ended."""
        self.rank = Rank.current()

    def start(self, *, checkpoint: Path | None = None, resume: dict[str, Any] | None = None) -> TrainResult:
        """Train, and say in `run.json` how it ended."""
        seed_everything(self.rank.seed(self.spec.agent.seed))
        with contextlib.nullcontext() if resume is None else refusing(self.run.path / "params" / "env.json"):
            env = ManagerBasedRlEnv(self.spec.env, notify=self.spec.notify)
        if self.rank.alone:
            remark_on_idle_gpu(self.spec.env.simulation, self.spec.overrides, self.spec.notify)
        groups = env.observation_manager.groups.values()
        env.shows_final_obs = self.spec.backend.reads_final_obs
        self.spec.agent.validate_rollouts(env.num_envs, width=env.action_dim + sum(group.dim for group in groups))
        guard = NanGuard(env, self.spec.task_id, self.run.path, self.spec.overrides) if self.spec.nan_guard else None
        if guard is not None:
            env.watchers.append(guard)
        self.spec.on_env(env)
        control_steps = self.spec.backend.control_steps(self.spec.agent, env.num_envs)
        remark_on_schedules(self.spec.env.schedules, control_steps, self.spec.notify)
        facts = {
            "task": self.spec.task_id,
            "experiment": self.spec.agent.experiment_name,
            "backend": self.spec.backend.name,
            "engine": env.scene.engine.name,
            "device": str(env.device),
            "seed": self.spec.agent.seed,
            "num_envs": env.num_envs * self.rank.world_size,
            "ranks": self.rank.world_size,
            "budget": self.spec.backend.budget(self.spec.agent),
            "unit": self.spec.backend.unit,
            "logger": self.spec.logger,
            "overrides": as_words(self.spec.overrides),
        }
        try:
            if resume is None:
                self.run.start(**facts)
            else:
                self.run.go_on(resume["checkpoint"], resume["monitor"].get("seconds") or 0.0, **facts)
            with self._shown(env):
                return self._train(env, guard, self._open_logger(), checkpoint, resume)
        finally:
            env.close()

    @contextlib.contextmanager
    def _shown(self, env: ManagerBasedRlEnv) -> Iterator[None]:
        """Let whoever wants to look on while it learns."""
        if not (self.spec.env.simulation.vis and self.rank.leads):
            yield
            return
        try:
            view = LiveView(env, self.spec.viewer or ViewerCfg(), self.spec.notify)
        except GenelabError:
            self.run.finish("failed")
            raise
        with contextlib.closing(view), env.watched_by(view):
            yield

    def _report(self, progress: Progress) -> bool | None:
        self.learned = True
        return self.spec.report(progress)

    def _open_logger(self) -> Writer | None:
        if not self.rank.leads:
            return None
        try:
            return open_logger(self.spec.logger, self.run.path)
        except GenelabError:
            self.run.finish("failed")
            raise

    def _train(
        self,
        env: ManagerBasedRlEnv,
        guard: NanGuard | None,
        writer: Writer | None,
        checkpoint: Path | None,
        resume: dict[str, Any] | None,
    ) -> TrainResult:
        leads = self.rank.leads
        status: Literal["completed", "interrupted", "failed", "refused"] = "failed"
        evaluation = self._eval_callback(env.num_envs, writer) if leads else None
        film = self._film_callback() if leads else None
        start = time.perf_counter()
        with profiler(self.spec.profile if leads else None, self.spec.notify, "iterations") as trace:
            monitor = (TrainMonitor if leads else FollowerMonitor)(
                env,
                path=self.run.path,
                suffix=self.spec.backend.suffix,
                total=self.spec.backend.budget(self.spec.agent),
                unit=self.spec.backend.unit,
                hooks=self._hooks(guard, writer, trace, evaluation, film),
                world_size=self.rank.world_size,
                elapsed=self.run.elapsed,
            )
            ready = False

            def restore() -> None:
                nonlocal ready
                _restore(env, monitor, resume)
                ready = True

            context = TrainContext(
                task_id=self.spec.task_id,
                env=env,
                agent=self.spec.agent,
                backend=self.spec.backend.name,
                budget=monitor.total,
                monitor=monitor,
                checkpoint=checkpoint,
                resume=None if resume is None else resume["learner"],
                on_ready=restore,
                notify=self.spec.notify,
            )
            try:
                with (
                    stop_on_signals(monitor if self.rank.alone else self.rank, self.spec.notify),
                    blaming_the_learner(guard, monitor),
                ):
                    self.spec.backend.train(context)
                monitor.save(self.spec.backend.final_name)
                status = "completed"
            except TrainingInterrupted:
                status = "interrupted"
            except KeyboardInterrupt:
                status = "interrupted"
                raise
            except Exception:
                source = checkpoint if resume is None else self.run.path / "resume.pt"
                if ready or source is None:
                    raise
                status = "refused"
                with refusing(source, "cannot go on from it"):
                    raise
            finally:
                seconds = time.perf_counter() - start - (0.0 if evaluation is None else evaluation.took)
                for callback in (evaluation, film):
                    if callback is not None and callback.env is not None:
                        callback.env.close()
                self._end(status, monitor, seconds)
                if leads:
                    remark_on_solver(env, self.spec.notify)
                if writer is not None:
                    writer.close()
        last = monitor.last_checkpoint
        assert last is not None
        assert status in ("completed", "interrupted")
        return TrainResult(
            path=self.run.path,
            checkpoint=last,
            best=None if evaluation is None or evaluation.best is None else evaluation.best_model,
            status=status,
            spent=monitor.done,
            unit=monitor.unit,
            env_steps=monitor.env_steps,
            env_steps_here=monitor.env_steps_here,
            seconds=seconds,
            final=evaluation.of_iteration(monitor.iterations) if evaluation and status == "completed" else None,
            overrides=self.spec.overrides,
            traces=trace.files,
        )

    def _hooks(
        self,
        guard: NanGuard | None,
        writer: Writer | None,
        trace: Tracer,
        evaluation: EvalCallback | None,
        film: FilmCallback | None,
    ) -> list[IterationHook]:
        """What is done after every iteration, in this order."""
        hooks = [
            guard,
            None if writer is None else LogHook(writer),
            ReportHook(self._report),
            *self.spec.hooks,
            CallHook(lambda iteration: trace.step()),
            evaluation,  # before the save, which keeps what the best return is
            SaveHook(self.spec.agent.save_interval),
            film,
        ]
        return [hook for hook in hooks if hook is not None]

    def _end(self, status: Status | Literal["refused"], monitor: TrainMonitor, seconds: float) -> None:
        """Say how the run ended; what could not be resumed is as it was."""
        if status == "refused":
            self.run.revert()
        else:
            rate = monitor.env_steps_here / seconds if seconds > 0 else 0.0
            self.run.finish(status, env_steps=monitor.env_steps, steps_per_second=round(rate, 1))

    def _eval_callback(self, num_envs: int, writer: Writer | None) -> EvalCallback | None:
        options = self.spec.evaluation
        if options is None:
            return None
        backend, agent = self.spec.backend, self.spec.agent
        iterations = math.ceil(backend.budget(agent) / backend.budget_per_iteration(agent, num_envs))
        if options.every is not None and options.every > iterations:
            self.spec.notify(
                f"an evaluation every {options.every:,} iterations, and this training has {iterations:,}: "
                "only the last is evaluated"
            )
        count = min(options.num_envs or num_envs, options.episodes)
        make_env = partial(self._judging_env, count)
        return EvalCallback(
            make_env=make_env,
            env=None if options.every is None else make_env(),  # what cannot be judged is known before it learns
            task_id=self.spec.task_id,
            path=self.run.path,
            suffix=self.spec.backend.suffix,
            unit=self.spec.backend.unit,
            every=options.every,
            max_steps=options.max_steps,
            writer=writer,
            notify=self.spec.notify,
            quiet=options.quiet,
            episodes=options.episodes,
            seed=options.seed,
        )

    def _film_callback(self) -> FilmCallback | None:
        if self.spec.film is None:
            return None
        return FilmCallback(self._judging_env(self.spec.film.num_envs), self.run.path, self.spec.film, self.spec.notify)

    def _judging_env(self, num_envs: int) -> ManagerBasedRlEnv:
        """The environment in which `genelab eval` would judge this run's policies."""
        cfg, _ = world_of_run(self.spec.task_id, self.spec.overrides)
        return ManagerBasedRlEnv(eval_needs(cfg, num_envs), notify=self.spec.notify)


def seed_everything(seed: int) -> None:
    """Seed every generator that a learner may draw from."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # it takes no more
    torch.manual_seed(seed)


def _restore(env: ManagerBasedRlEnv, monitor: TrainMonitor, resume: dict[str, Any] | None) -> None:
    """The last thing before learning goes on: nothing may draw a random number after it."""
    if resume is not None:
        monitor.continue_from(resume["monitor"])
        env.load_state_dict(resume["env"])
        torch.set_rng_state(resume["torch_rng"])
