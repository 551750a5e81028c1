"""How fast a trained policy acts, and how good it is: a clock around the policy and `env.step`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genelab.bench.builders import Facts, Iterations, build_play_bundle, build_runtime, interval_extra
from genelab.bench.formatters import Output
from genelab.bench.monitor import BenchmarkMonitor
from genelab.bench.scenario import Scenario, made_env
from genelab.bench.schema import PlayBundle, Scalar
from genelab.bench.workflow import Workflow
from genelab.errors import UsageError
from genelab.rl.statistics import mean_interval

if TYPE_CHECKING:
    from genelab.bench.stepping import PlayRecord, StepTimer


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
        notify(f"no --checkpoint given: playing {path} of the newest run")
        return path
    shipped = None if best else pretrained_policy(task)
    if shipped is None:
        raise UsageError(
            f"{task} was never trained below ./logs: pass --checkpoint FILE or RUN_DIR, or train it with genelab train"
        )
    notify(f"no --checkpoint given and no run below ./logs: playing the shipped {shipped}")
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

    def __post_init__(self) -> None:
        self._path: Path | None = None
        self._timer: StepTimer | None = None
        self._record: PlayRecord | None = None
        self._load_s: float | None = None
        self._digest: str | None = None

    def measure(self, scenario: Scenario, monitor: BenchmarkMonitor, output: Output) -> None:
        import torch

        from genelab.bench.stepping import PlayRecord, StepTimer, run_play_loop, synchronizer
        from genelab.rl.exported import is_exported
        from genelab.rl.policies import load_policy

        self._path = resolve_play_checkpoint(
            self.checkpoint, scenario.task, scenario.agent, best=self.best, notify=self.notify
        )
        self._digest = hashlib.sha256(self._path.read_bytes()).hexdigest()
        if is_exported(self._path):
            scenario.framework = _exported_from(self._path, scenario.workload.rl_library)
        with made_env(scenario, self.notify) as env, torch.inference_mode():
            start = time.perf_counter()
            setup = load_policy(env, scenario.agent, self._path)
            self._load_s = time.perf_counter() - start
            observations, _ = env.reset(seed=scenario.seed)
            with self.phases.phase("first_step"):
                env.step(setup.policy(observations))
            monitor.begin()
            self._record = PlayRecord()
            self._timer = StepTimer(env, synchronize=synchronizer(env.device))
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
                    f"--num-steps {self.num_steps} is less"
                )

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
            "checkpoint_sha256": self._digest,
        }


def _exported_from(path: Path, wanted: str | None) -> str | None:
    """The library that an exported policy was trained with, which must be the one that was asked for, if any was."""
    from genelab.rl.exported import read_metadata

    library = read_metadata(path).get("backend")
    if wanted not in (None, library):
        raise UsageError(f"--rl-library {wanted}: {path} was trained with {library}; give a checkpoint of {wanted}")
    return library
