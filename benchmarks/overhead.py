"""What it costs to look on: `python -m benchmarks.overhead`.

The same environment is stepped bare and watched, in short turns whose order alternates, so that whatever else the
machine does hits both. `monitor` is the monitor and the clocks of the benchmark workflows; it looks twice in a turn of
half a second, four times as often as in a real run, so that what is printed is rather too much. `page` is the web page
of `genelab play --vis` at full speed, while nobody has it open.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from genelab import TASKS
from genelab.bench import BenchmarkMonitor
from genelab.bench.stepping import StepTimer
from genelab.envs import ManagerBasedRlEnv
from genelab.rl.play import Player
from genelab.rl.policies import random_policy
from genelab.viewer import Onlooker, ViewerCfg
from genelab.viewer.web import WebViewer


def main() -> None:
    """Print how much slower the watched turns are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=WATCHED, default="monitor")
    parser.add_argument("--task", default="GeneLab-Inverted-Pendulum-v0")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=0.5, help="Length of a turn.")
    parser.add_argument("--rounds", type=int, default=300, help="Pairs of turns.")
    args = parser.parse_args()
    cfg = TASKS.get(args.task).env
    cfg.scene.num_envs, cfg.seed = args.num_envs, 0
    bare, watched = ManagerBasedRlEnv(cfg), ManagerBasedRlEnv(cfg)
    if args.what == "monitor":
        StepTimer(watched)
    for env in (bare, watched):
        env.reset(seed=0)
        _rate(env, args.seconds, [])
    ratios = []
    for turn in range(args.rounds):
        rates = {}
        for env in (bare, watched) if turn % 2 else (watched, bare):
            with (WATCHED[args.what] if env is watched else _alone)(env, args.seconds) as onlookers:
                rates[env] = _rate(env, args.seconds, onlookers)
        ratios.append(rates[watched] / rates[bare])
    low, high = _median_interval(ratios)
    print(
        f"{args.what} on {args.task}, {args.num_envs} environments: {1.0 - statistics.median(ratios):.2%} slower "
        f"(median of {args.rounds} pairs; 95 % interval {1.0 - high:.2%} to {1.0 - low:.2%})"
    )


@contextmanager
def _alone(env: ManagerBasedRlEnv, seconds: float) -> Iterator[Sequence[Onlooker]]:
    yield []


@contextmanager
def _monitored(env: ManagerBasedRlEnv, seconds: float) -> Iterator[Sequence[Onlooker]]:
    with BenchmarkMonitor(seconds / 2):
        yield []


@contextmanager
def _served(env: ManagerBasedRlEnv, seconds: float) -> Iterator[Sequence[Onlooker]]:
    page = WebViewer(Player(env, "random", None, None), ViewerCfg())
    page.pace.speed = math.inf
    yield [page]
    page.close()


WATCHED = {"monitor": _monitored, "page": _served}


@torch.inference_mode()
def _rate(env: ManagerBasedRlEnv, seconds: float, onlookers: Sequence[Onlooker]) -> float:
    """Control steps per second."""
    act = random_policy(env)
    steps, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        for onlooker in onlookers:
            onlooker.before_step()
        env.step(act({}))
        for onlooker in onlookers:
            onlooker.after_step()
        steps += 1
    return steps / passed


def _median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Values between which the true median lies with 95 %, whatever the distribution (by ranks)."""
    ranked = sorted(values)
    half = 0.98 * len(ranked) ** 0.5
    return ranked[max(0, int(len(ranked) / 2 - half))], ranked[min(len(ranked) - 1, int(len(ranked) / 2 + half))]


if __name__ == "__main__":
    main()
