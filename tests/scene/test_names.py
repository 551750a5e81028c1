"""Joints and bodies are found by regular expressions that match whole names."""

from __future__ import annotations

import pytest

from genelab.errors import ConfigError
from genelab.scene.names import match_names, resolve_values

LEGS = ("hip_left", "knee_left", "hip_right", "knee_right")


def test_the_order_is_that_of_the_names_not_of_the_patterns() -> None:
    assert match_names(("knee_.*", "hip_right"), LEGS, "joint") == [1, 2, 3]


def test_one_pattern_may_stand_alone() -> None:
    assert match_names(".*_left", LEGS, "joint") == [0, 1]


def test_overlapping_patterns_choose_a_name_once() -> None:
    assert match_names((".*", "hip_left"), LEGS, "joint") == [0, 1, 2, 3]


def test_a_part_of_a_name_is_no_match() -> None:
    with pytest.raises(ConfigError, match=r"^joint: nothing is called 'hip'\. Did you mean 'hip_left'"):
        match_names("hip", LEGS, "joint")


def test_every_pattern_must_match_something() -> None:
    with pytest.raises(ConfigError, match=r"'knee_lefd'\. Did you mean 'knee_left'\?$"):
        match_names(("hip_left", "knee_lefd"), LEGS, "joint")


def test_where_nothing_is_near_all_names_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"There are: hip_left, knee_left, hip_right, knee_right\.$"):
        match_names("wheel", LEGS, "joint")


def test_what_is_no_regular_expression_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match=r"^joint: '\*_left' is not a regular expression: "):
        match_names("*_left", LEGS, "joint")


def test_one_number_is_for_all() -> None:
    assert resolve_values(3, LEGS, "gain") == [3.0, 3.0, 3.0, 3.0]


def test_numbers_by_pattern_and_the_later_pattern_wins() -> None:
    assert resolve_values({".*": 1.0, "knee_.*": 2.0, "knee_right": 5}, LEGS, "gain") == [1.0, 2.0, 1.0, 5.0]


def test_a_name_without_a_number_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^gain: no value for knee_left, knee_right$"):
        resolve_values({"hip_.*": 1.0}, LEGS, "gain")
