"""Rubik's cube as mathematics: 26 cubies, each turned by one of the 24 rotations of a cube.

The axes are those of a person in front of it: x to the right, y away, z up. A turn moves a layer about the centre of
the whole cube, so a single rotation tells both where a cubie is and how it lies there: it came from `HOMES[i]` and is
at `state[i] @ HOMES[i]`. All numbers are integers, and nothing is ever rounded.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from genelab.errors import UsageError

State = np.ndarray
"""Rotations of the cubies, `(26, 3, 3)`, each a matrix of −1, 0 and 1."""

HOMES = np.array([place for place in itertools.product((-1, 0, 1), repeat=3) if any(place)])
"""Where each cubie is in the solved cube, `(26, 3)`: −1, 0 or 1 along each axis."""

FACES = {"R": (1, 0, 0), "L": (-1, 0, 0), "F": (0, -1, 0), "B": (0, 1, 0), "U": (0, 0, 1), "D": (0, 0, -1)}
"""The way out of each face."""

_QUARTERS = {"": 1, "2": 2, "'": -1}
_SUFFIXES = {quarters: suffix for suffix, quarters in _QUARTERS.items()}


@dataclass(frozen=True)
class Turn:
    """One turn of a face."""

    face: str
    """Which one, a letter of `FACES`."""
    quarters: int
    """How far, in quarters clockwise as seen from outside: 1, 2 or −1."""

    def __str__(self) -> str:
        return self.face + _SUFFIXES[self.quarters]

    @property
    def inverse(self) -> Turn:
        """The turn that undoes this one."""
        return Turn(self.face, self.quarters if self.quarters == 2 else -self.quarters)

    @property
    def rotation(self) -> np.ndarray:
        """What it does to the layer, `(3, 3)`: clockwise is against the right-hand rule about the way out."""
        x, y, z = FACES[self.face]
        quarter = np.outer((x, y, z), (x, y, z)) - np.array([(0, -z, y), (z, 0, -x), (-y, x, 0)])
        return np.linalg.matrix_power(quarter, self.quarters % 4)


def solved() -> State:
    """Every cubie at home."""
    return np.tile(np.eye(3, dtype=int), (len(HOMES), 1, 1))


def places(state: State) -> np.ndarray:
    """Where each cubie is, `(26, 3)`."""
    return np.einsum("nij,nj->ni", state, HOMES)


def layer(state: State, face: str) -> np.ndarray:
    """Which cubies a turn of this face moves, `(26,)`: nine."""
    return places(state) @ FACES[face] == 1


def apply(state: State, turn: Turn) -> State:
    """The cube after a turn."""
    moved = layer(state, turn.face)
    return np.where(moved[:, None, None], turn.rotation @ state, state)


def run(state: State, turns: Sequence[Turn]) -> list[State]:
    """The cube before the first turn and after each of them."""
    return list(itertools.accumulate(turns, apply, initial=state))


def looks_solved(state: State) -> bool:
    """Whether every face is of one colour; the middle of a face may lie turned, for nobody sees it."""
    middle = np.abs(HOMES).sum(axis=1) == 1
    return bool((places(state) == HOMES).all() and (state == solved())[~middle].all())


def undo(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns that take the cube back to where it was before these."""
    return tuple(turn.inverse for turn in reversed(turns))


def scramble(seed: int, length: int) -> tuple[Turn, ...]:
    """Random turns; no two in a row are of the same face."""
    rng = random.Random(seed)
    turns: list[Turn] = []
    while len(turns) < length:
        turn = Turn(rng.choice(list(FACES)), rng.choice(list(_SUFFIXES)))
        if not turns or turn.face != turns[-1].face:
            turns.append(turn)
    return tuple(turns)


def parse_turns(text: str) -> tuple[Turn, ...]:
    """Turns from their notation: a face is a letter, `R U' F2` are a quarter, a quarter back and a half."""
    turns = []
    for word in text.split():
        face, suffix = word[:1], word[1:]
        if face not in FACES or suffix not in _QUARTERS:
            raise UsageError(f"{word!r} is no turn of a cube; write one of {' '.join(FACES)}, alone or with ' or 2")
        turns.append(Turn(face, _QUARTERS[suffix]))
    return tuple(turns)
