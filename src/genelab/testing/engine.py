"""What every engine keeps: the same model, the same inputs, MuJoCo's numbers.

All tests of a class share one world of three environments, for some engines take long to build one; in 64 bits, unless
the engine has only 32. What moves freely is set in motion, differently in each environment; what can touch something
stays where the model has it.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Literal

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from genelab.errors import ConfigError
from genelab.sim import (
    ENGINES,
    ContactQuery,
    Engine,
    EngineError,
    ModelError,
    SimulationCfg,
    add_contact_sensor,
    apply_options,
    create_engine,
)

NUM_ENVS = 3
WORLD = """
<mujoco>
  <worldbody>
    <geom name="ground" type="plane" size="5 5 .1"/>
    <body name="cart" pos="0 2 1" quat="1 .1 .2 .3">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="box" size=".2 .1 .1" pos=".02 0 0" mass="1" contype="0" conaffinity="0"/>
      <body name="pole" pos="0 .01 0">
        <joint name="hinge" axis="0 1 0" damping=".02"/>
        <geom type="capsule" fromto="0 0 0 0 0 .6" size=".03" mass=".3" contype="0" conaffinity="0"/>
      </body>
    </body>
    <body name="box" pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1" mass="2"/></body>
  </worldbody>
  <actuator>
    <motor name="slide" joint="slide" ctrlrange="-1 1"/>
    <position name="hinge" joint="hinge" kp="3" kv=".2"/>
  </actuator>
</mujoco>
"""
"""A cart with a pole, driven, and a box on the ground."""
JOINTS = ("qpos", "qvel", "ctrl", "actuator_force", "qacc")
BODIES = ("body_pos", "body_quat", "body_lin_vel", "body_ang_vel", "body_com_pos")
CONTACTS = ("contact_force", "contact_count")


class EngineContract:
    """Subclass it as `TestMine` and name the engine; the rest is for one that cannot express all of `WORLD`."""

    engine: ClassVar[str]
    """The name it is registered by."""
    xml: ClassVar[str] = WORLD
    """A world that it can express."""
    carried: ClassVar[Mapping[tuple[str, str | None], float]] = {("box", None): 2.0}
    """What a body feels at rest of another, or of all (None): the mass that it is lifted by, kg. Empty: no contacts."""
    fields: ClassVar[tuple[str, ...]] = ("body_mass", "dof_damping", "actuator_gainprm", "actuator_biasprm")
    """Model fields of which environments may have their own values; all entries are scaled."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Models that it cannot express, as MJCF, and what it then names."""
    precision: ClassVar[Literal[32, 64]] = 64
    """Bits it computes in. With 32, what has one right value is compared to six digits instead of twelve."""
    tolerance: ClassVar[float] = 1e-9
    """How far 30 steps may lead from MuJoCo's."""
    repeats: ClassVar[float] = 0.0
    """How far a repetition may be from the first time; 0: the same bits."""
    own_motion: ClassVar[tuple[str, ...]] = ()
    """Bodies that it integrates by another rule than MuJoCo's, which are not compared."""

    @property
    def rounding(self) -> float:
        """What numbers of its precision may differ by that are the same."""
        return 1e-12 if self.precision == 64 else 1e-6

    # -- the world

    @classmethod
    def build(cls, engine: str | None = None) -> Engine:
        """The world, on this engine or on another."""
        cfg = SimulationCfg(engine=engine or cls.engine, precision=cls.precision)
        spec = mujoco.MjSpec.from_string(cls.xml)
        apply_options(cfg, spec)
        contacts = [ContactQuery(sensor=f"{body}_{other}", body=body, other=other) for body, other in cls.carried]
        for query in contacts:
            add_contact_sensor(spec, query)
        return create_engine(cfg, spec, NUM_ENVS, contacts)

    @pytest.fixture(scope="class")
    def built(self) -> Iterator[Engine]:
        """One world for all tests."""
        engine = self.build()
        yield engine
        engine.close()

    @pytest.fixture
    def subject(self, built: Engine) -> Engine:
        """The world as it was built."""
        built.reset(None)
        built.refresh()
        return built

    def start(self, engine: Engine) -> Reference:
        """Set what is free in motion, on the engine and in MuJoCo; each environment differently."""
        reference = Reference(engine.model, self.own_motion)
        draw = np.random.default_rng(0)
        free = reference.free
        for data in reference.data:
            mujoco.mj_integratePos(engine.model, data.qpos, draw.uniform(-0.3, 0.3, engine.model.nv) * free, 1.0)
            data.qvel[:] = draw.uniform(-0.5, 0.5, engine.model.nv) * free
            data.ctrl[:] = draw.uniform(-1.5, 1.5, engine.model.nu)
        qpos, qvel, ctrl = (reference.stacked(name).to(engine.device) for name in ("qpos", "qvel", "ctrl"))
        engine.write_qpos(qpos, slice(None), None)
        engine.write_qvel(qvel, slice(None), None)
        engine.refresh()
        engine.write_ctrl(ctrl, slice(None))
        return reference

    def assert_as_in(self, reference: Reference, engine: Engine, *names: str) -> None:
        """Fail unless the engine's readings are those of MuJoCo."""
        for name in names:
            columns, expected = reference.read(name)
            found = getattr(engine, name).cpu()[:, columns]
            if name == "body_quat":  # q and −q are one orientation
                found = found * (found * expected).sum(dim=-1, keepdim=True).sign()
            assert ((found - expected).abs() <= self.tolerance).all(), name

    # -- what it is

    def test_it_is_registered_by_its_name(self) -> None:
        assert ENGINES.load(self.engine).name == self.engine

    def test_readings_have_the_shapes_of_the_model(self, subject: Engine) -> None:
        model, contacts = subject.model, len(self.carried)
        widths = {"qpos": (model.nq,), "qvel": (model.nv,), "qacc": (model.nv,), "body_quat": (model.nbody, 4)}
        widths |= {"ctrl": (model.nu,), "actuator_force": (model.nu,)}
        widths |= {"contact_force": (contacts, 3), "contact_count": (contacts,)}
        dtype = torch.float64 if self.precision == 64 else torch.float32
        for name in (*JOINTS, *BODIES, *CONTACTS):
            value = getattr(subject, name)
            assert value.shape == (NUM_ENVS, *widths.get(name, (model.nbody, 3))), name
            assert (value.dtype, value.device) == (subject.dtype, subject.device) == (dtype, value.device), name

    def test_what_it_cannot_express_is_refused_by_name(self) -> None:
        for xml, what in self.refused.items():
            with pytest.raises(ModelError, match=f"engine cannot express {what}"):
                create_engine(SimulationCfg(engine=self.engine), mujoco.MjSpec.from_string(xml), 1)

    # -- state

    def test_it_begins_as_the_model_says(self, subject: Engine) -> None:
        assert torch.equal(subject.qpos, torch.as_tensor(subject.model.qpos0).to(subject.qpos).expand_as(subject.qpos))
        assert not subject.qvel.any()
        assert not subject.ctrl.any()

    def test_bodies_are_where_the_joints_put_them(self, subject: Engine) -> None:
        reference = self.start(subject)
        reference.forward()
        self.assert_as_in(reference, subject, "qpos", "qvel", "ctrl", *BODIES)

    def test_points_move_with_their_bodies(self, subject: Engine) -> None:
        self.start(subject)
        bodies = torch.arange(1, subject.model.nbody, device=subject.device)
        arm = torch.tensor([0.1, -0.2, 0.3], dtype=subject.dtype, device=subject.device)
        turning = torch.linalg.cross(subject.body_ang_vel, arm.expand_as(subject.body_ang_vel))
        velocities = subject.velocity_at(bodies, (subject.body_pos + arm)[:, bodies])
        expected = (subject.body_lin_vel + turning)[:, bodies]
        torch.testing.assert_close(velocities, expected, rtol=0, atol=1e3 * self.rounding)
        slice_of_them = subject.velocity_at(slice(1, None), (subject.body_pos + arm)[:, 1:])
        torch.testing.assert_close(slice_of_them, expected, rtol=0, atol=1e3 * self.rounding)

    def test_steps_are_those_of_mujoco(self, subject: Engine) -> None:
        reference = self.start(subject)
        subject.step(30)
        reference.step(30)
        self.assert_as_in(reference, subject, *JOINTS, *BODIES)

    def test_what_was_read_stays_as_it_was(self, subject: Engine) -> None:
        self.start(subject)
        names = ("qpos", "qvel", "ctrl", "body_pos", "body_lin_vel")
        read = {name: getattr(subject, name) for name in names}
        kept = {name: value.clone() for name, value in read.items()}
        subject.step(2)
        subject.write_qpos(subject.qpos[:, :1], [0], None)
        subject.write_ctrl(torch.zeros(NUM_ENVS, subject.model.nu), slice(None))
        subject.reset(None)
        for name in names:
            assert torch.equal(read[name], kept[name]), name

    def test_the_version_grows_with_every_change(self, subject: Engine) -> None:
        seen = [subject.version]
        changes: list[Callable[[], None]] = [
            lambda: subject.step(1),
            lambda: subject.write_qvel(torch.zeros(NUM_ENVS, 1), [0], None),
            lambda: subject.write_qpos(subject.qpos[:, :1], [0], None),
            lambda: subject.reset(None),
            lambda: subject.load_state_dict(subject.state_dict()),
        ]
        for change in changes:
            change()
            seen.append(subject.version)
        assert seen == sorted(set(seen))

    # -- changes

    def test_writing_chooses_rows_and_columns(self, subject: Engine) -> None:
        before, model = subject.qvel, subject.model
        some = torch.tensor([0, 2], device=subject.device)
        subject.write_qvel(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), [model.nv - 1, 0], some)
        assert subject.qvel[0, [0, -1]].tolist() == [2, 1]
        assert subject.qvel[2, [0, -1]].tolist() == [4, 3]
        assert torch.equal(subject.qvel[1], before[1])
        assert torch.equal(subject.qvel[:, 1:-1], before[:, 1:-1])
        subject.write_qvel(torch.zeros(0, 1), torch.tensor([0]), torch.tensor([], dtype=torch.int64))
        assert subject.qvel[0, 0] == 2
        subject.write_ctrl(torch.tensor([[0.5]]), [0], torch.tensor([1]))
        assert subject.ctrl[:, 0].tolist() == [0, 0.5, 0]

    def test_a_reset_leaves_the_others_alone(self, subject: Engine) -> None:
        fresh = {name: getattr(subject, name) for name in ("qpos", *BODIES)}
        self.start(subject)
        subject.step(10)
        before = {name: getattr(subject, name) for name in (*JOINTS, *BODIES, *CONTACTS)}
        subject.reset(torch.tensor([1], device=subject.device))
        subject.reset(torch.tensor([], dtype=torch.int64, device=subject.device))
        subject.refresh()
        for name, value in before.items():
            assert torch.equal(getattr(subject, name)[[0, 2]], value[[0, 2]]), name
        for name, value in fresh.items():
            torch.testing.assert_close(getattr(subject, name)[1], value[1], rtol=0, atol=self.rounding, msg=name)
        for name in ("qvel", "ctrl", "body_lin_vel", "body_ang_vel"):
            assert not getattr(subject, name)[1].any(), name

    def test_a_wrench_holds_until_it_is_set_again(self, subject: Engine) -> None:
        reference = self.start(subject)
        body = int(subject.model.dof_bodyid[0])
        push, twist = torch.tensor([[[10.0, -4.0, 2.0]]]), torch.tensor([[[0.1, 0.2, 0.3]]])
        subject.write_wrench(push.expand(2, 1, 3), twist.expand(2, 1, 3), [body], torch.tensor([0, 2]))
        for i in (0, 2):
            reference.data[i].xfrc_applied[body] = [10.0, -4.0, 2.0, 0.1, 0.2, 0.3]
        subject.step(4)
        reference.step(4)
        subject.write_wrench(torch.zeros(NUM_ENVS, 1, 3), torch.zeros(NUM_ENVS, 1, 3), [body], None)
        for data in reference.data:
            data.xfrc_applied[:] = 0.0
        subject.step(4)
        reference.step(4)
        self.assert_as_in(reference, subject, "qpos", "qvel")

    def test_contacts_carry_the_weight(self, subject: Engine) -> None:
        if not self.carried:
            pytest.skip("this engine has no contacts")
        subject.step(100)
        weight = torch.tensor([9.81 * mass for mass in self.carried.values()], dtype=torch.float64)
        upward = subject.contact_force[..., 2].cpu().double()
        torch.testing.assert_close(upward, weight.expand_as(upward), rtol=0.02, atol=0)
        assert (subject.contact_count >= 1).all()

    def test_a_diverged_environment_is_seen_and_alone(self, subject: Engine) -> None:
        self.start(subject)
        subject.write_qvel(torch.full((1, 1), torch.nan), [0], torch.tensor([1], device=subject.device))
        try:
            subject.step(2)
        except EngineError:
            return  # it says so itself
        assert subject.qvel[1].isnan().any()
        assert subject.qvel[[0, 2]].isfinite().all()

    # -- model parameters

    @contextmanager
    def doubled(self, engine: Engine, field: str) -> Iterator[None]:
        """Twice the values of a model field in the second environment."""
        before = engine.get_model_field(field)
        engine.set_model_field(field, before[1:2] * 2, slice(None), torch.tensor([1], device=engine.device))
        try:
            yield
        finally:
            engine.set_model_field(field, before, slice(None), None)

    def test_environments_have_their_own_model_fields(self, subject: Engine) -> None:
        for field in self.fields:
            subject.reset(None)
            reference = self.start(subject)
            model = torch.as_tensor(np.array(getattr(subject.model, field)))
            before = subject.get_model_field(field).cpu().double()
            same = partial(torch.testing.assert_close, rtol=self.rounding, atol=self.rounding, msg=field)
            same(before, model.expand_as(before))
            with self.doubled(subject, field):
                after = subject.get_model_field(field).cpu().double()
                same(after[1], before[1] * 2)
                same(after[[0, 2]], before[[0, 2]])
                reference.scale(1, field, 2.0)
                subject.step(20)
                reference.step(20)
                self.assert_as_in(reference, subject, "qpos", "qvel", "actuator_force")

    def test_an_unknown_model_field_is_refused(self, subject: Engine) -> None:
        near = self.fields[0][:-1]
        with pytest.raises(ConfigError, match=f"{near!r}.*{self.fields[0]}"):
            subject.get_model_field(near)

    # -- whole state

    def test_going_back_to_a_state_repeats_what_followed(self, subject: Engine) -> None:
        names = (*JOINTS, *BODIES, *CONTACTS)
        field = self.fields[0]
        with self.doubled(subject, field):
            own = subject.get_model_field(field)
            self.start(subject)
            subject.step(10)
            state = subject.state_dict()
            now = {name: getattr(subject, name) for name in names}
            subject.step(7)
            then = {name: getattr(subject, name) for name in names}
            subject.reset(None)
            subject.set_model_field(field, own[:1].expand_as(own), slice(None), None)
            subject.step(3)
            subject.load_state_dict(state)
            assert torch.equal(subject.get_model_field(field), own)
            for steps, expected in ((0, now), (7, then)):
                if steps:
                    subject.step(steps)
                for name, value in expected.items():
                    torch.testing.assert_close(getattr(subject, name), value, rtol=0, atol=self.repeats, msg=name)

    def test_its_state_is_plain_data(self, subject: Engine) -> None:
        """A run keeps it in a file that is read without running code."""
        file = io.BytesIO()
        torch.save(subject.state_dict(), file)
        file.seek(0)
        subject.load_state_dict(torch.load(file, weights_only=True))

    def test_equal_environments_do_the_same_wherever_they_are(self, subject: Engine) -> None:
        self.start(subject)
        same = torch.tensor([2, 2, 2], device=subject.device)
        subject.write_qpos(subject.qpos[same], slice(None), None)
        subject.write_qvel(subject.qvel[same], slice(None), None)
        subject.write_ctrl(subject.ctrl[same], slice(None))
        subject.refresh()
        subject.step(20)
        for name in ("qpos", "qvel"):
            value = getattr(subject, name)
            torch.testing.assert_close(value, value[same], rtol=0, atol=self.repeats, msg=name)

    def test_what_was_begun_in_inference_mode_goes_on_outside(self, subject: Engine) -> None:
        """Learners collect in inference mode, and save the state outside it."""
        with torch.inference_mode():
            self.start(subject)
            subject.step(2)
            subject.reset(torch.tensor([1], device=subject.device))
            subject.refresh()
        state = subject.state_dict()
        self.start(subject)
        subject.step(2)
        subject.load_state_dict(state)
        subject.step(1)


class Reference:
    """MuJoCo itself, one environment after the other."""

    def __init__(self, model: mujoco.MjModel, left_out: tuple[str, ...]) -> None:
        self._models = [copy.copy(model) for _ in range(NUM_ENVS)]
        self.data = [mujoco.MjData(one) for one in self._models]
        solid = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
        touching = np.isin(model.body_rootid, model.body_rootid[model.geom_bodyid[solid]])
        self.free = ~touching[model.dof_bodyid]
        """Degrees of freedom of what can touch nothing."""
        out = np.isin(np.arange(model.nbody), [model.body(name).id for name in left_out])
        joints = ~out[model.jnt_bodyid]
        every = np.arange(model.nu)
        positions = np.repeat(joints, [_WIDTHS[int(kind)] for kind in model.jnt_type])
        self._columns = {"qpos": positions, "qvel": ~out[model.dof_bodyid], "body": ~out, "actuator": every}

    def stacked(self, name: str) -> Tensor:
        """An array of all environments, `(N, ...)`; a copy."""
        return torch.as_tensor(np.stack([getattr(data, name) for data in self.data]))

    def forward(self) -> None:
        """What derives from positions and velocities."""
        for model, data in zip(self._models, self.data, strict=True):
            mujoco.mj_fwdPosition(model, data)
            mujoco.mj_fwdVelocity(model, data)

    def step(self, n: int) -> None:
        """The same steps; poses and velocities are of the end of the last, forces and accelerations of the last."""
        for model, data in zip(self._models, self.data, strict=True):
            for _ in range(n):
                mujoco.mj_step(model, data)
        self._forces = {name: self.stacked(name) for name in ("actuator_force", "qacc")}
        self.forward()

    def scale(self, env: int, field: str, factor: float) -> None:
        """Another value of a model field in one environment."""
        getattr(self._models[env], field)[:] *= factor
        mujoco.mj_setConst(self._models[env], copy.copy(self.data[env]))

    def read(self, name: str) -> tuple[Tensor, Tensor]:
        """The columns that are compared, and the values there."""
        kind = {"qpos": "qpos", "qvel": "qvel", "qacc": "qvel"}.get(name, "body" if name in BODIES else "actuator")
        columns = torch.as_tensor(np.flatnonzero(self._columns[kind]) if kind != "actuator" else self._columns[kind])
        if name in ("actuator_force", "qacc"):
            values = self._forces[name]
        elif name in ("body_lin_vel", "body_ang_vel"):
            half = slice(3, None) if name == "body_lin_vel" else slice(0, 3)
            pairs = zip(self._models, self.data, strict=True)
            values = torch.stack([_velocities(model, data)[:, half] for model, data in pairs])
        else:
            values = self.stacked(_ARRAYS.get(name, name))
        return columns, values[:, columns]


_WIDTHS = {0: 7, 1: 4, 2: 1, 3: 1}
"""Numbers of position of a joint, by its type."""
_ARRAYS = {"body_pos": "xpos", "body_quat": "xquat", "body_com_pos": "xipos"}


def _velocities(model: mujoco.MjModel, data: mujoco.MjData) -> Tensor:
    """Angular and linear velocity of every body's origin, `(nbody, 6)`."""
    found = np.zeros((model.nbody, 6))
    for body, row in enumerate(found):
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, row, 0)
    return torch.as_tensor(found)
