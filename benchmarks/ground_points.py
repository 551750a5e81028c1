"""In how many points a robot touches a height field: `python -m benchmarks.ground_points TASK`.

MuJoCo has a point for each triangle that a geom touches, MuJoCo Warp four for a geom at most. The shipped policy walks
on MuJoCo; the touches of which MuJoCo Warp would leave points out are counted.
"""

from __future__ import annotations

import argparse
from collections import Counter

import mujoco
import numpy as np

from genelab import TASKS
from genelab.envs import make_env
from genelab.rl.locate import pretrained_policy
from genelab.rl.player import Player

POINTS_OF_WARP = 4


class Touches:
    """Looks on, and counts by their points the geoms that touch the height field."""

    def __init__(self, player: Player, every: int) -> None:
        self._player, self._every = player, every
        self._model = player.env.scene.engine.model
        self._data = mujoco.MjData(self._model)
        self.points: Counter[int] = Counter()

    def before_step(self) -> bool:
        return True

    def after_step(self) -> None:
        if self._player.steps % self._every == 0:
            for qpos in self._player.env.scene.engine.qpos.double().numpy():
                self._data.qpos[:] = qpos
                mujoco.mj_fwdPosition(self._model, self._data)
                self.points.update(self._of_geoms())

    def _of_geoms(self) -> list[int]:
        """The number of points of each geom that touches the height field now."""
        pairs = self._data.contact.geom[self._data.contact.dist < 0]  # (C, 2)
        ground = self._model.geom_type[pairs] == mujoco.mjtGeom.mjGEOM_HFIELD
        _, counts = np.unique(pairs[:, ::-1][ground], return_counts=True)
        return [int(count) for count in counts]

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    """Print the touches by their number of points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", help="Task id.")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=500, help="Control steps.")
    parser.add_argument("--every", type=int, default=5, help="Look after so many of them.")
    args = parser.parse_args()
    cfg = TASKS.get(args.task)
    env_cfg = cfg.playing
    env_cfg.scene.num_envs, env_cfg.simulation.engine, env_cfg.simulation.vis = args.num_envs, "mujoco", False
    env_cfg.seed = 0
    player = Player(make_env(env_cfg), "trained", cfg.agent, pretrained_policy(args.task))
    touches = Touches(player, args.every)
    player.play(args.steps, None, [touches], lambda step, total: None)
    player.env.close()
    total = sum(touches.points.values())
    more = sum(count for points, count in touches.points.items() if points > POINTS_OF_WARP)
    for points, count in sorted(touches.points.items()):
        print(f"{points:3d} points: {count:6d} touches, {100 * count / total:5.1f} %")
    print(f"{100 * more / max(total, 1):.1f} % of {total} have more than {POINTS_OF_WARP}")


if __name__ == "__main__":
    main()
