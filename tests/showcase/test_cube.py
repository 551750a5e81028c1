"""The cube as mathematics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from genelab.errors import UsageError
from genelab_showcase.cube import (
    FACES,
    HOMES,
    apply,
    layer,
    looks_solved,
    parse_turns,
    places,
    run,
    scramble,
    solved,
    undo,
)

KINDS = np.abs(HOMES).sum(axis=1)
"""1: the middle of a face, 2: an edge, 3: a corner."""


def after(text: str) -> np.ndarray:
    return run(solved(), parse_turns(text))[-1]


def cubie(*home: int) -> int:
    return HOMES.tolist().index(list(home))


def test_there_are_six_middles_twelve_edges_and_eight_corners() -> None:
    assert np.bincount(KINDS).tolist() == [0, 6, 12, 8]


@pytest.mark.parametrize("face", FACES)
def test_a_face_moves_nine_cubies_and_four_turns_bring_them_back(face: str) -> None:
    assert layer(solved(), face).sum() == 9
    once = after(face)
    assert (places(once) != HOMES).any(axis=1).sum() == 8  # the middle stays
    assert not looks_solved(once)
    assert (after(f"{face} {face} {face} {face}") == solved()).all()
    assert (after(f"{face} {face}") == after(f"{face}2")).all()
    assert (after(f"{face} {face} {face}") == after(f"{face}'")).all()


@pytest.mark.parametrize(
    ("turn", "start", "end"),
    [
        ("R", (1, -1, 1), (1, 1, 1)),  # what is in front goes up and back
        ("L", (-1, -1, 1), (-1, -1, -1)),
        ("U", (1, -1, 1), (-1, -1, 1)),  # what is in front goes left
        ("D", (1, -1, -1), (1, 1, -1)),
        ("F", (-1, -1, 1), (1, -1, 1)),  # what is up goes right
        ("B", (1, 1, 1), (-1, 1, 1)),
        ("F'", (1, -1, 1), (-1, -1, 1)),
        ("U2", (1, -1, 1), (-1, 1, 1)),
    ],
)
def test_turns_are_clockwise_from_outside(turn: str, start: tuple[int, ...], end: tuple[int, ...]) -> None:
    assert tuple(places(after(turn))[cubie(*start)]) == end


@pytest.mark.parametrize(
    ("text", "order"), [("R U R' U'", 6), ("R U", 105), ("R U2 D' B D'", 1260), ("R L", 4), ("R2 U2", 6)]
)
def test_known_orders(text: str, order: int) -> None:
    """How often a sequence is to be repeated until the cube looks solved; 1260 is the most there is."""
    state, turns = solved(), parse_turns(text)
    for i in range(1, order + 1):
        state = run(state, turns)[-1]
        assert looks_solved(state) == (i == order)


def test_the_superflip_turns_every_edge_over_where_it_is() -> None:
    state = after("U R2 F B R B2 R U2 L B2 R U' D' R2 F R' L B2 U2 F2")
    assert (places(state) == HOMES).all()
    assert (state == solved())[KINDS == 3].all()
    assert all((rotation != np.eye(3)).any() for rotation in state[KINDS == 2])


def test_rotations_stay_rotations_of_a_cube() -> None:
    state = run(solved(), scramble(3, 50))[-1]
    assert state.dtype == solved().dtype
    assert (np.abs(state).sum(axis=1) == 1).all()
    assert (np.linalg.det(state).round(9) == 1).all()
    assert sorted(places(state).tolist()) == sorted(HOMES.tolist())  # a permutation


@pytest.mark.parametrize("seed", range(20))
def test_a_scramble_and_its_solve_end_where_they_began(seed: int) -> None:
    turns = scramble(seed, 20)
    states = run(solved(), (*turns, *undo(turns)))
    assert len(states) == 41
    assert (states[-1] == states[0]).all()
    assert not any(looks_solved(state) for state in states[1:-1])


def test_a_scramble_is_its_seeds_and_wastes_no_turn() -> None:
    turns = scramble(7, 30)
    assert len(turns) == 30
    assert turns == scramble(7, 30)
    assert turns != scramble(8, 30)
    assert all(first.face != second.face for first, second in itertools.pairwise(turns))
    assert {turn.face for turn in turns} == set(FACES)


def test_notation_is_read_and_written() -> None:
    text = "R U' F2 D B' L2"
    assert " ".join(map(str, parse_turns(text))) == text
    assert " ".join(map(str, undo(parse_turns(text)))) == "L2 B D' F2 U R'"
    assert parse_turns("") == ()


@pytest.mark.parametrize("word", ["X", "r", "R3", "RU", "R''"])
def test_what_is_no_turn_is_named(word: str) -> None:
    with pytest.raises(UsageError, match=f"'?{word}.* is no turn of a cube; write one of R L F B U D"):
        parse_turns(f"R {word}")


def test_a_turn_leaves_the_state_before_it_alone() -> None:
    before = solved()
    apply(before, parse_turns("R")[0])
    assert (before == solved()).all()
