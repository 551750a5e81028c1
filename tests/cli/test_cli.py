"""The command line, used as a person would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import mujoco
import pytest

from genelab import TASKS
from genelab.cli.main import run

TASK = "GeneLab-Inverted-Pendulum-v0"
GENELAB = str(Path(sys.executable).with_name("genelab"))

SCENE_MODULE = """
import torch
from genelab import TASKS, TaskCfg

def task():
    from genelab.envs import ManagerBasedEnvCfg
    from genelab.mdp import JointPositionActionCfg
    from genelab.scene import SceneCfg
    from genelab_pendulum.robots import single_pendulum_cfg
    return TaskCfg(env=ManagerBasedEnvCfg(
        scene=SceneCfg(entities={"robot": single_pendulum_cfg()}),
        actions={"cart": JointPositionActionCfg(joint_names=("cart",))},
        playback=wave,
    ))

def wave(env, step):
    return torch.zeros(env.num_envs, 1)

TASKS.register("Test-Scene-v0", task, description="a scene")
"""

BROKEN_MODEL_MODULE = """
import mujoco
from genelab import TASKS, TaskCfg

def ghost():
    spec = mujoco.MjSpec()
    spec.worldbody.add_body(name="ghost").add_joint(name="j")
    return spec

def task():
    from genelab.envs import ManagerBasedEnvCfg
    from genelab.scene import ArticulationCfg, SceneCfg
    return TaskCfg(env=ManagerBasedEnvCfg(scene=SceneCfg(entities={"robot": ArticulationCfg(spec=ghost)})))

TASKS.register("Test-Ghost-v0", task)
TASKS.register("Test-Missing-v0", "no_such_package.anywhere:task")
"""


def fails(args: list[str], capfd: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one line that a wrong command answers with."""
    assert run(args) == code
    captured = capfd.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("genelab: ")
    return lines[0].removeprefix("genelab: ")


def answers(args: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    assert run(args) == 0
    return capfd.readouterr().out


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "genelab", "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("genelab, version ")


def test_list_shows_every_task(capfd: pytest.CaptureFixture[str]) -> None:
    text = answers(["list"], capfd)
    assert all(task in text for task in TASKS.ids())


def test_list_as_json_and_filtered(capfd: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(answers(["list", "--json", "--filter", "double"], capfd))
    assert [row["id"] for row in rows] == ["GeneLab-Double-Inverted-Pendulum-v0"]
    assert rows[0]["backend"] == "rsl_rl PPO"
    assert "No task matches 'hexapod'" in answers(["list", "--filter", "hexapod"], capfd)


def test_list_imports_nothing_heavy() -> None:
    code = (
        "import sys; from genelab.cli.main import run; run(['list']); "
        "sys.exit(bool({'torch', 'mujoco', 'gymnasium', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_broken_plugin_is_one_line_and_the_others_load(tmp_path: Path) -> None:
    package = tmp_path / "bad_plugin"
    (tmp_path / "bad_plugin-1.dist-info").mkdir()
    (tmp_path / "bad_plugin-1.dist-info" / "METADATA").write_text("Name: bad_plugin\nVersion: 1\n")
    (tmp_path / "bad_plugin-1.dist-info" / "entry_points.txt").write_text("[genelab.tasks]\nbad = bad_plugin\n")
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('half installed')")
    result = subprocess.run(
        [GENELAB, "list"], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert result.stderr == "genelab: task plugin 'bad' did not load: RuntimeError: half installed\n"
    assert TASK in result.stdout


def test_info_shows_terms_and_every_path(capfd: pytest.CaptureFixture[str]) -> None:
    text = answers(["info", TASK], capfd)
    assert re.search(r"pole_ang_vel\s*│\s*3\s*│\s*frame_ang_vel\s*│\s*rad/s \(tip\)\s*│\s*±0.1", text)
    assert re.search(r"upright\s*│\s*3\s", text)
    assert "env.rewards.upright.weight: float = 3.0" in text
    assert "env.simulation.engine: 'auto' | 'mujoco' | 'genesis' | 'warp' = auto" in text
    assert "agent.max_iterations: int = 20" in text


def test_every_path_that_info_shows_can_be_set(capfd: pytest.CaptureFixture[str]) -> None:
    from genelab.config import apply_override

    paths = json.loads(answers(["info", TASK, "--json"], capfd))["paths"]
    assert len(paths) > 100
    cfg = TASKS.get(TASK)
    for row in paths:
        apply_override({"env": cfg.env, "agent": cfg.agent}, row["path"], row["default"])
    assert cfg == TASKS.get(TASK)


def test_list_asks_a_task_that_does_not_say_what_learns_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "untold_tasks.py"
    module.write_text(
        "from genelab import TASKS\n"
        f"TASKS.register('Untold-Pendulum-v0', lambda: TASKS.get({TASK!r}))\n"
        "TASKS.register('Untold-Cube-v0', lambda: TASKS.get('GeneLab-Rubiks-Play-v0'))\n"
    )
    rows = json.loads(answers(["list", "--json", "--filter", "untold", "--import", str(module)], capfd))
    assert {row["id"]: row["backend"] for row in rows} == {"Untold-Pendulum-v0": "rsl_rl", "Untold-Cube-v0": None}


def test_torch_before_genelab_is_warned_of() -> None:
    for order, warned in (("torch, genelab", True), ("genelab, torch", False)):
        command = [sys.executable, "-c", f"import {order}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
        assert ("Import genelab first, or set OMP_WAIT_POLICY=PASSIVE" in text) == warned


def test_info_writes_the_world_with_all_it_needs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answers(["info", TASK, "--mjcf", str(tmp_path / "world.zip")], capfd)
    answers(["info", TASK, "--mjcf", str(tmp_path / "folder")], capfd)
    with zipfile.ZipFile(tmp_path / "world.zip") as archive:
        assert archive.read("world.xml") == (tmp_path / "folder/world.xml").read_bytes()
    assert mujoco.MjModel.from_xml_path(str(tmp_path / "folder/world.xml")).nbody > 1


def test_info_follows_overrides_and_writes_a_world_that_compiles(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "world.xml"
    data = json.loads(answers(["info", TASK, "--json", "--mjcf", str(file), "env.simulation.dt=0.002"], capfd))
    assert {"path": "env.simulation.dt", "type": "float", "default": "0.002"} in data["paths"]
    model = mujoco.MjModel.from_xml_path(str(file))
    assert (model.nq, model.nu, model.opt.timestep) == (2, 1, 0.002)


def test_play_runs_for_steps(capfd: pytest.CaptureFixture[str]) -> None:
    text = answers(["play", TASK, "--steps", "128"], capfd)
    assert "128 steps × 1 envs on mujoco" in text


def test_play_defaults_to_240_steps_headless(capfd: pytest.CaptureFixture[str]) -> None:
    assert "240 steps" in answers(["play", TASK, "--headless"], capfd)


def test_max_steps_wins_over_steps(capfd: pytest.CaptureFixture[str]) -> None:
    assert " 7 steps" in answers(["play", TASK, "--steps", "20", "--max-steps", "7"], capfd)


def test_dashes_and_underscores_are_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    text = answers(["play", TASK, "--num_envs", "3", "--max_steps=5", "--agent", "random"], capfd)
    assert "5 steps × 3 envs" in text


def test_ids_are_matched_in_any_case(capfd: pytest.CaptureFixture[str]) -> None:
    assert "2 steps" in answers(["play", TASK.upper(), "--steps", "2"], capfd)


def test_the_same_seed_plays_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    command = ["play", TASK, "--agent", "random", "--num-envs", "8", "--steps", "200", "--seed", "4"]
    first, second = (answers(command, capfd).splitlines()[1] for _ in range(2))
    assert first == second
    assert "episodes ended" in first


@pytest.mark.parametrize(
    "words", [["--env.episode_length_s", "0.05"], ["--env.episode-length-s=0.05"], ["env.episode_length_s=0.05"]]
)
def test_overrides_reach_the_environment(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert "4 episodes ended" in answers(["play", TASK, "--steps", "20", *words], capfd)


def test_dt_is_the_physics_step(capfd: pytest.CaptureFixture[str]) -> None:
    text = answers(["play", TASK, "--steps", "30", "--dt", "0.01", "env.episode_length_s=0.2"], capfd)
    assert "3 episodes ended" in text  # 0.2 s at 0.01 × 2 are ten steps


def test_zero_actions_are_the_default(capfd: pytest.CaptureFixture[str]) -> None:
    plain = answers(["play", TASK, "--seed", "1"], capfd).splitlines()[1:]
    assert plain == answers(["play", TASK, "--seed", "1", "--agent", "zero"], capfd).splitlines()[1:]
    assert plain != answers(["play", TASK, "--seed", "1", "--agent", "random"], capfd).splitlines()[1:]


def test_a_viewer_that_cannot_be_shown_is_announced(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run(["play", TASK, "--vis", "--max-steps", "3"]) == 0
    captured = capfd.readouterr()
    assert "No display detected" in captured.err
    assert "3 steps" in captured.out


def test_prof_writes_a_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "traces"
    command = ["play", TASK, "--steps", "12", "--prof", "--prof-out", str(out)]
    command += ["--prof-wait", "1", "--prof-warmup", "1", "--prof-active", "3", "--prof-repeat", "2"]
    assert f"traces in {out}" in answers(command, capfd)
    traces = list(out.glob("*.pt.trace.json"))
    assert len(traces) == 2
    assert json.loads(traces[0].read_text())["traceEvents"]


def test_a_scene_warns_about_options_for_rl_and_plays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "scene_module.py"
    module.write_text(SCENE_MODULE)
    command = ["play", "Test-Scene-v0", "--import", str(module), "--agent", "random", "--num-envs", "4", "--prof"]
    assert run([*command, "--steps", "9", "--headless"]) == 0
    captured = capfd.readouterr()
    for option in ("--agent", "--num-envs", "--prof"):
        assert f"{option} is for RL tasks; Test-Scene-v0 is a scene and ignores it" in captured.err
    assert "9 steps × 1 envs" in captured.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["GeneLab-Inverted-Pendulm-v0"], "unknown task 'GeneLab-Inverted-Pendulm-v0'. Did you mean '" + TASK),
        ([TASK, "--vis", "--headless"], "--vis and --headless exclude each other"),
        ([TASK, "--num-envs", "-3"], "Invalid value for '--num-envs': -3 is not in the range x>=1."),
        ([TASK, "--num-envs", "many"], "Invalid value for '--num-envs': 'many' is not a valid integer"),
        ([TASK, "--env.simulation.dtt", "1"], "env.simulation.dtt: no such key. Did you mean 'dt'?"),
        ([TASK, "env.rewards.uprigth.weight=1"], "env.rewards.uprigth: no such key. Did you mean 'upright'?"),
        ([TASK, "--env.simulation.dt", "fast"], "env.simulation.dt: expected float, got 'fast'"),
        (
            [TASK, "env.simulation.engine=bullet"],
            "env.simulation.engine: expected 'auto' | 'mujoco' | 'genesis' | 'warp'",
        ),
        ([TASK, "--dt", "0"], "Invalid value for '--dt': 0.0 is not in the range x>0."),
        ([TASK, "env.scene.num_envs=0"], "env.scene.num_envs: must be at least 1, got 0"),
        ([TASK, "--stps", "3"], "No such option '--stps'. (Did you mean"),
        ([TASK, "--import", "no_such_module"], "cannot import 'no_such_module': ModuleNotFoundError"),
        ([TASK, "--checkpoint", "no.pt"], "no.pt: no such checkpoint; give a file, a run directory, latest,"),
        ([TASK, "--agent", "random", "--checkpoint", "pretrained"], "--checkpoint is for --agent trained, not random"),
        ([], "Missing argument 'TASK'."),
    ],
)
def test_wrong_words_are_answered_in_one_line(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(["play", *words], capfd)


def test_a_gpu_that_is_not_used_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a card")
    remark = "genelab: a CUDA device is here and unused: pass --gpu"
    small = ["--num-envs", "2", "--max-iterations", "1", "-q", "--no-final-eval", "--log-dir"]
    told = (["play", TASK, "--steps", "2"], ["train", TASK, *small, "a"], ["train", TASK, "--seeds", "1", *small, "b"])
    for words in told:
        assert run(words) == 0
        assert capfd.readouterr().err.splitlines().count(remark) == 1, words
    for words in (["play", TASK, "--steps", "2"], ["train", TASK, *small, "c"]):
        assert run([*words, "env.simulation.gpu=false"]) == 0
        assert remark not in capfd.readouterr().err


def test_gpu_without_cuda_is_a_clear_error(capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert "no CUDA device was found" in fails(["play", TASK, "--gpu"], capfd)


def test_models_and_modules_that_do_not_work_are_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "ghost_module.py"
    module.write_text(BROKEN_MODEL_MODULE)
    line = fails(["play", "Test-Ghost-v0", "--import", str(module)], capfd)
    assert "the model of 'robot' does not compile" in line
    line = fails(["play", "Test-Missing-v0", "--import", str(module)], capfd)
    assert "Test-Missing-v0" in line
    assert "No module named 'no_such_package'" in line


def test_an_unknown_verb_names_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    assert fails(["plya"], capfd) == "no such command 'plya'. Did you mean 'play' or 'deploy'?"


def test_an_unwritable_file_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert "--mjcf: cannot write" in fails(["info", TASK, "--mjcf", "/proc/nowhere/world.xml"], capfd)


def test_a_wrong_command_leaves_nothing_behind(tmp_path: Path) -> None:
    for words in (
        ["play", TASK, "--env.simulation.dtt", "1"],
        ["play", "Nope-v0"],
        ["play", TASK, "--vis", "--headless"],
    ):
        result = subprocess.run([GENELAB, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", ["import genelab, gymnasium", "import gymnasium, genelab"])
def test_gymnasium_knows_the_tasks_in_any_order_of_imports(order: str) -> None:
    code = f"{order}\nenv = gymnasium.make_vec('{TASK}', num_envs=16)\nprint(env.reset(seed=0)[0]['policy'].shape)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "torch.Size([16, 8])\n"


def test_gymnasium_imports_genelab_by_prefix() -> None:
    code = f"import gymnasium\nprint(gymnasium.make_vec('genelab:{TASK}', num_envs=3).num_envs)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "3\n"
