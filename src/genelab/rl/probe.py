"""Runs the probes that commands bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch

from genelab.envs import ManagerBasedEnvCfg, ManagerBasedRlEnv
from genelab.managers import EventManager, Probe
from genelab.mdp.probe_starts import look_anew
from genelab.rl.backends.base import InferenceSetup, Observations
from genelab.rl.finite import guarded
from genelab.rl.rollout import rollout
from genelab.rl.show import Show, show_nothing

MOST_ROUNDS = 48
"""A probe that would need more of them has too few environments."""

Kind = TypeVar("Kind", bound=Probe)


def probes_of(env: ManagerBasedRlEnv) -> dict[str, Probe]:
    """By section of a report. Of two alike, the second goes by its command, too."""
    found: dict[str, Probe] = {}
    for command, term in env.commands.terms.items():
        probe = term.probe()
        if probe is not None:
            section = f"{probe.name}_probe"
            found[section if section not in found else f"{command}_{section}"] = probe
    return found


def models_of_training(env: ManagerBasedRlEnv, trained: ManagerBasedEnvCfg) -> Callable[[Observations], Observations]:
    """Return what gives every robot a model of its own after a reset, drawn as in training: friction, mass, gains …

    It changes nothing where training randomises no model. The models stay until they are drawn again.
    """
    drawn = {name: event for name, event in trained.events.items() if getattr(event.func, "changes_model", False)}
    # A play config leaves these events out, so they are made here.
    events = EventManager({name: replace(event, mode="startup") for name, event in drawn.items()}, env)

    def prepare(observations: Observations) -> Observations:
        events.apply("startup", None)
        return look_anew(env) if drawn else observations

    return prepare


@torch.inference_mode()
def run_probe(
    env: ManagerBasedRlEnv,
    setup: InferenceSetup,
    probe: Kind,
    *,
    seed: int,
    show: Show = show_nothing,
    prepare: Callable[[Observations], Observations] = lambda observations: observations,
) -> Kind:
    """Let a policy act under a probe of this environment's, round after round, each with random numbers of its own.

    `prepare` may change the world after each reset, before the probe does; it returns what is seen then.
    """
    steps = round(probe.seconds / env.step_dt)
    with guarded(env):
        for turn in range(probe.rounds):
            probe.begin(turn)
            # Seeds beyond 32 bits are no other evaluation's.
            steps_of_turn = rollout(
                env, setup, seed=seed + (turn << 32), steps=steps, start=lambda seen: probe.start(prepare(seen))
            )
            for i, step in enumerate(steps_of_turn):
                probe.step(i, step.terminated, step.truncated)
                show(f"steps of the {probe.name} probe", turn * steps + i + 1, probe.rounds * steps)
    probe.end()
    return probe
