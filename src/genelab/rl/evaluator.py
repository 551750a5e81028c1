"""How good a policy is: full episodes, a fixed number from each environment."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from genelab.config import TASKS, as_words, check_out, refuse_decided, write_json_out
from genelab.envs import ManagerBasedRlEnv, Physics, physics_changes
from genelab.errors import GenelabError, UsageError
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.episodes import Episodes
from genelab.rl.exported import acts_alone
from genelab.rl.finite import guarded
from genelab.rl.locate import find_checkpoint
from genelab.rl.probe import MOST_ROUNDS, probes_of, run_probe
from genelab.rl.provenance import versions
from genelab.rl.robustness import Plan, judge, refuse_alone
from genelab.rl.rollout import rollout
from genelab.rl.show import Show, show_nothing
from genelab.rl.world import judged_cfg, policy_on_task
from genelab.sim import ENGINES, ModelError
from genelab.statistics import mean_interval, overlap, share_interval

NUM_ENVS = 64
"""Environments of an evaluation, unless its settings say otherwise."""
PHYSICS: tuple[Physics, ...] = ("fine", "coarse")
"""What `--physics both` stands for."""

_DECIDED = {
    "env.scene.num_envs": "pass `num_envs`",
    "env.seed": "pass `seed`",
    "env.auto_reset": "ended environments are always reset; leave it out",
}
"""Overrides that an evaluation would replace, and what to do instead."""


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """How to judge, after training or meanwhile."""

    num_envs: int | None = None
    """Environments side by side; None: 64, while training as many as are trained in. Never more than episodes."""
    episodes: int = 100
    """Episodes in all."""
    seed: int = 0
    """Seed of the environments, and of the samples of a policy that is not deterministic."""
    every: int | None = None
    """While training: iterations between evaluations, and what one is depends on the library, see its agent config.
    The last is always evaluated; None: it alone."""
    quiet: bool = False
    """While training: do not tell what each evaluation found; the logs and `best_model_meta.json` do."""
    deterministic: bool = True
    """The policy's mean; False: samples."""
    max_steps: int | None = None
    """Control steps after which the evaluation ends, complete or not."""
    probe: bool | None = None
    """Also judge commands by the probes they bring: a velocity, each direction by itself. None: yes, but not while
    training."""
    physics: Physics = "fine"
    """Whether to judge in the physics of the task's play config or in that of its training config."""
    robustness: bool = False
    """Also judge in worlds that differ from the task's in one thing each: friction, mass, gains, delay, noise …"""

    def check_for_training(self) -> None:
        """Refuse what an evaluation while training does not do."""
        if self.probe or self.robustness or not self.deterministic or self.physics != "fine":
            raise UsageError(
                "evaluation while training: the policy's mean is judged, in fine physics and without probes; "
                "leave out deterministic, physics, probe and robustness"
            )


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Episodes of an evaluation: the first ones of all environments, then the second ones."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None
    """None if the task publishes no `is_success`."""
    task_metrics: dict[str, float | None] = field(default_factory=dict)
    """Mean over the episodes of each metric of the task; None if it is no finite number."""
    rewards: dict[str, float] = field(default_factory=dict)
    """What each reward term contributed to the mean return."""
    terminations: dict[str, float] = field(default_factory=dict)
    """Share of the episodes that each termination ended; one may be ended by several."""

    @property
    def return_mean(self) -> float:
        """Mean return of the episodes."""
        return sum(self.returns) / len(self.returns)

    def summary(self) -> dict[str, Any]:
        """The numbers of the spec's `metrics`, and the spread of lengths."""
        returns, lengths = torch.tensor(self.returns).double(), torch.tensor(self.lengths).double()
        success = None if self.successes is None else sum(self.successes) / len(self.successes)
        return {
            "return_mean": returns.mean().item(),
            "return_std": returns.std(correction=0).item(),
            "length_mean": lengths.mean().item(),
            "length_std": lengths.std(correction=0).item(),
            "success_rate": success,
        }

    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """95 % intervals of the means; None where nothing can be said."""
        done = self.successes
        return {
            "return_ci95": mean_interval(self.returns),
            "length_ci95": mean_interval(self.lengths),
            "success_ci95": None if done is None else share_interval(sum(done), len(done)),
        }


@dataclass(frozen=True, kw_only=True)
class EvalSpec:
    """One evaluation: of what, how, and in which world."""

    task: str
    """The task's id, as it is registered."""
    checkpoint: Path
    told: str
    """The checkpoint as a report names it: its path, or `pretrained`, which is elsewhere on every machine."""
    settings: EvalSettings
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, task_id: str, checkpoint: str | Path, settings: EvalSettings, best: bool, overrides: Mapping[str, Any]
    ) -> EvalSpec:
        """With the checkpoint that the words stand for; refuses overrides that an evaluation would replace."""
        if not isinstance(settings, EvalSettings):
            raise UsageError(f"the settings of an evaluation are EvalSettings(episodes=100, ...), got {settings!r:.80}")
        if settings.episodes < 1:
            raise UsageError(f"`episodes`: must be at least 1, got {settings.episodes}")
        path = find_checkpoint(task_id, checkpoint, best=best)
        refuse_decided(overrides, _DECIDED, "an evaluation")
        told = "pretrained" if checkpoint == "pretrained" else str(path)
        task = TASKS.entry(task_id).id
        return cls(task=task, checkpoint=path, told=told, settings=settings, overrides=dict(overrides))

    @property
    def num_envs(self) -> int:
        """Environments side by side."""
        return min(self.settings.num_envs or NUM_ENVS, self.settings.episodes)

    def on_engine(self, name: str) -> EvalSpec:
        """The same on an engine."""
        return replace(self, overrides={**self.overrides, "env.simulation.engine": name})

    def in_physics(self, physics: Physics) -> EvalSpec:
        """The same in a physics."""
        return replace(self, settings=replace(self.settings, physics=physics))

    def coarse_changes(self) -> dict[str, Any]:
        """What the coarse physics changes, by path; refuses a task that has one physics for both."""
        task = TASKS.get(self.task)
        changes = physics_changes(judged_cfg(task), task.env)
        if not changes:
            raise UsageError(f"{self.task} is trained in the physics it is judged in: leave out `physics`")
        refuse_decided(
            self.overrides, dict.fromkeys(changes, "leave it out, or pass `physics='fine'`"), "the coarse physics"
        )
        return changes


def evaluate_task(
    task_id: str,
    checkpoint: str | Path,
    settings: EvalSettings | None = None,
    *,
    best: bool = False,
    compare: Literal["engines", "physics"] | None = None,
    overrides: Mapping[str, Any] = {},
    out: str | Path | None = None,
    notify: Callable[[str], None] = lambda message: None,
    show: Show = show_nothing,
) -> dict[str, Any]:
    """Evaluate a checkpoint in the task's play config; returns the report, and writes it to `out`.

    `checkpoint` and `best` are as for `find_checkpoint`. With `compare` the report has one of each engine that can run
    here and express the model, at least two, under `engines`; or, whatever `settings` say, one of the physics of
    judging and one of that of training under `variants`. How the others differ from the first is beside them.
    """
    spec = EvalSpec.of(task_id, checkpoint, settings or EvalSettings(), best, overrides)
    changes = spec.coarse_changes() if compare == "physics" or spec.settings.physics == "coarse" else {}
    if spec.settings.robustness:
        refuse_alone(spec.checkpoint)
    if out is not None:
        out = Path(out)
        check_out(out)
    if compare is None:
        report = _evaluate(spec, notify, show)
        if out is not None:
            write_json_out(report, out)
        return report
    report = {"task": spec.task, "checkpoint": spec.told}
    if compare == "physics":
        variants = {str(name): spec.in_physics(name) for name in PHYSICS}
        return _compare({**report, "changes": changes}, "variants", variants, out, notify, show)
    able, unable = ENGINES.runnable()
    if len(able) < 2:
        raise UsageError(
            f"to compare takes two engines, and there is {' '.join(able)} alone: {'; '.join(unable.values())}"
        )
    for reason in unable.values():
        notify(f"left out: {reason}")
    variants = {name: spec.on_engine(name) for name in able}
    return _compare(report, "engines", variants, out, notify, show, not_run=list(unable))


def _compare(
    report: dict[str, Any],
    key: str,
    variants: Mapping[str, EvalSpec],
    out: Path | None,
    notify: Callable[[str], None],
    show: Show,
    not_run: Sequence[str] = (),
) -> dict[str, Any]:
    """The report with that of each variant under `key`, and how the others differ from the first."""
    done: dict[str, Any] = {}
    to_come = list(variants)
    report |= {key: done, "difference": None, "differences": {}, "not_run": [*variants, *not_run]}
    for name, spec in variants.items():
        to_come.remove(name)
        try:
            done[name] = _evaluate(spec, notify, show)
            report["not_run"].remove(name)
        except ModelError as error:
            if len(done) + len(to_come) < 2:
                raise
            notify(f"left out: {error}")
        first = next(iter(done), name)
        report["differences"] = {other: difference(done[first], done[other]) for other in done if other != first}
        if not to_come and len(done) == 2:
            (report["difference"],) = report["differences"].values()
        if out is not None:  # now, for the next one may crash
            write_json_out(report, out)
    return report


def difference(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The second report's means minus the first's, and whether their 95 % intervals overlap."""

    def minus(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else b - a

    metrics, others = first["metrics"], second["metrics"]
    means = ("return_mean", "length_mean", "success_rate")
    shared = [name for name in first["task_metrics"] if name in second["task_metrics"]]
    return {
        **{key: minus(metrics[key], others[key]) for key in means},
        **{
            f"{name}_ci95_overlap": overlap(metrics[f"{name}_ci95"], others[f"{name}_ci95"])
            for name in ("return", "length", "success")
        },
        "task_metrics": {name: minus(first["task_metrics"][name], second["task_metrics"][name]) for name in shared},
    }


def _evaluate(spec: EvalSpec, notify: Callable[[str], None], show: Show) -> dict[str, Any]:
    """The report of one evaluation, in one world."""
    start = time.perf_counter()
    settings = spec.settings
    with policy_on_task(
        spec.task,
        spec.checkpoint,
        num_envs=spec.num_envs,
        deterministic=settings.deterministic,
        physics=settings.physics,
        overrides=spec.overrides,
        notify=notify,
    ) as (env, setup):
        result = evaluate(
            env,
            setup,
            episodes=settings.episodes,
            seed=settings.seed,
            max_steps=settings.max_steps,
            notify=notify,
            show=show,
        )
        probed = {}
        for section, probe in ({} if settings.probe is False else probes_of(env)).items():
            if acts_alone(spec.checkpoint):
                why = "a recurrent TorchScript policy acts for one robot; export it as ONNX"
                notify(f"no {probe.name} probe: {why}")
            elif probe.rounds > MOST_ROUNDS:
                enough = math.ceil(probe.rounds * env.num_envs / MOST_ROUNDS)
                notify(f"no {probe.name} probe: {env.num_envs} environments are too few; {enough} would do")
            else:
                probed[section] = run_probe(env, setup, probe, seed=settings.seed, show=show).report()
        plan = None
        if settings.robustness:
            plan = Plan.of(env, settings.num_envs or NUM_ENVS, probe=settings.probe is not False)
        report = {
            "task": spec.task,
            "checkpoint": spec.told,
            "num_episodes": len(result.returns),
            "episodes_requested": settings.episodes,
            "metrics": {**result.summary(), **result.intervals()},
            "wall_clock_seconds": round(time.perf_counter() - start, 3),
            "seed": settings.seed,
            "deterministic": settings.deterministic,
            "evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "num_envs": env.num_envs,
            "engine": env.scene.engine.name,
            "physics": settings.physics,
            "physics_dt": env.physics_dt,
            "decimation": env.cfg.decimation,
            "max_episode_length_s": env.max_episode_length_s,
            "task_metrics": result.task_metrics,
            "rewards": result.rewards,
            "terminations": result.terminations,
            **probed,
            "overrides": as_words(spec.overrides),
            "versions": versions(),
        }
    if plan is not None:
        report["robustness"] = judge(
            plan,
            spec.task,
            spec.checkpoint,
            episodes=settings.episodes,
            seed=settings.seed,
            deterministic=settings.deterministic,
            physics=settings.physics,
            overrides=spec.overrides,
            notify=notify,
            show=show,
        )
    return report


@torch.inference_mode()
def evaluate(
    env: ManagerBasedRlEnv,
    setup: InferenceSetup,
    *,
    episodes: int,
    seed: int,
    max_steps: int | None = None,
    notify: Callable[[str], None] = lambda message: None,
    show: Show = show_nothing,
) -> Evaluation:
    """Run the first ⌈episodes / num_envs⌉ episodes of every environment and keep `episodes` of them."""
    managers = (env.metrics_manager, env.reward_manager, env.termination_manager)

    def details() -> Tensor:
        parts = (env.metrics_manager.finished, env.reward_manager.finished, env.termination_manager.values)
        return torch.cat([part.double() for part in parts])

    quota = math.ceil(episodes / env.num_envs)
    book = Episodes(num_envs=env.num_envs, device=env.device, quota=quota, details=details)
    torch.manual_seed(seed)  # a stochastic policy draws from it
    with guarded(env):
        for step in rollout(env, setup, seed=seed, steps=max_steps):
            book.add(step)
            show("episodes", len(book.ended), quota * env.num_envs)
            if book.full:
                break
    evaluation = _summed_up(book, episodes, [list(manager.terms) for manager in managers])
    if len(evaluation.returns) < episodes:
        ended = f"only {len(evaluation.returns)} of {episodes} episodes ended within `max_steps={max_steps}`"
        notify(f"{ended}: short ones count for too much")
    return evaluation


def _summed_up(book: Episodes, episodes: int, names: Sequence[Sequence[str]]) -> Evaluation:
    """What came of the first episodes; `names` are the metrics, rewards and terminations in their details."""
    kept = book.first(episodes)
    if not kept:
        raise GenelabError("no episode ended in the steps allowed: raise `max_steps`")
    broken = sum(not math.isfinite(episode.total) for episode in kept)
    if broken:
        raise GenelabError(
            f"{broken} of {len(kept)} episodes have a return that is no finite number: the rewards are too large"
        )
    columns = torch.tensor([episode.details for episode in kept], dtype=torch.float64).T.contiguous()
    means = iter(columns.mean(dim=1).tolist())
    metrics, rewards, terminations = ({name: next(means) for name in each} for each in names)
    return Evaluation(
        returns=[episode.total for episode in kept],
        lengths=[episode.length for episode in kept],
        successes=[episode.success for episode in kept] if book.tells_success else None,
        task_metrics={name: value if math.isfinite(value) else None for name, value in metrics.items()},
        rewards=rewards,
        terminations=terminations,
    )
