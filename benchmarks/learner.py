"""What one PPO update costs, by how the mirror image is taught and in which precision: `python -m benchmarks.learner`.

All variants of a task's own agent learn from the same environments in one process, in turns, so that whatever else the
machine does hits all of them. An update is all passes over one iteration's samples; collecting them is measured beside
it.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import Any

import torch

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.rl.backends.rsl_rl.config import RslRlOnPolicyRunnerCfg
from genelab.rl.backends.rsl_rl.runner import make_runner
from genelab.rl.backends.rsl_rl.wrapper import RslRlVecEnvWrapper

TASK_IDS = ("Genelab-Velocity-Flat-Unitree-Go1-v0", "Genelab-Velocity-Flat-Unitree-G1-v0")
VARIANTS = {
    "no mirror, 32 bits": (None, False),
    "mirrored batches, 32 bits": (False, False),
    "equivariant, 32 bits": (True, False),
    "mirrored batches, bfloat16": (False, True),
    "equivariant, bfloat16": (True, True),
}
"""Whether the networks are their own mirror image, None for no mirror at all; whether hidden layers are in bfloat16."""


def variant(agent: RslRlOnPolicyRunnerCfg, equivariant: bool | None, mixed: bool) -> RslRlOnPolicyRunnerCfg:
    """The agent with the mirror taught in this way, in this precision."""
    agent = copy.deepcopy(agent)
    if equivariant is None:
        agent.algorithm.symmetry_cfg = None
    elif agent.algorithm.symmetry_cfg is not None:
        agent.algorithm.symmetry_cfg.equivariant = equivariant
    agent.algorithm.use_mixed_precision = mixed
    return agent


def collect(env: RslRlVecEnvWrapper, alg: Any, steps: int) -> None:
    """One iteration's samples."""
    observations = env.get_observations()
    with torch.inference_mode():
        for _ in range(steps):
            observations, *outcome = env.step(alg.act(observations))
            alg.process_env_step(observations, *outcome)
        alg.compute_returns(observations)


def measure(task_id: str, num_envs: int, rounds: int) -> tuple[float, dict[str, float]]:
    """Seconds of collecting, and of an update by variant; the best of the rounds."""
    agent = TASKS.get(task_id).agent
    if not isinstance(agent, RslRlOnPolicyRunnerCfg):
        raise SystemExit(f"{task_id} is not trained with rsl_rl")
    cfg = rl_cfg(task_id)
    cfg.scene.num_envs = num_envs
    env = RslRlVecEnvWrapper(ManagerBasedRlEnv(cfg), 100.0)
    learners = {name: make_runner(env, variant(agent, *how)).alg for name, how in VARIANTS.items()}
    collecting: list[float] = []
    updating: dict[str, list[float]] = {name: [] for name in learners}
    for _ in range(rounds):
        for name, alg in learners.items():
            alg.train_mode()
            start = time.perf_counter()
            collect(env, alg, agent.num_steps_per_env)
            middle = time.perf_counter()
            alg.update()
            collecting.append(middle - start)
            updating[name].append(time.perf_counter() - middle)
    return min(collecting), {name: min(seconds) for name, seconds in updating.items()}


def main() -> None:
    """Print one table per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", action="append", help="Task; may be given more than once.")
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for task_id in args.task or TASK_IDS:
        collecting, updating = measure(task_id, args.num_envs, args.rounds)
        slowest = max(updating.values())
        print(f"{task_id}, {args.num_envs} environments: collecting {collecting:.3f} s")
        print("| update | seconds | of the slowest | learning's share of an iteration |")
        print("|---|---|---|---|")
        for name, seconds in updating.items():
            share = seconds / (seconds + collecting)
            print(f"| {name} | {seconds:.3f} | {seconds / slowest:.2f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
