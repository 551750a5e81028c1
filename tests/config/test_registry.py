import logging
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from genelab.config import TaskCfg, TaskRegistry, registry
from genelab.errors import ConfigError, UsageError

SHARED: Any = {"weights": [1.0]}
"""Stands for a config: a registry does not look into it."""
AGENT: Any = {"lr": 1e-3}
NOTHING: Any = {}
ONE: Any = 1


def make_task() -> TaskCfg:
    return TaskCfg(env=SHARED, agent=AGENT)


def make_other_task() -> TaskCfg:
    return TaskCfg(env=NOTHING)


def make_nothing() -> dict[str, int]:
    return {}


def fail() -> TaskCfg:
    raise ValueError("bad\nnumber")


FACTORY = f"{__name__}:make_task"
Plugin = Callable[[], object]


class FakeEntryPoint:
    """An installed plugin: what `importlib.metadata` would find."""

    def __init__(self, name: str, load: Plugin) -> None:
        self.name = name
        self.value = f"{name}_package.tasks"
        self.load = load


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> dict[str, Plugin]:
    """The installed plugins by name; none unless a test adds some."""
    installed: dict[str, Plugin] = {}

    def find(group: str) -> list[FakeEntryPoint]:
        assert group == "genelab.tasks"
        return [FakeEntryPoint(name, load) for name, load in installed.items()]

    monkeypatch.setattr(registry, "entry_points", find)
    return installed


@pytest.fixture
def tasks(plugins: dict[str, Plugin]) -> TaskRegistry:
    tasks = TaskRegistry()
    tasks.register("GeneLab-Inverted-Pendulum-v0", FACTORY, description="d", robot="cart", backend="rsl_rl PPO")
    tasks.register("GeneLab-Inverted-Pendulum-Skrl-v0", FACTORY)
    tasks.register("Genelab-Double-Inverted-Pendulum-v0", make_other_task)
    return tasks


def test_get_makes_a_fresh_copy_in_any_case(tasks: TaskRegistry) -> None:
    cfg = tasks.get("genelab-inverted-pendulum-V0")
    assert cfg == TaskCfg(env=SHARED, play_env=None, agent=AGENT)
    env: Any = cfg.env
    env["weights"].append(2.0)
    assert tasks.get("GeneLab-Inverted-Pendulum-v0").env == SHARED == {"weights": [1.0]}


def test_entries_are_sorted_and_tell_the_package(tasks: TaskRegistry) -> None:
    tasks.register("A", "genelab_pendulum.tasks.flat:make")
    assert (
        tasks.ids()
        == list(tasks)
        == [
            "A",
            "Genelab-Double-Inverted-Pendulum-v0",
            "GeneLab-Inverted-Pendulum-Skrl-v0",
            "GeneLab-Inverted-Pendulum-v0",
        ]
    )
    assert len(tasks) == len(tasks.entries()) == 4
    assert "genelab-inverted-pendulum-v0" in tasks
    assert "Pendulum" not in tasks
    assert tasks.entry("a").package == "genelab_pendulum"
    entry = tasks.entry("GENELAB-INVERTED-PENDULUM-V0")
    assert (entry.id, entry.robot, entry.backend) == ("GeneLab-Inverted-Pendulum-v0", "cart", "rsl_rl PPO")


def test_unknown_task_names_the_one_that_was_meant(tasks: TaskRegistry) -> None:
    for look_up in (tasks.get, tasks.entry):
        with pytest.raises(UsageError) as error:
            look_up("GeneLab-Inverted-Pendulm-v0")
        assert str(error.value) == (
            "unknown task 'GeneLab-Inverted-Pendulm-v0'. Did you mean 'GeneLab-Inverted-Pendulum-v0'? "
            "`genelab list` shows all 3."
        )


def test_an_id_belongs_to_one_factory(tasks: TaskRegistry) -> None:
    tasks.register("GENELAB-Inverted-Pendulum-v0", FACTORY)
    tasks.register("GENELAB-Inverted-Pendulum-v0", make_task)  # the same function by another way
    assert len(tasks) == 3
    with pytest.raises(ConfigError, match=r"'GeneLab-Inverted-Pendulum-v0' from .* is registered again by"):
        tasks.register("genelab-inverted-pendulum-v0", make_other_task)
    tasks.register("local", lambda: make_task())
    with pytest.raises(ConfigError, match="'local'"):
        tasks.register("local", lambda: make_other_task())
    with pytest.raises(ConfigError, match="must be 'module:function'"):
        tasks.register("new", "genelab_pendulum.make")


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("not_installed.flat:make", "ModuleNotFoundError: No module named 'not_installed'"),
        (f"{__name__}:nope", f"AttributeError: module '{__name__}' has no attribute 'nope'"),
        (
            f"{__name__}:fail",
            f"ValueError: bad number ({os.path.relpath(__file__)}:{fail.__code__.co_firstlineno + 1})",
        ),
        (f"{__name__}:make_nothing", "TypeError: it returned a dict, not a TaskCfg"),
    ],
)
def test_a_broken_factory_is_reported_in_one_line(tasks: TaskRegistry, factory: str, reason: str) -> None:
    tasks.register("Broken", factory)
    with pytest.raises(UsageError) as error:
        tasks.get("broken")
    assert str(error.value) == f"task 'Broken' cannot be made by {factory!r}: {reason}"
    assert type(error.value.__cause__).__name__ == reason.partition(":")[0]


def test_a_plugin_that_fails_does_not_take_the_others_along(
    plugins: dict[str, Plugin], caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TaskRegistry()
    loads: list[str] = []

    def broken() -> object:
        raise ImportError("no\nlibfoo")

    def exits() -> object:
        sys.exit(3)

    def module() -> object:
        loads.append("module")
        tasks.register("A", FACTORY)
        return sys

    plugins.update({"b": broken, "a": exits, "c": module, "d": lambda: lambda: tasks.register("B", FACTORY)})
    with caplog.at_level(logging.WARNING, "genelab"):
        assert tasks.ids() == ["A", "B"]
        assert tasks.ids() == ["A", "B"]
    assert loads == ["module"]
    assert [(failure.name, type(failure.error)) for failure in tasks.failures] == [
        ("a", SystemExit),
        ("b", ImportError),
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "task plugin 'a' did not load: SystemExit: 3",
        "task plugin 'b' did not load: ImportError: no libfoo",
    ]


def test_a_real_entry_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "entry_point_probe.py").write_text("LOADED = True\n")
    info = tmp_path / "probe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[genelab.tasks]\nprobe = entry_point_probe\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "entry_point_probe", raising=False)
    monkeypatch.setattr(registry, "entry_points", lambda group: metadata.entry_points(group=group, name="probe"))
    tasks = TaskRegistry()
    tasks.load_plugins()
    assert sys.modules["entry_point_probe"].LOADED
    assert tasks.packages == {"entry_point_probe"}
    assert tasks.failures == []


@pytest.fixture
def local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own module, outside any package, with `sys` restored afterwards."""
    path = tmp_path / "my_local_task.py"
    path.write_text("from genelab.config import TaskCfg\n\n\ndef make():\n    return TaskCfg(env=1)\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "my_local_task", sys)  # so that what a test imports is removed again
    del sys.modules["my_local_task"]
    return path


def test_import_module_by_name_from_the_current_directory(
    tasks: TaskRegistry, local_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(local_file.parent)
    tasks.import_module("my_local_task")
    tasks.register("Mine", "my_local_task:make")
    assert tasks.get("mine") == TaskCfg(env=ONE)


def test_import_module_by_path(tasks: TaskRegistry, local_file: Path, tmp_path: Path) -> None:
    assert local_file.stem not in tasks.packages
    module = tasks.import_module(str(local_file))
    assert local_file.stem in tasks.packages
    assert tasks.import_module(str(local_file)) is module
    tasks.register("Mine", "my_local_task:make")
    assert tasks.get("mine") == TaskCfg(env=ONE)
    (tmp_path / "json.py").touch()
    with pytest.raises(UsageError, match=r"another module is called 'json'; rename the file$"):
        tasks.import_module(str(tmp_path / "json.py"))


def test_import_module_fails_in_one_line(tasks: TaskRegistry, local_file: Path) -> None:
    with pytest.raises(UsageError, match=r"^cannot import 'nope': ModuleNotFoundError: No module named 'nope'$"):
        tasks.import_module("nope")
    with pytest.raises(UsageError, match=r"^cannot import 'nope\.py': FileNotFoundError: "):
        tasks.import_module("nope.py")
    local_file.write_text("raise SystemExit('stop')\n")
    with pytest.raises(UsageError, match=r"my_local_task\.py': SystemExit: stop \(.*my_local_task\.py:1\)$"):
        tasks.import_module(str(local_file))
    assert "my_local_task" not in sys.modules


def test_a_task_that_fails_in_the_framework_names_the_line_that_called_it(
    tasks: TaskRegistry, local_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("from genelab.scene import FrameSensorCfg", "", "def task():", "    return FrameSensorCfg(body='tip')")
    local_file.write_text("\n".join(lines))
    tasks.import_module(str(local_file))
    tasks.register("Mine", "my_local_task:task")
    monkeypatch.chdir(local_file.parent)
    with pytest.raises(UsageError, match=r"TypeError: .*'entity' \(my_local_task\.py:4\)$"):
        tasks.get("Mine")


def test_the_package_imports_only_the_standard_library() -> None:
    code = (
        "import sys, genelab.config as c; c.TASKS; "
        "print([m for m in sys.modules if m.partition('.')[0] in ('torch', 'numpy', 'mujoco')])"
    )
    source = Path(registry.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_a_config_instead_of_an_id_is_told_how_to_become_a_task(tasks: TaskRegistry) -> None:
    config: Any = make_task()
    with pytest.raises(UsageError, match=r"^a task is named by its id, not given as a TaskCfg: register a function "):
        tasks.get(config)
