"""Train a task: everything around the learner."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from genelab.config import TASKS, Override, expect, load_json
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import GenelabError, UsageError, refusing
from genelab.rl.backends import Backend, TrainContext, select_backend
from genelab.rl.checkpoint import read_safely
from genelab.rl.config import BackendConfig, configure
from genelab.rl.eval_callback import EvalCallback
from genelab.rl.exported import is_exported
from genelab.rl.film_callback import FilmCallback, FilmOptions
from genelab.rl.launch.task import check_overrides
from genelab.rl.live_view import LiveView
from genelab.rl.loggers import LoggerName, check_logger, open_logger
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
from genelab.rl.rank import FollowerMonitor, Rank, check_backend, open_run
from genelab.rl.run import RunDirectory, Status
from genelab.rl.stop import stop_on_signals
from genelab.rl.world import check_control_step, eval_cfg, world_of_run
from genelab.viewer import ViewerCfg


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
    env_steps: int
    seconds: float
    overrides: Sequence[Override] = ()
    """What the run's config was changed by, also if the run was resumed."""
    traces: Sequence[Path] = ()
    """What the profiler wrote."""


@dataclass(kw_only=True)
class EvalOptions:
    """Evaluation while training; the last iteration is always evaluated, too."""

    every: int
    """Iterations between evaluations: what one is depends on the library, see its agent config."""
    episodes: int = 10
    num_envs: int | None = None
    """Environments; None: as many as in training. Never more than there are episodes."""
    seed: int = 0
    quiet: bool = False
    """Do not tell what each evaluation found; the logs and `best_model_meta.json` do."""


_RESUME: dict[str, Any] = {
    "checkpoint": str,
    "learner": dict,
    "env": dict,
    "monitor": {"done": int, "iterations": int, "env_steps": int, "episodes": dict, "best": Any},
    "torch_rng": Tensor,
}
"""What `resume.pt` has."""


def train_task(
    task_id: str,
    *,
    agent: BackendConfig | None = None,
    overrides: Sequence[Override] = (),
    num_envs: int | None = None,
    max_iterations: int | None = None,
    seed: int | None = None,
    log_dir: Path | None = None,
    checkpoint: Path | None = None,
    logger: LoggerName = "tensorboard",
    evaluation: EvalOptions | None = None,
    film: FilmOptions | None = None,
    profile: ProfileCfg | None = None,
    viewer: ViewerCfg | None = None,
    nan_guard: bool = True,
    hooks: Sequence[IterationHook] = (),
    report: Callable[[Progress], bool | None] = lambda progress: None,
    on_env: Callable[[ManagerBasedRlEnv], None] = lambda env: None,
    notify: Callable[[str], None] = lambda message: None,
) -> TrainResult:
    """Train a registered task with the backend that its agent config asks for, or `agent` in its place.

    `report` is told of every iteration, and stops the run by answering True; `hooks` are called after it. `on_env` is
    given the environment before anything is learned. With `env.simulation.vis` the training is shown while it learns,
    as `viewer` says. Without `nan_guard` nobody looks at the numbers of the steps, only at the learner's.
    """
    check_logger(logger)
    check_overrides(overrides)
    cfg = TASKS.get(task_id)
    cfg.agent = cfg.agent if agent is None else agent
    task_id = TASKS.entry(task_id).id
    backend = select_backend(cfg.agent)
    if not isinstance(cfg.env, ManagerBasedRlEnvCfg):
        raise UsageError(f"{task_id} is a scene to play, not a task to learn: it has no rewards")
    if num_envs is not None:
        cfg.env.scene.num_envs = num_envs
    assert cfg.agent is not None  # there is no backend for none
    if max_iterations is not None:
        backend.set_budget(cfg.agent, max_iterations)
    if seed is not None:
        cfg.agent.seed = seed
    configure(cfg.env, cfg.agent, overrides, learns=True)
    check_control_step(task_id, cfg.env, overrides)
    rank = Rank.current()
    if not rank.alone:
        check_backend(backend, task_id)
    cfg.env.seed = rank.seed(cfg.agent.seed)
    if checkpoint is not None and is_exported(checkpoint):
        raise UsageError(f"--checkpoint: {checkpoint} is an exported policy, which cannot learn; give a checkpoint")
    backend.settle(cfg.agent)
    run = open_run(log_dir or RunDirectory.default_path(backend.name, task_id))
    training = _Training(task_id, cfg.env, cfg.agent, backend, run, logger, evaluation, film, profile, report, notify)
    training.overrides = tuple(overrides)
    training.on_env = on_env
    training.hooks, training.nan_guard, training.viewer = hooks, nan_guard, viewer
    run.create() if log_dir is not None else run.create_numbered()
    with run.owned():
        run.check_free()  # once more: another may have come and gone
        run.write_params(cfg.env, cfg.agent)
        try:
            return training.start(checkpoint=checkpoint)
        except UsageError:
            if not training.learned:
                run.discard()
            raise


def resume_task(
    run_dir: Path,
    *,
    task_id: str | None = None,
    max_iterations: int | None = None,
    logger: LoggerName | None = None,
    evaluation: EvalOptions | None = None,
    film: FilmOptions | None = None,
    profile: ProfileCfg | None = None,
    nan_guard: bool = True,
    report: Callable[[Progress], None] = lambda progress: None,
    notify: Callable[[str], None] = lambda message: None,
) -> TrainResult:
    """Go on with a run that was interrupted, as if it had not been: same config, weights, counters, random numbers.

    It logs where it did before, unless another logger is given.
    """
    run = RunDirectory(run_dir)
    record = run.read()
    if task_id is not None and task_id.lower() != record["task"].lower():
        raise UsageError(f"--resume: {run_dir} is a run of {record['task']}, not of {task_id}")
    if (record.get("ranks") or 1) > 1 or not Rank.current().alone:
        raise UsageError(f"--resume: a run of many ranks cannot go on; start one with --checkpoint of {run_dir}")
    run.check_links()
    with run.owned():
        logger = logger or record.get("logger") or "tensorboard"
        check_logger(logger)
        if record["task"] in TASKS:
            TASKS.get(record["task"])  # its config may name functions of other packages, too
        env = load_json(run_dir / "params" / "env.json", ManagerBasedRlEnvCfg)
        agent = load_json(run_dir / "params" / "agent.json", BackendConfig)
        with refusing(run_dir / "params" / "agent.json"):
            backend = select_backend(agent)
        if max_iterations is not None:
            backend.set_budget(agent, max_iterations)
        with refusing(run_dir / "params"):
            configure(env, agent, learns=True)
        state = _read_state(run_dir)
        if state["monitor"]["done"] >= backend.budget(agent):
            raise UsageError(f"--resume: {run_dir} has spent its {backend.unit}; give a larger --max-iterations")
        training = _Training(
            record["task"], env, agent, backend, run, logger, evaluation, film, profile, report, notify
        )
        training.overrides = tuple(
            Override(path, text)
            for path, _, text in (change.partition("=") for change in record.get("overrides") or [])
        )
        training.nan_guard = nan_guard
        return training.start(resume=state)


def _read_state(run_dir: Path) -> dict[str, Any]:
    """What `resume.pt` has, all of it."""
    path = run_dir / "resume.pt"
    if not path.is_file():
        raise UsageError(f"--resume: {run_dir} has no resume.pt: the run ended before its first checkpoint")
    return expect(read_safely(path), _RESUME, path)


class _Training:
    """One run, from its configs to its last checkpoint."""

    def __init__(
        self,
        task_id: str,
        env_cfg: ManagerBasedRlEnvCfg,
        agent: Any,
        backend: Backend[Any],
        run: RunDirectory,
        logger: LoggerName,
        evaluation: EvalOptions | None,
        film: FilmOptions | None,
        profile: ProfileCfg | None,
        report: Callable[[Progress], bool | None],
        notify: Callable[[str], None],
    ) -> None:
        self.task_id = task_id
        self.env_cfg = env_cfg
        self.agent = agent
        self.backend = backend
        self.run = run
        self.logger = logger
        self.evaluation = evaluation
        self.film = film
        self.profile = profile
        self.report = report
        self.notify = notify
        self.overrides: Sequence[Override] = ()
        self.on_env: Callable[[ManagerBasedRlEnv], None] = lambda env: None
        self.hooks: Sequence[IterationHook] = ()
        self.nan_guard = True
        self.viewer: ViewerCfg | None = None
        self.learned = False
        """Whether an iteration has ended."""
        self.rank = Rank.current()

    def start(self, *, checkpoint: Path | None = None, resume: dict[str, Any] | None = None) -> TrainResult:
        """Train, and say in `run.json` how it ended."""
        seed_everything(self.rank.seed(self.agent.seed))
        with contextlib.nullcontext() if resume is None else refusing(self.run.path / "params" / "env.json"):
            env = ManagerBasedRlEnv(self.env_cfg, notify=self.notify)
        groups = env.observation_manager.groups.values()
        env.shows_final_obs = self.backend.reads_final_obs
        self.agent.validate_rollouts(env.num_envs, width=env.action_dim + sum(group.dim for group in groups))
        guard = NanGuard(env, self.task_id, self.run.path, self.overrides) if self.nan_guard else None
        if guard is not None:
            env.watchers.append(guard)
        self.on_env(env)
        facts = {
            "task": self.task_id,
            "experiment": self.agent.experiment_name,
            "backend": self.backend.name,
            "engine": env.scene.engine.name,
            "device": str(env.device),
            "seed": self.agent.seed,
            "num_envs": env.num_envs * self.rank.world_size,
            "ranks": self.rank.world_size,
            "budget": self.backend.budget(self.agent),
            "unit": self.backend.unit,
            "logger": self.logger,
            "overrides": [f"{change.path}={change.text}" for change in self.overrides],
        }
        try:
            self.run.start(**facts, **({} if resume is None else {"resumed_from": resume["checkpoint"]}))
            with self._shown(env):
                return self._train(env, guard, self._open_logger(), checkpoint, resume)
        finally:
            env.close()

    @contextlib.contextmanager
    def _shown(self, env: ManagerBasedRlEnv) -> Iterator[None]:
        """Let whoever wants to look on while it learns."""
        if not (self.env_cfg.simulation.vis and self.rank.leads):
            yield
            return
        try:
            view = LiveView(env, self.viewer or ViewerCfg(), self.notify)
        except GenelabError:
            self.run.finish("failed")
            raise
        with contextlib.closing(view), env.watched_by(view):
            yield

    def _report(self, progress: Progress) -> bool | None:
        self.learned = True
        return self.report(progress)

    def _open_logger(self) -> Writer | None:
        if not self.rank.leads:
            return None
        try:
            return open_logger(self.logger, self.run.path)
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
        with profiler(self.profile if leads else None, self.notify, "iterations") as trace:
            monitor = (TrainMonitor if leads else FollowerMonitor)(
                env,
                path=self.run.path,
                suffix=self.backend.suffix,
                total=self.backend.budget(self.agent),
                unit=self.backend.unit,
                hooks=self._hooks(guard, writer, trace, evaluation, film),
                world_size=self.rank.world_size,
            )
            ready = False

            def restore() -> None:
                nonlocal ready
                _restore(env, monitor, resume)
                ready = True

            context = TrainContext(
                task_id=self.task_id,
                env=env,
                agent=self.agent,
                backend=self.backend.name,
                budget=monitor.total,
                monitor=monitor,
                checkpoint=checkpoint,
                resume=None if resume is None else resume["learner"],
                on_ready=restore,
                notify=self.notify,
            )
            try:
                with (
                    stop_on_signals(monitor if self.rank.alone else self.rank, self.notify),
                    blaming_the_learner(guard, monitor),
                ):
                    self.backend.train(context)
                monitor.save(self.backend.final_name)
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
                seconds = time.perf_counter() - start
                for callback in (evaluation, film):
                    if callback is not None:
                        callback.env.close()
                self._end(status, monitor, seconds)
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
            env_steps=monitor.env_steps,
            seconds=seconds,
            overrides=self.overrides,
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
            *self.hooks,
            CallHook(lambda iteration: trace.step()),
            evaluation,  # before the save, which keeps what the best return is
            SaveHook(self.agent.save_interval),
            film,
        ]
        return [hook for hook in hooks if hook is not None]

    def _end(self, status: Status | Literal["refused"], monitor: TrainMonitor, seconds: float) -> None:
        """Say how the run ended; what could not be resumed is as it was."""
        if status == "refused":
            self.run.revert()
        else:
            rate = monitor.env_steps / seconds if seconds > 0 else 0.0
            self.run.finish(status, env_steps=monitor.env_steps, steps_per_second=round(rate, 1))

    def _eval_callback(self, num_envs: int, writer: Writer | None) -> EvalCallback | None:
        options = self.evaluation
        if options is None:
            return None
        count = min(options.num_envs or num_envs, options.episodes)
        return EvalCallback(
            env=self._judging_env(count),
            task_id=self.task_id,
            path=self.run.path,
            suffix=self.backend.suffix,
            unit=self.backend.unit,
            every=options.every,
            writer=writer,
            notify=(lambda message: None) if options.quiet else self.notify,
            episodes=options.episodes,
            seed=options.seed,
        )

    def _film_callback(self) -> FilmCallback | None:
        if self.film is None:
            return None
        return FilmCallback(self._judging_env(self.film.num_envs), self.run.path, self.film, self.notify)

    def _judging_env(self, num_envs: int) -> ManagerBasedRlEnv:
        """The environment in which `genelab eval` would judge this run's policies."""
        cfg, _ = world_of_run(self.task_id, self.overrides)
        return ManagerBasedRlEnv(eval_cfg(cfg, num_envs), notify=self.notify)


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
