from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genelab.config import TASKS, atomic_write_bytes, atomic_write_text, dump_json, from_dict, load_json, to_dict
from genelab.errors import ConfigError

HERE = __name__
TASKS.trust(HERE)


def wave(x: float) -> float:
    return x


def slope(x: float) -> float:
    return 2 * x


PI = 3.14
MISSING = f"AttributeError: module '{HERE}' has no attribute"
LIMITS, PAIRS = "tuple[float, float] | None", "tuple[tuple[str, int], ...]"


class Mode(Enum):
    FAST = 1
    SLOW = 2


@dataclass(kw_only=True)
class BaseTermCfg:
    weight: float = 1.0
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class FuncTermCfg(BaseTermCfg):
    func: Callable[..., float] | None = None
    cls: type = BaseTermCfg


@dataclass(kw_only=True)
class EnvCfg:
    term: BaseTermCfg = field(default_factory=BaseTermCfg)
    rewards: dict[str, BaseTermCfg] = field(default_factory=dict)
    limits: tuple[float, float] | None = None
    pairs: tuple[tuple[str, int], ...] = ()
    scale: float | tuple[float, ...] = 1.0
    names: list[str] | tuple[str, ...] = ()
    mode: Mode = Mode.FAST
    gains: dict[int, float] = field(default_factory=dict)
    anything: Any = None


@dataclass(frozen=True)
class DerivedCfg:
    half: float
    whole: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", 2 * self.half)


@dataclass(kw_only=True)
class CheckedCfg:
    dt: float = 0.1

    def __post_init__(self) -> None:
        if self.dt <= 0:
            raise ValueError("dt must be\npositive")


def round_trip(cfg: object) -> Any:
    """What is left of a value after a journey through JSON text."""
    return from_dict(json.loads(json.dumps(to_dict(cfg), allow_nan=False)))


def test_a_config_comes_back_equal_with_the_types_it_had() -> None:
    cfg = EnvCfg(
        term=FuncTermCfg(func=wave, cls=Mode),
        rewards={"slip": FuncTermCfg(func=slope, params={"range": (0, 1.5), "fn": slope, "ids": slice(0, None, 2)})},
        limits=(-1.0, math.inf),
        pairs=(("a", 1), ("b", 2)),
        scale=(0.1, 0.2),
        names=("hip", "knee"),
        mode=Mode.SLOW,
        gains={3: 0.5},
        anything=[BaseTermCfg(), {"__type__": "not a tag"}, Mode.SLOW, (), {(1, 2): None}, -math.inf, True, 0.1 + 0.2],
    )
    back = round_trip(cfg)
    assert back == cfg
    assert repr(back) == repr(cfg)  # tells a tuple from a list and 1 from True


@pytest.mark.parametrize(
    ("cfg", "written"),
    [
        (EnvCfg(limits=(0.0, 1.0)), {"limits": [0.0, 1.0]}),
        (EnvCfg(scale=(0.0, 1.0)), {"scale": [0.0, 1.0]}),
        (EnvCfg(names=("hip",)), {"names": {"__tuple__": ["hip"]}}),
        (EnvCfg(names=["hip"]), {"names": ["hip"]}),
        (EnvCfg(limits=[0.0, 1.0]), {"limits": {"__list__": [0.0, 1.0]}}),  # type: ignore[arg-type]
        (EnvCfg(mode=Mode.SLOW), {"mode": "SLOW"}),
        (EnvCfg(anything=Mode.SLOW), {"anything": {"__enum__": f"{HERE}:Mode", "name": "SLOW"}}),
        (EnvCfg(anything=(1,)), {"anything": {"__tuple__": [1]}}),
        (EnvCfg(anything=wave), {"anything": {"__callable__": f"{HERE}:wave"}}),
        (EnvCfg(anything=Mode), {"anything": {"__callable__": f"{HERE}:Mode"}}),
        (EnvCfg(anything=slice(1, None)), {"anything": {"__slice__": [1, None, None]}}),
        (EnvCfg(anything=math.inf), {"anything": {"__float__": "inf"}}),
        (EnvCfg(gains={3: 0.5}), {"gains": {"__dict__": [[3, 0.5]]}}),
        (FuncTermCfg(func=wave, cls=Mode), {"func": f"{HERE}:wave", "cls": f"{HERE}:Mode"}),
    ],
)
def test_how_values_are_written(cfg: object, written: dict[str, object]) -> None:
    data = to_dict(cfg)
    assert {name: data[name] for name in written} == written
    assert repr(round_trip(cfg)) == repr(cfg)


def test_the_type_comes_first() -> None:
    assert list(to_dict(BaseTermCfg()).items()) == [
        ("__type__", f"{HERE}:BaseTermCfg"),
        ("weight", 1.0),
        ("params", {}),
    ]


def test_an_entry_that_is_null_is_left_out_of_a_dict_of_configs() -> None:
    written = to_dict(EnvCfg(rewards={"slip": BaseTermCfg()}))
    written["rewards"]["gone"] = None
    assert list(from_dict(written, EnvCfg).rewards) == ["slip"]


def test_nan_survives() -> None:
    assert math.isnan(round_trip(BaseTermCfg(weight=math.nan)).weight)


def test_numpy_scalars_become_python_numbers() -> None:
    values = to_dict([np.float32(0.5), np.float64(0.1), np.int64(3), np.bool_(True)])
    assert [(value, type(value)) for value in values] == [(0.5, float), (0.1, float), (3, int), (True, bool)]


def test_values_derived_after_init_come_back() -> None:
    cfg = DerivedCfg(1.0)
    object.__setattr__(cfg, "whole", 5.0)
    assert round_trip(cfg).whole == 5.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: None, r"anything\.0: <function .*> is not importable"),
        (b"x", r"anything\.0: a bytes cannot be written as JSON"),
        (np.zeros(2), r"anything\.0: a ndarray cannot be written as JSON"),
        ({1, 2}, r"anything\.0: a set cannot be written as JSON"),
    ],
)
def test_what_cannot_be_written_is_named(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        to_dict(EnvCfg(anything=[value]))


def test_a_local_class_is_not_importable() -> None:
    @dataclass
    class LocalCfg:
        a: int = 1

    with pytest.raises(ConfigError, match=r"^config: .*LocalCfg.* is not importable"):
        to_dict(LocalCfg())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"__type__": f"{HERE}:EnvCfg", "limit": None}, "config: EnvCfg has no 'limit'. Did you mean 'limits'?"),
        ({"__type__": f"{HERE}:EnvCfg", "term": {"a": 1, "b": 2}}, "term: BaseTermCfg has no 'a', 'b'."),
        ({"__type__": f"{HERE}:wave", "x": 1}, f"config: '{HERE}:wave' is no dataclass"),
        ({"__type__": f"{HERE}:Nobody"}, f"config: cannot import '{HERE}:Nobody': {MISSING} 'Nobody'"),
        ({"__type__": "A"}, "config: 'A' is not of the form 'module:name'"),
        ({"__enum__": f"{HERE}:wave", "name": "A"}, f"config: '{HERE}:wave' is no enum"),
        ({"__enum__": f"{HERE}:Mode", "name": "A"}, "config: Mode has no member 'A'"),
        ({"__callable__": f"{HERE}:PI"}, f"config: '{HERE}:PI' is no callable"),
        ({"__type__": f"{HERE}:EnvCfg", "mode": 3}, "mode: expected 'FAST' | 'SLOW', got 3"),
        ({"__type__": f"{HERE}:EnvCfg", "limits": [0.0]}, "limits: expected tuple[float, float] | None, got (0.0,)"),
        ({"__type__": f"{HERE}:EnvCfg", "limits": ["a", "b"]}, f"limits: expected {LIMITS}, got ('a', 'b')"),
        ({"__type__": f"{HERE}:EnvCfg", "gains": True}, "gains: expected dict[int, float], got True"),
        ({"__type__": f"{HERE}:EnvCfg", "scale": None}, "scale: expected float | tuple[float, ...], got None"),
        ({"__type__": f"{HERE}:EnvCfg", "pairs": "x" * 99}, f"pairs: expected {PAIRS}, got '{'x' * 59}…"),
        ({"__type__": f"{HERE}:FuncTermCfg", "func": {"__str__": "a:b"}}, "func: expected Callable | None, got 'a:b'"),
        (
            {"__type__": f"{HERE}:EnvCfg", "term": {"__type__": f"{HERE}:CheckedCfg"}},
            "term: expected BaseTermCfg, got CheckedCfg",
        ),
        ({"__float__": "1"}, "config: '__float__' is not understood here"),
        ({"a": {"__tuple__": [], "b": 1}}, "a: '__tuple__' is not understood here"),
        (
            {"__type__": f"{HERE}:CheckedCfg", "dt": 0},
            "config: CheckedCfg cannot be made: ValueError: dt must be positive",
        ),
    ],
)
def test_bad_data_is_refused_in_one_line(data: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_dict(data)
    assert str(error.value) == message


def test_missing_fields_take_their_defaults_and_the_expected_type_may_be_left_out() -> None:
    assert from_dict({"limits": [0, 1], "term": {"weight": 2}}, EnvCfg) == EnvCfg(
        limits=(0, 1), term=BaseTermCfg(weight=2)
    )
    with pytest.raises(ConfigError, match=r"^expected EnvCfg, got BaseTermCfg$"):
        from_dict(to_dict(BaseTermCfg()), EnvCfg)


def test_json_files(tmp_path: Path) -> None:
    path = tmp_path / "params" / "env.json"
    dump_json(BaseTermCfg(weight=0.5), path)
    assert path.read_text() == f'{{\n  "__type__": "{HERE}:BaseTermCfg",\n  "weight": 0.5,\n  "params": {{}}\n}}\n'
    assert load_json(path, BaseTermCfg) == BaseTermCfg(weight=0.5)
    with pytest.raises(ConfigError, match=r"env\.json: expected EnvCfg, got BaseTermCfg$"):
        load_json(path, EnvCfg)
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"env\.json is not JSON: "):
        load_json(path)
    with pytest.raises(ConfigError, match=r"none\.json: No such file or directory$"):
        load_json(tmp_path / "none.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    atomic_write_text(path, "µ")
    assert path.read_bytes() == b"\xc2\xb5"

    def fail(source: str, target: str) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        atomic_write_bytes(path, b"new")
    assert path.read_bytes() == b"\xc2\xb5"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    atomic_write_bytes(tmp_path / "ours", b"")
    (tmp_path / "usual").touch()
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)
