"""Which functions and classes a config may name: no other is even imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import pytest

from genelab.config import TASKS, TaskCfg, from_dict
from genelab.config.trust import look_up
from genelab.errors import ConfigError
from tests.narrow import as_kind

HERE = __name__
TASKS.trust(HERE)


class Model:
    pass


class RichModel(Model):
    pass


def makes() -> Model:
    return Model()


def makes_more() -> RichModel | None:
    return RichModel()


def does(path: str, text: str) -> None:
    Path(path).write_text(text)


def does_not_say():  # type: ignore[no-untyped-def]
    return Model()


def says_anything() -> Any:
    return Model()


def says_what_nobody_knows() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return Model()


run = subprocess.run


@dataclass(kw_only=True)
class EntityCfg:
    spec: Callable[..., Model] = makes


def spec_task() -> TaskCfg:
    env: Any = {"parse": Fraction.from_float}  # stands for a config
    return TaskCfg(env=env, agent=None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("os:system", "os is Python's own"),
        ("idlelib.__main__:x", "idlelib is Python's own"),
        ("this:s", "this is Python's own"),
        ("builtins:exec", "builtins is Python's own"),
        ("nowhere.at_all:x", "nowhere brings no task; if you trust it, pass `TASKS.import_module('nowhere')`"),
        ("torch:save", "torch brings no task"),
        ("genelab.config.files:atomic_write_text", "only functions of genelab.mdp and genelab.scene are for configs"),
        ("genelab.rl.launch.process:Process", "only functions of genelab.mdp and genelab.scene are for configs"),
        ("genelab.mdpx:f", "only functions of genelab.mdp and genelab.scene are for configs"),
        ("genelab_pendulum.__main__:x", "genelab_pendulum brings no task"),
    ],
)
def test_what_is_not_trusted_is_refused_before_it_is_imported(name: str, why: str) -> None:
    known = set(sys.modules)
    with pytest.raises(ConfigError, match="may not be used here") as error:
        look_up(name, "callable")
    assert why in str(error.value)
    assert "\n" not in str(error.value)
    assert set(sys.modules) == known


@pytest.mark.parametrize("name", [".os:system", "genelab..mdp:x", "a:b:c", "a:", ":b", "", "a:1", "a:b.", "ä\n:b"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not of the form 'module:name'"):
        look_up(name, "callable")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("genelab.mdp.rewards:torch.save", "is no callable"),
        ("genelab.scene.entity:mujoco.MjSpec.from_file", "is no callable"),
        ("genelab.scene.entity:dataclass", "it is dataclasses's, and dataclasses is Python's own"),
        (f"{HERE}:run", "it is subprocess's, and subprocess is Python's own"),
        (f"{HERE}:Path.unlink", "is Python's own"),
    ],
)
def test_a_trusted_module_is_no_way_to_another(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        look_up(name, "callable")


def test_genelab_and_the_packages_of_tasks_are_trusted() -> None:
    from genelab import mdp
    from genelab_pendulum.robots import single_pendulum

    assert look_up("genelab.mdp.rewards:is_alive", "callable") is mdp.is_alive
    assert look_up("genelab.mdp:is_alive", "callable") is mdp.is_alive
    assert look_up("genelab_pendulum.robots:single_pendulum", "callable") is single_pendulum


def test_what_a_registered_task_names_may_be_named_and_nothing_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "_entries", {})
    monkeypatch.setattr(TASKS, "named", set())
    TASKS.register("Named-v0", spec_task)
    function = as_kind(Fraction.from_float, MethodType).__func__
    name = f"{function.__module__}:{as_kind(function, FunctionType).__qualname__}"
    with pytest.raises(ConfigError, match="may not be used here"):
        look_up(name, "callable")
    TASKS.get("Named-v0")
    assert look_up(name, "callable") == Fraction.from_float
    with pytest.raises(ConfigError, match="may not be used here"):
        look_up(name.replace("from_float", "from_decimal"), "callable")


@pytest.mark.parametrize("function", [makes, makes_more, Model, RichModel])
def test_a_function_that_may_return_what_is_needed_fits(function: Any) -> None:
    assert from_dict({"spec": f"{HERE}:{function.__name__}"}, EntityCfg).spec is function


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("name", ["does", "EntityCfg"])
def test_a_function_that_says_it_returns_something_else_is_refused(name: str, tagged: bool) -> None:
    spec = f"{HERE}:{name}"
    with pytest.raises(ConfigError) as error:
        from_dict({"spec": {"__callable__": spec} if tagged else spec}, EntityCfg)
    assert str(error.value) == f"spec: '{HERE}:{name}' does not return Model, which is needed here"


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("function", [does_not_say, says_anything, says_what_nobody_knows])
def test_a_function_that_is_not_declared_for_its_place_is_refused(
    function: Any, tagged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"{HERE}:{function.__name__}"
    monkeypatch.setattr(TASKS, "named", set())
    with pytest.raises(ConfigError) as error:
        from_dict({"spec": {"__callable__": spec} if tagged else spec}, EntityCfg)
    why = "does not say what it returns: annotate it, such as `def ...(...) -> Model`"
    assert str(error.value) == f"spec: {spec!r} {why}"
    TASKS.named.add(spec)
    assert from_dict({"spec": spec}, EntityCfg).spec is function, "a task names it"


def test_a_function_for_any_place_says_what_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "named", set())
    assert look_up(f"{HERE}:does", "callable", Callable[..., Any]) is does
    for hint in (Callable[..., Any], Any):
        with pytest.raises(ConfigError, match="does_not_say' does not say what it returns"):
            look_up(f"{HERE}:does_not_say", "callable", hint)


def test_no_function_where_none_is_expected() -> None:
    from genelab.sim import SimulationCfg

    with pytest.raises(ConfigError, match=r"^dt: expected float, got <function is_alive"):
        from_dict({"dt": {"__callable__": "genelab.mdp.rewards:is_alive"}}, SimulationCfg)
