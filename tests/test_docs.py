"""What the documents show works."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from genelab import TASKS, mdp, scene
from genelab.cli.main import run
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.managers import ObservationTermCfg
from genelab.mdp.mirror import group_image
from genelab.rl.config import RslRlOnPolicyRunnerCfg, RslRlRndCfg, RslRlSymmetryCfg
from genelab.scene import SensorCfg

ROOT = Path(__file__).parents[1]


def code_of(document: str, language: str) -> str:
    """The first block of a language in a document."""
    match = re.search(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def test_the_task_of_the_guide_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_tasks.py").write_text(code_of("docs/write-a-task.md", "python"))
    monkeypatch.chdir(tmp_path)
    command = ["play", "My-Slider-v0", "--import", "my_tasks.py", "--agent", "random", "--steps", "260"]
    assert run(command) == 0
    assert "1 episode ended" in capfd.readouterr().out


def test_the_sensors_of_the_guide_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-task.md").read_text(), re.DOTALL)
    (tmp_path / "my_feet.py").write_text(next(block for block in blocks if "My-Feet-v0" in block))
    monkeypatch.chdir(tmp_path)
    command = ["play", "My-Feet-v0", "--import", "my_feet.py", "--agent", "zero", "--steps", "250"]
    assert run(command) == 0
    assert "1 episode ended" in capfd.readouterr().out
    env = ManagerBasedRlEnv(rl_cfg("My-Feet-v0", play=True))
    env.reset(seed=0)
    for _ in range(50):
        env.step(env.action_manager.action)
    told = env.observation_manager.compute()["policy"]
    contact, height, scan = told[0, -195:-191], told[0, -191:-187], told[0, -187:]
    assert contact.tolist() == [1.0] * 4  # it stands,
    assert height.abs().max() < 0.05  # with its feet on the ground,
    torch.testing.assert_close(scan, env.robot.root_pos_w[:, 2].expand(187))  # and its trunk above a plane
    monkeypatch.delitem(sys.modules, "my_feet", raising=False)


def test_the_table_of_sensors_has_every_sensor_and_only_readings_and_terms_that_there_are() -> None:
    text = (ROOT / "docs/write-a-task.md").read_text()
    rows = re.findall(r"^\| `(\w+Cfg)` \| (.+) \| (.+) \|$", text.partition("## Sensors")[2], re.MULTILINE)
    things = {name: getattr(scene, name) for name in scene.__all__ if name != "SensorCfg"}
    sensors = {name for name, thing in things.items() if isinstance(thing, type) and issubclass(thing, SensorCfg)}
    assert {config for config, _, _ in rows} == sensors
    for config, readings, terms in rows:
        sensor = getattr(scene, config.removesuffix("Cfg"))
        known = {*dir(sensor), *sensor.__annotations__, *(field.name for field in fields(getattr(scene, config)))}
        assert set(re.findall(r"`(\w+)`", readings)) <= known
        assert all(hasattr(mdp, term) for term in re.findall(r"`(\w+)`", terms))


def test_the_term_of_the_guide_remembers() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-task.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "class Smooth" in block), names)
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-v0")
    cfg.scene.num_envs = 2
    cfg.observations["policy"].terms["smooth"] = ObservationTermCfg(func=names["Smooth"], params={"rate": 0.5})
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    env.step(torch.ones(2, 1))
    kept = env.state_dict()["observation_manager"]["groups"]["policy"]["terms"]["smooth"]
    assert list(kept) == ["mean"]


def test_the_terms_of_the_guide_tell_about_themselves() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-task.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "@observation" in block), names)
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-v0", play=True)
    cfg.observations["policy"].terms = {
        "velocity": ObservationTermCfg(func=names["root_velocity"]),
        "torques": ObservationTermCfg(func=names["torques"], params={"joints": ("cart", "pole")}),
    }
    group = ManagerBasedRlEnv(cfg).observation_manager.groups["policy"]
    assert group.terms["velocity"].meaning().columns == ("x", "y", "z")
    assert group.terms["torques"].meaning().columns == ("cart", "pole")
    # Along x and about y, as the cart and the pole move, nothing changes in the mirror.
    assert group_image(group).signs == (1.0, -1.0, 1.0, 1.0, 1.0)


def test_the_readmes_python_runs() -> None:
    exec(compile(code_of("README.md", "python"), "README.md", "exec"), {})


def test_the_mirror_of_the_guide_doubles_a_batch() -> None:
    names: dict[str, Any] = {
        "torch": torch,
        "SIGNS": torch.tensor([-1.0, 1.0]),
        "agent": RslRlOnPolicyRunnerCfg(max_iterations=1),
    }
    names |= {"RslRlSymmetryCfg": RslRlSymmetryCfg, "RslRlRndCfg": RslRlRndCfg}
    exec(compile(code_of("docs/training.md", "python"), "training.md", "exec"), names)
    obs, actions = names["mirror"](None, TensorDict({"policy": torch.ones(1, 2)}, [1]), torch.ones(1, 1))
    assert obs["policy"].tolist() == [[1.0, 1.0], [-1.0, 1.0]]
    assert actions.tolist() == [[1.0], [-1.0]]
    algorithm = names["agent"].algorithm
    assert algorithm.symmetry_cfg.data_augmentation_func is names["mirror"]
    assert algorithm.rnd_cfg.weight == 1.0


def test_the_contract_of_the_guide_passes(tmp_path: Path) -> None:
    (tmp_path / "test_ars.py").write_text(code_of("docs/tutorials/own-learner.md", "python"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ars.py"]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
    assert re.search(r"\d+ passed", told.stdout), told.stdout


def test_the_page_of_tasks_lists_every_task_and_no_other() -> None:
    listed = set(re.findall(r"^\| `([^`]+-v\d+)` \|", (ROOT / "docs/tasks.md").read_text(), re.MULTILINE))
    bundled = {entry.id for entry in TASKS.entries() if entry.package.startswith("genelab_")}
    assert listed == bundled


def test_the_page_of_the_installation_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = re.findall(r"^\| (`.+?) \|", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for cell in table for name in re.findall(r"`([^`]+)`", cell)) == sorted(extras)


def test_the_sources_quote_the_published_returns_beside_the_commit_that_has_them() -> None:
    text = (ROOT / "docs/sources.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if "| 71cda74 |" in line)
    published = json.loads((ROOT / "reference/published.json").read_text())["tasks"]
    returns = [run["return"] for task in published.values() for run in task["runs"]]
    assert len(returns) >= 20
    for value in returns:
        assert re.search(rf"[ ]{value:g}[,;. ]".replace("-", "−"), row), value


def test_the_pendulum_takes_as_long_everywhere() -> None:
    runs = (ROOT / "reference/GeneLab-Inverted-Pendulum-v0").glob("*/seed_*/run.json")
    seconds = round(max(json.loads(run.read_text())["wall_seconds"] for run in runs))
    said = {"README.md": f"one pole on a cart | {seconds} s |", "docs/index.md": f"solved in {seconds} s "}
    said["Makefile"] = f": {seconds} s on two quiet cores"
    for page, words in said.items():
        assert words in (ROOT / page).read_text(encoding="utf-8"), page
    assert f"solved in {seconds} s," in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_a_task_is_does_not_depend_on_the_one_before_it() -> None:
    """`genelab list` sorts and filters."""
    about = [entry.description for entry in TASKS.entries() if entry.package.startswith("genelab_")]
    assert len(about) == 16
    assert not [text for text in about if re.search(r"\bthe same\b", text, re.IGNORECASE)]
    assert len(set(about)) == len(about)


def test_what_is_called_published_names_its_source() -> None:
    """In its module's docstring, or by it; documents link the page."""
    said = re.compile(r"[Pp]ublished")
    files = [file for file in (ROOT / "src").glob("genelab_*/**/*.py") if said.search(file.read_text(encoding="utf-8"))]
    assert len(files) >= 10
    for file in files:
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        assert "docs/sources.md" in docstring, f"{file.relative_to(ROOT)}: say where to find what is published"
    pages = [file for file in (ROOT / "docs").rglob("*.md") if said.search(file.read_text(encoding="utf-8"))]
    for page in pages:
        assert "sources.md" in page.read_text(encoding="utf-8") or page.name == "sources.md", f"{page.name}: no source"
