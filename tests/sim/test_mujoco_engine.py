"""The MuJoCo engine: the contract of engines, and what is its own."""

from __future__ import annotations

import random
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from genelab.errors import ConfigError, UsageError
from genelab.sim import ContactQuery, Engine, ModelError, SimulationCfg, apply_options, create_engine
from genelab.sim.mujoco_engine import MujocoEngine
from genelab.testing import EngineContract

CART = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="box" size=".1 .1 .1" mass="2" contype="0" conaffinity="0"/>
      <body name="pole" pos="0 0 .1">
        <joint name="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 1" size=".02" mass=".5" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="slide" joint="slide" kp="50" kv="5"/></actuator>
</mujoco>
"""

BOX = """
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="0 0 .1"/>
    <body name="box" pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1" mass="2"/></body>
    <body name="other" pos="5 0 .1"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>
  </worldbody>
  <sensor>
    <contact name="any" body1="box" num="1" data="found force" reduce="netforce"/>
    <contact name="pair" body1="box" body2="other" num="1" data="found force" reduce="netforce"/>
  </sensor>
</mujoco>
"""

QUERIES = (ContactQuery(sensor="any", body="box"), ContactQuery(sensor="pair", body="box", other="other"))


def make(xml: str = CART, num_envs: int = 4, contacts: tuple[ContactQuery, ...] = (), **sim: Any) -> Engine:
    cfg = SimulationCfg(precision=64, **sim)
    spec = mujoco.MjSpec.from_string(xml)
    apply_options(cfg, spec)
    return create_engine(cfg, spec, num_envs, contacts)


class TestMujocoEngine(EngineContract):
    engine = "mujoco"


def test_a_step_is_mujocos_step() -> None:
    engine = make()
    data = mujoco.MjData(engine.model)
    engine.write_qpos(torch.tensor([[0.1, 0.2]] * 4).double(), slice(None), None)
    data.qpos[:] = engine.qpos[0]
    for i in range(20):
        engine.write_ctrl(torch.full((4, 1), 0.01 * i).double(), [0])
        engine.step(3)
        data.ctrl[:] = engine.ctrl[0]
        for _ in range(3):
            mujoco.mj_step(engine.model, data)
    np.testing.assert_array_equal(engine.qpos[2].numpy(), data.qpos)
    np.testing.assert_array_equal(engine.qvel[2].numpy(), data.qvel)


def test_many_degrees_of_freedom_are_solved_as_few_are() -> None:
    """A tangle of hinges, 76 degrees of freedom with 315 contacts, against a solver that factors no Hessian."""
    draw = random.Random(6)
    spec = mujoco.MjSpec()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 0.1])
    bodies = [spec.worldbody.add_body(pos=[0, 0, 0.1])]
    bodies[0].add_freejoint()
    for _ in range(70):
        pos = [draw.uniform(-0.1, 0.1) for _ in range(3)]
        bodies.append(bodies[draw.randrange(len(bodies))].add_body(pos=pos))
        bodies[-1].add_joint(axis=[draw.random() for _ in range(3)])
    for body in bodies:
        body.add_geom(size=[0.05, 0, 0], mass=0.3)
    cfg = SimulationCfg(precision=64)
    apply_options(cfg, spec)
    engine = create_engine(cfg, spec, 1)
    engine.step(1)
    spec.option.solver, spec.option.iterations = mujoco.mjtSolver.mjSOL_CG, 10_000
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    assert (model.nv, data.ncon) == (76, 315)
    np.testing.assert_allclose(engine.qvel[0], data.qvel, atol=1e-3 * np.abs(data.qvel).max())


def test_lagged_kinematics_are_one_substep_old_but_joints_are_not() -> None:
    fresh, lagged = make(), make(fresh_kinematics=False)
    for engine in (fresh, lagged):
        engine.write_qvel(torch.ones(4, 2), slice(None), None)
        engine.step(2)
    torch.testing.assert_close(lagged.qpos, fresh.qpos, rtol=0, atol=0)
    before = make()
    before.write_qvel(torch.ones(4, 2), slice(None), None)
    before.step(1)
    torch.testing.assert_close(lagged.body_pos, before.body_pos, rtol=0, atol=0)


def test_bodies_are_to_the_bit_where_mujoco_has_them_at_the_end_of_the_step() -> None:
    engine = make(BOX, contacts=QUERIES)
    engine.write_qvel(torch.tensor([[1.0, 0.5, 0.25, 0.125, -0.5, 0.75] * 2] * 4), slice(None), None)
    engine.step(7)
    data = mujoco.MjData(engine.model)
    data.qvel[:] = [1.0, 0.5, 0.25, 0.125, -0.5, 0.75] * 2
    mujoco.mj_step(engine.model, data, 7)
    force = data.sensordata[1:4].copy()
    mujoco.mj_forward(engine.model, data)
    for ours, theirs in (
        (engine.body_pos, data.xpos),
        (engine.body_quat, data.xquat),
        (engine.body_com_pos, data.xipos),
    ):
        np.testing.assert_array_equal(ours[2], theirs)
    np.testing.assert_array_equal(engine.body_ang_vel[2], data.cvel[:, :3])
    np.testing.assert_array_equal(engine.contact_force[2, 0], -force)  # reading of bodies leaves the last substep's


def test_a_body_that_nobody_reads_costs_nothing_and_one_that_is_read_waits_for_the_refresh() -> None:
    engine = make()
    engine.step(3)
    assert isinstance(engine, MujocoEngine)
    assert engine._bodies is None
    start = engine.body_pos.clone()
    engine.write_qpos(torch.tensor([[0.5]]), [0], torch.tensor([1]))
    assert torch.equal(engine.body_pos, start)
    engine.refresh()
    assert engine.body_pos[:, 1, 0].tolist() == [0.0, 0.5, 0.0, 0.0]
    engine.step(1)
    after = engine.qpos[:, 0].clone()
    for place in (0.9, 0.75):
        engine.write_qpos(torch.tensor([[place]]), [0], torch.tensor([1]))
    assert torch.equal(engine.body_pos[:, 1, 0], after)  # of the step, though nobody had read of it before the writes
    engine.write_qpos(torch.tensor([[0.25]]), [0], torch.tensor([1]))
    assert torch.equal(engine.body_pos[:, 1, 0], after)
    engine.refresh()
    assert engine.body_pos[1, 1, 0] == 0.25


def test_bodies_follow_model_fields_that_an_environment_has_of_its_own() -> None:
    engine = make()
    assert engine.body_pos[3, 2].tolist() == [0.0, 0.0, 0.1]
    engine.set_model_field("body_pos", torch.tensor([[[0.0, 0.0, 0.75]]]), [2], torch.tensor([3]))
    engine.refresh()
    assert engine.body_pos[:, 2, 2].tolist() == [0.1, 0.1, 0.1, 0.75]


def test_reset_gives_the_initial_state_and_forgets_the_solver() -> None:
    engine = make(BOX)
    engine.step(50)
    engine.reset(torch.tensor([1]))
    engine.refresh()
    state = engine.state_dict()["state"]
    untouched = make(BOX)
    untouched.refresh()
    assert torch.equal(state[1], untouched.state_dict()["state"][1])
    assert not torch.equal(state[0], state[1])


def test_an_environment_with_an_initial_state_of_its_own_is_reset_to_it() -> None:
    engine = make()
    engine.set_model_field("qpos0", torch.tensor([[0.5]]), [0], torch.tensor([1]))
    engine.step(3)
    engine.reset(None)
    assert engine.qpos.tolist() == [[0.0, 0.0], [0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_contact_force_is_the_weight_and_filtered_by_the_other_body() -> None:
    engine = make(BOX, contacts=QUERIES)
    engine.step(400)
    torch.testing.assert_close(
        engine.contact_force[:, 0], torch.tensor([[0, 0, 2 * 9.81]] * 4).double(), rtol=1e-3, atol=1e-3
    )
    assert engine.contact_count[:, 0].tolist() == [4.0] * 4
    assert engine.contact_force[:, 1].abs().max() == 0.0


def test_after_a_reset_contacts_are_those_of_the_new_state() -> None:
    engine = make(BOX, contacts=QUERIES)
    engine.step(400)
    engine.write_qpos(torch.tensor([[3.0]]), [2], torch.tensor([0]))
    engine.refresh()
    assert engine.contact_force[0].abs().max() == 0.0
    assert engine.contact_force[1, 0, 2].item() == pytest.approx(2 * 9.81, rel=1e-3)


def test_each_environment_has_its_own_mass() -> None:
    engine = make(BOX, gravity=(0.0, 0.0, 0.0))
    masses = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    engine.set_model_field("body_mass", masses, [1], None)
    assert engine.get_model_field("body_mass")[:, 1].tolist() == [1, 2, 4, 8]
    assert engine.get_model_field("body_subtreemass")[:, 1].tolist() == [1, 2, 4, 8]  # constants follow
    engine.write_wrench(torch.tensor([[[1.0, 0, 0]]] * 4), torch.zeros(4, 1, 3), [1], None)
    engine.step(1)
    torch.testing.assert_close(engine.qvel[:, 0], 0.005 / masses[:, 0].double())


def _rollout(threads: int, order: torch.Tensor) -> torch.Tensor:
    engine = make(BOX, num_envs=len(order), threads=threads)
    generator = torch.Generator().manual_seed(0)
    heights = torch.rand(len(order), 1, generator=generator)
    spins = torch.rand(len(order), 3, generator=generator)
    engine.write_qpos(heights[order], [2], None)
    engine.write_qvel(spins[order], [3, 4, 5], None)
    for _ in range(50):
        engine.step(4)
    return engine.qpos


def test_results_do_not_depend_on_threads() -> None:
    order = torch.arange(16)
    assert torch.equal(_rollout(1, order), _rollout(2, order))
    assert torch.equal(_rollout(1, order), _rollout(5, order))


def test_results_do_not_depend_on_the_place_in_the_batch() -> None:
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(_rollout(2, torch.arange(16))[order], _rollout(2, order))


def test_a_model_that_does_not_compile_is_one_line() -> None:
    spec = mujoco.MjSpec()
    spec.worldbody.add_body(name="ghost").add_joint(name="j")
    with pytest.raises(ModelError, match=r"does not compile: .*mass") as caught:
        create_engine(SimulationCfg(), spec, 1)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_gpu_without_cuda_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(UsageError, match=r"`env\.simulation\.gpu`: no CUDA device"):
        create_engine(SimulationCfg(gpu=True), mujoco.MjSpec.from_string(CART), 1)


@pytest.mark.parametrize("bad", [{"dt": 0.0}, {"dt": -1.0}, {"steps": -1}, {"threads": -2}])
def test_bad_simulation_settings_name_the_field(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"env.simulation.{next(iter(bad))}"):
        SimulationCfg(**bad).validate()


def test_auto_is_mujoco_on_the_cpu_and_genesis_on_the_gpu() -> None:
    assert SimulationCfg().resolved_engine() == "mujoco"
    assert SimulationCfg(gpu=True).resolved_engine() == "genesis"
    assert SimulationCfg(gpu=True, engine="mujoco").resolved_engine() == "mujoco"


def test_a_model_without_contact_sensors_has_no_contacts() -> None:
    assert make().contact_force.shape == (4, 0, 3)
    assert make().contact_count.shape == (4, 0)


def test_who_looks_at_a_written_state_does_not_change_what_follows() -> None:
    """Boxes on the ground, pushed: what derives from the push is computed for who reads it, and for nobody else."""
    watched, alone = make(BOX, contacts=QUERIES), make(BOX, contacts=QUERIES)
    for engine in (watched, alone):
        engine.step(50)
        engine.write_qvel(torch.tensor([[0.7, 0.3]]).double(), slice(0, 2), torch.tensor([1]))
        engine.refresh()
    assert watched.body_lin_vel[1, 1, :2].tolist() == pytest.approx([0.7, 0.3])
    assert torch.equal(watched.state_dict()["state"], alone.state_dict()["state"])
    assert torch.equal(watched.contact_force, alone.contact_force)
    for engine in (watched, alone):
        engine.step(5)
    assert torch.equal(watched.qpos, alone.qpos)
