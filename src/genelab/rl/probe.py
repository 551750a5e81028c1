"""Runs the probes that commands bring."""

from __future__ import annotations

from typing import TypeVar

import torch

from genelab.envs import ManagerBasedRlEnv
from genelab.managers import Probe
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.finite import guarded
from genelab.rl.report import Show, show_nothing

Kind = TypeVar("Kind", bound=Probe)


def probes_of(env: ManagerBasedRlEnv) -> dict[str, tuple[str, Probe]]:
    """By section of a report: the command, and its probe. Of two alike, the second goes by its command, too."""
    found: dict[str, tuple[str, Probe]] = {}
    for command, term in env.commands.terms.items():
        probe = term.probe()
        if probe is not None:
            section = f"{probe.name}_probe"
            found[section if section not in found else f"{command}_{section}"] = command, probe
    return found


@torch.inference_mode()
def run_probe(
    env: ManagerBasedRlEnv, setup: InferenceSetup, probe: Kind, *, seed: int, show: Show = show_nothing
) -> Kind:
    """Let a policy act under a probe of this environment's; `probe.num_envs` tells how many there should be."""
    probe.begin()
    observations, _ = env.reset(seed=seed)
    observations = probe.start(observations)
    setup.reset(None)
    steps = round(probe.seconds / env.step_dt)
    with guarded(env):
        for step in range(steps):
            observations, _, terminated, truncated, _ = env.step(setup.policy(observations))
            setup.reset(terminated | truncated)
            probe.step(step, terminated, truncated)
            show(f"steps of the {probe.name} probe", step + 1, steps)
    return probe
