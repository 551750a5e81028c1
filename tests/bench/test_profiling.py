"""The phases of a start."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from genelab.bench.profiling import Phases, _name, read_whitelist
from genelab.errors import UsageError


def busy(calls: int) -> None:
    for _ in range(calls):
        json.dumps({"a": 1})


def test_phases_are_timed_and_add_up() -> None:
    phases = Phases()
    for _ in range(2):
        with phases.phase("app_launch"):
            time.sleep(0.01)
    assert 0.02 <= phases.seconds["app_launch"] < 0.2
    assert phases.times.app_launch == phases.seconds["app_launch"]
    assert phases.times.first_step is None
    assert phases.profiles == {}


def test_a_phase_that_fails_has_no_time() -> None:
    phases = Phases(profile=True)
    with pytest.raises(KeyError), phases.phase("env_creation"):
        raise KeyError
    assert (phases.seconds, phases.profiles) == ({}, {})
    with phases.phase("first_step"):  # the profiler was put away
        pass


def test_functions_are_named_by_module_with_their_calls() -> None:
    phases = Phases(profile=True)
    with phases.phase("task_config"):
        busy(7)
    (phase,) = phases.report(top_n=50).values()
    found = {one.name: one for one in phase.top_functions}
    assert found["json:dumps"].calls == 7
    assert found[f"{__name__}:busy"].cum_time_s >= found["json:dumps"].cum_time_s
    assert len(phases.report(top_n=2)["task_config"].top_functions) == 2


def test_frozen_modules_keep_their_whole_name() -> None:
    """`importlib._bootstrap` and `importlib._bootstrap_external` are two."""
    assert _name("<frozen importlib._bootstrap_external>", "f", {}) == "importlib._bootstrap_external:f"
    assert _name("<frozen zipimport>", "f", {}) == "zipimport:f"
    assert _name("<string>", "f", {}) == "<string>:f"
    assert _name("/somewhere/module.py", "f", {}) == "module:f"


def test_functions_of_one_name_in_one_module_are_one() -> None:
    class One:
        def work(self) -> None:
            busy(1)

    class Other:
        def work(self) -> None:
            busy(2)

    phases = Phases(profile=True)
    with phases.phase("first_step"):
        One().work()
        Other().work()
        Other().work()
    functions = phases.report(99)["first_step"].top_functions
    names = [one.name for one in functions]
    assert len(names) == len(set(names))
    found = {one.name: one for one in functions}
    assert found[f"{__name__}:work"].calls == 3
    assert found[f"{__name__}:work"].cum_time_s >= found[f"{__name__}:busy"].cum_time_s


def test_a_whitelist_keeps_what_it_names_and_tells_what_it_misses() -> None:
    phases = Phases(profile=True)
    with phases.phase("task_config"):
        busy(1)
    whitelist = {"task_config": ["json:d*", "torch:*"], "first_step": ["json:dumps"]}
    (kept,) = phases.report(9, whitelist)["task_config"].top_functions
    assert kept.name == "json:dumps"
    assert phases.unmatched(whitelist) == ["task_config/torch:*", "first_step/json:dumps"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("[", "is not JSON"), ("[]", "must be like"), ('{"a": 1}', "must be like"), ('{"warm_up": []}', "no phase")],
)
def test_a_bad_whitelist_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_whitelist(tmp_path / "w.json")
