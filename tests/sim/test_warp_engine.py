"""MuJoCo Warp keeps the contract of engines; and what only it does: recorded steps, buffers, nothing that waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import mujoco
import pytest
import torch

from genelab.errors import ConfigError
from genelab.sim import ContactQuery, ModelError, SimulationCfg, add_contact_sensor, apply_options, create_engine
from genelab.sim.warp_engine import WarpEngine, no_word_of_cuda
from genelab.sim.warp_model import room
from genelab.testing import EngineContract
from genelab.testing.engine import WORLD
from tests.narrow import as_kind
from tests.transfers import Transfers

pytestmark = pytest.mark.xdist_group("warp")  # one process compiles the kernels

QUERIES = (
    ContactQuery(sensor="box", body="box"),
    ContactQuery(sensor="box_ground", body="box", other="world", subtree=True),
)


class TestContract(EngineContract):
    engine = "warp"
    precision = 32
    tolerance = 1e-4  # of 30 steps in 32 bits, accelerations included
    refused: ClassVar = {
        '<mujoco><option><flag sleep="enable"/></option></mujoco>': "bodies that fall asleep",
        '<mujoco><option solver="PGS"/></mujoco>': "the solver PGS",
        '<mujoco><option><flag fwdinv="enable"/></option></mujoco>': r"this model \(.*FWDINV",
    }


def build(num_envs: int = 2, **settings: Any) -> tuple[WarpEngine, list[str]]:
    """The contract's world, and what the engine remarks on."""
    said: list[str] = []
    cfg = SimulationCfg(engine="warp")
    cfg.engine_settings["warp"] |= settings
    spec = mujoco.MjSpec.from_string(WORLD)
    apply_options(cfg, spec)
    for query in QUERIES:
        add_contact_sensor(spec, query)
    return as_kind(create_engine(cfg, spec, num_envs, QUERIES, notify=said.append), WarpEngine), said


@pytest.fixture(scope="module")
def engine() -> Iterator[WarpEngine]:
    built, _ = build()
    yield built
    built.close()


def test_a_recorded_step_is_the_step(engine: WarpEngine) -> None:
    """The first time it is run, the second time recorded, from then on replayed: the same bits each time."""
    paths = []
    for _ in range(3):
        engine.reset(None)
        engine._graphs.clear()
        engine._loaded.clear()
        engine.write_qvel(torch.ones(2, 1), [1], None)
        path = []
        for _ in range(4):
            engine.step(3)
            path.append(torch.cat((engine.qpos, engine.qvel, engine.body_lin_vel[:, 1]), dim=1))
        paths.append(torch.stack(path))
        assert list(engine._graphs) == [("step", 3)]
    engine.reset(None)
    engine.write_qvel(torch.ones(2, 1), [1], None)
    for i in range(4):
        engine.step(3)  # all replayed
        assert torch.equal(engine.qpos, paths[0][i, :, : engine.model.nq])
    assert torch.equal(paths[0], paths[1])
    assert torch.equal(paths[0], paths[2])


def test_own_model_fields_are_recorded_anew(engine: WarpEngine) -> None:
    """A graph knows arrays by their address; one with a row per environment is another array."""
    engine.reset(None)
    for _ in range(3):
        engine.step(10)
    engine.reset(None)
    gravity = engine.get_model_field("opt.gravity")
    assert gravity.tolist() == [[0.0, 0.0, pytest.approx(-9.81)]] * 2
    engine.set_model_field("opt.gravity", torch.tensor([[0.0, 0.0, 2.0]]), slice(None), torch.tensor([1]))
    for _ in range(3):
        engine.step(10)
    height = engine.body_pos[:, engine.model.body("box").id, 2] - 0.1
    duration = 30 * engine.model.opt.timestep
    assert height.tolist() == pytest.approx([0.0, 2.0 * duration**2 / 2], abs=2e-3)  # one lies, one rises
    engine.set_model_field("opt.gravity", gravity, slice(None), None)


def test_what_it_has_one_value_of_is_not_randomised(engine: WarpEngine) -> None:
    with pytest.raises(ConfigError, match="the MuJoCo Warp engine cannot randomise 'geom_condim'"):
        engine.get_model_field("geom_condim")
    with pytest.raises(ConfigError, match="cannot change geom_pos of what never moves: 'world'"):
        engine.set_model_field("geom_pos", torch.zeros(2, 1, 3), [0], None)
    nothing = torch.zeros(0, dtype=torch.int64)
    engine.set_model_field("body_mass", torch.zeros(0, 1), [1], nothing)


def test_buffers_that_are_too_small_are_counted_and_named() -> None:
    engine, said = build(nconmax=1)
    said.clear()
    for _ in range(12):
        engine.step(1)
    (first, second) = said  # at the first, and when there are ten times as many
    assert first == (
        "MuJoCo Warp dropped contacts in 2 steps of environments: raise `env.simulation.engine_settings.warp.nconmax` "
        "above 1"
    )
    assert "in 20 steps" in second
    assert engine.overflows["NARROWPHASE"] >= 20
    engine.close()
    engine, said = build(njmax=8)
    said.clear()
    for _ in range(3):  # it touches the ground in the second
        engine.step(1)
    engine.close()
    assert [line.partition("raise ")[2] for line in said] == ["`env.simulation.engine_settings.warp.njmax` above 8"]


def test_room_is_for_what_the_model_has() -> None:
    model = mujoco.MjModel.from_xml_string(WORLD)
    assert room(model) == (16, 16 * 4 + model.nv)  # one box of eight corners; four rows for a pyramid
    model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    assert room(model) == (16, 16 * 3 + model.nv)
    many = "".join(f'<body><freejoint/><geom size=".1" condim="{dim}"/></body>' for dim in (1, 3, 4, 6, 1, 1))
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{many}</worldbody></mujoco>")
    assert room(model) == (24, 24 * 10 + model.nv)


def test_it_tells_of_its_precision_and_its_core_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WarpEngine, "_remarks", set())
    said: list[str] = []
    for _ in range(2):
        WarpEngine.start(SimulationCfg(engine="warp", precision=64), said.append)
    assert len(said) == 2
    assert "one core of the CPU" in said[0]
    assert "computes in 32 bits" in said[1]


def test_where_nobody_asked_for_a_gpu_nothing_is_said_of_cuda(capfd: pytest.CaptureFixture[str]) -> None:
    """Warp's library writes it to the process's stderr by itself; what others write there is kept."""
    start = "WarpEngine.start(SimulationCfg(engine='warp'), lambda remark: None)"
    program = f"from genelab.sim.warp_engine import SimulationCfg, WarpEngine; {start}"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert capfd.readouterr().err == ""
    line = "Warp CUDA warning: Could not find or load the NVIDIA CUDA driver. GPU execution will not be available.\n"
    for quiet, heard in ((True, "else\n"), (False, f"{line}else\n")):
        with no_word_of_cuda(quiet=quiet):
            os.write(2, f"{line}else\n".encode())
        assert capfd.readouterr().err == heard


def test_a_slow_start_is_explained_once() -> None:
    engine, said = build()
    for _ in range(2):
        engine._announce("MuJoCo Warp compiles")
    engine.close()
    assert len([line for line in said if "Warp compiles" in line]) == 1  # a slow machine has said it already


def test_a_model_that_only_it_refuses_names_the_reason() -> None:
    spec = mujoco.MjSpec.from_string('<mujoco><option><flag fwdinv="enable"/></option></mujoco>')
    with pytest.raises(ModelError, match=r"cannot express this model \(.*\); use the MuJoCo engine"):
        create_engine(SimulationCfg(engine="warp"), spec, 1)


def test_nothing_in_a_step_waits_for_the_device(engine: WarpEngine) -> None:
    """Every operation that the engine asks torch and Warp for, of a loop with everything in it."""
    some, one = torch.tensor([1]), torch.zeros(1, 1)
    bodies, geoms, first = torch.tensor([1, 2]), torch.tensor([3]), torch.tensor([0])
    friction = engine.get_model_field("geom_friction")
    for _ in range(3):  # run, recorded, replayed
        with Transfers() as transfers:
            engine.write_ctrl(torch.zeros(2, 2), slice(None))
            engine.write_ctrl(one, [0], some)
            engine.write_wrench(torch.zeros(2, 2, 3), torch.zeros(2, 2, 3), bodies, None)
            engine.step(2)
            read_all(engine)
            engine.reset(some)
            engine.write_qpos(one, [0], some)
            engine.write_qvel(one, first, some)
            engine.set_model_field("geom_friction", friction[:1, 3:], geoms, some)
            engine.refresh()
            read_all(engine)
            _ = engine.unconverged, engine.solved
    assert transfers.found == []


def read_all(engine: WarpEngine) -> None:
    for name in ("qpos", "qvel", "ctrl", "actuator_force", "qacc", "body_pos", "body_quat", "body_lin_vel"):
        getattr(engine, name)
    for name in ("body_ang_vel", "body_com_pos", "contact_force", "contact_count"):
        getattr(engine, name)
    engine.velocity_at(slice(1, None), engine.body_pos[:, 1:])


def test_the_watch_for_transfers_finds_them() -> None:
    values, mask = torch.ones(3), torch.tensor([True, False, True])
    for transfer in (
        lambda: values.sum().item(),
        lambda: bool(mask.any()),
        lambda: values.cpu(),
        lambda: values.numpy(),
        lambda: values.tolist(),
        lambda: mask.nonzero(),
        lambda: values[mask],
        lambda: torch.tensor([1.0, 2.0]),
    ):
        with Transfers() as transfers:
            transfer()
        assert transfers.found, transfer
    with Transfers() as transfers:
        torch.where(mask, values, 0.0).clone().index_fill_(0, torch.arange(2), 1.0)
    assert transfers.found == []
