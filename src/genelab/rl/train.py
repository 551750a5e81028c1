"""Train a task, or go on with a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from genelab.config import TASKS, expect, load_json
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.errors import UsageError, refusing
from genelab.rl.backends import select_backend
from genelab.rl.checkpoint import read_safely
from genelab.rl.config import BackendConfig, configure
from genelab.rl.evaluator import EvalSettings
from genelab.rl.exported import is_exported
from genelab.rl.film_callback import FilmOptions
from genelab.rl.launch.task import check_overrides
from genelab.rl.loggers import LoggerName, check_logger
from genelab.rl.monitor import IterationHook, Progress
from genelab.rl.profiling import ProfileCfg
from genelab.rl.rank import Rank, check_backend, open_run
from genelab.rl.run import RunDirectory
from genelab.rl.training import Training, TrainResult, TrainSpec
from genelab.rl.world import check_control_step
from genelab.viewer import ViewerCfg

__all__ = ["TrainResult", "resume_task", "train_task"]

_RESUME: dict[str, Any] = {
    "checkpoint": str,
    "learner": dict,
    "env": dict,
    "monitor": {
        "done": int,
        "iterations": int,
        "env_steps": int,
        "seconds": float | None,
        "episodes": dict,
        "best": Any,
        "evaluations": list | None,
        "learning_seconds": float | None,
    },
    "torch_rng": Tensor,
}
"""What `resume.pt` has."""


def train_task(
    task_id: str,
    *,
    agent: BackendConfig | None = None,
    overrides: Mapping[str, Any] = {},
    num_envs: int | None = None,
    max_iterations: int | None = None,
    seed: int | None = None,
    log_dir: str | Path | None = None,
    checkpoint: str | Path | None = None,
    logger: LoggerName = "tensorboard",
    evaluation: EvalSettings | None = None,
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
    log_dir, checkpoint = (None if path is None else Path(path) for path in (log_dir, checkpoint))
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
        raise UsageError(f"`checkpoint`: {checkpoint} is an exported policy, which cannot learn; give a checkpoint")
    backend.settle(cfg.agent)
    run = open_run(log_dir or RunDirectory.default_path(backend.name, task_id))
    spec = TrainSpec(
        task_id=task_id,
        env=cfg.env,
        agent=cfg.agent,
        backend=backend,
        overrides=dict(overrides),
        logger=logger,
        evaluation=evaluation,
        film=film,
        profile=profile,
        viewer=viewer,
        nan_guard=nan_guard,
        hooks=hooks,
        report=report,
        on_env=on_env,
        notify=notify,
    )
    training = Training(spec, run)
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
    run_dir: str | Path,
    *,
    task_id: str | None = None,
    max_iterations: int | None = None,
    logger: LoggerName | None = None,
    evaluation: EvalSettings | None = None,
    film: FilmOptions | None = None,
    profile: ProfileCfg | None = None,
    nan_guard: bool = True,
    report: Callable[[Progress], None] = lambda progress: None,
    notify: Callable[[str], None] = lambda message: None,
) -> TrainResult:
    """Go on with a run that was interrupted, as if it had not been: same config, weights, counters, random numbers.

    It logs where it did before, unless another logger is given.
    """
    run_dir = Path(run_dir)
    run = RunDirectory(run_dir)
    record = run.read()
    if task_id is not None and task_id.lower() != record["task"].lower():
        raise UsageError(f"`run_dir`: {run_dir} is a run of {record['task']}, not of {task_id}")
    if (record.get("ranks") or 1) > 1 or not Rank.current().alone:
        raise UsageError(f"`run_dir`: a run of many ranks cannot go on; start one with `checkpoint` of {run_dir}")
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
            raise UsageError(f"`run_dir`: {run_dir} has spent its {backend.unit}; give a larger `max_iterations`")
        changes = (change.partition("=") for change in record.get("overrides") or [])
        spec = TrainSpec(
            task_id=record["task"],
            env=env,
            agent=agent,
            backend=backend,
            overrides={path: text for path, _, text in changes},
            logger=logger,
            evaluation=evaluation,
            film=film,
            profile=profile,
            nan_guard=nan_guard,
            report=report,
            notify=notify,
        )
        return Training(spec, run).start(resume=state)


def _read_state(run_dir: Path) -> dict[str, Any]:
    """What `resume.pt` has, all of it."""
    path = run_dir / "resume.pt"
    if not path.is_file():
        raise UsageError(f"`run_dir`: {run_dir} has no resume.pt: the run ended before its first checkpoint")
    return expect(read_safely(path), _RESUME, path)
