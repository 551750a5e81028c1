"""What it costs to look on: `python -m benchmarks.overhead`.

The same environment is stepped bare and under the monitor and the clocks of the benchmark workflows, in turns, so that
whatever else the machine does hits both.
"""

from __future__ import annotations

import argparse
import statistics
import time

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
    parser.add_argument("--seconds", type=float, default=2.0, help="Length of a round; the monitor looks every second.")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    cfg = TASKS.get(args.task).env
    cfg.scene.num_envs, cfg.seed = args.num_envs, 0
    bare, watched = ManagerBasedRlEnv(cfg), ManagerBasedRlEnv(cfg)
    StepTimer(watched)
    for env in (bare, watched):
        env.reset(seed=0)
        _rate(env, args.seconds)
    ratios = []
    for _ in range(args.rounds):
        alone = _rate(bare, args.seconds)
        with BenchmarkMonitor():
            seen = _rate(watched, args.seconds)
        ratios.append(seen / alone)
    loss = 1.0 - statistics.median(ratios)
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5
    print(f"{args.task}, {args.num_envs} environments: {loss:.2%} ± {spread:.2%} slower (median of {args.rounds})")


@torch.inference_mode()
def _rate(env: ManagerBasedRlEnv, seconds: float) -> float:
    """Control steps per second."""
    act = random_policy(env)
    steps, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        env.step(act({}))
        steps += 1
    return steps / passed


if __name__ == "__main__":
    main()
