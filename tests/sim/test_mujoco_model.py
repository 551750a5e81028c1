"""The model that MuJoCo steps is leaner than the one that is drawn, and the same physics to the bit."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from mujoco.batch import Batch

from genelab.errors import ConfigError
from genelab.sim import EngineError, SimulationCfg, create_engine
from genelab.sim.mujoco_model import lean_model

DRAWN = 'contype="0" conaffinity="0"'
HOPPER = f"""
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 0.1"/>
    <geom name="post" type="box" pos="2 0 1" size="0.1 0.1 1" {DRAWN}/>
    <body name="trunk" pos="0 0 0.6">
      <freejoint/>
      <geom name="belly" type="capsule" size="0.08" fromto="-0.1 0 0 0.1 0 0.02"/>
      <geom name="shell" type="box" pos="0.02 0.01 0.05" size="0.2 0.1 0.05" mass="0.7" {DRAWN}/>
      <body name="leg" pos="0 0 -0.1">
        <joint name="knee" axis="0 1 0" damping="0.1"/>
        <geom name="cover" type="cylinder" pos="0.01 0 -0.1" size="0.04 0.1" {DRAWN}/>
        <geom name="foot" type="sphere" pos="0 0 -0.3" size="0.05"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="knee" joint="knee" kp="20"/></actuator>
</mujoco>
"""


def both(xml: str) -> tuple[mujoco.MjModel, mujoco.MjModel, list[str]]:
    """The full model, the lean one, and which geoms that has."""
    spec = mujoco.MjSpec.from_string(xml)
    full = spec.compile()
    lean, kept = lean_model(spec, full)
    return full, lean, [full.geom(i).name for i in kept]


def test_what_is_only_drawn_is_not_stepped_but_weighs() -> None:
    """The shell weighs 0.7 kg by its own word, the cover as much as its volume: both stay in the bodies."""
    full, lean, kept = both(HOPPER)
    assert kept == ["ground", "belly", "foot"] == [lean.geom(i).name for i in range(lean.ngeom)]
    for field in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "dof_M0", "body_invweight0"):
        np.testing.assert_array_equal(getattr(lean, field), getattr(full, field), err_msg=field)


def test_the_physics_is_the_same_to_the_bit() -> None:
    """It falls, bounces, tips over and lies: 400 steps from four heights."""
    full, lean, _ = both(HOPPER)
    paths = []
    for model in (full, lean):
        batch = Batch(model, 4, nthread=1)
        batch.bind("qpos")[:, 2] = [0.5, 0.6, 0.8, 1.0]
        batch.bind("ctrl")[:, 0] = [0.0, 0.3, -0.3, 0.6]
        for _ in range(20):
            batch.step(nstep=20)
            paths.append(batch.bind("qpos").copy())
    np.testing.assert_array_equal(paths[:20], paths[20:])
    assert (paths[-1][:, 2] < 0.45).all()  # they did touch


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ('<sensor><framepos objtype="geom" objname="shell"/></sensor>', ["shell"]),
        ('<contact><pair geom1="ground" geom2="cover"/></contact>', ["cover"]),
        ('<sensor><distance geom1="foot" geom2="post"/></sensor>', ["post", "shell", "cover"]),
    ],
)
def test_who_is_looked_at_stays(words: str, names: list[str]) -> None:
    """By a sensor or a contact that names it; a sensor that searches geoms keeps all of them."""
    *_, kept = both(HOPPER.replace("</mujoco>", f"{words}</mujoco>"))
    assert set(kept) == {"ground", "belly", "foot", *names}


def test_many_geoms_on_a_body_are_searched_by_their_boxes_and_many_bodies_are_solved_apart() -> None:
    """A pile of two boxes is two trees, and nine geoms are more than a few."""
    switched = mujoco.mjtDisableBit
    _, hopper, _ = both(HOPPER)
    assert hopper.opt.disableflags & switched.mjDSBL_ISLAND
    assert hopper.opt.disableflags & switched.mjDSBL_MIDPHASE
    balls = "".join(f'<geom type="sphere" size="0.01" pos="0 0 {i}"/>' for i in range(9))
    body = f"<body><freejoint/>{balls}</body>"
    _, pile, _ = both(f"<mujoco><worldbody>{body}{body}</worldbody></mujoco>")
    assert not pile.opt.disableflags & (switched.mjDSBL_ISLAND | switched.mjDSBL_MIDPHASE)


CART = """
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 0.1"/>
    <body name="cart" pos="0 0 0.1">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom name="cart" type="box" size="0.2 0.1 0.1" contype="2" conaffinity="4"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0"/>
        <geom name="pole" type="capsule" size="0.02" fromto="0 0 0 0 0 0.6" contype="2" conaffinity="4"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def test_where_no_two_geoms_can_touch_nobody_looks_for_contacts() -> None:
    """They have masks that say they collide, but none that another one answers; the pole swings as it did."""
    full, lean, kept = both(CART)
    assert kept == []
    assert lean.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT
    paths = []
    for model in (full, lean):
        batch = Batch(model, 2, nthread=1)
        batch.bind("qpos")[:, 1] = [0.1, 2.0]
        batch.step(nstep=300)
        paths.append(batch.bind("qpos").copy())
    np.testing.assert_array_equal(paths[0], paths[1])
    assert abs(paths[0][0, 1] - 0.1) > 0.5  # it did swing
    _, _, kept = both(CART.replace("<worldbody>", "<worldbody><geom name='wall' size='1' contype='4' pos='9 0 0'/>"))
    assert kept == ["wall", "cart", "pole"]


def test_who_could_touch_nothing_is_not_made_to_by_another() -> None:
    """The ground may get other masks, but none that the poles answer to: they are not stepped."""
    engine = create_engine(SimulationCfg(), mujoco.MjSpec.from_string(CART), 2)
    ground = torch.tensor([0])
    engine.set_model_field("geom_contype", torch.full((2, 1), 8), ground, None)
    with pytest.raises(ConfigError, match="could touch nothing cannot begin to collide"):
        engine.set_model_field("geom_contype", torch.full((1, 1), 4), ground, torch.tensor([1]))


def test_fields_are_of_all_geoms() -> None:
    """Numbered as in the model that is drawn; who is only drawn has its values, too, and cannot begin to collide."""
    engine = create_engine(SimulationCfg(), mujoco.MjSpec.from_string(HOPPER), 2)
    shell, foot = engine.model.geom("shell").id, engine.model.geom("foot").id
    friction = torch.tensor([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]]).double()
    engine.set_model_field("geom_friction", friction, torch.tensor([shell, foot]), torch.tensor([1]))
    found = engine.get_model_field("geom_friction")
    assert found.shape == (2, engine.model.ngeom, 3)
    torch.testing.assert_close(found[1, [shell, foot]].double(), friction[0])
    assert (found[0] == torch.tensor(engine.model.geom_friction)).all()
    saved = engine.state_dict()
    engine.set_model_field("geom_friction", 2 * friction, torch.tensor([shell, foot]), torch.tensor([1]))
    engine.load_state_dict(saved)
    assert (engine.get_model_field("geom_friction") == found).all()
    saved["model"]["geom_friction"] = saved["model"]["geom_friction"][:, 1:]
    with pytest.raises(EngineError, match="of another model: its geom_friction is"):
        engine.load_state_dict(saved)
    with pytest.raises(ConfigError, match="could touch nothing cannot begin to collide"):
        engine.set_model_field("geom_contype", torch.ones(2, 1), torch.tensor([shell]), None)
