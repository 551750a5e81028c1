"""A policy as a deploy stack can take it: what the stack does not know of is put into the graph.

A stack knows observations by name and applies `target = offset + scale * action`. What our actions add to that (a
scripted step, the frame of a motion) depends on nothing but what the stack observes, so the graph adds it to its
answer, divided by the scale, and takes it off the last action that it is shown. Nothing is trained anew: the robot gets
the same targets.

Where a gait clock rests, ours shows zeros, while a stack's goes on. The graph sees by the last commands whether ours
would rest: it is given as many of them as that takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from genelab.errors import GenelabError, UsageError
from genelab.rl.exportable import TOLERANCE, ExportablePolicy
from genelab.rl.graphs import to_onnx
from genelab.rl.targets.run import Clock, Controller, scripted


@dataclass(frozen=True)
class StackTerm:
    """An observation as the stack is told to make it."""

    name: str
    """What the lab calls it."""
    kind: str
    """What it is: the kind of its source, of a command the type of the command."""
    dim: int
    history: int
    """Frames that the stack shows, the oldest first."""


def terms_of(about: Mapping[str, Any], stack: str) -> list[StackTerm]:
    """The observations of a policy with one group; what is read in another way than by a sensor is told by name."""
    if about["is_recurrent"]:
        raise UsageError(
            f"{stack} runs policies without memory, this one has an {about['recurrent']['rnn_type'].upper()}"
        )
    if len(about["obs_groups"]) > 1:
        raise UsageError(f"{stack} has one vector of observations, this policy sees {', '.join(about['obs_groups'])}")
    (group,) = about["obs_groups"].values()
    found = []
    for term in group["terms"]:
        source = term["source"] or {"kind": term["function"]}
        kind = about["commands"][source["command"]]["type"] if source["kind"] == "command" else source["kind"]
        found.append(StackTerm(term["name"], kind, term["dim"], group["history_length"]))
    return found


def action_of(about: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """The one action of a policy, on positions of joints."""
    known = ("JointPositionAction", "ScriptedJointPositionAction", "MotionJointPositionAction")
    for action in about["actions"]:
        if action["type"] not in known:
            raise UsageError(
                f"{stack} does not know the action {action['name']!r}, a {action['type']}: it takes positions of joints"
            )
    if len(about["actions"]) > 1:
        raise UsageError(f"{stack} takes one action, this policy has {', '.join(a['name'] for a in about['actions'])}")
    (action,) = about["actions"]
    if list(action["joint_names"]) != list(about["entities"][action["entity"]]["joint_names"]):
        raise UsageError(f"{stack} drives all joints of the robot, but the action {action['name']!r} has some of them")
    return action


def with_past(terms: Sequence[StackTerm], about: Mapping[str, Any], action: Mapping[str, Any]) -> list[StackTerm]:
    """The same with as much of the past as a scripted step needs to be known."""
    if action["type"] != "ScriptedJointPositionAction":
        return list(terms)
    if any(term.history > 1 for term in terms):
        raise UsageError("a scripted step under an action that is observed several frames back cannot be folded in")
    clock = about["commands"][action["clock"]]
    frames = {"GaitClock": 2, "VelocityCommand": _window(action, clock, about["step_dt"]) + 2}
    for kind in frames:
        if kind not in [term.kind for term in terms]:
            raise UsageError(f"the policy does not observe the {kind} that its scripted step follows")
    return [replace(term, history=frames.get(term.kind, 1)) for term in terms]


def _window(action: Mapping[str, Any], clock: Mapping[str, Any], step_dt: float) -> int:
    """Control steps after which a command neither keeps the clock going nor is in the mean that strides follow."""
    averaged = action.get("frames", 1)
    if clock["run_out"] == 0:
        return max(1, averaged)
    kept = math.ceil(clock["run_out"] / step_dt - 1e-6) + math.ceil(1.0 / (clock["frequency"] * step_dt) - 1e-6)
    return max(kept, averaged)


class Script(nn.Module):
    """What the clock and the command ask of the joints, and what the clock shows."""

    def __init__(self, action: Mapping[str, Any], clock: Mapping[str, Any], step_dt: float) -> None:
        super().__init__()
        feet = list(action["steps"])
        self.offsets = nn.Buffer(torch.tensor([clock["offsets"][foot] for foot in feet]))
        self.steps = nn.Buffer(torch.tensor([action["steps"][foot] for foot in feet]))  # (feet, dim)
        self.strides = nn.Buffer(torch.tensor([action["strides"][foot] for foot in feet]))  # (feet, command, dim)
        self.spread = nn.Buffer(torch.tensor(action["spread"]))
        self.share, self.lead, self.swing = action["share"], action["lead"], clock["swing_share"]
        self.threshold, self.axes = clock["threshold"], clock["command_axes"]
        self.advance = clock["frequency"] * step_dt
        self.window = _window(action, clock, step_dt)
        self.frames = action.get("frames", 1)
        self.keeps = 0 if clock["run_out"] == 0 else math.ceil(clock["run_out"] / step_dt - 1e-6)

    def forward(self, commands: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
        """Joint angles `(1, dim)` and what the lab's clock would show `(1, 2)`, from the last commands
        `(1, window + 1, 3)`, the newest last, and the stack's sine and cosine `(1, 2)`."""
        phase = torch.remainder(torch.atan2(shown[:, 0], shown[:, 1]) / (2 * math.pi), 1.0)
        asks = commands if self.axes is None else commands[:, :, list(self.axes)]
        asked = asks.square().sum(dim=2).sqrt() > self.threshold  # (1, window + 1)
        age = torch.arange(self.window, -1, -1, dtype=torch.float32)[None]
        since_wrap = torch.floor(phase / self.advance + 1e-3)[:, None] if self.keeps else torch.zeros(1, 1)
        runs = (asked & (age < max(self.keeps, 1) + since_wrap)).any(dim=1, keepdim=True).float()
        x = torch.remainder(phase[:, None] + self.offsets, 1.0)
        y = torch.remainder(x + self.lead, 1.0)
        lift = torch.where(x < self.swing, torch.sin(math.pi * x / self.swing).square(), torch.zeros_like(x))
        sweep = torch.where(
            y < self.swing, -torch.cos(math.pi * y / self.swing), 1 - 2 * (y - self.swing) / (1 - self.swing)
        )
        command = commands[:, -self.frames :].mean(dim=1)
        strides = torch.einsum("nc,fcd->nfd", command, self.strides)
        stepped = lift @ self.steps + (sweep[:, :, None] * strides).sum(dim=1)
        return self.share * (command.abs() @ self.spread + runs * stepped), shown * runs


class Folded(nn.Module):
    """From the stack's observations, term by term with their past, to actions for `offset + scale * action`."""

    def __init__(
        self, policy: nn.Module, terms: Sequence[StackTerm], about: Mapping[str, Any], offset: Sequence[float]
    ) -> None:
        super().__init__()
        (action,) = about["actions"]
        self.policy, self.terms = policy, list(terms)
        (group,) = about["obs_groups"].values()
        self.frames = group["history_length"]
        self.scale = nn.Buffer(torch.tensor(action["scale"]))
        self.shift = nn.Buffer((torch.tensor(action["offset"]) - torch.tensor(offset)) / self.scale)
        low, high = action["clip"] or (None, None)
        self.low: float = -math.inf if low is None else low
        self.high: float = math.inf if high is None else high
        is_scripted = action["type"] == "ScriptedJointPositionAction"
        self.script = Script(action, about["commands"][action["clock"]], about["step_dt"]) if is_scripted else None
        self.folds = is_scripted or bool(self.shift.abs().max() > 1e-6)

    def forward(self, obs: Tensor) -> Tensor:
        parts = dict(zip(self.terms, obs.split([term.dim * term.history for term in self.terms], dim=1), strict=True))
        past = {term.kind: part.view(1, term.history, term.dim) for term, part in parts.items()}
        seen = {term: part.view(1, term.history, term.dim)[:, -self.frames :] for term, part in parts.items()}
        added = before = self.shift[None]
        if self.script is not None:
            commands, clock = past["VelocityCommand"], past["GaitClock"]
            script, shown = self.script(commands[:, 1:], clock[:, 1])
            earlier, _ = self.script(commands[:, :-1], clock[:, 0])
            added, before = added + script / self.scale, before + earlier / self.scale
            seen = {term: shown[:, None] if term.kind == "GaitClock" else value for term, value in seen.items()}
        if self.folds:
            seen = {
                term: _without(value, before) if term.kind == "last_action" else value for term, value in seen.items()
            }
        whole = torch.cat([value[:, i] for i in range(self.frames) for value in seen.values()], dim=1)
        action = self.policy(whole)
        return action.clamp(self.low, self.high) + added if self.folds else action


def _without(last: Tensor, added: Tensor) -> Tensor:
    """The policy's own last action; zeros at the start of an episode, where nothing was added."""
    began = (last == 0).all(dim=2, keepdim=True)
    return torch.where(began, last, last - added[:, None])


def fold(policy: ExportablePolicy, terms: Sequence[StackTerm], offset: Sequence[float], opset: int) -> bytes:
    """The ONNX graph of one robot, compared with the live policy and its script where that can be done."""
    about = policy.metadata
    module = Folded(policy.module, terms, about, offset).eval().requires_grad_(False)
    error = folded_error(policy, module, terms, offset)
    if not error <= 10 * TOLERANCE:
        raise GenelabError(
            f"the folded policy is not the live one: its actions differ by {error:.3g}; nothing was written"
        )
    width = sum(term.dim * term.history for term in terms)
    return to_onnx(module, {**about, "obs_dim": width}, opset, "static")


@torch.no_grad()
def folded_error(
    policy: ExportablePolicy, module: Folded, terms: Sequence[StackTerm], offset: Sequence[float]
) -> float:
    """Largest difference between folded actions and what the live policy did with its script by `run.py`'s formula.

    It is taken over what the live policy saw while it moved and no episode began: there both clocks show the same.
    """
    about, seen = policy.metadata, policy.experience
    (action,), (group,) = about["actions"], about["obs_groups"].values()
    columns = {term["name"]: slice(term["start"], term["start"] + term["dim"]) for term in group["terms"]}
    frame, worst = group["frame_dim"], 0.0
    window = max(term.history for term in terms)
    for robot in range(seen.raw.shape[1]):
        newest = seen.raw[:, robot, -frame:]
        began = [0, *(t + 1 for t in range(len(newest) - 1) if seen.resets[t, robot] and not about["is_recurrent"])]
        answers = seen.actions[:, robot] + _added(about, action, newest, began, columns, terms, offset)
        for t in range(1, len(newest)):
            if any(t - window < b <= t for b in began if b > 0):
                continue
            shown = []
            for term in terms:
                past = [max(t - k, 0) for k in reversed(range(term.history))]
                if group["history_length"] > 1:  # as the lab stacked them
                    frames = seen.raw[t, robot].view(group["history_length"], frame)[:, columns[term.name]]
                elif term.kind == "last_action":
                    frames = answers[t - 1 : t]
                else:
                    frames = newest[past][:, columns[term.name]]
                shown.append(frames.flatten())
            moving = module.script is None or all(
                newest[k][columns[term.name]].any() for term in terms if term.kind == "GaitClock" for k in (t, t - 1)
            )
            if moving:
                worst = max(worst, float((module(torch.cat(shown)[None])[0] - answers[t]).abs().max()))
    return worst


def _added(
    about: Mapping[str, Any],
    action: Mapping[str, Any],
    rows: Tensor,
    began: Sequence[int],
    columns: Mapping[str, slice],
    terms: Sequence[StackTerm],
    offset: Sequence[float],
) -> Tensor:
    """What is under the actions of a robot by the formula of the metadata, in units of the action, `(rows, dim)`."""
    import numpy as np

    added = np.tile(np.array(action["offset"]), (len(rows), 1))
    if action["type"] == "ScriptedJointPositionAction":
        clock = Clock(dict(about["commands"][action["clock"]]), about["step_dt"])
        controller = Controller.__new__(Controller)
        controller.clocks = {action["clock"]: clock}
        for t, row in enumerate(rows.numpy()):
            by_kind = {term.kind: row[columns[term.name]] for term in terms}
            clock.runs = bool(by_kind["GaitClock"].any())
            clock.phase = math.atan2(*by_kind["GaitClock"]) / (2 * math.pi) % 1.0
            if t in began:
                controller.past = {}
            asked = {clock.about["command"]: by_kind["VelocityCommand"]}
            added[t] = scripted(controller, dict(action), np.zeros(action["dim"]), asked)
    return torch.from_numpy((added - np.array(offset)) / np.array(action["scale"])).float()
