"""For mjlab, BeyondMimic's controller and RoboJuDo: an ONNX file whose `metadata_props` say how it is run.

All values are strings, lists have commas, bounds a semicolon. The stack's target is `default_joint_pos + action_scale *
action`: what our action adds to that is inside the graph. A policy that follows a motion takes the frame's number as
`time_step` besides, and gives the motion's frame with its actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from genelab.errors import GenelabError, UsageError
from genelab.mdp import MotionCommand
from genelab.mdp.motion_action import MotionJointPositionAction
from genelab.rl.exportable import TOLERANCE
from genelab.rl.graphs import OPSET, to_onnx, with_metadata
from genelab.rl.targets.base import Parcel, Target
from genelab.rl.targets.folded import StackTerm, action_of, fold, terms_of, with_past
from genelab.rl.targets.unitree import known_terms

TERMS = {
    "lin_vel": "base_lin_vel",
    "ang_vel": "base_ang_vel",
    "gravity": "projected_gravity",
    "joint_pos": "joint_pos",
    "joint_vel": "joint_vel",
    "last_action": "actions",
    "VelocityCommand": "command",
    "GaitClock": "gait_phase",
    "MotionCommand": "command",
    "motion_anchor_pos": "motion_anchor_pos_b",
    "motion_anchor_ori": "motion_anchor_ori_b",
}
"""What the stack calls an observation, by its kind."""
MOTION_OUTPUTS = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")


class Mjlab(Target):
    """Who reads mjlab's exports."""

    name = "mjlab"

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        policy, about = parcel.policy, parcel.policy.metadata
        action = action_of(about, self.name)
        robot = about["entities"][action["entity"]]
        terms = with_past(terms_of(about, self.name), about, action)
        known_terms(terms, TERMS, about, self.name)
        props = metadata_props(about, action, terms, policy.source.absolute().parent.name)
        motions = [term for term in policy.env.commands.terms.values() if isinstance(term, MotionCommand)]
        if motions:
            data = _with_motion(parcel, motions[0], action, terms)
            props |= {
                "anchor_body_name": motions[0].body_names[motions[0].anchor],
                "body_names": ",".join(motions[0].body_names),
            }
        else:
            data = fold(policy, terms, robot["default_joint_pos"], OPSET)
        folded = {**about, "format": "onnx", "opset": OPSET, "batch": "static"}
        folded.pop("golden")  # they are of the policy before it was folded
        return {"policy.onnx": with_metadata(data, folded, props)}

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> Sequence[str]:
        return [f"{out / 'policy.onnx'} has all in its metadata_props"]


def metadata_props(
    about: Mapping[str, Any], action: Mapping[str, Any], terms: Sequence[StackTerm], run_path: str
) -> dict[str, str]:
    """What the file says of itself, as strings; `run_path` is a name, since a path is of one machine."""
    robot = about["entities"][action["entity"]]
    commands = [name for name, one in about["commands"].items() if one["type"] != "GaitClock"]
    return {
        "run_path": run_path,
        "joint_names": ",".join(robot["joint_names"]),
        "joint_stiffness": _numbers(robot["stiffness"]),
        "joint_damping": _numbers(robot["damping"]),
        "default_joint_pos": _numbers(robot["default_joint_pos"]),
        "action_scale": _numbers(action["scale"]),
        "command_names": ",".join(commands),
        "observation_names": ",".join(TERMS[term.kind] for term in terms),
        "observation_terms_scale": _numbers([1.0] * len(terms)),
        "observation_terms_clip": ",".join(["-inf;inf"] * len(terms)),
        "observation_terms_history_length": ",".join(str(0 if t.history == 1 else t.history) for t in terms),
        "observation_terms_flatten_history_dim": _numbers([1.0] * len(terms)),
    }


def _numbers(values: Sequence[float]) -> str:
    """In full precision: three digits, as others write, are another robot."""
    return ",".join(repr(float(value)) for value in values)


class Following(nn.Module):
    """A policy that follows a motion, with the motion inside."""

    def __init__(
        self,
        policy: nn.Module,
        motion: Mapping[str, Tensor],
        under: Tensor,
        last: tuple[int, int],
    ) -> None:
        """`under` is what each frame adds to the actions, `(T, dim)`; `last`, where the last actions are seen."""
        super().__init__()
        self.policy, self.last = policy, last
        for name in MOTION_OUTPUTS:
            setattr(self, name, nn.Buffer(motion[name].float()))
        self.under = nn.Buffer(under)

    def forward(self, obs: Tensor, time_step: Tensor) -> tuple[Tensor, ...]:
        frames = len(self.under)
        now = time_step[:, 0].long().clamp(0, frames - 1)
        before = (now - 1).clamp(min=0)
        first, last = self.last
        told = obs[:, first:last]
        began = (told == 0).all(dim=1, keepdim=True)
        own = torch.where(began, told, told - self.under[before])
        actions = self.policy(torch.cat((obs[:, :first], own, obs[:, last:]), dim=1)) + self.under[now]
        return (actions, *(getattr(self, name)[now] for name in MOTION_OUTPUTS))


def _with_motion(parcel: Parcel, motion: MotionCommand, action: Mapping[str, Any], terms: Sequence[StackTerm]) -> bytes:
    """The graph with the motion's frames in it, compared with what the live policy did."""
    if len(motion.motions) > 1:
        raise UsageError(f"mjlab has one motion in a file, this policy follows {', '.join(motion.motions)}")
    (clip,) = motion.motions.values()
    chosen = motion.body_ids.tolist()
    frames = {
        name: torch.as_tensor(getattr(clip, name) if name.startswith("joint") else getattr(clip, name)[:, chosen])
        for name in MOTION_OUTPUTS
    }
    about = parcel.policy.metadata
    start = sum(term.dim for term in terms[: [term.kind for term in terms].index("last_action")])
    under = torch.tensor(action["offset"]) - torch.tensor(about["entities"][action["entity"]]["default_joint_pos"])
    under = under.expand(len(clip), -1)
    for term in parcel.policy.env.action_manager.terms.values():
        if isinstance(term, MotionJointPositionAction):
            under = under + term.under.cpu().float()
    under = under / torch.tensor(action["scale"])
    module = Following(parcel.policy.module, frames, under, (start, start + action["dim"])).eval()
    module.requires_grad_(False)
    seen, worst = parcel.policy.experience, 0.0
    with torch.no_grad():
        for t in range(1, len(seen.raw)):  # in a play config a motion begins with its first frame
            if seen.resets[:t].any(dim=0)[0] or t >= len(module.under):
                break
            obs = seen.raw[t, :1].clone()
            obs[:, start : start + action["dim"]] += module.under[t - 1]
            answer = module(obs, torch.tensor([[float(t)]]))[0] - module.under[t]
            worst = max(worst, float((answer - seen.actions[t, :1]).abs().max()))
    if not worst <= 10 * TOLERANCE:
        raise GenelabError(f"the policy with its motion is not the live one: its actions differ by {worst:.3g}")
    return to_onnx(module, about, OPSET, "static", more_inputs=("time_step",), more_outputs=MOTION_OUTPUTS)
