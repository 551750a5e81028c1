"""How much of the raw physics' speed is left in `env.step`: `python -m benchmarks.throughput`.

Both sides step the same compiled model with the same random targets in one process, in turns, so that whatever else
the machine does hits both. Raw is `mujoco.rollout` alone: controls in, states out, no observation, reward or reset.
"""

from __future__ import annotations

import argparse
import os
import time

import mujoco
import numpy as np
import torch
from mujoco.rollout import Rollout

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv


class RawPhysics:
    """The task's model under `mujoco.rollout`, with a persistent pool and preallocated arrays."""

    def __init__(self, env: ManagerBasedRlEnv, threads: int) -> None:
        self._model = env.scene.engine.model
        self._steps = env.cfg.decimation
        self._data = [mujoco.MjData(self._model) for _ in range(threads)]
        size = mujoco.mj_stateSize(self._model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        initial = np.empty(size)
        mujoco.mj_getState(self._model, self._data[0], initial, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._state = np.tile(initial, (env.num_envs, 1))
        self._states = np.empty((env.num_envs, self._steps, size))
        self._sensors = np.empty((env.num_envs, self._steps, self._model.nsensordata))
        self._control = np.empty((env.num_envs, self._steps, self._model.nu))
        self._models = [self._model] * env.num_envs
        self._pool = Rollout(nthread=threads)

    def step(self, control: np.ndarray) -> None:
        """One control step of all environments."""
        self._control[:] = control[:, None]
        self._pool.rollout(
            self._models,
            self._data,
            self._state,
            self._control,
            nstep=self._steps,
            state=self._states,
            sensordata=self._sensors,
            skip_checks=True,
        )
        self._state[:] = self._states[:, -1]


def measure(task: str, num_envs: int, steps: int, rounds: int) -> tuple[float, float]:
    """Control steps per second, all environments together: raw physics, and `env.step`; medians over rounds."""
    cfg = TASKS.get(task).env
    cfg.scene.num_envs, cfg.seed = num_envs, 0
    env = ManagerBasedRlEnv(cfg)
    raw = RawPhysics(env, os.cpu_count() or 1)
    actions = 2 * torch.rand(steps, num_envs, env.action_dim) - 1
    targets = np.repeat(env.scene.engine.ctrl.numpy()[None].astype(np.float64), steps, axis=0)
    targets[:, :, : env.action_dim] += actions.numpy()
    env.reset(seed=0)
    seconds: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for round_ in range(rounds + 1):
            for side, times in enumerate(seconds):
                start = time.perf_counter()
                for i in range(steps):
                    if side == 0:
                        raw.step(targets[i])
                    else:
                        env.step(actions[i])
                if round_ > 0:  # the first one warms up
                    times.append(time.perf_counter() - start)
    env.close()
    work = num_envs * steps
    return work / float(np.median(seconds[0])), work / float(np.median(seconds[1]))


def main() -> None:
    """Print one line per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", action="append", help="Task; may be given more than once.")
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=100, help="Control steps per round.")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    tasks = args.task or ["GeneLab-Inverted-Pendulum-v0", "GeneLab-Double-Inverted-Pendulum-v0"]
    print(f"control steps per second, {args.num_envs} environments, {os.cpu_count()} cores")
    print("| task | raw mujoco.rollout | env.step | ratio |")
    print("|---|---|---|---|")
    for task in tasks:
        raw, env = measure(task, args.num_envs, args.steps, args.rounds)
        print(f"| {task} | {raw:,.0f} | {env:,.0f} | {env / raw:.2f} |", flush=True)


if __name__ == "__main__":
    main()
