"""Physics that cannot be trusted is counted, told of, and does not end a run unless it is asked to."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from gymnasium.vector import AutoresetMode

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.managers import ObservationGroupCfg, obs, reward, truncation
from genelab.rl.training import remark_on_solver
from genelab.scene import ArticulationCfg, IdealPdActuatorCfg, PlaneCfg, SceneCfg, mjcf_text
from genelab.sim import SimulationCfg, SolverCfg

# A heap: a heavy box on a light one, with two arms that push against the ground.
HEAP = """
<mujoco>
  <worldbody>
    <body name="box" pos="0 0 .1">
      <freejoint/>
      <geom type="box" size=".2 .2 .1" mass=".1"/>
      <body name="arm" pos=".2 0 0"><joint name="arm" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 .3 0 -.1" size=".03" mass="20"/></body>
    </body>
    <body name="load" pos="0 0 .4"><freejoint/><geom type="box" size=".3 .3 .1" mass="50"/></body>
  </worldbody>
</mujoco>
"""


def make(*, on_divergence: Literal["stop", "reset"] = "stop", iterations: int | None = None) -> ManagerBasedRlEnv:
    motor = IdealPdActuatorCfg(joint_names=("arm",))
    robot = ArticulationCfg(spec=mjcf_text, spec_args={"xml": HEAP}, actuators={"motor": motor})
    solver = SolverCfg(iterations=iterations)
    cfg = ManagerBasedRlEnvCfg(
        scene=SceneCfg(num_envs=3, entities={"robot": robot}, terrain=PlaneCfg()),
        simulation=SimulationCfg(on_divergence=on_divergence, solver=solver),
        decimation=2,
        episode_length_s=0.2,
        actions={"arm": mdp.JointEffortActionCfg(scale=100.0, clip=(-10.0, 10.0))},
        observations={
            "policy": ObservationGroupCfg(terms={"vel": obs(mdp.joint_vel_rel), "action": obs(mdp.last_action)})
        },
        rewards={"alive": reward(mdp.is_alive, 1.0), "action_rate": reward(mdp.action_rate_l2, -0.01)},
        terminations={"time_out": truncation(mdp.time_out)},
    )
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("what", [float("nan"), 2000.0])
def test_a_diverged_environment_starts_anew_and_the_others_go_on(what: float) -> None:
    env = make(on_divergence="reset")
    env.step(torch.zeros(3, 1))
    env.scene.engine.write_qvel(torch.full((1, 1), what), [6], torch.tensor([1]))
    step = env.step(torch.zeros(3, 1))
    assert step.truncated.tolist() == [False, True, False]
    assert step.terminated.tolist() == [False] * 3
    assert step.reward[1] == 0.0
    assert step.reward[0] > 0.0
    assert step.observations["policy"].isfinite().all()
    assert step.info["final_obs"]["policy"].isfinite().all()
    assert env.episode_length_buf.tolist() == [2, 0, 2]
    assert (env.diverged, step.info["log"]["Solver/diverged"].item()) == (1, 1.0)
    remarks: list[str] = []
    remark_on_solver(env, remarks.append)
    assert remarks[-1] == "the physics diverged 1 times; those episodes were cut off"
    env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_huge_action_is_a_divergence_of_its_environment_alone(mode: AutoresetMode) -> None:
    env, alone = make(on_divergence="reset"), make(on_divergence="reset")
    env.autoreset_mode = mode
    action = torch.tensor([[0.1], [1e30], [-0.1]])
    step, calm = env.step(action), alone.step(action * torch.tensor([[1.0], [0.0], [1.0]]))
    assert step.truncated.tolist() == [False, True, False]
    assert step.reward[1] == 0.0
    assert step.reward.isfinite().all()
    assert torch.equal(step.reward[[0, 2]], calm.reward[[0, 2]])
    assert torch.equal(step.observations["policy"][[0, 2]], calm.observations["policy"][[0, 2]])
    assert step.observations["policy"].abs().max() < 1e3
    assert env.diverged == 1
    step = env.step(torch.zeros(3, 1))
    log = env.extras.get("log") if mode is AutoresetMode.NEXT_STEP else {}
    assert log is not None
    assert all(value.isfinite() for value in log.values())
    assert not step.truncated.any()
    assert env.reward_manager.episode_sum.isfinite().all()
    assert env.reward_manager.finished.isfinite().all()
    for one in (env, alone):
        one.close()


def test_by_default_a_nan_stays_to_be_found() -> None:
    env = make()
    env.scene.engine.write_qvel(torch.full((1, 1), torch.nan), [6], torch.tensor([1]))
    step = env.step(torch.zeros(3, 1))
    assert step.observations["policy"][1].isnan().any()
    assert not step.done.any()
    env.close()


@pytest.mark.parametrize(("iterations", "trusted"), [(1, False), (100, True)])
def test_steps_that_did_not_converge_are_counted_and_told_of(iterations: int, trusted: bool) -> None:
    env = make(iterations=iterations)
    logged = []
    for _ in range(40):
        step = env.step(torch.ones(3, 1))
        logged += [
            log["Solver/unconverged"].item() for log in [step.info.get("log", {})] if "Solver/unconverged" in log
        ]
    engine = env.scene.engine
    assert engine.solved == 2 * 40 * 3  # an explicit actuator looks at every physics step
    share = engine.unconverged / engine.solved
    assert logged == pytest.approx([share, share] if engine.unconverged else [], abs=0.3)
    remarks: list[str] = []
    remark_on_solver(env, remarks.append)
    if trusted:
        assert share < 0.01
        assert remarks == []
    else:
        assert share > 0.5
        assert remarks[0].startswith("the solver had not converged after 1 iterations in ")
        assert remarks[0].endswith("raise `env.simulation.solver.iterations`, or shorten `env.simulation.dt`")
    env.close()
