"""How fast a trained policy acts, and how good it is: a clock around the policy and `env.step`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genelab.bench.builders import Facts, Iterations, build_play_bundle, build_runtime, interval_extra
from genelab.bench.formatters import Output
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.scenario import Scenario, made_env
from genelab.bench.schema import PlayBundle, Scalar
from genelab.bench.workflow import Workflow
from genelab.errors import GenelabError, UsageError
from genelab.statistics import mean_interval

if TYPE_CHECKING:
    from genelab.bench.stepping import PlayRecord, StepTimer
    from genelab.envs import ManagerBasedRlEnv
    from genelab.rl.backends import InferenceSetup
    from genelab.rl.latency import Latency
    from genelab.viewer import FilmCfg

FILM_STEPS = 250
"""Control steps of a film, unless its config says otherwise."""


class NoCheckpointError(UsageError, FileNotFoundError):
    """No policy to play was given, trained or shipped; a FileNotFoundError as well, as in Isaac Lab."""


def resolve_play_checkpoint(
    checkpoint: str | Path | None,
    task: str,
    agent: Any,
    *,
    best: bool = False,
    notify: Callable[[str], None] = lambda message: None,
) -> Path:
    """The file to play: what was given, else the task's newest run, else the policy that is shipped with it.

    Whatever was not given is named by `notify`. `checkpoint` and `best` are as for `find_checkpoint`.
    """
    from genelab.rl.locate import find_checkpoint, latest_run, pretrained_policy

    if checkpoint is not None:
        return find_checkpoint(task, checkpoint, best=best, agent=agent)
    run = latest_run(task, agent)
    if run is not None:
        path = find_checkpoint(task, run, best=best, agent=agent)
        notify(f"no `checkpoint` given: playing {path} of the newest run")
        return path
    shipped = None if best else pretrained_policy(task)
    if shipped is None:
        raise NoCheckpointError(
            f"{task} was never trained below ./logs: pass `checkpoint=FILE` or RUN_DIR, or train it with genelab train"
        )
    notify(f"no `checkpoint` given and no run below ./logs: playing the shipped {shipped}")
    return shipped


@dataclass(kw_only=True)
class PlayBenchmark(Workflow[PlayBundle]):
    """`genelab benchmark play`. The environment is the one that `genelab eval` judges in."""

    name = "play"
    policy_acts = True

    checkpoint: str | Path | None = None
    best: bool = False
    """Of a run, the checkpoint with the best evaluation in training."""
    num_steps: int = 1000
    """Control steps that count."""
    warmup_steps: int = 50
    """Control steps before them, after which everything is reset."""
    film: FilmCfg | None = None
    """A film that is made once everything is measured; in the output's own directory it is named after the run."""

    def __post_init__(self) -> None:
        self._path: Path | None = None
        self._timer: StepTimer | None = None
        self._record: PlayRecord | None = None
        self._load_s: float | None = None
        self._digest: str | None = None
        self._latency: Latency | None = None
        self._video: Path | None = None

    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        import torch

        from genelab.bench.stepping import PlayRecord, StepTimer, run_play_loop, synchronizer
        from genelab.rl.exported import is_exported, read_metadata
        from genelab.rl.latency import measure_latency
        from genelab.rl.policies import load_policy
        from genelab.viewer import check_film

        film = None if self.film is None else self._named(self.film, scenario, monitor, output)
        self._path = resolve_play_checkpoint(
            self.checkpoint, scenario.task, scenario.agent, best=self.best, notify=self.notify
        )
        data = self._path.read_bytes()
        self._digest = hashlib.sha256(data).hexdigest()
        exported: dict[str, Any] | None = None
        if is_exported(self._path):
            metadata = read_metadata(self._path)
            exported = metadata
            _check_library(self._path, metadata.get("backend"), scenario.workload.rl_library)
            scenario.backend = scenario.backend.with_exported(metadata)
        with made_env(scenario, self.notify) as env, torch.inference_mode():
            if film is not None:
                check_film(env, film)
            start = time.perf_counter()
            setup = load_policy(env, scenario.agent, self._path)
            self._load_s = time.perf_counter() - start
            observations, _ = env.reset(seed=scenario.seed)
            with self.phases.phase("first_step"):
                env.step(setup.policy(observations))
            monitor.begin()
            self._record = PlayRecord()
            self._timer = StepTimer(env.device, synchronize=synchronizer(env.device))
            with env.watched_by(self._timer):
                run_play_loop(
                    env,
                    setup.policy,
                    self.num_steps,
                    warmup_steps=self.warmup_steps,
                    seed=scenario.seed,
                    reset_policy=setup.reset,
                    synchronize=synchronizer(env.device),
                    timer=self._timer,
                    record=self._record,
                )
            if not self._record.returns:
                self.notify(
                    f"no return, length or success: an episode may last {env.max_episode_length} steps, "
                    f"`num_steps={self.num_steps}` is less"
                )
            if exported is not None or film is not None:
                monitor.end()
            if exported is not None:
                self._latency = measure_latency(data, exported)
            if film is not None:
                self._shoot(env, setup, film, scenario.seed)

    def _named(self, film: FilmCfg, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> FilmCfg:
        if film.path == output.directory:
            film = replace(film, path=film.path / f"{scenario.identity(self.name).run_id(monitor)}.mp4")
        film.check()
        return film

    def _shoot(self, env: ManagerBasedRlEnv, setup: InferenceSetup, film: FilmCfg, seed: int) -> None:
        """Film the policy; a film that fails is no reason to throw away what was measured."""
        from genelab.rl.film_callback import film_policy

        try:
            film_policy(env, setup, film, steps=film.length or FILM_STEPS, seed=seed)
        except GenelabError as error:
            self.notify(f"no film: {error}")
        else:
            self._video = film.path

    def build(self, scenario: Scenario, facts: Facts) -> PlayBundle:
        from genelab.bench.stepping import PlayRecord

        seen = self._record or PlayRecord()
        runtime = build_runtime(
            self.phases.times,
            Iterations.of_steps(seen.step_times, scenario.num_envs, seen.wall_s),
            steps_per_iteration=scenario.num_envs,
            num_envs=scenario.num_envs,
            warmup_steps=self.warmup_steps,
            steps=None if self._timer is None else self._timer.times,
        )
        return build_play_bundle(
            facts,
            runtime,
            returns=seen.returns,
            lengths=seen.lengths,
            success=seen.success,
            checkpoint_path=None if self._path is None else str(self._path),
            video_path=None if self._video is None else str(self._video),
            extra=self._extra(seen),
        )

    def _extra(self, seen: PlayRecord) -> dict[str, Scalar]:
        return {
            "num_steps": self.num_steps,
            "episodes": len(seen.returns),
            **interval_extra("reward_ci95", mean_interval(seen.returns)),
            **interval_extra("ep_length_ci95", mean_interval(seen.lengths)),
            **interval_extra("success_ci95", None if seen.success is None else seen.success.interval),
            "policy_load_s": self._load_s,
            "policy_latency_p50_us": None if self._latency is None else self._latency.p50_us,
            "policy_latency_p99_us": None if self._latency is None else self._latency.p99_us,
            "checkpoint_sha256": self._digest,
        }


def _check_library(path: Path, library: str | None, wanted: str | None) -> None:
    """An exported policy must be of the library that was asked for, if any was."""
    if wanted not in (None, library):
        raise UsageError(f"`rl_library={wanted!r}`: {path} was trained with {library}; give a checkpoint of {wanted}")
