"""A policy that is about to be written: the environment it belongs to is open, and what it did there is remembered.

Whatever is written of it is loaded again and compared with that before anybody gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from genelab.config import TASKS
from genelab.config.offer import need_library
from genelab.envs import ManagerBasedRlEnv
from genelab.errors import GenelabError, UsageError, summary
from genelab.managers.observations import ObservationGroup
from genelab.rl.backends.base import InferenceSetup, Observations, select_backend
from genelab.rl.export_metadata import describe, describe_again
from genelab.rl.exported import (
    TorchScriptPolicy,
    acts_alone,
    is_exported,
    open_policy,
    read_metadata,
)
from genelab.rl.graphs import OPSET, OPSETS, Batch, WholePolicy, to_onnx, to_torchscript, with_metadata
from genelab.rl.rollout import rollout
from genelab.rl.world import policy_on_task

Format = Literal["torchscript", "onnx"]

TOLERANCE = 1e-5
"""Largest difference from the live policy that an exported one may have."""
GOLDEN_ROWS = 16
GOLDEN_TOLERANCE = 1e-4
"""Largest difference from the golden rows that another machine may find: its sums have another order."""

_NUM_ENVS, _STEPS, _SEED = 8, 64, 0
"""What is compared: this many environments, for this many steps."""
_CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What the live policy saw and did."""

    raw: Tensor
    """Observations before clip and scale, `(T, N, obs_dim)`."""
    actions: Tensor
    """Its answers, `(T, N, action_dim)`."""
    resets: Tensor
    """Where its memory was wiped after the step, `(T, N)`."""


@dataclass(frozen=True, kw_only=True)
class PolicyFile:
    """A policy as one file, compared with the live one."""

    data: bytes
    metadata: dict[str, Any]
    """All of it; it is in the file as well."""
    parity_error: float | None
    """Largest difference from the live policy; None for a file that was there already."""


@dataclass(frozen=True, kw_only=True)
class ExportablePolicy:
    """A policy in the environment that it is judged in, ready to be written."""

    task: str
    source: Path
    """The checkpoint, or the exported file that it comes from."""
    env: ManagerBasedRlEnv
    """The task's play config, open, with a few environments."""
    metadata: dict[str, Any]
    """What a deployer has to know, without what depends on the format."""
    experience: Experience
    module: Any
    """From raw observations (and states) to actions (and states), a module of torch; None of an exported file that
    stays what it is."""
    given: PolicyFile | None
    """The file that it comes from, if it is an exported one."""

    def write(
        self,
        format: Format,
        *,
        opset: int | None = None,
        batch: Batch | None = None,
        props: Mapping[str, str] = {},
    ) -> PolicyFile:
        """The policy as a file, which does what the live one did; `props` are other entries of `metadata_props`."""
        about = dict(self.metadata, format=format)
        error: float | None = None
        if (given := self._as_given(format, opset, batch)) is not None:
            data = given.data
            about |= {key: given.metadata[key] for key in ("opset", "batch", "parity") if key in given.metadata}
        else:
            about |= {"opset": opset or OPSET, "batch": batch or "static"} if format == "onnx" else {}
            data = self._graph(about)
            error = self._compared(data, about)
        data = with_metadata(data, about, props)
        self._check_golden(data, about)
        return PolicyFile(data=data, metadata=about, parity_error=error)

    def is_given(self, format: Format) -> bool:
        """Whether it comes from a file of this format, which would be copied."""
        return self.given is not None and self.given.metadata["format"] == format

    def _compared(self, data: bytes, about: dict[str, Any]) -> float:
        """How far the file is from the live policy, which its metadata tell from then on; refused if that is far."""
        error = parity_error(data, about, self.experience)
        if not error <= TOLERANCE:  # nor is a NaN
            raise GenelabError(
                f"the exported policy is not the live one: its actions differ by {error:.3g}, more than {TOLERANCE:g};"
                " nothing was written"
            )
        steps, num_envs = self.experience.resets.shape
        compared = {"num_envs": num_envs, "steps": steps, "seed": _SEED}
        about["parity"] = {"max_abs_error": error, "tolerance": TOLERANCE, **compared}
        return error

    def _as_given(self, format: Format, opset: int | None, batch: Batch | None) -> PolicyFile | None:
        """The file that it comes from, if that is what is asked for."""
        given = self.given
        if given is None or not self.is_given(format):
            return None
        for key, asked in (("opset", opset), ("batch", batch)):
            theirs = given.metadata.get(key)
            if asked not in (None, theirs):
                raise UsageError(
                    f"{self.source}: an exported policy already, of {key} {theirs}, not {asked}: "
                    f"pass `{key}={theirs!r}` to copy it, or give the checkpoint that it was made from"
                )
        return given

    def _graph(self, about: Mapping[str, Any]) -> bytes:
        if self.module is None:
            assert self.given is not None
            theirs = self.given.metadata["format"]
            if theirs == "torchscript":
                raise UsageError(
                    f"{self.source}: a TorchScript policy with the memory of one robot, which ONNX keeps outside: "
                    "give the checkpoint that it was made from"
                )
            raise UsageError(
                f"{self.source}: an exported policy already, of format {theirs}, not {about['format']}: "
                f"pass `format={theirs!r}` to copy it, or give the checkpoint that it was made from"
            )
        if about["format"] == "onnx":
            return to_onnx(self.module, about, about["opset"], about["batch"])
        return to_torchscript(self.module, about)

    def _check_golden(self, data: bytes, about: Mapping[str, Any]) -> None:
        error = golden_error(open_policy(data, dict(about), _CPU), about["golden"])
        if not error <= GOLDEN_TOLERANCE:
            raise GenelabError(
                f"{self.source}: the policy does not repeat its golden rows: its actions differ by {error:.3g}, "
                f"more than {GOLDEN_TOLERANCE:g}; nothing was written"
            )


@contextmanager
def exportable(
    task_id: str,
    source: Path,
    *,
    overrides: Mapping[str, Any] = {},
    notify: Callable[[str], None] = lambda message: None,
) -> Iterator[ExportablePolicy]:
    """The policy in a file, in the environment that it is judged in, until the block ends."""
    if is_exported(source):
        with _of_exported(task_id, source, overrides, notify) as policy:
            yield policy
        return
    backend = select_backend(TASKS.get(task_id).agent)
    with policy_on_task(task_id, source, num_envs=_NUM_ENVS, overrides=overrides, notify=notify) as (env, setup):
        if setup.actor is None:
            raise UsageError(f"policies of {backend.name} cannot be exported: its backend gives no actor")
        metadata = describe(env, setup.actor, task=TASKS.entry(task_id).id, backend=backend.name, checkpoint=source)
        groups = [env.observation_manager.groups[name] for name in setup.actor.groups]
        experience = collect(env, setup, groups)
        metadata["golden"] = golden_rows(experience, bool(metadata["is_recurrent"]))
        yield ExportablePolicy(
            task=TASKS.entry(task_id).id,
            source=source,
            env=env,
            metadata=metadata,
            experience=experience,
            module=WholePolicy(groups, setup.actor).to(_CPU).eval().requires_grad_(False),
            given=None,
        )


@contextmanager
def _of_exported(
    task_id: str, source: Path, overrides: Mapping[str, Any], notify: Callable[[str], None]
) -> Iterator[ExportablePolicy]:
    about = read_metadata(source)
    num_envs = 1 if acts_alone(source) else _NUM_ENVS
    with policy_on_task(task_id, source, num_envs=num_envs, overrides=overrides, notify=notify) as (env, setup):
        groups = [env.observation_manager.groups[name] for name in about["obs_groups"]]
        experience = collect(env, setup, groups, takes_raw=True)
        found, told = experience.actions[0, 0], about["action_dim"]
        if found.shape != (told,) or not experience.actions.isfinite().all():
            raise UsageError(f"{source}: not what its metadata say: it answers {(1, *found.shape)}, {found.tolist()}")
        if experience.raw.shape[2] != about["obs_dim"]:
            raise UsageError(
                f"{source}: not what its metadata say: it sees {experience.raw.shape[2]} observations, "
                f"not {about['obs_dim']}"
            )
        data = source.read_bytes()
        policy = open_policy(data, about, _CPU)
        metadata = describe_again(env, about)
        metadata["golden"] = about.get("golden") or golden_rows(experience, about["is_recurrent"])
        yield ExportablePolicy(
            task=TASKS.entry(task_id).id,
            source=source,
            env=env,
            metadata=metadata,
            experience=experience,
            module=_module(policy, about),
            given=PolicyFile(data=data, metadata=about, parity_error=None),
        )


def _module(policy: Any, about: Mapping[str, Any]) -> Any:
    """What of an exported policy can become another format: the network, unless a memory of one robot is around it."""
    return policy.module if isinstance(policy, TorchScriptPolicy) and not about["is_recurrent"] else None


@torch.no_grad()
def collect(
    env: ManagerBasedRlEnv, setup: InferenceSetup, groups: Sequence[ObservationGroup], *, takes_raw: bool = False
) -> Experience:
    """Let the live policy act, which may take raw observations as an exported one does.

    In mid-run half of the environments lose their memory, though their episodes go on.
    """
    env.observation_manager.leave_raw(group.name for group in groups)
    raw: list[Tensor] = []
    actions: list[Tensor] = []
    resets: list[Tensor] = []

    def act(observations: Observations) -> Tensor:
        raw.append(torch.cat([observations[group.name] for group in groups], dim=1))
        seen = {} if takes_raw else {group.name: group.process(observations[group.name]) for group in groups}
        action = setup.policy({**observations, **seen})
        actions.append(action.clone())
        return action

    def forget(dones: Tensor | None) -> None:
        if dones is not None:
            dones = dones.clone()
            if len(resets) == _STEPS // 2:
                dones[: (env.num_envs + 1) // 2] = True
            resets.append(dones)
        setup.reset(dones)

    for _ in rollout(env, InferenceSetup(policy=act, reset=forget), seed=_SEED, steps=_STEPS):
        pass
    raw_, actions_ = (torch.stack(values).to(_CPU, torch.float32) for values in (raw, actions))
    return Experience(raw=raw_, actions=actions_, resets=torch.stack(resets).to(_CPU))


def parity_error(data: bytes, metadata: Mapping[str, Any], experience: Experience) -> float:
    """Largest difference between what the live policy did and what the exported one does, loaded anew."""
    try:
        policy = open_policy(data, dict(metadata), _CPU)
    except Exception as error:  # onnxruntime has its own kinds, and not all operators in all their versions
        if "opset" in metadata:
            opset = metadata["opset"]
            raise UsageError(f"`opset={opset}` cannot be run, try {OPSET}: {summary(error)[:200]}") from error
        raise GenelabError(f"the exported policy cannot be loaded again: {summary(error)[:200]}") from error
    num_envs = experience.raw.shape[1]
    one_by_one = metadata["is_recurrent"] and metadata["format"] == "torchscript"
    batches = [[i] for i in range(num_envs)] if one_by_one else [list(range(num_envs)), [0]]
    worst = torch.tensor(0.0)
    with torch.no_grad():
        for rows in batches:
            policy.reset(None)
            for raw, action, resets in zip(experience.raw, experience.actions, experience.resets, strict=True):
                worst = torch.maximum(worst, (policy(raw[rows]) - action[rows]).abs().max())
                policy.reset(resets[rows])
    return worst.item()


def golden_rows(experience: Experience, recurrent: bool) -> dict[str, Any]:
    """Some of what the live policy saw and did, for whoever loads it to check; with memory, one robot's first steps."""
    steps, num_envs, _ = experience.raw.shape
    if recurrent:
        forgets = experience.resets[: GOLDEN_ROWS - 1]
        robot = int(forgets.sum(dim=0).argmin())  # the longest memory there is
        picked = [(t, robot) for t in range(GOLDEN_ROWS)]
        resets = [True, *forgets[:, robot].tolist()]
    else:
        picked = [(i * steps // GOLDEN_ROWS, i % num_envs) for i in range(GOLDEN_ROWS)]
        resets = [True] * GOLDEN_ROWS
    return {
        "about": "raw observations and the actions they must give, row by row; where `resets` is true, the memory of a "
        "recurrent policy is wiped before the row",
        "tolerance": GOLDEN_TOLERANCE,
        "observations": [_digits(experience.raw[t, i]) for t, i in picked],
        "actions": [_digits(experience.actions[t, i]) for t, i in picked],
        "resets": resets,
    }


def _digits(row: Tensor) -> list[float]:
    """All that 32 bits have."""
    return [float(f"{value:.9g}") for value in row.tolist()]


@torch.no_grad()
def golden_error(policy: Any, golden: Mapping[str, Any]) -> float:
    """Largest difference between the golden rows and what a policy answers."""
    rows = torch.tensor(golden["observations"], dtype=torch.float32)
    wanted = torch.tensor(golden["actions"], dtype=torch.float32)
    worst = 0.0
    for row, action, reset in zip(rows, wanted, golden["resets"], strict=True):
        if reset:
            policy.reset(None)
        worst = max(worst, float((policy(row[None])[0] - action).abs().max()))
    return worst


def check_format(format: Format, opset: int | None, batch: Batch | None) -> None:
    """Refuse what cannot work before anything is built."""
    if format == "torchscript":
        for name, value in (("opset", opset), ("batch", batch)):
            if value is not None:
                raise UsageError(f"`{name}` is for `format='onnx'`")
        return
    if opset is not None and opset not in OPSETS:
        raise UsageError(f"`opset`: {opset} cannot be written, only {OPSETS[0]} to {OPSETS[-1]}; {OPSET} is usual")
    need_library("onnx", "onnx")
    need_library("onnxruntime", "onnx")
