"""Runs the probes that commands bring."""

from __future__ import annotations

from typing import TypeVar

import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.managers import Probe
from genelab.rl.backends.base import InferenceSetup
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


@torch.inference_mode()
def run_probe(
    env: ManagerBasedRlEnv, setup: InferenceSetup, probe: Kind, *, seed: int, show: Show = show_nothing
) -> Kind:
    """Let a policy act under a probe of this environment's, round after round, each with random numbers of its own."""
    steps = round(probe.seconds / env.step_dt)
    with guarded(env):
        for turn in range(probe.rounds):
            probe.begin(turn)
            # Seeds beyond 32 bits are no other evaluation's.
            for i, step in enumerate(rollout(env, setup, seed=seed + (turn << 32), steps=steps, start=probe.start)):
                probe.step(i, step.terminated, step.truncated)
                show(f"steps of the {probe.name} probe", turn * steps + i + 1, probe.rounds * steps)
    probe.end()
    return probe
