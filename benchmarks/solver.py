"""Whether physics holds under a beginner's actions, and what that costs: `python -m benchmarks.solver TASK`.

A beginner's policy asks for anything: actions are normal noise, new in every control step. The same task is stepped
with several limits of the solver's iterations, in turns of a thousandth of the whole, so that whatever else the machine
does hits all of them. An environment whose physics diverges is counted and starts anew.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import time
from dataclasses import dataclass

import torch

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv, rl_cfg


@dataclass
class Run:
    """One limit of iterations, and what came of it."""

    env: ManagerBasedRlEnv
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    fast: int = 0
    """Control steps of single environments after which something was faster than 100 m/s or rad/s."""
    peak: float = 0.0

    def turn(self, steps: int, noise: torch.Generator, std: float) -> None:
        """Some control steps of all environments."""
        env = self.env
        actions = std * torch.randn(steps, env.num_envs, env.action_dim, generator=noise)
        start, cpu_start = time.perf_counter(), time.process_time()
        for action in actions:
            env.step(action)
            speed = env.scene.engine.qvel.abs().amax(dim=1)
            self.fast += int((speed > 100.0).sum())
            self.peak = max(self.peak, float(speed.nan_to_num(torch.inf).max()))
        self.seconds += time.perf_counter() - start
        self.cpu_seconds += time.process_time() - cpu_start
        self.steps += steps * env.num_envs


def make(task: str, num_envs: int, iterations: int, threads: int) -> ManagerBasedRlEnv:
    """A task as it is trained, but for the limit of iterations; what diverges starts anew."""
    cfg = rl_cfg(task)
    cfg.scene.num_envs = num_envs
    cfg.simulation.solver.iterations, cfg.simulation.on_divergence = iterations, "reset"
    cfg.simulation.threads = threads
    env = ManagerBasedRlEnv(cfg)
    env.shows_final_obs = False
    env.reset(seed=0)
    return env


def main() -> None:
    """Print one line per limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", help="Task id.")
    parser.add_argument("--import", dest="module", help="Module or file that registers it.")
    parser.add_argument("--iterations", type=int, nargs="+", default=[10, 100], help="Limits to compare.")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2_000_000, help="Control steps of all environments, each limit.")
    parser.add_argument("--std", type=float, default=1.0, help="Standard deviation of the actions.")
    parser.add_argument("--threads", type=int, default=0, help="Physics threads; 0 is one per core.")
    args = parser.parse_args()
    if args.module:
        TASKS.import_module(args.module)
    turns = 1000
    per_turn = max(1, args.steps // (turns * args.num_envs))
    runs = {limit: Run(make(args.task, args.num_envs, limit, args.threads)) for limit in args.iterations}
    noises = {limit: torch.Generator().manual_seed(0) for limit in runs}
    with torch.inference_mode(), contextlib.suppress(KeyboardInterrupt):  # what there is by then is printed
        for _ in range(-(-args.steps // (per_turn * args.num_envs))):
            for limit, run in runs.items():
                run.turn(per_turn, noises[limit], args.std)
    print("| iterations | control steps | diverged | above 100 rad/s | peak | not converged | steps/s | per CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for limit, run in runs.items():
        engine = run.env.scene.engine
        print(
            f"| {limit} | {run.steps:,} | {run.env.diverged} | {run.fast} | {run.peak:.3g} "
            f"| {engine.unconverged / engine.solved:.4%} | {run.steps / run.seconds:,.0f} "
            f"| {run.steps / run.cpu_seconds:,.0f} |",
            flush=True,
        )
        run.env.close()


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):  # a shell switches the first off for what it runs in the background
        signal.signal(stop, signal.default_int_handler)
    main()
