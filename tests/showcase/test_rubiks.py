"""The cube that turns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
import torch

from genelab.envs import ManagerBasedEnv, make_env
from genelab.errors import ConfigError
from genelab_showcase.cube import HOMES, layer, looks_solved, places, run, scramble, solved
from genelab_showcase.rubiks import (
    EDGE,
    GAP,
    HEIGHT,
    PITCH,
    REST_S,
    TURN_S,
    RubiksEnvCfg,
    cube_spec,
    env_cfg,
    make_script,
    scramble_and_solve,
)
from tests.published import rotation

STEPS_PER_TURN = 70


def cfg_with(scramble: str = "", num_envs: int = 1) -> RubiksEnvCfg:
    cfg = env_cfg()
    cfg.scramble, cfg.scene.num_envs, cfg.simulation.precision = scramble, num_envs, 64
    return cfg


@pytest.fixture
def env(request: pytest.FixtureRequest) -> Iterator[ManagerBasedEnv]:
    env = make_env(cfg_with(*getattr(request, "param", ())))
    env.reset(seed=5)
    yield env
    env.close()


def play(env: ManagerBasedEnv, steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        env.step(scramble_and_solve(env, step))


def poses(env: ManagerBasedEnv, i: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the cubies as seen from that of the cube, m, and their rotations."""
    cube = env.scene["cube"]
    cubies = cube.find_bodies(r"cubie\d+")
    centres = cube.body_com_pos_w[i, cubies].numpy() - (0.0, 0.0, HEIGHT)
    return centres, np.stack([rotation(quat) for quat in cube.body_quat_w[i, cubies].numpy()])


def assert_poses(env: ManagerBasedEnv, state: np.ndarray, i: int = 0) -> None:
    """Every cubie is where the state has it, within a tenth of a millimetre, and lies there as the state says."""
    centres, rotations = poses(env, i)
    assert np.linalg.norm(centres - PITCH * places(state), axis=1).max() < 1e-4
    assert np.abs(rotations - state).max() < 2e-3


def test_the_cubies_are_as_published() -> None:
    model = cube_spec().compile()
    cubies = [i for i in range(model.nbody) if model.body(i).name.startswith("cubie")]
    assert len(cubies) == 26
    np.testing.assert_allclose(model.body_mass[cubies], 0.05**3 * 500)
    np.testing.assert_allclose(model.body_ipos[cubies], 0.0515 * HOMES, atol=1e-12)
    solid = np.flatnonzero(model.geom_contype)
    assert len(solid) == 26
    np.testing.assert_allclose(model.geom_size[solid], EDGE / 2)
    assert (model.geom_friction[solid, 0] == 1.2).all()
    assert (EDGE, GAP, HEIGHT) == (0.05, 0.0015, 0.25)
    assert (model.njnt, model.nv) == (26, 78)


def test_every_face_has_nine_stickers_of_its_colour_and_no_other() -> None:
    model = cube_spec().compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    out = data.geom_xpos / (1.5 * PITCH)
    faces: dict[tuple[int, ...], Counter[tuple[float, ...]]] = {}
    for geom in np.flatnonzero((model.geom_contype == 0) & (model.geom_bodyid > 1)):
        axis = int(np.argmax(np.abs(out[geom])))
        side = tuple(int(np.sign(out[geom, axis])) * (i == axis) for i in range(3))
        faces.setdefault(side, Counter())[tuple(model.geom_rgba[geom].tolist())] += 1
    assert len(faces) == 6
    assert all(list(colours.values()) == [9] for colours in faces.values())
    assert len({colour for colours in faces.values() for colour in colours}) == 6


def test_after_a_whole_round_every_cubie_is_at_home(env: ManagerBasedEnv) -> None:
    states = run(solved(), scramble(5, 20))
    play(env, 20 * STEPS_PER_TURN)
    assert_poses(env, states[-1])
    assert not looks_solved(states[-1])
    play(env, 20 * STEPS_PER_TURN, start=20 * STEPS_PER_TURN)
    assert_poses(env, solved())
    play(env, STEPS_PER_TURN, start=40 * STEPS_PER_TURN)  # and the next round begins with the same turn
    assert_poses(env, states[1])


def test_on_the_way_the_poses_are_those_of_the_state(env: ManagerBasedEnv) -> None:
    states = run(solved(), scramble(5, 20))
    for i in range(8):
        play(env, STEPS_PER_TURN, start=i * STEPS_PER_TURN)
        assert_poses(env, states[i + 1])


@pytest.mark.parametrize("env", [("R U2",)], indirect=True)
def test_a_layer_turns_as_one_and_the_rest_stays(env: ManagerBasedEnv) -> None:
    moved = layer(solved(), "R")
    play(env, 30)
    centres, rotations = poses(env)
    np.testing.assert_allclose(rotations[moved], np.tile(rotations[moved][0], (9, 1, 1)), atol=1e-5)
    np.testing.assert_allclose(rotations[~moved], np.tile(np.eye(3), (17, 1, 1)), atol=1e-6)
    angle = math.atan2(rotations[moved][0][2, 1], rotations[moved][0][1, 1])
    assert -1.2 < angle < -0.3  # clockwise from the right
    np.testing.assert_allclose(centres[moved][:, 0], PITCH, atol=1e-6)


@pytest.mark.parametrize("env", [("R U' F2 D B2 L'",)], indirect=True)
def test_nothing_touches(env: ManagerBasedEnv) -> None:
    """The gap of 1.5 mm is enough for layers that are driven by torques."""
    model = env.scene.engine.model
    data = mujoco.MjData(model)
    for step in range(6 * STEPS_PER_TURN):
        play(env, 1, start=step)
        if step % 5 == 0:
            data.qpos[:] = env.scene.engine.qpos[0].numpy()
            mujoco.mj_fwdPosition(model, data)
            assert data.ncon == 0


def test_a_cubie_that_is_pushed_comes_back(env: ManagerBasedEnv) -> None:
    env.scene.engine.write_qvel(torch.tensor([[5.0, -5.0, 0.0]]), slice(0, 3), None)
    hold = torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(1, 26)
    env.step(hold)
    assert np.linalg.norm(poses(env)[0] - PITCH * HOMES, axis=1).max() > 1e-3
    for _ in range(40):
        env.step(hold)
    assert_poses(env, solved())


@pytest.mark.parametrize("env", [("", 2)], indirect=True)
def test_every_environment_has_a_scramble_of_its_own(env: ManagerBasedEnv) -> None:
    play(env, 3 * STEPS_PER_TURN)
    for i in range(2):
        assert_poses(env, run(solved(), scramble(5 + i, 3))[-1], i)


def test_the_script_is_in_seconds_and_goes_round() -> None:
    script = make_script(scramble(0, 4))
    assert len(script.turns) == 8
    period = TURN_S + REST_S
    np.testing.assert_allclose(script.orientations(3 * period - 1e-3), script.orientations(2 * period + TURN_S))
    np.testing.assert_allclose(script.orientations(0.31), script.orientations(8 * period + 0.31))
    before, after = script.orientations(1.3 * period), script.orientations(1.3 * period + 1e-3)
    assert 0 < np.abs(after - before).max() < 0.01


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scramble", "R Q", "env.scramble: 'Q' is no turn of a cube"),
        ("scramble_length", 0, "env.scramble_length: must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_turned_is_refused(field: str, value: object, message: str) -> None:
    cfg = env_cfg()
    setattr(cfg, field, value)
    with pytest.raises(ConfigError, match=message):
        make_env(cfg)
