"""Demonstrations by a script: `python -m genelab_franka.collect_demos --num-envs 64 --steps 1000 --out demos.npz`.

A state machine that sees everything runs all environments at once: above the cube, down, close, up, to the goal, hold.
What it writes is what the learner would have seen, noise included.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from genelab.config.files import atomic_write_bytes, check_out
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.errors import GenelabError, UsageError
from genelab.sim import ENGINES
from genelab_franka.pick_place import CUBE_HALF, cube_pos, ee_pos

TASK = "GeneLab-Franka-Pick-And-Place-v0"

HOVER = CUBE_HALF + 0.08
"""Height of the pads over the cube's centre while approaching, m."""
GRASP_HEIGHT = 0.003
"""Height of the pads over the cube's centre while gripping, m; their tips are then 15 mm above the ground."""
CLEARANCE = 0.03
"""How far above the ground the cube travels, m."""
CLOSE_STEPS = 5
"""Control steps that closing takes: 2 cm at 5 mm a step, and one to press."""
TOUCH = 0.002
"""How far above the ground the cube is held at a goal on it, m."""
NEAR = 0.01
"""Horizontal distance at which the hand is over its target, m."""
LEVEL = 0.008
"""Vertical distance at which it is at its target's height, m."""
ARRIVED = 0.02
"""Distance from the goal at which the cube is held rather than carried, m."""
LOWER = 0.03
"""Horizontal distance from the goal within which the cube is lowered to it, m."""
HELD = 0.05
"""Distance between pads and cube beyond which it was lost, m."""
GAIN = 2.0
"""Share of the way to its target that the hand is sent in one step; its servos give less than half of it."""


class Phase(IntEnum):
    """What the hand is doing."""

    APPROACH = 0
    DESCEND = 1
    CLOSE = 2
    LIFT = 3
    TO_GOAL = 4
    HOLD = 5


class Script:
    """The state machine of all environments."""

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        self.env = env
        self.phase = torch.full((env.num_envs,), Phase.APPROACH, device=env.device)
        self._closing = torch.zeros_like(self.phase)
        hand_cfg = env.action_manager.terms["hand"].cfg
        self._scale: float = hand_cfg.scale  # type: ignore[attr-defined]

    def reset(self, ended: Tensor) -> None:
        """Begin again where an episode ended."""
        self.phase[ended] = Phase.APPROACH

    def act(self) -> Tensor:
        """Actions from the state as it is, `(N, 4)`."""
        hand, cube, goal = ee_pos(self.env), cube_pos(self.env), self.env.commands["goal"]
        self._advance(hand, cube, goal)
        target = self._target(hand, cube, goal)
        gain = torch.where(self.phase == Phase.HOLD, GAIN / 2, GAIN)[:, None]
        move = gain * (target - hand) / self._scale
        grip = torch.where(self.phase >= Phase.CLOSE, -1.0, 1.0)[:, None]
        return torch.cat((move, grip.to(move.dtype)), dim=1).clamp(-1.0, 1.0)

    def _target(self, hand: Tensor, cube: Tensor, goal: Tensor) -> Tensor:
        """Where the pads should go, `(N, 3)`."""
        carried_to = goal.clone()
        travelling = (cube - goal)[:, :2].norm(dim=1) > LOWER
        lowest = CUBE_HALF + torch.where(travelling, CLEARANCE, TOUCH)
        carried_to[:, 2] = torch.maximum(carried_to[:, 2], lowest.to(goal.dtype))
        carried_to += hand - cube
        above = cube.clone()
        above[:, 2] += HOVER
        at_cube = cube.clone()
        at_cube[:, 2] += GRASP_HEIGHT
        lifted = hand.clone()
        lifted[:, 2] += self._scale
        targets = torch.stack((above, at_cube, at_cube, lifted, carried_to, carried_to))  # by phase
        return targets[self.phase, torch.arange(len(hand), device=hand.device)]

    def _advance(self, hand: Tensor, cube: Tensor, goal: Tensor) -> None:
        """Go on to the next phase where this one has done its work, and back to the first where the cube was lost."""
        apart = hand - cube
        over = apart[:, :2].norm(dim=1) < NEAR
        low = (apart[:, 2] - GRASP_HEIGHT).abs() < LEVEL
        self._closing = torch.where(self.phase == Phase.CLOSE, self._closing + 1, 0)
        done = torch.stack(
            (
                over,
                over & low,
                self._closing >= CLOSE_STEPS,
                cube[:, 2] > CUBE_HALF + CLEARANCE,
                (cube - goal).norm(dim=1) < ARRIVED,
                torch.zeros_like(over),
            )
        )
        rows = torch.arange(len(hand), device=hand.device)
        lost = (self.phase > Phase.CLOSE) & (apart.norm(dim=1) > HELD)
        self.phase = torch.where(lost, Phase.APPROACH, self.phase + done[self.phase, rows].long())


def collect(cfg: ManagerBasedRlEnvCfg, steps: int, seed: int) -> tuple[dict[str, np.ndarray], list[bool]]:
    """Run the script; the arrays of the file, and whether each episode ended at its goal."""
    cfg.seed = seed
    env = ManagerBasedRlEnv(cfg, notify=print)
    script = Script(env)
    observations, _ = env.reset(seed=seed)
    rows: dict[str, list[np.ndarray]] = defaultdict(list)
    successes: list[bool] = []
    for _ in range(steps):
        action = script.act()
        following, reward, terminated, truncated, info = env.step(action)
        ended = terminated | truncated
        last = info.get("final_obs", following)
        for name, before in observations.items():
            after = torch.where(ended[:, None], last[name], following[name])
            rows[f"obs_{name}"].append(_array(before))
            rows[f"next_obs_{name}"].append(_array(after))
        for key, value in (("actions", action), ("rewards", reward)):
            rows[key].append(_array(value))
        rows["dones"].append(ended.cpu().numpy().copy())
        rows["truncateds"].append((truncated & ~terminated).cpu().numpy().copy())
        successes += info["is_success"][ended].tolist()
        script.reset(ended)
        observations = following
    env.close()
    return {key: np.stack(values) for key, values in rows.items()}, successes


def _array(values: Tensor) -> np.ndarray:
    return values.to("cpu", torch.float32, copy=True).numpy()


def main(args: Sequence[str] | None = None) -> int:
    """Collect, write, tell how it went."""
    parser = argparse.ArgumentParser(prog="python -m genelab_franka.collect_demos", description=__doc__)
    parser.add_argument("--num-envs", type=int, default=64, help="Environments; training needs the same number.")
    parser.add_argument("--steps", type=int, default=1000, help="Control steps of each environment.")
    parser.add_argument("--out", type=Path, required=True, help="The NPZ file to write.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episode-length-s", type=float, help="Length of an episode, instead of the task's.")
    parser.add_argument("--engine", choices=ENGINES.choices(), default="auto")
    options = parser.parse_args(args)
    try:
        _run(options)
    except GenelabError as error:
        message = re.sub("`(num_envs|steps|out)`", lambda name: f"--{name[1].replace('_', '-')}", str(error))
        print(f"collect_demos: {message}", file=sys.stderr)
        return error.exit_code
    return 0


def _run(options: argparse.Namespace) -> None:
    for name in ("num_envs", "steps"):
        if getattr(options, name) < 1:
            raise UsageError(f"`{name}`: must be at least 1, got {getattr(options, name)}")
    check_out(options.out)
    cfg = rl_cfg(TASK)
    cfg.scene.num_envs = options.num_envs
    cfg.simulation.engine = options.engine
    if options.episode_length_s is not None:
        cfg.episode_length_s = options.episode_length_s
    arrays, successes = collect(cfg, options.steps, options.seed)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    try:
        atomic_write_bytes(options.out, file.getvalue())
    except OSError as error:
        raise GenelabError(f"cannot write {options.out}: {error.strerror}") from error
    rate = f"{np.mean(successes):.1%} of {len(successes)} episodes" if successes else "no episode ended"
    print(f"{options.out}: {options.steps} steps of {options.num_envs} environments; success: {rate}")


if __name__ == "__main__":
    sys.exit(main())
