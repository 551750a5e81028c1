"""What is searched: config paths and the ranges of their values, as one types them.

`agent.algorithm.learning_rate=log(1e-4,3e-3)`, `env.rewards.upright.weight=uniform(1,5)`,
`agent.num_steps_per_env=int(8,48)`, `agent.actor.hidden_dims=choice((64,64),(128,128))`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from genelab.config import reaches
from genelab.config.coerce import split_at_commas
from genelab.config.overrides import value_at
from genelab.errors import ConfigError, UsageError, did_you_mean
from genelab.rl.launch.task import load_cfg

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

Kind = Literal["log", "uniform", "int", "choice"]
_MEANING = {
    "log": "log(a,b): a number between a and b, each factor as likely",
    "uniform": "uniform(a,b): a number between a and b",
    "int": "int(a,b): a whole number from a to b",
    "choice": "choice(x,y,…): one of these",
}
_PARAM = re.compile(r"(?P<path>[A-Za-z_][\w-]*\.[^=\s]+)=(?P<range>.*)", re.DOTALL)
_RANGE = re.compile(r"\s*(?P<kind>\w+)\s*\((?P<inside>.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Range:
    """What a setting may be."""

    path: str
    """Dotted path of the setting, from `env` or `agent`."""
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    """As one would type them."""
    whole: bool = False
    """Only whole numbers."""
    text: str
    """The range as it was typed."""

    @property
    def examples(self) -> tuple[str, ...]:
        """The values at its ends, or all of its choices, as one would type them."""
        return self.choices or tuple(self.written(value) for value in (self.low, self.high))

    def written(self, value: float | str) -> str:
        """A value as one would type it."""
        return value if isinstance(value, str) else str(int(value)) if self.whole else repr(float(value))

    def distribution(self) -> BaseDistribution:
        """The range as Optuna calls it."""
        from optuna import distributions as of

        if self.kind == "choice":
            return of.CategoricalDistribution(self.choices)
        if self.whole:
            return of.IntDistribution(int(self.low), int(self.high), log=self.kind == "log")
        return of.FloatDistribution(self.low, self.high, log=self.kind == "log")

    def suggest(self, trial: Trial) -> str:
        """What a trial is to use, as one would type it."""
        if self.kind == "choice":
            return str(trial.suggest_categorical(self.path, self.choices))
        if self.whole:
            return self.written(trial.suggest_int(self.path, int(self.low), int(self.high), log=self.kind == "log"))
        return self.written(trial.suggest_float(self.path, self.low, self.high, log=self.kind == "log"))


def parse_ranges(params: Sequence[str]) -> list[Range]:
    """The ranges that `PATH=RANGE` stand for, each path once."""
    ranges = [_parse(text) for text in params]
    paths = [one.path for one in ranges]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UsageError(f"`param`: {twice} is given twice: give each path one range")
    if not ranges:
        raise UsageError(
            "`param`: nothing to search: give at least one, such as agent.algorithm.gamma=uniform(0.9,0.999)"
        )
    return ranges


def check_ranges(
    task: str, ranges: Sequence[Range], overrides: Mapping[str, Any]
) -> tuple[list[Range], dict[str, Any]]:
    """The ranges as the task takes them, and its own values, by path, of those that are within.

    Every end and every choice is put into the task's config, which refuses what it cannot be.
    """
    found: list[Range] = []
    own: dict[str, Any] = {}
    for one in ranges:
        for path in overrides:
            if reaches(path, one.path):
                raise UsageError(f"`param`: {one.path} is searched and cannot be set to {overrides[path]!r} as well")
        value = _value(task, overrides, one.path)
        one = _as_the_task_takes_it(task, one, overrides)
        means = {example: _value(task, {**overrides, one.path: example}, one.path) for example in one.examples}
        found.append(one)
        if one.kind == "choice":
            own.update((one.path, choice) for choice in one.choices if means[choice] == value)
        elif not isinstance(value, bool) and isinstance(value, int | float) and one.low <= value <= one.high:
            own[one.path] = value
    return found, own


def _value(task: str, overrides: Mapping[str, Any], path: str) -> Any:
    """What a setting is with these overrides; refuses what the task's config cannot be."""
    _, cfg = load_cfg(task, overrides)
    return value_at({"env": cfg.env, "agent": cfg.agent}, path)


def _as_the_task_takes_it(task: str, one: Range, overrides: Mapping[str, Any]) -> Range:
    """Of a setting that is a whole number, a range of whole numbers."""
    if one.kind not in ("log", "uniform"):
        return one
    whole = replace(one, whole=True)
    between = repr(one.low + (one.high - one.low) * 0.37123)
    if not _takes_whole(task, overrides, one.path, whole.examples[1]) or _fits(task, overrides, one.path, between):
        return one
    if one.kind == "log" and one.low.is_integer() and one.high.is_integer():
        return whole
    numbers = f"{math.ceil(one.low)},{math.floor(one.high)}"
    raise UsageError(f"`param`: {one.path} takes whole numbers: write int({numbers}) or log({numbers})")


def _takes_whole(task: str, overrides: Mapping[str, Any], path: str, text: str) -> bool:
    """Whether a whole number stays one; what is no number at all, or out of bounds, is told of later."""
    return _fits(task, overrides, path, text) and type(_value(task, {**overrides, path: text}, path)) is int


def _fits(task: str, overrides: Mapping[str, Any], path: str, text: str) -> bool:
    try:
        load_cfg(task, {**overrides, path: text})
    except ConfigError:
        return False
    return True


def _parse(text: str) -> Range:
    found = _PARAM.fullmatch(text.removeprefix("--"))
    if found is None:
        raise UsageError(
            f"`param`: expected PATH=RANGE, such as agent.algorithm.gamma=uniform(0.9,0.999), got {text!r}"
        )
    path = found["path"].replace("-", "_")
    if path.partition(".")[0] not in ("env", "agent"):
        raise UsageError(f"`param`: {path}: a path begins with env or agent, as `genelab info` lists them")
    shape = _RANGE.fullmatch(found["range"])
    if shape is None or shape["kind"] not in _MEANING:
        got = repr(found["range"]) + (f".{did_you_mean(shape['kind'], _MEANING)}" if shape is not None else "")
        raise UsageError(f"`param`: {path}: expected log(a,b), uniform(a,b), int(a,b) or choice(x,y,…), got {got}")
    kind: Any = shape["kind"]
    try:
        inside = split_at_commas(shape["inside"])
    except ValueError:
        raise UsageError(f"`param`: {path}: brackets or quotes do not match in {found['range']!r}") from None
    if kind == "choice":
        return _choice(path, inside, found["range"])
    return _numbers(path, kind, inside, found["range"])


def _choice(path: str, inside: Sequence[str], text: str) -> Range:
    if len(inside) < 2 or len(set(inside)) < len(inside) or "" in inside:
        raise UsageError(f"`param`: {path}: a choice is between two or more different values, got {text!r}")
    return Range(path=path, kind="choice", choices=tuple(inside), text=text)


def _numbers(path: str, kind: Any, inside: Sequence[str], text: str) -> Range:
    try:
        low, high = (float(word) for word in inside)
    except ValueError:
        raise UsageError(f"`param`: {path}: expected two numbers in {text!r}; {_MEANING[kind]}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"`param`: {path}: the first number of {text!r} must be less than the second, and both finite")
    if kind == "log" and low <= 0:
        raise UsageError(f"`param`: {path}: log needs positive numbers, got {text!r}")
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise UsageError(f"`param`: {path}: int needs whole numbers, got {text!r}")
    return Range(path=path, kind=kind, low=low, high=high, whole=kind == "int", text=text)
