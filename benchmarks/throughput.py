"""How much of the raw physics' speed is left in `env.step`: `python -m benchmarks.throughput`.

Both sides step the same compiled model with the same random targets in one process, in turns, so that whatever else
the machine does hits both. Raw is `mujoco.rollout` alone: controls in, states out, no observation, reward or reset. It
steps the model as it is compiled, the engine a leaner one of the same physics (`genelab/sim/mujoco_model.py`). Raw
starts each round where the environments did and gets the controls that they made of the actions, so that neither side
has more robots lying on the ground.

A task is measured as it is trained, with the physics it is trained with (`coarse`) or judged with (`fine`); where they
are the same there is one line.

`--profile` prints where a step goes instead: processor time, which other work on the machine hardly changes. The
physics runs on all cores and is divided by their number, everything else runs on one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np
import torch
from mujoco.rollout import Rollout

from genelab import TASKS
from genelab.envs import ManagerBasedRlEnv, Physics, physics_changes, rl_cfg, with_physics
from genelab.rl.backends import select_backend

TASK_SIZES = {
    "GeneLab-Inverted-Pendulum-v0": 4096,
    "GeneLab-Double-Inverted-Pendulum-v0": 4096,
    "Genelab-Velocity-Flat-Unitree-Go1-v0": 1024,
    "Genelab-Velocity-Rough-Unitree-Go1-v0": 1024,
    "Genelab-Velocity-Flat-Unitree-G1-v0": 512,
    "Genelab-Velocity-Rough-Unitree-G1-v0": 512,
    "Genelab-Velocity-Flat-Unitree-Go2W-v0": 1024,
    "GeneLab-Franka-Pick-And-Place-v0": 64,
}
"""Tasks, and how many environments they are measured with."""


class RawPhysics:
    """The task's model under `mujoco.rollout`, with a persistent pool and preallocated arrays."""

    def __init__(self, env: ManagerBasedRlEnv, threads: int) -> None:
        self._model = env.scene.engine.model
        self._steps = env.cfg.decimation
        self._data = [mujoco.MjData(self._model) for _ in range(threads)]
        size = mujoco.mj_stateSize(self._model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._state = np.empty((env.num_envs, size))
        self._states = np.empty((env.num_envs, self._steps, size))
        self._sensors = np.empty((env.num_envs, self._steps, self._model.nsensordata))
        self._control = np.empty((env.num_envs, self._steps, self._model.nu))
        self._models = [self._model] * env.num_envs
        self._pool = Rollout(nthread=threads)

    def start_from(self, env: ManagerBasedRlEnv) -> None:
        """Put all environments where those of `env` are."""
        data, engine = self._data[0], env.scene.engine
        for row, qpos, qvel in zip(self._state, engine.qpos.numpy(), engine.qvel.numpy(), strict=True):
            data.qpos[:], data.qvel[:], data.time = qpos, qvel, 0.0
            mujoco.mj_getState(self._model, data, row, mujoco.mjtState.mjSTATE_FULLPHYSICS)

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


def physics_of(task: str) -> list[Physics]:
    """The physics a task knows: what it is trained with, and what it is judged with if that is another."""
    known = TASKS.get(task)
    return ["coarse", "fine"] if physics_changes(known.playing, known.env) else ["fine"]


def make_env(task: str, num_envs: int, physics: Physics) -> ManagerBasedRlEnv:
    """A task's environments as its training has them."""
    known = TASKS.get(task)
    cfg = rl_cfg(task) if physics == "coarse" else with_physics(rl_cfg(task), known.playing)
    cfg.scene.num_envs, cfg.seed = num_envs, 0
    env = ManagerBasedRlEnv(cfg)
    env.shows_final_obs = select_backend(known.agent).reads_final_obs
    env.reset(seed=0)
    return env


class Stopwatch:
    """Processor time of parts of a step, each without those that it calls; the sum is the step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    @contextmanager
    def part(self, name: str, cores: int = 1) -> Iterator[None]:
        """What runs meanwhile is of this part; on several cores, all threads of the process share it."""
        clock = time.thread_time if cores == 1 else time.process_time
        start, own_start = clock(), time.thread_time()
        self._inner.append(0.0)
        yield
        mine = (clock() - start) / cores - self._inner.pop()
        self.seconds[name] = self.seconds.get(name, 0.0) + mine
        self._inner[-1] += time.thread_time() - own_start

    def watch(self, owner: object, method: str, name: str, cores: int = 1) -> None:
        """Let an object's method be a part."""
        call = getattr(owner, method)

        def timed(*args: object, **kwargs: object) -> object:
            with self.part(name, cores):
                return call(*args, **kwargs)

        setattr(owner, method, timed)


def profile(task: str, num_envs: int, steps: int, physics: Physics = "coarse") -> dict[str, float]:
    """Milliseconds of processor time by part of a control step."""
    env, watch = make_env(task, num_envs, physics), Stopwatch()
    actions = 2 * torch.rand(5 * steps, num_envs, env.action_dim) - 1
    with torch.inference_mode():
        for action in actions[:-steps]:  # until commands end, pushes come and robots fall
            env.step(action)
        watch.watch(env.scene.engine, "step", "physics", os.cpu_count() or 1)
        for owner, method, name in (
            (env.action_manager, "process", "actions"),
            (env.scene, "step", "controls"),
            (env.scene, "update", "sensors"),
            (env.termination_manager, "compute", "terminations"),
            (env.reward_manager, "compute", "rewards"),
            (env.metrics_manager, "compute", "metrics"),
            (env.schedule_manager, "advance", "schedules"),
            (env, "_reset_envs", "resets"),
            (env.command_manager, "advance", "commands"),
            (env.event_manager, "advance", "events"),
            (env.observation_manager, "compute", "observations"),
        ):
            watch.watch(owner, method, name)
        for action in actions[-steps:]:
            with watch.part("the rest"):
                env.step(action)
    env.close()
    return {name: 1e3 * seconds / steps for name, seconds in watch.seconds.items()}


def print_profile(parts: dict[str, float]) -> None:
    """One line per part, and what physics leaves."""
    total = sum(parts.values())
    print("| part | ms | share |")
    print("|---|---|---|")
    for name, ms in sorted(parts.items(), key=lambda part: -part[1]):
        print(f"| {name} | {ms:.2f} | {ms / total:.0%} |")
    print(f"| a control step | {total:.2f} | |", flush=True)


def measure(
    task: str, num_envs: int, steps: int, rounds: int, physics: Physics = "coarse"
) -> tuple[float, float, float]:
    """Control steps per second, all environments together: raw physics, `env.step`, and their ratio.

    Medians over rounds, each by itself: two speeds of different rounds say more of the machine than of the code.
    """
    env = make_env(task, num_envs, physics)
    raw = RawPhysics(env, os.cpu_count() or 1)
    actions = 2 * torch.rand(steps, num_envs, env.action_dim) - 1
    controls = np.empty((steps, num_envs, env.scene.engine.model.nu))
    seconds: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for round_ in range(rounds + 1):
            raw.start_from(env)
            stepped = 0.0
            for action, control in zip(actions, controls, strict=True):
                start = time.perf_counter()
                env.step(action)
                stepped += time.perf_counter() - start
                control[:] = env.scene.engine.ctrl.numpy()
            start = time.perf_counter()
            for control in controls:
                raw.step(control)
            if round_ > 0:  # the first one warms up
                seconds[0].append(time.perf_counter() - start)
                seconds[1].append(stepped)
    env.close()
    work, raw_s, env_s = num_envs * steps, *map(np.array, seconds)
    return float(np.median(work / raw_s)), float(np.median(work / env_s)), float(np.median(raw_s / env_s))


def main() -> None:
    """Print one line per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", action="append", help="Task; may be given more than once.")
    parser.add_argument("--num-envs", type=int, help="Environments, instead of each task's own number.")
    parser.add_argument("--physics", choices=("coarse", "fine"), help="Of training or of judging; without it, both.")
    parser.add_argument("--steps", type=int, default=25, help="Control steps per round.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", action="store_true", help="Where a step goes, instead of the speed.")
    args = parser.parse_args()
    if args.profile:
        for task in args.task or TASK_SIZES:
            num_envs = args.num_envs or TASK_SIZES.get(task, 1024)
            for physics in [args.physics] if args.physics else physics_of(task):
                print(f"{task}, {physics} physics, {num_envs} environments, processor time of a control step")
                print_profile(profile(task, num_envs, args.steps, physics))
        return
    print(f"control steps per second, {os.cpu_count()} cores")
    print("| task | physics | environments | raw mujoco.rollout | env.step | ratio |")
    print("|---|---|---|---|---|---|")
    for task in args.task or TASK_SIZES:
        num_envs = args.num_envs or TASK_SIZES.get(task, 1024)
        for physics in [args.physics] if args.physics else physics_of(task):
            raw, env, ratio = measure(task, num_envs, args.steps, args.rounds, physics)
            print(f"| {task} | {physics} | {num_envs} | {raw:,.0f} | {env:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
