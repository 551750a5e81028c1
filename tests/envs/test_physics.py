"""The physics of a training config, carried into the config its policies are judged in."""

from __future__ import annotations

from genelab import TASKS
from genelab.envs import (
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    describe_physics,
    physics_changes,
    rl_cfg,
    with_physics,
)
from genelab.scene import ArticulationCfg, IdealPdActuatorCfg
from genelab_pendulum.robots import double_pendulum, single_pendulum
from tests.narrow import as_kind

TASK = "GeneLab-Inverted-Pendulum-v0"


def configs() -> tuple[ManagerBasedRlEnvCfg, ManagerBasedRlEnvCfg]:
    """A config to judge in, and one to train in with physics of its own."""
    fine, coarse = rl_cfg(TASK, play=True), rl_cfg(TASK)
    coarse.simulation.dt, coarse.decimation = 0.01, 1
    coarse.simulation.solver.iterations = 3
    coarse.scene.entities["robot"].spec = double_pendulum
    return fine, coarse


def test_only_the_physics_are_carried_over() -> None:
    fine, coarse = configs()
    coarse.simulation.engine, coarse.simulation.threads, coarse.simulation.vis = "genesis", 3, False
    coarse.scene.entities["robot"].init_state.pos = (1.0, 0.0, 0.0)
    coarse.scene.terrain = None
    judged = with_physics(fine, coarse)
    assert (judged.simulation.dt, judged.decimation, judged.simulation.solver.iterations) == (0.01, 1, 3)
    assert judged.scene.entities["robot"].spec is double_pendulum
    assert (judged.simulation.engine, judged.simulation.threads, judged.simulation.vis) == ("auto", 0, True)
    assert judged.scene.entities["robot"].init_state.pos is None
    assert judged.scene.terrain == fine.scene.terrain
    assert (judged.rewards, judged.events, judged.observations) == (fine.rewards, fine.events, fine.observations)
    assert "push_cart" in coarse.events
    assert fine.scene.entities["robot"].spec is single_pendulum  # nothing else was touched
    judged.simulation.solver.iterations = 7
    assert coarse.simulation.solver.iterations == 3


def test_a_thing_that_only_one_of_them_has_stays_out_of_it() -> None:
    fine, coarse = configs()
    coarse.scene.entities["helper"] = coarse.scene.entities["robot"]
    fine.scene.entities["prop"] = fine.scene.entities["robot"]
    judged = with_physics(fine, coarse)
    assert list(judged.scene.entities) == ["robot", "prop"]
    assert judged.scene.entities["prop"].spec is single_pendulum


def test_changes_name_what_differs_and_nothing_else() -> None:
    fine, coarse = configs()
    coarse.scene.entities["robot"].spec_args = {"sole": (2, 6)}
    changes = physics_changes(fine, coarse)
    assert changes == {
        "env.scene.entities.robot.spec": {
            "fine": "genelab_pendulum.robots:single_pendulum",
            "coarse": "genelab_pendulum.robots:double_pendulum",
        },
        "env.scene.entities.robot.spec_args.sole": {"fine": None, "coarse": "(2, 6)"},
        "env.simulation.dt": {"fine": "0.005", "coarse": "0.01"},
        "env.simulation.solver.iterations": {"fine": "none", "coarse": "3"},
        "env.decimation": {"fine": "2", "coarse": "1"},
    }
    assert describe_physics({path: changes[path] for path in list(changes)[1:]}, "fine") == (
        "env.simulation.dt=0.005, env.simulation.solver.iterations=none, env.decimation=2, "
        "env.scene.entities.robot.spec_args.sole unset"
    )


def test_the_kind_of_an_actuator_is_physics() -> None:
    task = TASKS.get(TASK)
    actuators = as_kind(task.env.scene.entities["robot"], ArticulationCfg).actuators
    actuators["cart"] = IdealPdActuatorCfg(**vars(actuators["cart"]))
    assert physics_changes(task.playing, task.env) == {
        "env.scene.entities.robot.actuators.cart": {"fine": "ImplicitPdActuatorCfg", "coarse": "IdealPdActuatorCfg"}
    }


def test_a_task_may_have_one_physics() -> None:
    task = TASKS.get(TASK)
    assert physics_changes(task.playing, task.env) == {}


def test_the_world_is_stepped_by_them() -> None:
    fine, coarse = configs()
    coarse.scene.entities["robot"].spec = single_pendulum
    env = ManagerBasedRlEnv(with_physics(fine, coarse))
    assert (env.physics_dt, env.step_dt, env.scene.engine.model.opt.timestep) == (0.01, 0.01, 0.01)
    env.close()
