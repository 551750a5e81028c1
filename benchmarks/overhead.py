"""What it costs to look on: `python -m benchmarks.overhead`.

The same environment is stepped bare and under the monitor and the clocks of the benchmark workflows, in short turns
whose order alternates, so that whatever else the machine does hits both. The monitor looks twice in a turn of half a
second, four times as often as in a real run: what is printed is rather too much.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext

import torch

from genelab import TASKS
from genelab.bench import BenchmarkMonitor
from genelab.bench.stepping import StepTimer
from genelab.envs import ManagerBasedRlEnv
from genelab.rl.policies import random_policy


def main() -> None:
    """Print how much slower the watched rounds are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="GeneLab-Inverted-Pendulum-v0")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=0.5, help="Length of a turn.")
    parser.add_argument("--rounds", type=int, default=300, help="Pairs of turns.")
    args = parser.parse_args()
    cfg = TASKS.get(args.task).env
    cfg.scene.num_envs, cfg.seed = args.num_envs, 0
    bare, watched = ManagerBasedRlEnv(cfg), ManagerBasedRlEnv(cfg)
    StepTimer(watched)
    for env in (bare, watched):
        env.reset(seed=0)
        _rate(env, args.seconds)
    ratios = []
    for turn in range(args.rounds):
        rates = {}
        for env in (bare, watched) if turn % 2 else (watched, bare):
            with BenchmarkMonitor(args.seconds / 2) if env is watched else nullcontext():
                rates[env] = _rate(env, args.seconds)
        ratios.append(rates[watched] / rates[bare])
    low, high = _median_interval(ratios)
    print(
        f"{args.task}, {args.num_envs} environments: {1.0 - statistics.median(ratios):.2%} slower "
        f"(median of {args.rounds} pairs; 95 % interval {1.0 - high:.2%} to {1.0 - low:.2%})"
    )


@torch.inference_mode()
def _rate(env: ManagerBasedRlEnv, seconds: float) -> float:
    """Control steps per second."""
    act = random_policy(env)
    steps, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        env.step(act({}))
        steps += 1
    return steps / passed


def _median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Values between which the true median lies with 95 %, whatever the distribution (by ranks)."""
    ranked = sorted(values)
    half = 0.98 * len(ranked) ** 0.5
    return ranked[max(0, int(len(ranked) / 2 - half))], ranked[min(len(ranked) - 1, int(len(ranked) / 2 + half))]


if __name__ == "__main__":
    main()
