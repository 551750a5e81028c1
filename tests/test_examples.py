"""The examples, and the pages that are about them, run as written; in a small size."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from genelab.cli.main import run

ROOT = Path(__file__).parents[1]
SMALL = (
    ("max_iterations=50", "max_iterations=1"),
    ("num_envs=64", "num_envs=2"),
    ("episodes=20, num_envs=20", "episodes=2"),
)


def load(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


def small(code: str) -> str:
    """The same with a budget of nothing, in episodes of no time."""
    for large, little in SMALL:
        assert large in code
        code = code.replace(large, little)
    return code.replace('{"env.simulation.vis": False}', '{"env.simulation.vis": False, "env.simulation.steps": 8}')


def test_ten_lines_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    match = re.search(r"```python\n(.*?)```", (ROOT / "docs/from-python.md").read_text(), re.DOTALL)
    assert match is not None
    code = match[1]
    notebook = json.loads((ROOT / "examples/from_python.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert "\n".join(cells).split() == code.split()  # the notebook says the same
    assert len([line for line in code.splitlines() if line]) <= 10
    names: dict[str, Any] = {}
    exec(compile(small(code), "from-python.md", "exec"), names)
    assert names["played"].steps == 8
    assert names["policy"].path == Path("policy.ts")


def test_ppo_in_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(ROOT / "examples/ppo.py", monkeypatch)
    curve = module.train("GeneLab-Inverted-Pendulum-v0", num_envs=8, steps=32, iterations=2)
    assert all(0.0 < mean < 40.0 for mean in curve)


def test_a_robot_of_others_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(ROOT / "examples/third_party_robot.py")
    assert (
        run(["play", "Half-Cheetah-Run-v0", "--import", file, "--agent", "random", "--steps", "8", "--headless"]) == 0
    )
    assert "8 steps" in capfd.readouterr().out
    monkeypatch.delitem(sys.modules, "third_party_robot", raising=False)


def test_a_library_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["Pendulum-ARS-v0", "--import", str(ROOT / "examples/custom_backend.py")]
    small = [
        "--num-envs",
        "4",
        "--max-iterations",
        "2",
        "--agent.horizon=8",
        "--log-dir",
        "run",
        "-q",
        "--no-final-eval",
    ]
    assert run(["train", *words, *small]) == 0
    assert run(["export", *words, "run", "--out", "policy.ts"]) == 0
    monkeypatch.delitem(sys.modules, "custom_backend", raising=False)


def test_the_command_and_the_event_of_the_guide_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    match = re.search(r"```python\n(.*?)```", (ROOT / "docs/commands-and-events.md").read_text(), re.DOTALL)
    assert match is not None
    (tmp_path / "my_visits.py").write_text(match[1])
    monkeypatch.chdir(tmp_path)
    command = ["play", "My-Visits-v0", "--import", "my_visits.py", "--agent", "random", "--steps", "210"]
    assert run(command) == 0
    assert "1 episode ended" in capfd.readouterr().out
    from genelab.envs import ManagerBasedRlEnv, rl_cfg

    env = ManagerBasedRlEnv(rl_cfg("My-Visits-v0"))
    env.reset(seed=0)
    for _ in range(100):
        env.step(env.action_manager.action)
    assert env.robot.joint_vel.abs().max() > 0.05  # a gust blew
    env.close()
    monkeypatch.delitem(sys.modules, "my_visits", raising=False)


ROBOT = """
<mujoco>
  <worldbody>
    <body name="base" pos="0 0 .3"><geom size=".1"/>
      <body name="arm"><joint name="arm_1" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .2" size=".02"/></body>
    </body>
  </worldbody>
  <actuator><position joint="arm_1" kp="20"/></actuator>
  <keyframe><key name="home" qpos=".3"/></keyframe>
</mujoco>
"""
LINK = '<inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0" ixz="0" iyz="0"/></inertial>'
URDF = f"""
<robot name="go2"><link name="trunk">{LINK}</link><link name="leg">{LINK}</link>
  <joint name="FL_hip_joint" type="continuous"><parent link="trunk"/><child link="leg"/><axis xyz="0 1 0"/></joint>
</robot>
"""


def test_the_robots_of_the_guide_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genelab.scene import Scene, SceneCfg
    from genelab.sim import SimulationCfg

    (tmp_path / "robot.xml").write_text(ROBOT)
    (tmp_path / "go2/urdf").mkdir(parents=True)
    (tmp_path / "go2/urdf/go2.urdf").write_text(URDF)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/bring-a-robot.md").read_text(), re.DOTALL)
    starts = []
    for block in blocks:
        names: dict[str, Any] = {}
        exec(compile(block, "bring-a-robot.md", "exec"), names)
        scene = Scene(SceneCfg(entities={"robot": names["robot"]}), SimulationCfg())
        scene.reset(None)
        robot = scene.articulation("robot")
        starts.append((robot.joint_names, robot.is_fixed_base, round(robot.joint_pos[0, 0].item(), 6)))
        scene.engine.close()
    assert starts == [(["arm_1"], True, 0.0), (["arm_1"], True, 0.3), (["FL_hip_joint"], False, 0.0)]


def test_the_loop_of_the_gymnasium_page_runs() -> None:
    match = re.search(r"```python\n(.*?)```", (ROOT / "docs/gymnasium.md").read_text(), re.DOTALL)
    assert match is not None
    names: dict[str, Any] = {}
    exec(compile(match[1], "gymnasium.md", "exec"), names)
    assert names["observations"].shape[0] == names["rewards"].shape[0] == 16


def test_what_the_doors_show_is_python_that_registers_what_it_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/doors.md").read_text(), re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        imports = [line for line in block.splitlines() if re.match(r"from genelab[\w.]* import |import ", line)]
        exec("\n".join(imports), {})
        compile(block, "doors.md", "exec")
