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
from genelab.errors import ConfigError, UsageError
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.episodes import Episodes
from genelab.rl.evaluation import Evaluation, difference, sum_up
from genelab.rl.exported import acts_alone
from genelab.rl.finite import guarded
from genelab.rl.locate import find_checkpoint
from genelab.rl.probe import MOST_ROUNDS, models_of_training, probes_of, run_probe
from genelab.rl.provenance import versions
from genelab.rl.robustness import Plan, judge, refuse_alone
from genelab.rl.rollout import rollout
from genelab.rl.show import Show, show_nothing
from genelab.rl.world import judged_cfg, policy_on_task
from genelab.sim import ENGINES, ModelError

NUM_ENVS = 64
"""Environments of an evaluation, unless its settings say otherwise."""
SCHEMA_VERSION = 2
"""Of the report. 2: intervals by kind of ground, paired differences, probes of robots that differ."""
PHYSICS: tuple[Physics, ...] = ("fine", "coarse")
"""What `--physics both` stands for."""

_DECIDED = {
    "env.scene.num_envs": "pass `num_envs`",
    "env.seed": "pass `seed`",
    "env.auto_reset": "ended environments are always reset; leave it out",
    "env.simulation.vis": "it shows nothing; leave it out, or look with `genelab play`",
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
    published_noise: bool = False
    """Leave the noise of the task's training observations on, as the published evaluations do."""
    robustness: bool = False
    """Also judge in worlds that differ from the task's in one thing each: friction, mass, gains, delay, noise …"""

    def check_for_training(self) -> None:
        """Refuse what an evaluation while training does not do."""
        if self.probe or self.robustness or self.published_noise or not self.deterministic or self.physics != "fine":
            raise UsageError(
                "evaluation while training: the policy's mean is judged, in fine physics, without noise and probes; "
                "leave out deterministic, physics, probe, published_noise and robustness"
            )


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
        for name in overrides:
            if name.partition(".")[0] == "agent":
                raise ConfigError(f"{name}: an evaluation takes the agent from the checkpoint: leave it out")
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

    def check_noise(self) -> None:
        """Refuse to leave on a noise that the task's training does not have."""
        groups = getattr(TASKS.get(self.task).env, "observations", {}).values()
        if not any(group.enable_noise and any(term.noise for term in group.terms.values()) for group in groups):
            raise UsageError(f"{self.task}: its observations have no noise in training: leave out `published_noise`")

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
    if spec.settings.published_noise:
        spec.check_noise()
    if spec.settings.robustness:
        refuse_alone(spec.checkpoint)
    if out is not None:
        out = Path(out)
        check_out(out)
    if compare is None:
        report, _ = _evaluate(spec, notify, show)
        if out is not None:
            write_json_out(report, out)
        return report
    report = {"schema_version": SCHEMA_VERSION, "task": spec.task, "checkpoint": spec.told}
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
    found: dict[str, Evaluation] = {}
    to_come = list(variants)
    report |= {key: done, "difference": None, "differences": {}, "not_run": [*variants, *not_run]}
    for name, spec in variants.items():
        to_come.remove(name)
        try:
            done[name], found[name] = _evaluate(spec, notify, show)
            report["not_run"].remove(name)
        except ModelError as error:
            if len(done) + len(to_come) < 2:
                raise
            notify(f"left out: {error}")
        first = next(iter(done), name)
        report["differences"] = {other: difference(found[first], found[other]) for other in found if other != first}
        if not to_come and len(done) == 2:
            (report["difference"],) = report["differences"].values()
        if out is not None:  # now, for the next one may crash
            write_json_out(report, out)
    return report


def _evaluate(spec: EvalSpec, notify: Callable[[str], None], show: Show) -> tuple[dict[str, Any], Evaluation]:
    """Return the report of one evaluation, in one world, and its episodes."""
    start = time.perf_counter()
    settings = spec.settings
    with policy_on_task(
        spec.task,
        spec.checkpoint,
        num_envs=spec.num_envs,
        deterministic=settings.deterministic,
        physics=settings.physics,
        noise=settings.published_noise,
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
        probed = _probe(env, setup, spec, notify, show)
        plan = None
        if settings.robustness:
            plan = Plan.of(env, settings.num_envs or NUM_ENVS, probe=settings.probe is not False)
        ground = result.by_ground()
        report = {
            "schema_version": SCHEMA_VERSION,
            "task": spec.task,
            "checkpoint": spec.told,
            "num_episodes": len(result.returns),
            "episodes_requested": settings.episodes,
            "metrics": {**result.summary(), **result.intervals()},
            "identical_episodes": result.identical,
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
            "observation_noise": any(group.is_noisy for group in env.observation_manager.groups.values()),
            "task_metrics": result.task_metrics,
            "rewards": result.rewards,
            "terminations": result.terminations,
            **({} if ground is None else {"ground": ground}),
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
    return report, result


def _probe(
    env: ManagerBasedRlEnv, setup: InferenceSetup, spec: EvalSpec, notify: Callable[[str], None], show: Show
) -> dict[str, Any]:
    """Return the reports of all probes by section; those that change the models of the robots run last."""
    probes = {} if spec.settings.probe is False else probes_of(env)
    probed = {}
    for section, probe in sorted(probes.items(), key=lambda item: item[1].varies_models):
        if acts_alone(spec.checkpoint):
            why = "a recurrent TorchScript policy acts for one robot; export it as ONNX"
            notify(f"no {probe.name} probe: {why}")
        elif probe.rounds > MOST_ROUNDS:
            enough = math.ceil(probe.rounds * env.num_envs / MOST_ROUNDS)
            notify(f"no {probe.name} probe: {env.num_envs} environments are too few; {enough} would do")
        else:
            trained = TASKS.get(spec.task).env if probe.varies_models else None
            prepare = {} if trained is None else {"prepare": models_of_training(env, trained)}
            probed[section] = run_probe(env, setup, probe, seed=spec.settings.seed, show=show, **prepare).report()
    return probed


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
    evaluation = sum_up(env, book, episodes, [list(manager.terms) for manager in managers])
    if len(evaluation.returns) < episodes:
        ended = f"only {len(evaluation.returns)} of {episodes} episodes ended within `max_steps={max_steps}`"
        notify(f"{ended}: short ones count for too much")
    return evaluation
