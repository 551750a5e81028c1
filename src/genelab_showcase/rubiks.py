"""A Rubik's cube that is scrambled and solved, again and again.

Every turn moves a layer about the centre of the cube, so each cubie hangs on a ball joint there, as the feet of real
ones slide around the core. One servo per cubie turns it to the orientation that the exact state of the cube
(`genelab_showcase.cube`) asks for, by a torque and not by being put there: layers hold together because all nine
cubies of one obey the same law, and cubies that went astray would collide. There is no weld to switch, so both engines
step it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab import math as gm
from genelab.config import TaskCfg
from genelab.envs import ManagerBasedEnvCfg
from genelab.errors import ConfigError, UsageError
from genelab.managers import ActionTerm, ActionTermCfg, Meaning
from genelab.scene import ArticulationCfg, InitialStateCfg, PlaneCfg, SceneCfg, mjcf_text
from genelab.sim import SimulationCfg
from genelab_showcase.cube import FACES, HOMES, Turn, layer, parse_turns, run, scramble, solved, undo
from genelab_showcase.playback import playback_task

if TYPE_CHECKING:
    from genelab.envs import ManagerBasedEnv

EDGE = 0.05
"""Edge of a cubie, m."""
GAP = 0.0015
"""Air between neighbours, m."""
PITCH = EDGE + GAP
"""From the middle of a cubie to that of its neighbour, m."""
HEIGHT = 0.25
"""Centre of the cube above the ground, m."""
TURN_S = 0.5
"""How long a turn takes, s."""
REST_S = 0.2
"""How long the cube rests after each, s: the servos catch up."""

# What there is

_STICKER = 0.001
"""Thickness of a sticker, m."""
_COLOURS = {
    "R": "0.78 0.07 0.12",
    "L": "1.0 0.38 0.0",
    "F": "0.0 0.55 0.25",
    "B": "0.0 0.25 0.68",
    "U": "0.96 0.96 0.96",
    "D": "1.0 0.82 0.0",
}


def cube_spec() -> mujoco.MjSpec:
    """The cube on its stand: a core in the air and 26 cubies of which each has its frame at the core."""
    cubies = "".join(_cubie(i, home) for i, home in enumerate(HOMES.tolist()))
    foot = -1.5 * PITCH - _STICKER
    return mjcf_text(f"""
<mujoco model="rubiks_cube">
  <default>
    <geom type="box" condim="3" friction="1.2 0.005 0.0001" density="500" rgba="0.05 0.05 0.06 1"/>
    <default class="seen">
      <geom contype="0" conaffinity="0" mass="0" group="2"/>
    </default>
  </default>
  <worldbody>
    <geom class="seen" type="cylinder" size="0.006" fromto="0 0 {-HEIGHT} 0 0 {foot:.9g}" rgba="0.35 0.36 0.38 1"/>
    <geom class="seen" type="cylinder" size="0.06 0.004" pos="0 0 {-HEIGHT + 0.004}" rgba="0.35 0.36 0.38 1"/>
    <body name="core">
      <geom class="seen" type="sphere" size="0.02"/>{cubies}
    </body>
  </worldbody>
</mujoco>
""")


def _cubie(i: int, home: list[int]) -> str:
    """A box with a sticker on each side that is outside."""
    centre = " ".join(f"{PITCH * x:.9g}" for x in home)
    stickers = ""
    for face, out in FACES.items():
        if np.dot(home, out) == 1:
            size = " ".join(f"{_STICKER / 2 if x else 0.42 * EDGE:.9g}" for x in out)
            place = " ".join(f"{PITCH * h + (EDGE + _STICKER) / 2 * x:.9g}" for h, x in zip(home, out, strict=True))
            stickers += f'\n        <geom class="seen" size="{size}" pos="{place}" rgba="{_COLOURS[face]} 1"/>'
    return f"""
      <body name="cubie{i}">
        <joint name="cubie{i}" type="ball"/>
        <geom size="{EDGE / 2} {EDGE / 2} {EDGE / 2}" pos="{centre}"/>{stickers}
      </body>"""


# What moves it


@dataclass(kw_only=True)
class CubieServoCfg(ActionTermCfg):
    """Turns every cubie about the core; four columns each are the orientation it shall have, w x y z."""

    entity: str = "cube"
    """Name of the cube."""
    bandwidth: float = 40.0
    """How fast orientations are followed, rad/s; critically damped."""

    def build(self, name: str, env: ManagerBasedEnv) -> ActionTerm:
        return CubieServo(name, self, env)


class CubieServo(ActionTerm):
    """Torques about the core that give every cubie the angular acceleration of a critically damped spring.

    Weight and centrifugal forces are carried, so that all cubies of a layer move alike whatever their inertia.
    """

    cfg: CubieServoCfg

    def __init__(self, name: str, cfg: CubieServoCfg, env: ManagerBasedEnv) -> None:
        super().__init__(name, cfg, env)
        cube = env.scene[cfg.entity]
        self.engine = env.scene.engine
        self.bodies = cube.body_ids[cube.find_bodies(r"cubie\d+")]
        self.dim = 4 * len(self.bodies)
        model, ids = self.engine.model, self.bodies.tolist()
        self.inertia = self._constant(np.stack([_inertia_about_origin(model, body) for body in ids]))  # (26, 3, 3)
        self.weight = self._constant(model.body_mass[ids, None] * model.opt.gravity)  # (26, 3)
        self.centre = self._constant(model.body_ipos[ids])  # (26, 3)

    def _constant(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values).to(self.env.device, self.env.dtype)

    def apply(self, action: Tensor) -> None:
        target = torch.nn.functional.normalize(action.unflatten(1, (-1, 4)), dim=-1)  # (N, 26, 4)
        quat = self.engine.body_quat[:, self.bodies]
        way = gm.quat_mul(target, quat * quat.new_tensor([1.0, -1.0, -1.0, -1.0]))
        error = 2.0 * torch.where(way[..., :1] < 0, -way[..., 1:], way[..., 1:])  # rad, world frame
        spin = gm.quat_rotate_inverse(quat, self.engine.body_ang_vel[:, self.bodies])  # own frame, as all that follows
        bandwidth = self.cfg.bandwidth
        wanted = bandwidth**2 * gm.quat_rotate_inverse(quat, error) - 2.0 * bandwidth * spin
        weight = gm.quat_rotate_inverse(quat, self.weight)
        torque = (
            self._times_inertia(wanted)
            + torch.linalg.cross(spin, self._times_inertia(spin))
            - torch.linalg.cross(self.centre.expand_as(weight), weight)
        )
        torque = gm.quat_rotate(quat, torque)
        self.engine.write_wrench(torch.zeros_like(torque), torque, self.bodies, None)

    def _times_inertia(self, vectors: Tensor) -> Tensor:
        return torch.einsum("bij,nbj->nbi", self.inertia, vectors)

    def meaning(self) -> Meaning:
        columns = (f"cubie{i} {part}" for i in range(len(self.bodies)) for part in "wxyz")
        return Meaning(unit="1", frame="world", columns=tuple(columns))

    def describe(self) -> tuple[str, str]:
        return f"{len(self.bodies)} ball joints", ""


def _inertia_about_origin(model: mujoco.MjModel, body: int) -> np.ndarray:
    """Inertia of a body about the origin of its frame, in that frame, `(3, 3)`."""
    turned = np.zeros(9)
    mujoco.mju_quat2Mat(turned, model.body_iquat[body])
    axes, place = turned.reshape(3, 3), model.body_ipos[body]
    parallel = model.body_mass[body] * (np.dot(place, place) * np.eye(3) - np.outer(place, place))
    return axes @ np.diag(model.body_inertia[body]) @ axes.T + parallel


# What is played


@dataclass(frozen=True)
class Script:
    """A round of turns that ends where it began."""

    turns: tuple[Turn, ...]
    rests: np.ndarray
    """Orientations of the cubies before each turn, `(len(turns), 26, 4)`."""
    moved: np.ndarray
    """Which cubies each turn moves, `(len(turns), 26)`."""

    def orientations(self, time: float) -> np.ndarray:
        """How each cubie is to lie at a time in s, `(26, 4)`; after the last turn it starts again."""
        count, rest = divmod(time, TURN_S + REST_S)
        i = int(count) % len(self.turns)
        turn = self.turns[i]
        share = _smooth(min(rest / TURN_S, 1.0))
        half = -turn.quarters * math.pi / 4 * share
        rotation = np.array([math.cos(half), *(math.sin(half) * np.array(FACES[turn.face]))])
        result = self.rests[i].copy()
        for cubie in np.flatnonzero(self.moved[i]):
            mujoco.mju_mulQuat(result[cubie], rotation, self.rests[i, cubie])
        return result


def _smooth(share: float) -> float:
    """From 0 to 1 with no jerk at either end."""
    return share**3 * (10.0 - 15.0 * share + 6.0 * share**2)


@functools.lru_cache(maxsize=64)
def make_script(turns: tuple[Turn, ...]) -> Script:
    """These turns, and back."""
    turns = (*turns, *undo(turns))
    states = run(solved(), turns)[:-1]
    rests = np.zeros((len(states), len(HOMES), 4))
    for quats, state in zip(rests, states, strict=True):
        for quat, rotation in zip(quats, state, strict=True):
            mujoco.mju_mat2Quat(quat, rotation.astype(float).ravel())
    moved = np.stack([layer(state, turn.face) for state, turn in zip(states, turns, strict=True)])
    return Script(turns, rests, moved)


def scramble_and_solve(env: ManagerBasedEnv, step: int) -> Tensor:
    """The orientations to have at the end of this control step; every environment has a scramble of its own."""
    cfg = env.cfg
    assert isinstance(cfg, RubiksEnvCfg)
    scripts = (make_script(cfg.turns(env.seed + i)) for i in range(env.num_envs))
    return torch.as_tensor(np.stack([script.orientations((step + 1) * env.step_dt).ravel() for script in scripts]))


# The task


@dataclass(kw_only=True)
class RubiksEnvCfg(ManagerBasedEnvCfg):
    """A cube, and how it is scrambled."""

    scramble: str = ""
    """Turns to scramble it with, as in `R U' F2`; empty: random ones, which the seed decides."""
    scramble_length: int = 20
    """How many random turns."""

    def validate(self) -> None:
        super().validate()
        if self.scramble_length < 1:
            raise ConfigError(f"env.scramble_length: must be at least 1, got {self.scramble_length}")
        try:
            parse_turns(self.scramble)
        except UsageError as error:
            raise ConfigError(f"env.scramble: {error}") from None

    def turns(self, seed: int) -> tuple[Turn, ...]:
        """The scramble."""
        return parse_turns(self.scramble) or scramble(seed, self.scramble_length)


def env_cfg() -> RubiksEnvCfg:
    """A cube on a stand at 100 Hz."""
    cube = ArticulationCfg(spec=cube_spec, init_state=InitialStateCfg(pos=(0.0, 0.0, HEIGHT)))
    return RubiksEnvCfg(
        simulation=SimulationCfg(dt=0.01),
        scene=SceneCfg(env_spacing=0.6, entities={"cube": cube}, terrain=PlaneCfg()),
        actions={"cubies": CubieServoCfg()},
        playback=scramble_and_solve,
    )


def task() -> TaskCfg:
    """GeneLab-Rubiks-Play-v0."""
    return playback_task(env_cfg())
