"""What it costs to look on: `python -m benchmarks.overhead`.

`monitor` is the monitor and the clocks of the benchmark workflows, `page` the web page of `genelab play --vis` at full
speed while nobody has it open. Each costs something in a control step and something beside it, in threads of its own.
The first is measured by single steps of two environments in turns, one bare and one watched, so that whatever else the
machine does hits both; the second is the processor time that the process uses while its main thread sleeps.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from genelab.bench import BenchmarkMonitor
from genelab.bench.stepping import StepTimer
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.rl.player import Player
from genelab.rl.policies import random_policy
from genelab.viewer import Onlooker, ViewerCfg
from genelab.viewer.web import WebViewer


def main() -> None:
    """Print how much slower watched steps are, and what goes on beside them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=WATCHED, default="monitor")
    parser.add_argument("--task", default="GeneLab-Inverted-Pendulum-v0")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5000, help="Pairs of control steps.")
    args = parser.parse_args()
    cfg = rl_cfg(args.task)
    cfg.scene.num_envs, cfg.seed = args.num_envs, 0
    bare, watched = ManagerBasedRlEnv(cfg), ManagerBasedRlEnv(cfg)
    for env in (bare, watched):
        env.reset(seed=0)
    with WATCHED[args.what](watched) as onlookers:
        beside = _background(seconds=10.0)
        ratios = _ratios(bare, watched, onlookers, args.rounds)
    low, high = median_interval(ratios)
    interval = f"{low - 1:.2%} to {high - 1:.2%}"
    print(
        f"{args.what} on {args.task}, {args.num_envs} environments: {statistics.median(ratios) - 1:.2%} in the step "
        f"(median of {args.rounds} pairs; 95 % interval {interval}), {beside:.2%} of a core beside it"
    )


@contextmanager
def _monitored(env: ManagerBasedRlEnv) -> Iterator[Sequence[Onlooker]]:
    with env.watched_by(StepTimer(env.device)), BenchmarkMonitor():
        yield []


@contextmanager
def _served(env: ManagerBasedRlEnv) -> Iterator[Sequence[Onlooker]]:
    page = WebViewer(Player(env, "random", None, None), ViewerCfg())
    page.pace.speed = math.inf
    yield [page]
    page.close()


WATCHED = {"monitor": _monitored, "page": _served}


def _background(seconds: float) -> float:
    """Processor time that other threads use per second."""
    start, used = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - used) / (time.perf_counter() - start)


@torch.inference_mode()
def _ratios(
    bare: ManagerBasedRlEnv, watched: ManagerBasedRlEnv, onlookers: Sequence[Onlooker], rounds: int
) -> list[float]:
    """How many times as long a watched step takes as a bare one, pair by pair."""
    act = random_policy(bare)
    ratios = []
    for turn in range(rounds + 50):
        action, times = act({}), {}
        for env in (bare, watched) if turn % 2 else (watched, bare):
            times[env] = _seconds(env, action, onlookers if env is watched else [])
        ratios.append(times[watched] / times[bare])
    return ratios[50:]  # the first are cold


def _seconds(env: ManagerBasedRlEnv, action: Tensor, onlookers: Sequence[Onlooker]) -> float:
    start = time.perf_counter()
    for onlooker in onlookers:
        onlooker.before_step()
    env.step(action)
    for onlooker in onlookers:
        onlooker.after_step()
    return time.perf_counter() - start


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Values between which the true median lies with 95 %, whatever the distribution (by ranks)."""
    ranked = sorted(values)
    half = 0.98 * len(ranked) ** 0.5
    return ranked[max(0, int(len(ranked) / 2 - half))], ranked[min(len(ranked) - 1, int(len(ranked) / 2 + half))]


if __name__ == "__main__":
    main()
