"""The velocity probe, on a puck that a stub policy moves at a known share of the command."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from genelab import mdp
from genelab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from genelab.managers import ObservationGroupCfg, ObservationTermCfg, TerminationTermCfg, UniformNoiseCfg
from genelab.mdp import VelocityCommandCfg
from genelab.mdp.velocity_probe import VelocityProbe, directions_of
from genelab.rl.backends.base import InferenceSetup
from genelab.rl.probe import probes_of, run_probe
from genelab.scene import ArticulationCfg, IdealPdActuatorCfg, InitialStateCfg, SceneCfg, mjcf_text
from genelab.scene.terrains import FlatCfg, GeneratedTerrain, TerrainCfg, TerrainGeneratorCfg
from genelab.sim import SimulationCfg
from genelab.statistics import share_interval
from tests.mdp.hopper import twist
from tests.narrow import present

PUCK = """
<mujoco>
  <worldbody>
    <body name="puck"><freejoint/><geom size=".1" mass="1"/>
      <body name="knob"><joint name="knob"/><geom size=".01" mass=".001"/></body>
    </body>
  </worldbody>
</mujoco>
"""
COMMAND = VelocityCommandCfg(
    resampling_time_range=(1.0, 2.0), lin_vel_x=(-0.5, 1.0), lin_vel_y=(-0.4, 0.4), ang_vel_z=(-1.0, 1.0)
)


def puck_env(terrain: TerrainCfg | None, num_envs: int) -> ManagerBasedRlEnv:
    """A puck without weight that floats, on a ground or nowhere."""
    robot = ArticulationCfg(
        spec=mjcf_text,
        spec_args={"xml": PUCK},
        init_state=InitialStateCfg(pos=(0.0, 0.0, 0.5)),
        actuators={"knob": IdealPdActuatorCfg(joint_names=("knob",))},
    )
    see = {"command": ObservationTermCfg(func=mdp.generated_command, params={"command": "twist"})}
    return ManagerBasedRlEnv(
        ManagerBasedRlEnvCfg(
            scene=SceneCfg(num_envs=num_envs, entities={"robot": robot}, terrain=terrain),
            simulation=SimulationCfg(engine="mujoco", gravity=(0.0, 0.0, 0.0), threads=1),
            decimation=4,
            episode_length_s=20.0,
            actions={"knob": mdp.JointEffortActionCfg()},
            observations={"policy": ObservationGroupCfg(terms=see)},
            commands={"twist": COMMAND},
            terminations={"fell": TerminationTermCfg(func=mdp.bad_orientation, params={"limit": 1.0})},
        )
    )


@pytest.fixture
def env() -> Iterator[ManagerBasedRlEnv]:
    env = puck_env(None, 36)
    yield env
    env.close()


NOBODY = torch.zeros(36, dtype=torch.bool)


def moving(env: ManagerBasedRlEnv, share: Tensor, falls: Tensor, yaw: float = 0.0) -> InferenceSetup:
    """Moves each robot at its share of what it sees as the command; some fall over after three seconds."""
    steps = 0

    def policy(observations: dict[str, Tensor]) -> Tensor:
        nonlocal steps
        steps += 1
        velocity = torch.zeros(env.num_envs, 6)
        heading = env.robot.heading_w
        forward = torch.stack((heading.cos(), heading.sin()), dim=1)
        left = torch.stack((-heading.sin(), heading.cos()), dim=1)
        seen = observations["policy"] * share[:, None]
        if isinstance(env.scene.terrain, GeneratedTerrain):  # beyond their cell they stop
            seen *= env.scene.terrain.in_own_cell(env.robot.root_pos_w)[:, None]
        velocity[:, :2] = seen[:, :1] * forward + seen[:, 1:2] * left
        velocity[:, 5] = seen[:, 2] + yaw
        env.robot.write_root_velocity(velocity, None)
        if steps == 150:
            pose = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]).repeat(int(falls.sum()), 1)
            env.robot.write_root_pose(pose, falls.nonzero().flatten())
        return torch.zeros(env.num_envs, 1)

    return InferenceSetup(policy=policy)


def test_directions_are_the_fastest_commands_slow_turns_and_standing() -> None:
    assert directions_of(COMMAND.lin_vel_x, COMMAND.lin_vel_y, COMMAND.ang_vel_z) == {
        "forward": (1.0, 0.0, 0.0),
        "backward": (-0.5, 0.0, 0.0),
        "left": (0.0, 0.4, 0.0),
        "right": (0.0, -0.4, 0.0),
        "turn left": (0.0, 0.0, 1.0),
        "turn right": (0.0, 0.0, -1.0),
        "slow turn left": (0.0, 0.0, 0.2),
        "slow turn right": (0.0, 0.0, -0.2),
        "stand": (0.0, 0.0, 0.0),
    }


@pytest.mark.parametrize(
    ("forward", "turn", "expected"),
    [
        ((0.5, 1.0), (-0.1, 0.1), {"forward": 1.0, "turn left": 0.1, "turn right": -0.1}),
        ((-1.0, -0.5), (0.5, 1.0), {"backward": -1.0, "turn left": 1.0, "slow turn left": 0.2}),
        ((0.0, 0.0), (-1.0, -0.3), {"turn right": -1.0, "slow turn right": -0.2}),
    ],
)
def test_only_directions_that_the_ranges_go_and_each_once(
    forward: tuple[float, float], turn: tuple[float, float], expected: dict[str, float]
) -> None:
    found = directions_of(forward, (0.0, 0.0), turn)
    assert {name: sum(command) for name, command in found.items()} == {**expected, "stand": 0.0}


def test_it_reports_the_share_of_each_direction_and_who_fell(
    env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 4)
    assert list(probes_of(env)) == ["velocity_probe"]
    share, falls = torch.full((36,), 0.75), torch.zeros(36, dtype=torch.bool)
    share[4:8] = torch.tensor([0.5, 1.0, 0.5, 1.0])  # backward: the share is that of the fastest commands
    falls[9:11] = True  # two that go left
    wanted = twist(env).probe()
    probe = run_probe(env, moving(env, share, falls), wanted, seed=0)
    found = {direction.name: direction for direction in probe.directions}
    assert probe.report()["envs_per_direction"] == 4
    assert "kinds" not in probe.report()
    assert found["forward"].fraction == pytest.approx(0.75, abs=1e-3)
    assert found["backward"].fraction == pytest.approx(0.5, abs=1e-3)
    assert found["backward"].achieved == pytest.approx(0.25, abs=1e-3)
    assert found["left"].fraction == pytest.approx(0.75, abs=1e-3)
    assert found["slow turn right"].fraction == pytest.approx(0.75, abs=1e-3)
    assert found["stand"].fraction is None
    assert found["stand"].achieved == pytest.approx(0.0, abs=1e-6)
    assert {name: one.falls for name, one in found.items() if one.falls} == {"left": 2}
    assert probe.falls == 2
    assert probe.report()["directions"]["forward"]["command"] == (1.0, 0.0, 0.0)


def test_errors_and_drift_show_what_was_not_asked_for(env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every robot goes at 120 % of its command, and turns by 0.1 rad/s to the left besides."""
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 4)
    probe = run_probe(env, moving(env, torch.full((36,), 1.2), NOBODY, yaw=0.1), twist(env).probe(), seed=0)
    found = {direction.name: direction for direction in probe.directions}
    forward, slow, stand = found["forward"], found["slow turn left"], found["stand"]
    assert forward.fraction == pytest.approx(1.2, abs=1e-3)
    assert forward.velocity == pytest.approx((1.2, 0.0, 0.1), abs=3e-3)
    # Commands of 1, 0.625, 1 and 0.875 m/s.
    mean = (1.0 + 0.625 + 1.0 + 0.875) / 4
    assert forward.error == pytest.approx((0.2 * mean, 0.0, 0.1), abs=3e-3)
    followed = [1 - math.hypot(0.2 * asked, 0.1) / asked for asked in (1.0, 0.625, 1.0, 0.875)]
    assert forward.followed == pytest.approx(sum(followed) / 4, abs=1e-3)
    assert forward.heading_drift == pytest.approx(math.degrees(0.1 * 10.0), abs=0.1)
    assert slow.fraction == pytest.approx(1.2 + 0.5, abs=1e-3)  # not a success
    assert slow.followed == pytest.approx(1 - (0.2 + 0.1 * (1 + 1 / 0.625 + 1 + 1 / 0.875) / 4 / 0.2), abs=1e-3)
    assert (stand.fraction, stand.followed) == (None, None)
    assert stand.error == pytest.approx((0.0, 0.0, 0.1), abs=1e-3)


def test_copies_count_as_one_trial(env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of 36 fell: but of the four of a direction, the two with the same command did the same."""
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 4)
    probe = run_probe(env, moving(env, torch.ones(36), NOBODY), twist(env).probe(), seed=0)
    found = {direction.name: direction.trials for direction in probe.directions}
    assert found == {**dict.fromkeys(found, 3), "stand": 1}
    report = probe.report()
    assert (report["robots"], report["trials"], report["falls"]) == (36, 25, 0)
    assert report["falls_ci95"] == share_interval(0, 25)
    share = torch.ones(36)
    share[2] = 1.01
    probe = run_probe(env, moving(env, share, NOBODY), twist(env).probe(), seed=0)
    assert probe.directions[0].trials == 4


def test_robots_start_a_little_off_and_see_the_noise_of_training(
    env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 4)
    group = env.observation_manager.groups["policy"]
    group.cfg.enable_noise = False
    starts: list[Tensor] = []

    def policy(observations: dict[str, Tensor]) -> Tensor:
        starts.append(torch.cat((env.robot.root_lin_vel_w, env.robot.root_ang_vel_w, env.robot.joint_pos), dim=1))
        assert group.is_noisy
        return torch.zeros(36, 1)

    group.cfgs["command"].noise = UniformNoiseCfg(low=-0.1, high=0.1)
    for seed in (0, 0, 1):
        probe = run_probe(env, InferenceSetup(policy=policy), twist(env).probe(), seed=seed)
        starts[-1] = starts[-500]
    first, again, other = starts[499::500]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(first.unique(dim=0)) == 36
    assert first.abs().amax(dim=0) == pytest.approx([0.1, 0.1, 0.0, 0.0, 0.0, 0.1, 0.02], abs=0.01)
    assert probe.report()["noise"]
    assert not group.is_noisy  # what comes next has none again


def test_each_kind_of_ground_is_judged_by_itself_and_nobody_beyond_his_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VelocityProbe, "seconds", 4.0)
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 8)
    ground = TerrainGeneratorCfg(
        sub_terrains={"grass": FlatCfg(), "sand": FlatCfg()}, cell_size=4.0, rows=3, columns=2, max_init_level=1
    )
    env = puck_env(ground, 9 * 8)
    assert twist(env).probe().rounds == 1
    grass = torch.tensor([True] * 4 + [False] * 4).repeat(9)
    share, falls = torch.where(grass, 1.0, 0.5), torch.zeros(72, dtype=torch.bool)
    falls[8:10] = True  # two of those that go backward, on grass
    wanted = twist(env).probe()
    probe = run_probe(env, moving(env, share, falls), wanted, seed=0)
    found = {kind: {one.name: one for one in directions} for kind, directions in probe.kinds.items()}
    assert list(found) == ["grass", "sand"]
    # From 1.5 m before the middle, 3.5 m at 1 m/s take 3.5 of the 4 s; the rest is beyond the cell.
    assert found["grass"]["forward"].fraction == pytest.approx(1.0, abs=1e-3)
    assert found["sand"]["forward"].fraction == pytest.approx(0.5, abs=1e-3)
    assert found["sand"]["turn left"].fraction == pytest.approx(0.5, abs=1e-3)
    assert [found[kind]["backward"].falls for kind in found] == [2, 0]
    assert probe.falls == 2
    report = probe.report()
    assert report["levels"] == 2
    assert report["kinds"]["grass"]["backward"]["falls"] == 2
    env.close()


def test_robots_take_turns_where_there_are_fewer_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine directions of 4 robots in 8 environments: five rounds, of which the last is half empty."""
    monkeypatch.setattr(VelocityProbe, "seconds", 1.5)
    monkeypatch.setattr(VelocityProbe, "envs_per_direction", 4)
    env = puck_env(None, 8)
    rounds: list[list[list[float]]] = []
    share, nobody = torch.full((8,), 0.5), torch.zeros(8, dtype=torch.bool)
    setup = moving(env, share, nobody)

    def forget(dones: Tensor | None) -> None:
        if dones is None:
            rounds.append(env.commands["twist"].tolist())

    probe = twist(env).probe()
    assert (probe.robots, probe.rounds) == (36, 5)
    run_probe(env, InferenceSetup(policy=setup.policy, reset=forget), probe, seed=0)
    asked = list(directions_of(COMMAND.lin_vel_x, COMMAND.lin_vel_y, COMMAND.ang_vel_z).values())
    assert len(rounds) == 5
    expected = torch.tensor([[part * speed for part in one] for one in asked for speed in (1.0, 0.625, 1.0, 0.875)])
    assert torch.tensor(rounds).flatten(0, 1)[:36].allclose(expected)
    fractions = [direction.fraction for direction in probe.directions[:-1]]
    assert fractions == pytest.approx([0.5] * 8, abs=1e-3)
    assert (probe._time == 25).all()  # half a second of 20 ms counts for each robot, once
    assert not present(env.commands.term("twist").fixed).any()  # others may be judged now
    env.close()


def test_a_small_world_has_as_many_robots_per_direction_as_environments() -> None:
    env = puck_env(None, 3)
    probe = twist(env).probe()
    assert (probe.group, probe.rounds) == (3, 9)
    env.close()
