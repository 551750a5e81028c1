"""A third party's engine and a task for it, in one file: what `--import` brings. Nothing of genelab knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from genelab import TASKS, TaskCfg, mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, play_cfg
from genelab.errors import ConfigError, did_you_mean
from genelab.managers import EventTermCfg, ObservationGroupCfg, ObservationTermCfg, RewardTermCfg, TerminationTermCfg
from genelab.rl.config import RslRlOnPolicyRunnerCfg
from genelab.scene import ArticulationCfg, ImplicitPdActuatorCfg, SceneCfg, mjcf_text
from genelab.sim import ContactQuery, Engine, EnvIds, Ids, SimulationCfg, register_engine
from genelab.sim.engine import Notify, assign

_STATE = ("qpos", "qvel", "ctrl", "qacc", "actuator_force", "wrench")
_FIELDS = ("body_mass", "dof_damping", "actuator_gainprm", "actuator_biasprm")


class ToyEngine(Engine):
    """Point masses on rails, pushed by forces, by explicit integration: v += dt · f / m, then x += dt · v."""

    name = "toy"

    @classmethod
    def cannot_express(cls, model: mujoco.MjModel) -> Iterator[str]:
        slides = model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE
        affine = np.isin(model.actuator_biastype, (mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtBias.mjBIAS_AFFINE))
        for bad, what in (
            (not slides.all(), "joints that turn"),
            (np.any(model.body_parentid != 0), "bodies on bodies"),
            (np.any(model.body_jntnum > 1), "bodies with two joints"),
            (np.any(model.jnt_limited) or np.any(model.jnt_stiffness), "ranges and springs of joints"),
            (np.any(model.geom_contype) or np.any(model.geom_conaffinity), "contacts"),
            (not affine.all() or np.any(model.actuator_gear[:, 0] != 1), "actuators other than affine ones of gear 1"),
        ):
            if bad:
                yield what

    def __init__(
        self,
        cfg: SimulationCfg,
        spec: mujoco.MjSpec,
        num_envs: int,
        device: torch.device,
        contacts: Sequence[ContactQuery] = (),
        *,
        env_spacing: float = 0.0,
        notify: Notify = lambda message: None,
    ) -> None:
        super().__init__(cfg, spec, num_envs, device, contacts, env_spacing=env_spacing, notify=notify)
        model = self.model
        self._substeps = int(cfg.engine_settings["toy"]["substeps"])
        self._num_contacts = len(contacts)
        self._body = torch.as_tensor(model.jnt_bodyid, dtype=torch.int64, device=device)  # of each joint
        self._joint = torch.as_tensor(model.actuator_trnid[:, 0], dtype=torch.int64, device=device)  # of each actuator
        turn = self._constant(_matrices(model.body_quat))  # (nbody, 3, 3)
        self._axis = (turn[self._body] @ self._constant(model.jnt_axis)[..., None]).squeeze(-1)  # (nv, 3)
        self._quat = self._constant(model.body_quat)
        self._home = self._constant(model.body_pos)
        self._com = (turn @ self._constant(model.body_ipos)[..., None]).squeeze(-1)
        self._gravity = self._axis @ self._constant(model.opt.gravity)  # (nv,)
        self._ctrl_range = self._range(model.actuator_ctrllimited, model.actuator_ctrlrange)
        self._force_range = self._range(model.actuator_forcelimited, model.actuator_forcerange)
        shapes = {"qpos": (model.nq,), "qvel": (model.nv,), "qacc": (model.nv,), "wrench": (model.nbody, 3)}
        self._now = {name: self._zeros(*shapes.get(name, (model.nu,))) for name in _STATE}
        fields = {name: self._constant(getattr(model, name)) for name in _FIELDS}
        self._own = {name: value.expand(num_envs, *value.shape).clone() for name, value in fields.items()}
        self.reset(None)

    def _constant(self, array: Any) -> Tensor:
        return torch.as_tensor(np.asarray(array), device=self.device).to(self.dtype)

    def _range(self, limited: np.ndarray, bounds: np.ndarray) -> tuple[Tensor, ...]:
        return self._constant(np.where(limited[:, None], bounds, (-np.inf, np.inf))).unbind(dim=1)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.num_envs, *shape, dtype=self.dtype, device=self.device)

    # -- state

    @property
    def qpos(self) -> Tensor:
        return self._now["qpos"].clone()

    @property
    def qvel(self) -> Tensor:
        return self._now["qvel"].clone()

    @property
    def ctrl(self) -> Tensor:
        return self._now["ctrl"].clone()

    @property
    def actuator_force(self) -> Tensor:
        return self._now["actuator_force"].clone()

    @property
    def qacc(self) -> Tensor:
        return self._now["qacc"].clone()

    @property
    def body_pos(self) -> Tensor:
        reference = self._constant(self.model.qpos0)
        return self._home + self._along_rails(self._now["qpos"] - reference)

    @property
    def body_quat(self) -> Tensor:
        return self._quat.repeat(self.num_envs, 1, 1)

    @property
    def body_lin_vel(self) -> Tensor:
        return self._along_rails(self._now["qvel"])

    @property
    def body_ang_vel(self) -> Tensor:
        return self._zeros(self.model.nbody, 3)

    @property
    def body_com_pos(self) -> Tensor:
        return self.body_pos + self._com

    @property
    def contact_force(self) -> Tensor:
        return self._zeros(self._num_contacts, 3)

    @property
    def contact_count(self) -> Tensor:
        return self._zeros(self._num_contacts)

    def _along_rails(self, joints: Tensor) -> Tensor:
        """Values of joints `(N, nv)` as vectors of their bodies `(N, nbody, 3)`."""
        return self._zeros(self.model.nbody, 3).index_copy(1, self._body, joints[..., None] * self._axis)

    # -- changes

    def step(self, n: int) -> None:
        now, dt = self._now, self.model.opt.timestep / self._substeps
        inertia = self._own["body_mass"][:, self._body] + self._constant(self.model.dof_armature)
        for _ in range(n * self._substeps):
            now["actuator_force"] = self._actuate()
            push = (now["wrench"][:, self._body] * self._axis).sum(dim=-1) - self._own["dof_damping"] * now["qvel"]
            push = push.index_add(1, self._joint, now["actuator_force"])
            now["qacc"] = push / inertia + self._gravity * self._own["body_mass"][:, self._body] / inertia
            now["qvel"] = now["qvel"] + dt * now["qacc"]
            now["qpos"] = now["qpos"] + dt * now["qvel"]
        self.version += 1

    def _actuate(self) -> Tensor:
        gain, bias = self._own["actuator_gainprm"], self._own["actuator_biasprm"]
        place, speed = self._now["qpos"][:, self._joint], self._now["qvel"][:, self._joint]
        force = gain[..., 0] * self._now["ctrl"].clamp(*self._ctrl_range)
        force = force + bias[..., 0] + bias[..., 1] * place + bias[..., 2] * speed
        return force.clamp(*self._force_range)

    def reset(self, env_ids: EnvIds) -> None:
        rows = slice(None) if env_ids is None else env_ids
        for value in self._now.values():
            value[rows] = 0.0
        self._now["qpos"][rows] = self._constant(self.model.qpos0)
        self.version += 1

    def write_qpos(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._write("qpos", values, cols, env_ids)

    def write_qvel(self, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._write("qvel", values, cols, env_ids)

    def write_ctrl(self, values: Tensor, cols: Ids, env_ids: EnvIds = None) -> None:
        self._write("ctrl", values, cols, env_ids)

    def write_wrench(self, force: Tensor, torque: Tensor, bodies: Ids, env_ids: EnvIds) -> None:
        self._write("wrench", force, bodies, env_ids)  # what is on a rail does not turn

    def _write(self, name: str, values: Tensor, cols: Ids, env_ids: EnvIds) -> None:
        self._now[name] = self._now[name].clone()  # one that was made in inference mode may not be written to outside
        assign(self._now[name], values, cols, env_ids)
        self.version += 1

    def refresh(self) -> None:
        """Everything is computed when it is read."""

    # -- model parameters

    def set_model_field(self, field: str, values: Tensor, ids: Ids, env_ids: EnvIds) -> None:
        self._own[field] = self.get_model_field(field)
        assign(self._own[field], values, ids, env_ids)
        self.version += 1

    def get_model_field(self, field: str) -> Tensor:
        if field not in self._own:
            raise ConfigError(f"the toy engine cannot randomise {field!r}.{did_you_mean(field, self._own)}")
        return self._own[field].clone()

    # -- whole state

    def state_dict(self) -> dict[str, Any]:
        return {name: value.clone() for name, value in {**self._now, **self._own}.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for kept in (self._now, self._own):
            kept.update({name: state[name].to(self.device, copy=True) for name in kept})
        self.version += 1

    def close(self) -> None:
        self._now.clear()


def _matrices(quats: np.ndarray) -> np.ndarray:
    found = np.zeros((len(quats), 9))
    for matrix, quat in zip(found, quats, strict=True):
        mujoco.mju_quat2Mat(matrix, quat)
    return found.reshape(-1, 3, 3)


CART = """
<mujoco>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping=".1"/>
      <geom type="box" size=".1 .1 .1" mass="1" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
</mujoco>
"""


def distance(env: ManagerBasedRlEnv) -> Tensor:
    """How far the cart is from the middle, (N,)."""
    return env.robot.joint_pos[:, 0].abs()


def task() -> TaskCfg:
    """Come to rest in the middle of the rail."""
    servo = ImplicitPdActuatorCfg(joint_names=("rail",), stiffness=40.0, damping=4.0, effort_limit=20.0)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": CART}, actuators={"servo": servo})
    terms = {
        "joint_pos": ObservationTermCfg(func=mdp.joint_pos_rel),
        "joint_vel": ObservationTermCfg(func=mdp.joint_vel_rel, scale=0.1),
    }
    start = {"position_range": (-1.0, 1.0), "velocity_range": (0.0, 0.0)}
    gains = {"stiffness_range": (0.9, 1.1), "damping_range": (0.9, 1.1)}
    env = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=4, entities={"robot": robot}),
        decimation=4,
        episode_length_s=0.4,
        actions={"rail": mdp.JointPositionActionCfg()},
        observations={"policy": ObservationGroupCfg(terms=terms)},
        rewards={"distance": RewardTermCfg(func=distance, weight=-1.0)},
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=True)},
        events={
            "start": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=start),
            "gains": EventTermCfg(func=mdp.randomize_gains, mode="startup", params=gains),
        },
    )
    agent = RslRlOnPolicyRunnerCfg(num_steps_per_env=8, max_iterations=2)
    return TaskCfg(env=env, play_env=play_cfg(env), agent=agent)


register_engine("toy", "toy_engine:ToyEngine", packages=["psutil"], settings={"substeps": 1})
TASKS.register("Toy-Cart-v0", "toy_engine:task", description="Come to rest.", robot="cart", backend="rsl_rl PPO")
