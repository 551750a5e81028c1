"""Where a policy breaks: every sweep changes its one thing in its own block of environments, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.cli.main import run
from genelab.config import TASKS, TaskCfg
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg, rl_cfg
from genelab.errors import UsageError
from genelab.managers import EventTermCfg, ObservationGroupCfg, Probe, obs, reward, symmetric, termination
from genelab.mdp import VelocityCommandCfg
from genelab.rl import EvalSettings
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.gaps import SWEEPS, Delay, EncoderBias, Friction, Gains, Mass, Noise, Push, make_ready
from genelab.rl.locate import find_checkpoint
from genelab.rl.probe import models_of_training, run_probe
from genelab.rl.robustness import Plan, holds, judge
from genelab.rl.world import eval_cfg
from genelab.scene import (
    ArticulationCfg,
    GeneratedTerrain,
    IdealPdActuatorCfg,
    ImplicitPdActuatorCfg,
    PlaneCfg,
    SceneCfg,
    TerrainGeneratorCfg,
    mjcf_text,
)
from genelab.scene.terrains import FlatCfg
from genelab.sim import SimulationCfg
from tests.narrow import as_kind, present

PENDULUM = "GeneLab-Inverted-Pendulum-v0"
SLED = """
<mujoco>
  <worldbody>
    <body name="sled" pos="0 0 .1">
      <freejoint/>
      <geom name="runner" type="box" size=".2 .2 .1" mass="2" friction=".5"/>
      <body name="knob"><joint name="knob"/><geom size=".02" mass="1" contype="0" conaffinity="0"/></body>
    </body>
  </worldbody>
</mujoco>
"""
"""On the ground, whose friction of 1 decides: MuJoCo takes the larger of the two."""


def sled_cfg(num_envs: int, **changes: Any) -> ManagerBasedRlEnvCfg:
    servo = ImplicitPdActuatorCfg(joint_names=("knob",), stiffness=10.0, damping=0.5)
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": SLED}, actuators={"knob": servo})
    terms = {
        "knob": obs(mdp.joint_pos_measured).then(noise=symmetric(0.5)),
        "command": obs(mdp.generated_command, command="twist"),
    }
    cfg = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=num_envs, entities={"robot": robot}, terrain=PlaneCfg()),
        simulation=SimulationCfg(engine="mujoco", dt=0.005, threads=1),
        decimation=4,
        episode_length_s=20.0,
        actions={"knob": mdp.JointPositionActionCfg()},
        observations={"policy": ObservationGroupCfg(terms=terms, enable_noise=False)},
        commands={"twist": VelocityCommandCfg(lin_vel_x=(-1.0, 1.0), lin_vel_y=(0.0, 0.0), ang_vel_z=(0.0, 0.0))},
        terminations={"fell": termination(mdp.bad_orientation, limit=1.0)},
    )
    for name, value in changes.items():
        setattr(cfg, name, value)
    make_ready(cfg)
    return cfg


@pytest.fixture
def env() -> Iterator[ManagerBasedRlEnv]:
    env = ManagerBasedRlEnv(sled_cfg(2))
    env.reset(seed=0)
    yield env
    env.close()


def still(env: ManagerBasedRlEnv, steps: int, action: float = 0.0) -> dict[str, Tensor]:
    for _ in range(steps):
        seen = env.step(torch.full((env.num_envs, 1), action))[0]
    return seen


VALUES = torch.tensor([1.0, 0.5], dtype=torch.float64)


def test_friction_is_a_factor_of_every_contact_whichever_geom_decides_it(env: ManagerBasedRlEnv) -> None:
    """A sled at 2 m/s slides v² / 2 µ g: 0.204 m on the ground's own friction of 1, twice as far on half of it."""
    Friction(()).apply(env, VALUES)
    velocity = torch.tensor([[2.0, 0.0, 0.0, 0.0, 0.0, 0.0]]).repeat(2, 1)
    env.robot.write_root_velocity(velocity, None)
    start = env.robot.root_pos_w[:, 0].clone()
    still(env, 50)
    way = (env.robot.root_pos_w[:, 0] - start).tolist()
    assert way == pytest.approx([2.0**2 / (2 * mu * 9.81) for mu in (1.0, 0.5)], rel=0.1)


def test_mass_and_inertia_go_together_and_anew_from_the_model(env: ManagerBasedRlEnv) -> None:
    engine = env.scene.engine
    for _ in range(2):  # a second time it does not pile up
        Mass(()).apply(env, VALUES)
    ids = env.robot.body_ids
    assert engine.get_model_field("body_mass")[:, ids].tolist() == [[2.0, 1.0], [1.0, 0.5]]
    inertia = engine.get_model_field("body_inertia")[:, ids]
    assert inertia[1].tolist() == (inertia[0] / 2).tolist()


def test_gains_are_factors_of_what_the_servos_have(env: ManagerBasedRlEnv) -> None:
    Gains(()).apply(env, VALUES)
    (actuator,) = env.robot.actuators.values()
    assert [gain.flatten().tolist() for gain in actuator.gains()] == [[10.0, 5.0], [0.5, 0.25]]


def test_actions_arrive_later_also_after_a_reset(env: ManagerBasedRlEnv) -> None:
    Delay(()).apply(env, torch.tensor([0.0, 2.0]))
    for _ in range(2):
        targets = []
        for action in (0.0, 1.0, 1.0, 1.0):
            still(env, 1, action)
            targets.append(env.robot.joint_pos_target[:, 0].tolist())
        assert targets == [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
        env.reset()
    Delay(()).apply(env, torch.zeros(2))
    still(env, 1, 0.25)
    assert env.robot.joint_pos_target[:, 0].tolist() == [0.25, 0.25]


def test_noise_is_a_factor_of_that_of_training(env: ManagerBasedRlEnv) -> None:
    Noise(()).apply(env, torch.tensor([0.0, 2.0]))
    seen = torch.stack([env.observation_manager.compute()["policy"][:, 0] for _ in range(200)])
    spread = (seen - env.robot.joint_pos[:, 0]).abs().amax(dim=0)
    assert spread[0] == 0.0
    assert 0.9 < spread[1] <= 1.0  # twice ± 0.5


def test_encoders_are_off_in_what_is_seen_and_in_what_is_held(env: ManagerBasedRlEnv) -> None:
    EncoderBias(()).apply(env, torch.tensor([0.0, 0.2]))
    seen = still(env, 100)["policy"][:, 0]
    bias = env.robot.encoder_bias[:, 0]
    assert bias[0] == 0.0
    assert 0.0 < abs(bias[1]) <= 0.2
    assert seen.tolist() == pytest.approx([0.0, 0.0], abs=0.02)  # the servo believes that it is there
    assert env.robot.joint_pos[1, 0].item() == pytest.approx(-bias[1].item(), abs=0.02)


def test_pushes_come_every_two_seconds_at_the_speed_of_each_environment(env: ManagerBasedRlEnv) -> None:
    Push(()).apply(env, torch.tensor([0.0, 1.5]))
    Friction(()).apply(env, torch.zeros(2, dtype=torch.float64) + 0.01)
    still(env, 98)
    assert env.robot.root_lin_vel_w[:, :2].norm(dim=1).tolist() == pytest.approx([0.0, 0.0], abs=1e-3)
    still(env, 4)
    assert env.robot.root_lin_vel_w[:, :2].norm(dim=1).tolist() == pytest.approx([0.0, 1.5], abs=0.05)


def test_a_sweep_that_says_nothing_is_left_out_with_its_reason() -> None:
    motor = IdealPdActuatorCfg(joint_names=("knob",))
    fixed = SLED.replace("<freejoint/>", "").replace('friction=".5"', 'contype="0" conaffinity="0"')
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": fixed}, actuators={"knob": motor})
    see = {"policy": ObservationGroupCfg(terms={"knob": obs(mdp.joint_pos_rel)})}
    cfg = sled_cfg(1, observations=see, actions={"knob": mdp.JointEffortActionCfg()}, commands={}, terminations={})
    cfg.scene = SceneCfg(num_envs=1, entities={"robot": robot})
    env = ManagerBasedRlEnv(cfg)
    plan = Plan.of(env, 5)
    assert plan.left_out == {
        "friction": "nothing in this world can touch",
        "gains": "its actuators have no gains",
        "noise": "its observations have no noise in training",
        "encoder bias": "no action sets joint positions",
        "push": "its robot is fixed to the world",
    }
    assert [sweep.name for sweep in plan.sweeps] == ["mass", "delay"]
    assert (plan.section, plan.size) == (None, 5)
    assert len(plan.settings) == 1 + 6 + 5


def test_a_cart_on_its_rail_touches_nothing_though_it_has_geoms_that_collide() -> None:
    """Cart and pole collide with others, but not with each other and not with the ground."""
    env = ManagerBasedRlEnv(eval_cfg(rl_cfg(PENDULUM), 1))
    model = env.scene.engine.model
    assert len(Friction(())._geoms(env)) == 3
    assert Plan.of(env, 5).left_out["friction"] == "nothing in this world can touch"
    model.geom_conaffinity[:] = 2  # now the cart's poles meet the ground
    assert "friction" not in Plan.of(env, 5).left_out
    env.close()


def test_each_block_of_a_velocity_probe_is_judged_by_itself() -> None:
    """Forward, backward and standing; two robots each in three blocks that do all, half and nothing of it."""
    env = ManagerBasedRlEnv(sled_cfg(18))
    share = torch.tensor([1.0, 0.5, 0.0]).repeat_interleave(6)
    plan = Plan.of(env, 5)
    assert (plan.section, plan.size) == ("velocity_probe", 6)

    def policy(observations: dict[str, Tensor]) -> Tensor:
        velocity = torch.zeros(18, 6)
        velocity[:, 0] = share * observations["policy"][:, 1]
        env.robot.write_root_velocity(velocity, None)
        return torch.zeros(18, 1)

    Friction(()).apply(env, torch.zeros(18, dtype=torch.float64) + 0.01)
    probe = run_probe(
        env, InferenceSetup(policy=policy), present(env.commands.term("twist").probe()).in_blocks(6), seed=0
    )
    scores = probe.scores()
    assert [score.share for score in scores] == pytest.approx([1.0, 0.5, 0.0], abs=0.02)
    assert [(score.falls, score.robots) for score in scores] == [(0, 6)] * 3
    assert set(scores[1].details["shares"]) == {"forward", "backward"}


def test_who_falls_does_nothing_from_then_on_and_twice_as_much_as_asked_is_as_bad_as_nothing() -> None:
    """Ahead twice as fast as asked; one that goes back falls over half-way through what is judged."""
    env = ManagerBasedRlEnv(sled_cfg(3))
    steps = 0

    def policy(observations: dict[str, Tensor]) -> Tensor:
        nonlocal steps
        steps += 1
        velocity = torch.zeros(3, 6)
        velocity[:, 0] = torch.tensor([2.0, 1.0, 0.0]) * observations["policy"][:, 1]
        env.robot.write_root_velocity(velocity, None)
        if steps == 275:  # a second does not count, nine do
            env.robot.write_root_pose(torch.tensor([[0.0, 0.0, 0.1, 0.0, 1.0, 0.0, 0.0]]), torch.tensor([1]))
        return torch.zeros(3, 1)

    Friction(()).apply(env, torch.zeros(3, dtype=torch.float64) + 0.01)
    probe = run_probe(
        env, InferenceSetup(policy=policy), present(env.commands.term("twist").probe()).in_blocks(3), seed=0
    )
    (score,) = probe.scores()
    assert score.falls == 1
    assert score.details["shares"] == pytest.approx({"forward": 0.0, "backward": 0.5}, abs=0.02)
    assert score.details["worst"] == "forward"
    assert score.trials == 3


def test_it_holds_while_most_is_kept_and_few_more_fall() -> None:
    nominal = {"share": 0.9, "falls": 2, "robots": 100, "return_mean": -10.0}
    assert holds("share", nominal, {"share": 0.73, "falls": 7, "robots": 100})
    assert not holds("share", nominal, {"share": 0.71, "falls": 0, "robots": 100})
    assert not holds("share", nominal, {"share": 0.9, "falls": 8, "robots": 100})
    assert holds("return_mean", nominal, {"return_mean": -11.9, "falls": 0, "robots": 100})
    assert not holds("return_mean", nominal, {"return_mean": -12.1, "falls": 0, "robots": 100})


def paid_by_cell(env: ManagerBasedRlEnv) -> Tensor:
    terrain = as_kind(env.scene.terrain, GeneratedTerrain)
    return (10.0 * terrain.kinds + terrain.levels).to(env.dtype)


def test_every_setting_is_judged_on_the_same_cells_of_the_ground(monkeypatch: pytest.MonkeyPatch) -> None:
    """By episodes the first setting was on the first kind of ground, the last on the last."""

    def make() -> TaskCfg:
        task = TASKS.get(PENDULUM)
        cfg = as_kind(task.playing, ManagerBasedRlEnvCfg)
        cfg.scene.terrain = TerrainGeneratorCfg(
            sub_terrains={"a": FlatCfg(), "b": FlatCfg()}, rows=2, columns=2, cell_size=2.0, max_init_level=None
        )
        cfg.episode_length_s = 0.02
        cfg.rewards = {"cell": reward(paid_by_cell, 50.0)}
        return task

    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register("On-Cells-v0", make)
    plan = Plan(sweeps=[Mass((0.5, 2.0))], left_out={}, section=None, size=2)
    found = judge(plan, "On-Cells-v0", find_checkpoint(PENDULUM, "pretrained"), episodes=4, seed=0)
    results = [found["nominal"], *found["sweeps"]["mass"]["settings"]]
    assert [one["return_mean"] for one in results] == pytest.approx([(0 + 1 + 10 + 11) / 4] * 3)


def test_models_of_a_probe_are_drawn_as_in_training() -> None:
    """A run config with a factor of the mass and a push, neither of which the play config has."""
    env = ManagerBasedRlEnv(sled_cfg(4))
    trained = sled_cfg(1)
    trained.events = {
        "mass": EventTermCfg(
            func=mdp.randomize_mass, mode="reset", params={"mass_range": (0.5, 2.0), "operation": "scale"}
        ),
        "push": EventTermCfg(func=unwanted, mode="interval", interval_range_s=(0.0, 0.0)),
    }
    drawn: list[Tensor] = []

    def policy(observations: dict[str, Tensor]) -> Tensor:
        drawn.append(env.scene.engine.get_model_field("body_mass")[:, env.robot.body_ids].clone())
        return torch.zeros(4, 1)

    setup = InferenceSetup(policy=policy)
    for _ in range(2):
        run_probe(env, setup, Short(), seed=3, prepare=models_of_training(env, trained))
    first, again = drawn[0] / torch.tensor([2.0, 1.0]), drawn[-1] / torch.tensor([2.0, 1.0])
    assert torch.equal(first, again)  # drawn from the seed
    assert ((first >= 0.5) & (first <= 2.0)).all()
    assert len(first.unique(dim=0)) == 4
    env.close()


def unwanted(env: ManagerBasedRlEnv, env_ids: object) -> None:
    raise AssertionError("no event of training but those that change the model")


class Short(Probe):
    """A few steps of doing nothing."""

    name, seconds = "short", 0.1

    def begin(self, turn: int) -> None: ...

    def step(self, step: int, terminated: Tensor, truncated: Tensor) -> None: ...

    def end(self) -> None: ...

    def report(self) -> dict[str, Any]:
        return {}


def test_the_pendulum_falls_when_its_actions_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """In rounds, if there are too many environments for one: the last has room left."""
    monkeypatch.setattr("genelab.rl.robustness.MOST_ENVS", 4)
    checkpoint = find_checkpoint(PENDULUM, "pretrained")
    plan = Plan(sweeps=[Delay((1, 6)), Mass((1.2,))], left_out={}, section=None, size=2)
    found = judge(plan, PENDULUM, checkpoint, episodes=2, seed=0, overrides={"env.episode_length_s": 2.0})
    delay, mass = found["sweeps"]["delay"], found["sweeps"]["mass"]
    assert (delay["breaks_below"], delay["breaks_above"]) == (None, 6)
    assert [one["text"] for one in delay["settings"]] == ["10 ms", "60 ms"]
    assert delay["settings"][1]["falls"] == 2
    assert (mass["breaks_below"], mass["breaks_above"]) == (None, None)
    assert found["nominal"]["return_mean"] == pytest.approx(8.0, abs=0.1)


def test_the_command_prints_reports_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "eval.json"
    words = ["eval", PENDULUM, "pretrained", "--robustness", "--episodes", "2", "--num-envs", "2", "--out", str(out)]
    assert run([*words, "env.episode_length_s=1"]) == 0
    printed = capsys.readouterr().out
    assert "friction left out: nothing in this world can touch" in printed
    assert "push left out: its robot is fixed to the world" in printed
    assert "delay         breaks at " in printed
    found = json.loads(out.read_text())["robustness"]
    assert list(found["sweeps"]) == [sweep.name for sweep in SWEEPS if sweep.name not in ("friction", "push")]
    assert (tmp_path / "eval.robustness.png").read_bytes().startswith(b"\x89PNG")


def test_what_it_does_not_go_with_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="while training"):
        EvalSettings(robustness=True).check_for_training()
    assert run(["eval", PENDULUM, "pretrained", "--robustness", "--physics", "both"]) == 2
    assert "--robustness judges in one world" in capsys.readouterr().err
