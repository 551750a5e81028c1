"""`genelab new-task`: from a model of somebody else to a project that trains."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from benchmarks import solver
from genelab.cli.main import run
from tests.lacking import lacking

ASSETS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
INERTIA = '<inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>'
BOX = '<collision><geometry><box size=".05 .05 .2"/></geometry></collision>'
ARM = f"""
<robot name="arm">
  <link name="base"/><link name="upper">{INERTIA}{BOX}</link><link name="hand">{INERTIA}{BOX}</link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 .2"/>
    <axis xyz="0 1 0"/><limit lower="1" upper="2" effort="40" velocity="3"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="hand"/><origin xyz="0 0 .3"/>
    <axis xyz="0 1 0"/></joint>
</robot>
"""
FINGERS = (
    ARM.replace("</robot>", "")
    + "".join(
        f'<link name="{side}">{INERTIA}{BOX}</link><joint name="{side}_finger" type="prismatic"><parent link="hand"/>'
        f'<child link="{side}"/><origin xyz="0 {y} .3"/><axis xyz="0 1 0"/>'
        '<limit lower="0" upper=".04" effort="20" velocity="1"/></joint>'
        for side, y in (("left", 0.1), ("right", -0.1))
    ).replace('izz=".01"', 'izz=".03"', 1)
    + "</robot>"
)
LEGS = "".join(
    f'<body name="{name}_leg" pos="{x} {y} 0"><joint name="{name}_hip" axis="0 1 0" range="-60 60"/>'
    '<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".5"/>'
    f'<body name="{name}_shin_guard"><geom type="box" pos=".03 0 -.1" size=".01 .01 .01" mass="0"/></body></body>'
    for name, x, y in (("FL", 0.2, 0.1), ("FR", 0.2, -0.1), ("RL", -0.2, 0.1), ("RR", -0.2, -0.1))
)
DOG = f"""
<mujoco>
  <option integrator="RK4" timestep="0.004"/>
  <worldbody>
    <body name="trunk" pos="0 0 1"><freejoint/><geom type="box" size=".3 .1 .05" mass="6"/>{LEGS}</body>
  </worldbody>
  <keyframe><key name="home" qpos="0 0 1 1 0 0 0  .1 .1 -.1 -.1"/></keyframe>
</mujoco>
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("brought_"):
            del sys.modules[name]


def works(project: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the project's own test."""
    monkeypatch.syspath_prepend(str(project))
    path = project / "tests/test_task.py"
    spec = importlib.util.spec_from_file_location(f"{name}_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.test_the_task_steps()


def reads_well(project: Path) -> None:
    """Formatted and linted as a person would have it, by the project's own settings."""
    for words in (["format", "--check", "--diff"], ["check"]):
        lint = [sys.executable, "-m", "ruff", *words, "--no-cache", "."]
        result = subprocess.run(lint, cwd=project, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout
    assert "| robot |" in (project / "README.md").read_text()


@pytest.mark.parametrize(
    ("robot", "told"),
    [
        ("ant.xml", ("base free", "8 driven by the file's own actuators", "kind velocity", "the file's floor")),
        ("half_cheetah.xml", ("14 kg, base planar", "feet     bfoot, ffoot", "kind velocity")),
        ("inverted_pendulum.xml", ("base fixed", "1 driven by the file's own actuators", "kind blank")),
        (DOG, ("keyframe 'home'", "feet     FL_leg, FR_leg, RL_leg, RR_leg", "FL and FR, RL", "position servos")),
        (ARM, ("2 kg, base fixed", "2 driven by position servos", "1 joint moved inside its limits", "kind reach")),
        # Fingers are no feet, and an inertia that no body can have is mended and told of.
        (FINGERS, ("4 kg, base fixed", "mended   balanceinertia: the inertia of 'left'", "kind reach")),
    ],
    ids=["ant", "half_cheetah", "inverted_pendulum", "dog", "arm", "fingers"],
)
def test_a_robot_of_others_becomes_a_project_that_steps(
    robot: str,
    told: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if "<" in robot:
        source = tmp_path / ("robot.urdf" if "<robot" in robot else "robot.xml")
        source.write_text(robot)
    else:
        source = ASSETS / robot
    name = f"brought_{abs(hash(robot)) % 10**6}"
    assert run(["new-task", name, "--from", str(source), "--dir", str(tmp_path)]) == 0
    out = capfd.readouterr().out
    for words in told:
        assert words in out
    works(tmp_path / name, name, monkeypatch)
    reads_well(tmp_path / name)
    if "ant" in robot:
        task = next(line.split()[-1] for line in out.splitlines() if "Next:" in line)
        options = [
            "--import",
            name,
            "--num-envs",
            "4",
            "--max-iterations",
            "1",
            "-q",
            "--no-final-eval",
            "--log-dir",
            str(tmp_path / "run"),
        ]
        assert run(["train", task, *options]) == 0


def test_an_anymal_with_meshes_comes_in_and_holds_under_a_beginners_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    genesis = importlib.util.find_spec("genesis")  # its wheel has the files; it need not be imported
    if genesis is None or not genesis.submodule_search_locations:
        lacking("no genesis-world, which ships the model")
    source = Path(genesis.submodule_search_locations[0]) / "assets/urdf/anymal_c/urdf/anymal_c.urdf"
    command = ["new-task", "brought_anymal", "--from", str(source), "--dir", str(tmp_path)]
    assert run(command) == 2
    assert "--assets " in capfd.readouterr().err  # its meshes are in ../meshes
    assert run([*command, "--assets", str(source.parents[1] / "meshes")]) == 0
    out = capfd.readouterr().out
    for words in ("52.1 kg, base free", "12 driven by position servos", "feet     LF_FOOT, RF_FOOT, LH_FOOT, RH_FOOT"):
        assert words in out
    works(tmp_path / "brought_anymal", "brought_anymal", monkeypatch)
    size = ["--num-envs", "32", "--steps", "3200", "--threads", "1"]
    argv = ["solver", "Brought-Anymal-Velocity-v0", "--import", "brought_anymal", *size]
    monkeypatch.setattr(sys, "argv", argv)
    solver.main()
    rows = [row.split("|")[1:7] for row in capfd.readouterr().out.splitlines()[2:]]
    limits, steps, diverged, fast, _, unconverged = zip(*[[cell.strip() for cell in row] for row in rows], strict=True)
    assert limits == ("10", "100")
    assert steps == ("3,200", "3,200")
    assert diverged == fast == ("0", "0")
    assert unconverged[1] == "0.0000%"


def test_proposals_stand_in_the_files(tmp_path: Path) -> None:
    source = tmp_path / "robot.xml"
    source.write_text(DOG)
    assert run(["new-task", "brought_dog", "--from", str(source), "--dir", str(tmp_path)]) == 0
    text = (tmp_path / "brought_dog/brought_dog/robot.py").read_text()
    assert 'keyframe="home",\n            pos=(0.0, 0.0, 0.3' in text
    assert '"FL_hip": (5.9, 12.0, ' in text  # 5.9 N·m at half a radian; they hold twice 8 kg / 4 feet at 0.15 m
    task = (tmp_path / "brought_dog/brought_dog/task.py").read_text()
    assert 'SimulationCfg(dt=0.004, solver=SolverCfg(integrator="implicitfast"))' in task
    assert "decimation=5" in task
    assert (tmp_path / "brought_dog/brought_dog/model/robot.xml").read_text() == DOG


def test_what_cannot_be_made_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arm, pendulum = tmp_path / "arm.urdf", str(ASSETS / "inverted_pendulum.xml")
    arm.write_text(ARM)
    (tmp_path / "taken").mkdir()
    for name in ("dog.xacro", "dog.sdf"):
        (tmp_path / name).write_text(ARM)
    for words, message in (
        (["x", "--from", str(tmp_path / "no.xml")], "no file at"),
        (["Bad-Name", "--from", pendulum, "--dir", str(tmp_path)], "is no name for a package"),
        (["class", "--from", pendulum, "--dir", str(tmp_path)], "'class' is a word of Python: choose another name"),
        (["torch", "--from", pendulum, "--dir", str(tmp_path)], "'torch' is a module that is installed"),
        (["x", "--from", str(tmp_path / "dog.xacro"), "--dir", str(tmp_path)], "`xacro dog.xacro > robot.urdf`"),
        (["x", "--from", str(tmp_path / "dog.sdf"), "--dir", str(tmp_path)], "a robot is MJCF, *.xml, or URDF, *.urdf"),
        (["x", "--from", pendulum, "--fixed-base", "--dir", str(tmp_path)], "--fixed-base is for a URDF"),
        (["x", "--from", pendulum, "--kind", "velocity", "--dir", str(tmp_path)], "cannot walk: pass --kind reach"),
        (["taken", "--from", str(arm), "--dir", str(tmp_path)], "there is already"),
    ):
        assert run(["new-task", *words]) == 2
        error = capfd.readouterr().err
        assert message in error
        assert error.count("\n") == 1
