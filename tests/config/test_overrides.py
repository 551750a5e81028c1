from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from genelab.config import (
    TASKS,
    FieldInfo,
    apply_override,
    apply_overrides,
    as_words,
    iter_fields,
    reaches,
    refuse_decided,
    split_overrides,
)
from genelab.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor


HERE = __name__
TASKS.trust(HERE)


def wave(x: float) -> float:
    return x


PI = 3.14


class Color(Enum):
    RED = 1
    GREEN = 2


@dataclass(kw_only=True)
class SimulationCfg:
    dt: float = 0.005
    steps: int = 240
    vis: bool = False
    engine: Literal["auto", "mujoco", "genesis"] = "auto"
    seed: int | None = None


@dataclass(kw_only=True)
class TermCfg:
    func: Callable[..., Any] = wave
    weight: float = 1.0
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ScaledTermCfg(TermCfg):
    scale: float | tuple[float, float] = 1.0


@dataclass(frozen=True)
class GainsCfg:
    kp: float = 80.0
    kd: float = 8.0


@dataclass(kw_only=True)
class EnvCfg:
    simulation: SimulationCfg = field(default_factory=SimulationCfg)
    spare: SimulationCfg | None = None
    rewards: dict[str, TermCfg | None] = field(default_factory=dict)
    actions: dict[str, TermCfg] = field(default_factory=dict)
    stages: list[SimulationCfg] = field(default_factory=list)
    cart_range: tuple[float, float] = (-1.0, 1.0)
    hidden: tuple[int, ...] = (128, 128)
    joints: list[str] = field(default_factory=lambda: ["hip"])
    color: Color = Color.RED
    name: str = "pendulum"
    label: str | None = None
    mixed: str | float = "a"
    gains: GainsCfg = field(default_factory=GainsCfg)
    stiffness: dict[str, float] = field(default_factory=dict)
    extra: Tensor = 2.0  # type: ignore[assignment]
    hook: Callable[[torch.Tensor], float] | None = None


@pytest.fixture
def env() -> EnvCfg:
    return EnvCfg(
        rewards={"foot_slip": TermCfg(weight=-0.1, params={"std": 0.5, "count": 3, "range": (0.0, 1.0), "on": True})},
        actions={"joint-pos": ScaledTermCfg(params={"sensor": SimulationCfg(), "feet": ("FL", "FR"), "limit": None})},
        stages=[SimulationCfg(), SimulationCfg(dt=0.01)],
        stiffness={".*_hip": 20.0},
    )


@pytest.mark.parametrize(
    ("args", "overrides", "rest"),
    [
        (["--env.a.b", "3"], [("env.a.b", "3")], []),
        (["--env.a.b=3"], [("env.a.b", "3")], []),
        (["env.a.b=x=y"], [("env.a.b", "x=y")], []),
        (["--env.a", "-0.2"], [("env.a", "-0.2")], []),
        (["--env.a", "-.5,1"], [("env.a", "-.5,1")], []),
        (["--env.a", "-inf"], [("env.a", "-inf")], []),
        (["--env.a"], [("env.a", "true")], []),
        (["--env.a", "--gpu"], [("env.a", "true")], ["--gpu"]),
        (["--env.a", "-v"], [("env.a", "true")], ["-v"]),
        (["--play-env.a", "1"], [("play-env.a", "1")], []),
        (["Task-v0", "--steps", "5", "env.a=1", "-v"], [("env.a", "1")], ["Task-v0", "--steps", "5", "-v"]),
        (["model.pt", "./a.b=1", "0.5=x", "--out=a.b"], [], ["model.pt", "./a.b=1", "0.5=x", "--out=a.b"]),
        (["env.a=1", "--", "env.b=2"], [("env.a", "1")], ["--", "env.b=2"]),
        (["env.a=1", "env.b=2", "env.a=3"], [("env.b", "2"), ("env.a", "3")], []),
    ],
)
def test_split_overrides(args: list[str], overrides: list[tuple[str, str]], rest: list[str]) -> None:
    found, left = split_overrides(args)
    assert list(found.items()) == overrides
    assert left == rest


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("simulation.dt", "1", 1.0),
        ("simulation.dt", "-1e-3", -0.001),
        ("simulation.dt", "inf", math.inf),
        ("simulation.steps", "3.0", 3),
        ("simulation.steps", "1e3", 1000),
        ("simulation.vis", "Yes", True),
        ("simulation.engine", "mujoco", "mujoco"),
        ("simulation.seed", "7", 7),
        ("spare", "none", None),
        ("rewards.foot_slip", "none", None),
        ("rewards.foot_slip.weight", "-0.2", -0.2),
        ("rewards.foot_slip.func", f"{HERE}:wave", wave),
        ("rewards.foot_slip.params.std", "1", 1.0),
        ("rewards.foot_slip.params.count", "4", 4),
        ("rewards.foot_slip.params.count", "0.5", 0.5),
        ("rewards.foot_slip.params.range", "-1,2", (-1.0, 2.0)),
        ("rewards.foot_slip.params.range.1", "3", 3.0),
        ("rewards.foot_slip.params.on", "off", False),
        ("rewards.foot_slip.params", "{'std': 2, 'name': '1'}", {"std": 2, "name": "1"}),
        ("actions.joint-pos.scale", "2", 2.0),
        ("actions.joint-pos.scale", "1,2", (1.0, 2.0)),
        ("actions.joint-pos.params.sensor.dt", "1", 1.0),
        ("actions.joint-pos.params.feet", "RL,RR,FL", ("RL", "RR", "FL")),
        ("actions.joint-pos.params.limit", "(1, 2)", (1, 2)),
        ("stages.1.dt", "1", 1.0),
        ("cart_range", "(-2, 2)", (-2.0, 2.0)),
        ("cart_range", "[-inf, inf]", (-math.inf, math.inf)),
        ("cart_range.0", "-3", -3.0),
        ("hidden", "256,", (256,)),
        ("hidden", "()", ()),
        ("joints", "[(FL|FR)_hip, 'a,b', 7]", ["(FL|FR)_hip", "a,b", "7"]),
        ("color", "green", Color.GREEN),
        ("color", "2", Color.GREEN),
        ("name", "'quoted'", "quoted"),
        ("name", "none", "none"),
        ("name", "007", "007"),
        ("label", "Null", None),
        ("label", "text", "text"),
        ("mixed", "1.5", 1.5),
        ("mixed", "'1.5'", "1.5"),
        ("gains.kp", "20", 20.0),
        ("extra", "3", 3.0),
        ("hook", f"{HERE}:wave", wave),
    ],
)
def test_value_takes_the_type_of_its_place(env: EnvCfg, path: str, text: str, expected: object) -> None:
    apply_override(env, path, text)
    value: Any = env
    for key in path.split("."):
        if isinstance(value, list | tuple):
            value = value[int(key)]
        else:
            value = value[key] if isinstance(value, dict) else getattr(value, key)
    assert (value, type(value)) == (expected, type(expected))


def test_dash_and_underscore_are_the_same_and_a_dict_key_may_have_dots(env: EnvCfg) -> None:
    foot_slip = copy.deepcopy(env.rewards["foot_slip"])
    assert foot_slip is not None
    apply_override(env, "cart-range", "0,1")
    apply_override(env, "rewards.foot-slip.weight", "2")
    apply_override(env, "actions.joint_pos.weight", "3")
    apply_override(env, "stiffness..*_hip", "40")
    assert env.cart_range == (0.0, 1.0)
    assert env.rewards == {"foot_slip": replace(foot_slip, weight=2.0)}
    assert env.actions["joint-pos"].weight == 3.0
    assert env.stiffness == {".*_hip": 40.0}


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("env.simulation.dtt", "1", "env.simulation.dtt: no such key. Did you mean 'dt'?"),
        ("env.simulatoin.dt", "1", "env.simulatoin: no such key. Did you mean 'simulation'?"),
        ("env.simulation.xyz", "1", "env.simulation.xyz: no such key. Keys here: dt, steps, vis, engine, seed"),
        ("env.rewards.foot_slp.weight", "1", "env.rewards.foot_slp: no such key. Did you mean 'foot_slip'?"),
        ("env.simulation.dt.x", "1", "env.simulation.dt.x: no such key. 'env.simulation.dt' is float"),
        ("env.spare.dt", "1", "env.spare.dt: no such key. 'env.spare' is None"),
        ("env.stages.2.dt", "1", "env.stages.2: no such key. Keys here: 0, 1"),
        ("env.simulation.dt", "fast", "env.simulation.dt: expected float, got 'fast'"),
        ("env.simulation.dt", "none", "env.simulation.dt: expected float, got 'none'"),
        ("env.simulation.dt", "true", "env.simulation.dt: expected float, got 'true'"),
        ("env.simulation.steps", "2.5", "env.simulation.steps: expected int, got '2.5'"),
        ("env.simulation.steps", "inf", "env.simulation.steps: expected int, got 'inf'"),
        ("env.simulation.vis", "2", "env.simulation.vis: expected bool, got '2'"),
        ("env.simulation.seed", "x", "env.simulation.seed: expected int | None, got 'x'"),
        (
            "env.simulation.engine",
            "mujco",
            "env.simulation.engine: expected 'auto' | 'mujoco' | 'genesis', got 'mujco'. Did you mean 'mujoco'?",
        ),
        ("env.color", "blue", "env.color: expected 'RED' | 'GREEN', got 'blue'"),
        ("env.cart_range", "1,2,3", "env.cart_range: expected tuple[float, float], got '1,2,3'"),
        ("env.cart_range", "(1, 2", "env.cart_range: expected tuple[float, float], got '(1, 2'"),
        ("env.hidden", "256", "env.hidden: expected tuple[int, ...], got '256'"),
        ("env.rewards.foot_slip.params.std", "none", "env.rewards.foot_slip.params.std: expected float, got 'none'"),
        (
            "env.simulation",
            "3",
            "env.simulation: cannot be set as a whole, got '3'; set one of its keys: dt, steps, vis, engine, seed",
        ),
        (
            "env.actions.joint-pos",
            "3",
            "env.actions.joint-pos: cannot be set as a whole, got '3'; set one of its keys: func, weight, params",
        ),
        (
            "env.rewards.foot_slip.func",
            f"{HERE}:nope",
            f"env.rewards.foot_slip.func: cannot import '{HERE}:nope': "
            f"AttributeError: module '{HERE}' has no attribute 'nope'",
        ),
        (
            "env.rewards.foot_slip.func",
            "nope",
            "env.rewards.foot_slip.func: expected the name of a callable as 'module:name', got 'nope'",
        ),
        ("env.rewards.foot_slip.func", f"{HERE}:PI", f"env.rewards.foot_slip.func: '{HERE}:PI' is no callable"),
        (
            "env.rewards.foot_slip.func",
            "os:system",
            "env.rewards.foot_slip.func: 'os:system' may not be used here: os is Python's own",
        ),
        (
            "env.rewards.foot_slip.func",
            "my_terms:slip",
            "env.rewards.foot_slip.func: 'my_terms:slip' may not be used here: "
            "my_terms brings no task; if you trust it, pass `TASKS.import_module('my_terms')`",
        ),
    ],
)
def test_errors_are_one_line_that_helps(env: EnvCfg, path: str, text: str, message: str) -> None:
    before = repr(env)
    with pytest.raises(ConfigError) as error:
        apply_override({"env": env, "agent": None}, path, text)
    assert str(error.value) == message
    assert error.value.exit_code == 2
    assert repr(env) == before


def test_text_is_never_run(env: EnvCfg) -> None:
    apply_override(env, "actions.joint-pos.params.limit", "__import__('os').getpid()")
    assert env.actions["joint-pos"].params["limit"] == "__import__('os').getpid()"


def test_overrides_apply_in_order_and_values_need_no_text(env: EnvCfg) -> None:
    root = SimpleNamespace(env=env)
    apply_overrides(root, {"env.actions.joint-pos.weight": "1", "env.actions.joint_pos.weight": 2})
    assert env.actions["joint-pos"].weight == 2.0
    apply_override(root, "env.cart_range", [0, 1])
    assert env.cart_range == (0.0, 1.0)
    with pytest.raises(ConfigError, match="expected str, got 3"):
        apply_override(root, "env.name", 3)


def test_overrides_that_are_no_mapping_are_refused(env: EnvCfg) -> None:
    wrongs: tuple[Any, ...] = (["env.name=a"], [("env.name", "a")], "env.name=a")
    message = r"^overrides: must be a dict as \{'env.simulation.dt': 0.002\}, got "
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=message):
            apply_overrides(env, wrong)
        with pytest.raises(ConfigError, match=message):
            refuse_decided(wrong, {"env.seed": "pass `seed`"}, "a training")


def test_overrides_can_be_typed_again() -> None:
    changes = {"env.a": 0.004, "env.b": None, "env.c": True, "env.d": "mujoco", "env.e": (0.0, 1.0), "env.f": "[1, 2]"}
    words = ["env.a=0.004", "env.b=none", "env.c=true", "env.d=mujoco", "env.e=(0.0, 1.0)", "env.f=[1, 2]"]
    assert as_words(changes) == words


def test_null_takes_a_config_out_of_a_dict_of_them(env: EnvCfg) -> None:
    apply_override({"env": env}, "env.actions.joint_pos", "null")
    assert env.actions == {}
    with pytest.raises(ConfigError, match=r"^env\.actions\.joint-pos: no such key\. Keys here: none$"):
        apply_override({"env": env}, "env.actions.joint-pos", None)
    with pytest.raises(ConfigError, match=r"env\.simulation: cannot be set as a whole, got 'null'"):
        apply_override({"env": env}, "env.simulation", "null")


def test_a_frozen_part_is_replaced_and_a_frozen_root_refused(env: EnvCfg) -> None:
    gains = env.gains
    apply_override(env, "gains.kd", "1")
    assert (gains, env.gains) == (GainsCfg(80.0, 8.0), GainsCfg(80.0, 1.0))
    with pytest.raises(TypeError, match="GainsCfg cannot be changed"):
        apply_override(gains, "kd", "1")


def test_iter_fields_lists_paths_types_and_values(env: EnvCfg) -> None:
    listed = {info.path: info for info in iter_fields(env, "env")}
    assert listed["env.simulation.dt"] == FieldInfo("env.simulation.dt", "float", 0.005)
    types = {path.removeprefix("env."): info.type for path, info in listed.items()}
    assert types["simulation.engine"] == "'auto' | 'mujoco' | 'genesis'"
    assert types["simulation.seed"] == "int | None"
    assert types["rewards.foot_slip.func"] == "Callable"
    assert types["rewards.foot_slip.params.range"] == "tuple[float, float]"
    assert types["actions.joint-pos.params.sensor.vis"] == "bool"
    assert types["actions.joint-pos.scale"] == "float | tuple[float, float]"
    assert types["stages.1.dt"] == "float"
    assert types["joints"] == "list[str]"
    assert types["hidden"] == "tuple[int, ...]"
    assert types["extra"] == "float"
    assert "simulation" not in types
    assert "rewards.foot_slip" not in types


def test_every_listed_path_can_be_set(env: EnvCfg) -> None:
    before = repr(env)
    for info in iter_fields(env):
        apply_override(env, info.path, info.value)
    assert repr(env) == before


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("wieght", ["weight", "height", "params"], " Did you mean 'weight' or 'height'?"),
        ("WEIGHT", ["weight", "params"], " Did you mean 'weight'?"),
        ("pendulum", ["A-Long-Id-With-Pendulum-v0"], " Did you mean 'A-Long-Id-With-Pendulum-v0'?"),
        ("aaab", ["aaac", "aaad", "aaae", "aaaf"], " Did you mean 'aaac', 'aaad' or 'aaae'?"),
        ("zzz", ["weight"], ""),
        ("zzz", [], ""),
    ],
)
def test_did_you_mean(name: str, options: list[str], expected: str) -> None:
    assert did_you_mean(name, options) == expected


def annotated(
    env: Tensor,
    ramp: tuple[float, int] | None = None,
    count: int = 1,
    feet: Sequence[str] = (),
    kind: Literal["soft", "hard"] = "soft",
    unknown: Tensor | float = 1.0,
    anything: Any = None,
) -> Tensor:
    """A term that says what it takes."""
    raise NotImplementedError


class Remembering:
    """A term with memory: what it takes is what its instances are called with."""

    def __init__(self, cfg: TermCfg, env: Tensor) -> None: ...

    def __call__(self, env: Tensor, limit: float | None = 1.0) -> Tensor:
        raise NotImplementedError


@pytest.fixture
def annotated_env() -> EnvCfg:
    params = {"ramp": (1.0, 500), "count": 2, "feet": ("FL",), "kind": "soft", "unknown": 2.0, "anything": 3}
    old = TermCfg(func=Remembering, params={"limit": 2})
    return EnvCfg(rewards={"slip": TermCfg(func=annotated, params=params), "old": old})


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("slip.params.ramp", "null", None),
        ("slip.params.ramp", "none", None),
        ("slip.params.ramp", "(2, 300)", (2.0, 300)),
        ("slip.params.ramp.0", "3", 3.0),
        ("slip.params.count", "4", 4),
        ("slip.params.feet", "FL,FR", ("FL", "FR")),
        ("slip.params.kind", "hard", "hard"),
        ("slip.params.unknown", "4", 4.0),
        ("slip.params.anything", "4.5", 4.5),
        ("old.params.limit", "null", None),
        ("old.params.limit", "3", 3.0),
    ],
)
def test_a_parameter_has_the_type_that_its_term_says(
    annotated_env: EnvCfg, path: str, text: str, expected: object
) -> None:
    apply_override(annotated_env, f"rewards.{path}", text)
    found: Any = annotated_env.rewards
    for part in path.split("."):
        found = getattr(found, part) if part == "params" else found[int(part) if part.isdecimal() else part]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("env.robot.spec_args.sole", True),
        ("env.robot.spec-args.sole", True),
        ("env.robot.spec_args", True),  # all of them
        ("env.robot", True),
        ("env.robot.spec_args.sole.1", True),  # one of its numbers
        ("env.robot.spec_args.sole_width", False),
        ("env.robot.spec_args.sole.width", False),
        ("env.robot.spec", False),
        ("env.robot.mass", False),
    ],
)
def test_an_override_reaches_a_setting_by_itself_by_its_parents_and_by_its_elements(path: str, changes: bool) -> None:
    assert reaches(path, "env.robot.spec_args.sole") == changes


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("slip.params.count", "0.5", "expected int, got '0.5'"),
        ("slip.params.count", "null", "expected int, got 'null'"),
        ("slip.params.kind", "firm", "'soft' | 'hard'"),
        ("slip.params.ramp", "1", "expected tuple[float, int] | None, got '1'"),
    ],
)
def test_what_its_term_does_not_take_is_refused(annotated_env: EnvCfg, path: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        apply_override(annotated_env, f"rewards.{path}", text)
    assert message in str(error.value)


def test_the_types_of_parameters_are_listed(annotated_env: EnvCfg) -> None:
    types = {info.path: info.type for info in iter_fields(annotated_env)}
    assert types["rewards.slip.params.ramp"] == "tuple[float, int] | None"
    assert types["rewards.old.params.limit"] == "float | None"
