"""What is exported for deploy stacks is what they read: field by field, and on the robot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml

from genelab.cli.main import run as genelab
from genelab.errors import GenelabError, UsageError
from genelab.rl import export_for, train_task
from genelab.rl.targets import run
from genelab.rl.targets.folded import Script
from tests.narrow import present
from tests.unitree.stacks import MjlabReader, Stack, UnitreeController, Unreadable

pytestmark = pytest.mark.xdist_group("stacks")

GO1, G1 = (f"Genelab-Velocity-Flat-Unitree-{robot}-v0" for robot in ("Go1", "G1"))
GO2W, ROUGH = "Genelab-Velocity-Flat-Unitree-Go2W-v0", "Genelab-Velocity-Rough-Unitree-Go1-v0"
LEGS = [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")]
"""Go1's motors in the order of Unitree's SDK."""
WIDTHS = {
    "base_ang_vel": 3,
    "projected_gravity": 3,
    "joint_pos": 12,
    "joint_vel": 12,
    "actions": 12,
    "command": 3,
    "gait_phase": 2,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Go1 for all of them."""
    home = tmp_path_factory.mktemp("stacks")
    for target in ("mujoco", "unitree", "mjlab"):
        export_for(target, GO1, "pretrained", out=home / target)
    return home


def unitree(home: Path) -> UnitreeController:
    return UnitreeController(home, LEGS, LEGS)


def mjlab(home: Path) -> MjlabReader:
    return MjlabReader(home / "policy.onnx", LEGS, WIDTHS)


def test_deploy_yaml_of_go1_field_by_field(home: Path) -> None:
    cfg = unitree(home / "unitree").cfg
    assert list(cfg) == [
        "joint_ids_map",
        "step_dt",
        "stiffness",
        "damping",
        "default_joint_pos",
        "commands",
        "actions",
        "observations",
    ]
    assert (cfg["joint_ids_map"], cfg["step_dt"]) == (list(range(12)), 0.02)
    assert (set(cfg["stiffness"]), set(cfg["damping"])) == ({25.0}, {0.5})
    assert cfg["default_joint_pos"] == pytest.approx([0.0, 0.9, -1.8] * 4)
    ranges = {"lin_vel_x": [-1.0, 1.0], "lin_vel_y": [-1.0, 1.0], "ang_vel_z": [-1.0, 1.0]}
    assert cfg["commands"] == {"base_velocity": {"ranges": ranges}}
    action = cfg["actions"]["JointPositionAction"]
    assert action["scale"] == [0.25] * 12
    assert action["offset"] == pytest.approx([0.0, 0.77, -1.35] * 4)
    assert (action["clip"], action["joint_ids"], action["joint_names"]) == (None, None, [".*"])
    told = {name: (len(term["scale"]), term["history_length"]) for name, term in cfg["observations"].items()}
    assert told == {
        "base_ang_vel": (3, 1),
        "projected_gravity": (3, 1),
        "joint_pos_rel": (12, 1),
        "joint_vel_rel": (12, 1),
        "last_action": (12, 1),
        "velocity_commands": (3, 52),  # half a second of running out, a period, now, and the step before
        "gait_phase": (2, 2),
    }
    assert cfg["observations"]["gait_phase"]["params"] == {"period": 0.5}


def test_metadata_props_of_go1_field_by_field(home: Path) -> None:
    props = mjlab(home / "mjlab").props
    assert props["joint_names"] == LEGS
    assert [float(value) for value in props["default_joint_pos"]] == pytest.approx([0.0, 0.9, -1.8] * 4)
    assert {float(value) for value in props["joint_stiffness"]} == {25.0}
    assert {float(value) for value in props["joint_damping"]} == {0.5}
    assert {float(value) for value in props["action_scale"]} == {0.25}
    assert props["command_names"] == ["twist"]
    assert props["observation_names"] == list(WIDTHS)
    assert props["observation_terms_history_length"] == ["0", "0", "0", "0", "0", "52", "2"]
    assert props["observation_history_lengths"] == ["1", "1", "1", "1", "1", "52", "2"]
    assert props["run_path"] == [GO1]  # the directory's name, and no path of this machine
    assert {float(value) for value in props["observation_terms_flatten_history_dim"]} == {1.0}


LEG = ["hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll"]
ARM = ["shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll", "wrist_pitch", "wrist_yaw"]
WAIST = ["yaw", "roll", "pitch"]
G1_MOTORS = [
    *(f"{side}_{part}_joint" for side in ("left", "right") for part in LEG),
    *(f"waist_{part}_joint" for part in WAIST),
    *(f"{side}_{part}_joint" for side in ("left", "right") for part in ARM),
]
"""G1's motors in the order of Unitree's SDK."""
SMALL, LARGE, LARGEST, SMALLEST, PAIR = (14.2506, 25), (40.1792, 88), (99.0984, 139), (16.7783, 5), (28.5012, 50)
"""Stiffness, N·m/rad, and peak torque, N·m, of the motors 5020, 7520-14, 7520-22, 4010 and two 5020."""
G1_DRIVES = [
    *2 * [LARGE, LARGEST, LARGE, LARGEST, PAIR, PAIR],
    *[LARGE, PAIR, PAIR],
    *2 * [SMALL, SMALL, SMALL, SMALL, SMALL, SMALLEST, SMALLEST],
]
G1_POSE = [*2 * [-0.312, 0, 0, 0.669, -0.363, 0], 0, 0, 0, 0.2, 0.2, 0, 0.6, 0, 0, 0, 0.2, -0.2, 0, 0.6, 0, 0, 0]
HERTZ = 20 * np.pi
"""Of the servos, rad/s: they are damped at twice the critical ratio."""


@pytest.fixture(scope="module")
def g1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("g1")
    for target in ("unitree", "mjlab"):
        export_for(target, G1, "pretrained", out=home / target)
    return home


def g1_gains() -> tuple[list[float], list[float], list[float]]:
    """Stiffness, damping and the angle of a unit action, which a quarter of the peak torque would hold."""
    stiffness = [gain for gain, _ in G1_DRIVES]
    return stiffness, [4 * gain / HERTZ for gain in stiffness], [0.25 * peak / gain for gain, peak in G1_DRIVES]


def test_deploy_yaml_of_g1_field_by_field(g1: Path) -> None:
    controller = UnitreeController(g1 / "unitree", G1_MOTORS, G1_MOTORS)
    cfg, (stiffness, damping, scale) = controller.cfg, g1_gains()
    assert (cfg["joint_ids_map"], cfg["step_dt"]) == (list(range(29)), 0.02)
    assert cfg["stiffness"] == pytest.approx(stiffness, rel=1e-4)
    assert cfg["damping"] == pytest.approx(damping, rel=1e-4)
    assert controller.gains == [pytest.approx(pair, rel=1e-4) for pair in zip(stiffness, damping, strict=True)]
    assert cfg["default_joint_pos"] == pytest.approx(G1_POSE)
    ranges = {"lin_vel_x": [-1.0, 1.0], "lin_vel_y": [-1.0, 1.0], "ang_vel_z": [-0.5, 0.5]}
    assert cfg["commands"] == {"base_velocity": {"ranges": ranges}}
    action = cfg["actions"]["JointPositionAction"]
    assert action["scale"] == pytest.approx(scale, rel=1e-4)
    bent = dict(zip(G1_MOTORS, np.subtract(action["offset"], G1_POSE), strict=True))
    assert {name: round(angle, 6) for name, angle in bent.items() if abs(angle) > 1e-6} == {
        f"{side}_{part}_joint": angle
        for side in ("left", "right")
        for part, angle in (("hip_pitch", 0.05), ("knee", -0.1), ("ankle_pitch", 0.05))
    }  # the step under the action begins with straighter knees
    assert (action["clip"], action["joint_ids"], action["joint_names"]) == (None, None, [".*"])
    told = {name: (len(term["scale"]), term["history_length"]) for name, term in cfg["observations"].items()}
    assert told == {
        "base_ang_vel": (3, 1),
        "projected_gravity": (3, 1),
        "joint_pos_rel": (29, 1),
        "joint_vel_rel": (29, 1),
        "last_action": (29, 1),
        "velocity_commands": (3, 86),  # a second of running out, a period of 2/3 s, now, and the step before
        "gait_phase": (2, 2),
    }
    assert cfg["observations"]["gait_phase"]["params"] == {"period": pytest.approx(2 / 3)}
    assert all((term["clip"], set(term["scale"])) == (None, {1.0}) for term in cfg["observations"].values())


def test_metadata_props_of_g1_field_by_field(g1: Path) -> None:
    widths = {**WIDTHS, "joint_pos": 29, "joint_vel": 29, "actions": 29}
    props = MjlabReader(g1 / "mjlab" / "policy.onnx", G1_MOTORS, widths).props
    assert props["joint_names"] == G1_MOTORS
    found = {key: [float(value) for value in props[key]] for key in props if key.startswith(("joint_s", "joint_d"))}
    stiffness, damping, scale = g1_gains()
    assert found["joint_stiffness"] == pytest.approx(stiffness, rel=1e-4)
    assert found["joint_damping"] == pytest.approx(damping, rel=1e-4)
    assert [float(value) for value in props["action_scale"]] == pytest.approx(scale, rel=1e-4)
    assert [float(value) for value in props["default_joint_pos"]] == pytest.approx(G1_POSE)
    assert props["command_names"] == ["twist"]
    assert props["observation_names"] == list(widths)
    assert props["observation_terms_history_length"] == ["0", "0", "0", "0", "0", "86", "2"]
    assert {float(value) for value in props["observation_terms_scale"]} == {1.0}
    assert set(props["observation_terms_clip"]) == {"-inf;inf"}
    assert {float(value) for value in props["observation_terms_flatten_history_dim"]} == {1.0}


def walk(stack: Stack, world: Path, command: tuple[float, float, float], seconds: float) -> np.ndarray:
    """Mean velocity in the second half, in a world with the stack as its controller: forward, left, turning."""
    about = run.read_metadata(world)
    robot = run.Simulation(run.load_world(world / "world.xml"), about)
    robot.reset(np.random.default_rng(0))
    (group,) = about["obs_groups"].values()
    root = group["terms"][0]["source"]["body"]
    last, made, clock = np.zeros(12), [], about["commands"]["gait"]["period"]
    steps = round(seconds / 0.02)
    for step in range(steps):
        pos, vel = (robot.joints("robot", stack.joints, what) for what in ("pos", "vel"))
        readings = {
            "base_ang_vel": robot.read_sensors({"kind": "ang_vel", "body": root}),
            "projected_gravity": robot.read_sensors({"kind": "gravity", "body": root}),
            "joint_pos": pos - stack.default,
            "joint_vel": vel,
            "actions": last,
            "command": np.array(command),
            "gait_phase": stack.gait_phase(clock, 0.02),
        }
        also = {"joint_pos_rel": "joint_pos", "joint_vel_rel": "joint_vel"}
        also |= {"last_action": "actions", "velocity_commands": "command"}  # the same, by other names
        readings |= {name: readings[other] for name, other in also.items()}
        last = stack.act(readings)
        targets = stack.offset + stack.scale * last
        robot.write_motors(
            {"position": {f"robot/{name}": value for name, value in zip(stack.joints, targets, strict=True)}}
        )
        assert robot.ended() is None
        if step >= steps // 2:
            moving, turning = (robot.read_sensors({"kind": kind, "body": root}) for kind in ("lin_vel", "ang_vel"))
            made.append([*moving[:2], turning[2]])
    return np.mean(made, axis=0)


@pytest.mark.parametrize("read", [unitree, mjlab], ids=["unitree", "mjlab"])
@pytest.mark.parametrize(
    "command", [(0.8, 0.0, 0.0), (0.0, 0.0, -0.8), (0.0, 0.0, 0.0)], ids=["ahead", "turn", "stand"]
)
def test_go1_walks_under_a_stack(
    read: Callable[[Path], Stack], command: tuple[float, float, float], home: Path
) -> None:
    """With its scripted step in the graph, it follows the command as it does here, and stands if nothing is asked."""
    made = walk(read(home / str(read.__name__)), home / "mujoco", command, seconds=4.0)
    assert made == pytest.approx(np.array(command), abs=0.1)


def test_strides_that_follow_a_mean_are_in_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last 25 commands, which change twice a second; who took the newest alone is found out."""
    often = {"env.commands.twist.resampling_time_range": "[0.3,0.6]"}
    export_for("unitree", GO1, "pretrained", out=tmp_path / "mean", overrides=often)
    monkeypatch.setattr(Script, "frames", property(lambda _: 1, lambda *_: None), raising=False)
    with pytest.raises(GenelabError, match="the folded policy is not the live one"):
        export_for("unitree", GO1, "pretrained", out=tmp_path / "newest", overrides=often)


def test_motors_in_another_order_get_what_is_theirs(tmp_path: Path) -> None:
    motors = LEGS[::-1]
    export_for("unitree", GO1, "pretrained", out=tmp_path, settings={"motor_order": ",".join(motors)})
    controller = UnitreeController(tmp_path, LEGS, motors)
    assert controller.cfg["joint_ids_map"] == list(range(11, -1, -1))
    with pytest.raises(Unreadable, match="joint_ids_map gives joints to the motors of others"):
        unitree(tmp_path)
    with pytest.raises(UsageError, match="must name each joint of the robot once; FL_calf_joint is not in both"):
        export_for("unitree", GO1, "pretrained", out=tmp_path, settings={"motor_order": "FR_hip_joint"})


def rewritten(path: Path, change: Callable[[Any], None]) -> None:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)


def _dynamic(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"


def _other_joints(model: Any) -> None:
    for entry in model.metadata_props:
        if entry.key == "joint_names":
            entry.value = ",".join(LEGS[::-1])


def _other_term(model: Any) -> None:
    for entry in model.metadata_props:
        if entry.key == "observation_names":
            entry.value = entry.value.replace("projected_gravity", "sonar")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_dynamic, "is not static"),
        (_other_joints, "joint_names are not the robot's, in its order"),
        (_other_term, "the observation sonar is not known"),
    ],
)
def test_the_reader_of_metadata_props_catches_what_is_wrong(
    change: Callable[[Any], None], message: str, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy.onnx").write_bytes((home / "mjlab" / "policy.onnx").read_bytes())
    rewritten(tmp_path / "policy.onnx", change)
    with pytest.raises(Unreadable, match=message):
        mjlab(tmp_path)


def test_the_reader_of_deploy_yaml_catches_what_is_wrong(home: Path, tmp_path: Path) -> None:
    for name in ("exported/policy.onnx", "params/deploy.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes((home / "unitree" / name).read_bytes())
    path = tmp_path / "params" / "deploy.yaml"
    cfg = yaml.safe_load(path.read_text())
    sonar = {**cfg["observations"], "sonar": cfg["observations"]["base_ang_vel"]}
    for wrong, message in (
        ({**cfg, "observations": sonar}, "the observation sonar is not known"),
        ({**cfg, "joint_ids_map": [1, 0, *range(2, 12)]}, "joint_ids_map gives joints to the motors of others"),
        ({**cfg, "stiffness": cfg["stiffness"][1:]}, "stiffness has 11 entries for 12 joints"),
    ):
        path.write_text(yaml.safe_dump(wrong))
        with pytest.raises(Unreadable, match=message):
            unitree(tmp_path)
    path.write_text(yaml.safe_dump(cfg))
    unitree(tmp_path)
    rewritten(tmp_path / "exported" / "policy.onnx", _dynamic)
    with pytest.raises(Unreadable, match="is not static"):
        unitree(tmp_path)


@pytest.mark.parametrize(
    ("task", "target", "message"),
    [
        (GO2W, "unitree", "unitree does not know the action 'wheel_vel', a RollingAction"),
        (ROUGH, "unitree", "unitree does not know the observation 'height_scan': it knows base_ang_vel"),
        (ROUGH, "mjlab", "mjlab does not know the observation 'height_scan': it knows base_lin_vel"),
    ],
)
def test_what_a_stack_does_not_know_is_refused_by_name(
    task: str, target: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert genelab(["export", task, "pretrained", "--for", target, "--out", str(tmp_path / "out")]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_motion_is_in_the_graph_of_who_follows_it(tmp_path: Path) -> None:
    """Two inputs, seven outputs: with the actions the motion's frame of that number."""
    task = "Genelab-Tracking-Flat-Unitree-G1-No-State-Estimation-v0"
    trained = train_task(task, num_envs=4, max_iterations=1, seed=1, log_dir=tmp_path / "run").checkpoint
    about = export_for("mjlab", task, trained, out=tmp_path).metadata
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    joints = about["entities"]["robot"]["joint_names"]
    assert [(port.name, port.shape) for port in session.get_inputs()] == [
        ("obs", [1, about["obs_dim"]]),
        ("time_step", [1, 1]),
    ]
    names = ["actions", "joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w"]
    assert [port.name for port in session.get_outputs()] == names
    clip = np.load(present(pretrained_clip()))
    obs = np.zeros((1, about["obs_dim"]), np.float32)
    for frame in (0, 7):
        answer = dict(
            zip(names, session.run(None, {"obs": obs, "time_step": np.array([[frame]], np.float32)}), strict=True)
        )
        assert answer["actions"].shape == (1, len(joints))
        assert answer["body_quat_w"].shape == (1, 14, 4)
        assert answer["joint_pos"][0] == pytest.approx(clip["joint_pos"][frame], abs=1e-5)
    props = {entry.key: entry.value for entry in onnx.load(tmp_path / "policy.onnx").metadata_props}
    assert props["anchor_body_name"] == "torso_link"
    assert props["body_names"].split(",")[0] == "pelvis"
    assert props["observation_names"].split(",") == [
        "command",
        "motion_anchor_ori_b",
        "base_ang_vel",
        "joint_pos",
        "joint_vel",
        "actions",
    ]


def pretrained_clip() -> Path:
    import genelab_unitree

    return Path(present(genelab_unitree.__file__)).parent / "clips" / "dance.npz"
