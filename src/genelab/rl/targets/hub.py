"""A folder to share: the policy with all that it needs to be run and trusted, ready to upload to a hub of models.

What `--for mujoco` writes, and a model card (`README.md`), an evaluation (`eval.json`), a film (`film.mp4`) and
`manifest.json` with the SHA-256 of every file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genelab.config.offer import need_library
from genelab.errors import UsageError
from genelab.rl.evaluator import EvalSettings, evaluate_task
from genelab.rl.player import play_task
from genelab.rl.targets.base import Parcel, Target
from genelab.rl.targets.plain import Plain, with_manifest
from genelab.viewer import FilmCfg

_NUM_ENVS = 16
"""Environments of the evaluation."""


class Hub(Target):
    """Who downloads policies."""

    name = "hub"

    def check(self, settings: Mapping[str, Any]) -> None:
        for name in ("episodes", "film_steps"):
            if settings[name] < 0:
                raise UsageError(f"{name} of hub: must not be negative, got {settings[name]}")
        if settings["film_steps"]:
            need_library("av", "video")

    def files(self, parcel: Parcel) -> dict[str, bytes]:
        files = Plain().folder(parcel)
        about = parcel.policy.metadata
        report = self._evaluation(parcel)
        if report:
            files["eval.json"] = (json.dumps(report, indent=2, allow_nan=False) + "\n").encode()
        if parcel.settings["film_steps"]:
            files["film.mp4"] = self._film(parcel)
        files["README.md"] = model_card(about, report, files, parcel.settings["license"]).encode()
        return with_manifest(files, about)

    def next_steps(self, out: Path, metadata: Mapping[str, Any]) -> list[str]:
        return [*Plain().next_steps(out, metadata), f"to share it: hf upload OWNER/NAME {out}"]

    def _evaluation(self, parcel: Parcel) -> dict[str, Any]:
        episodes = parcel.settings["episodes"]
        if not episodes:
            return {}
        settings = EvalSettings(episodes=episodes, num_envs=min(episodes, _NUM_ENVS), seed=0)
        report = evaluate_task(parcel.task, parcel.source, settings, overrides=parcel.overrides, notify=parcel.notify)
        return {**report, "checkpoint": parcel.source.name}

    def _film(self, parcel: Parcel) -> bytes:
        with tempfile.TemporaryDirectory() as home:
            path = Path(home) / "film.mp4"
            film = FilmCfg(path=path, length=parcel.settings["film_steps"], size=(640, 360))
            play_task(
                parcel.task,
                checkpoint=parcel.source,
                num_envs=1,
                film=film,
                overrides={**parcel.overrides, "env.simulation.vis": False},
                notify=parcel.notify,
            )
            return path.read_bytes()


def model_card(about: Mapping[str, Any], report: Mapping[str, Any], files: Mapping[str, bytes], license: str) -> str:
    """`README.md`, with the header that hubs read."""
    (entity, *_) = about["entities"]
    lines = [
        "---",
        "library_name: genelab",
        f"license: {license}",
        "pipeline_tag: reinforcement-learning",
        f"tags: [robotics, mujoco, onnx, {about['algorithm'].lower()}]",
        "---",
        "",
        f"# {about['task']}",
        "",
        f"A policy of {about['backend']} {about['algorithm']}: {about['obs_dim']} observations, {about['action_dim']} "
        f"actions every {about['step_dt']:g} s, on {len(about['entities'][entity]['joint_names'])} joints.",
        "",
        "## Run it",
        "",
        "```sh",
        "pip install mujoco onnxruntime numpy",
        "python run.py --help",
        "python run.py",
        "```",
        "",
        "`run.py` drives the policy in plain MuJoCo from `policy.onnx.metadata.json` alone, which defines its "
        "observations, actions, drives, commands and start. It first checks the files against `manifest.json`, and "
        "repeats the golden rows and the rollout of the metadata.",
    ]
    if report:
        lines += ["", "## How it was judged", "", *_figures(report)]
    lines += ["", "## What it observes", "", "| term | columns | unit | frame | what it is |", "|---|---|---|---|---|"]
    for group in about["obs_groups"].values():
        for term in group["terms"]:
            unit = term["unit"] if isinstance(term["unit"], str) else ", ".join(dict.fromkeys(term["unit"] or ()))
            lines.append(
                f"| {term['name']} | {term['dim']} | {unit} | {term['frame'] or ''} | {term['formula'] or ''} |"
            )
    lines += ["", "## Files", "", *(f"- `{name}`, {len(data)} bytes" for name, data in files.items())]
    return "\n".join(lines) + "\n"


def _figures(report: Mapping[str, Any]) -> list[str]:
    """What `eval.json` has, in short."""
    metrics = report["metrics"]
    lines = [
        f"{report['num_episodes']} episodes, seed {report['seed']}: return {metrics['return_mean']:.2f} "
        f"± {metrics['return_std']:.2f}, length {metrics['length_mean']:.0f} control steps."
    ]
    if metrics["success_rate"] is not None:
        lines.append(f"Success rate {metrics['success_rate']:.1%}.")
    directions = (report.get("velocity_probe") or {}).get("directions", {})
    if directions:
        lines += ["", "| direction | asked | achieved | falls |", "|---|---|---|---|"]
        for name, one in directions.items():
            lines.append(f"| {name} | {one['command']} | {one['achieved']:.3f} | {one['falls']} |")
    return lines
