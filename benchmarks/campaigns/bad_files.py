"""Bad files: what runs leave and users are sent, cut, flipped, retyped or made malicious, given to every reader."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.campaigns import forked
from benchmarks.campaigns.spoil import spoil

LIBRARIES = ("Rsl", "Sac", "Skrl", "Games")
_SMALL = ("--num-envs", "2")
_EVAL = (*_SMALL, "--episodes", "2", "--max-steps", "20")
TARGETS = {
    "mujoco": (),
    "hub": ("--with", "episodes=0", "--with", "film_steps=0"),
    "unitree": (),
    "mjlab": (),
}
"""Targets of exports that need no program from elsewhere, with their settings."""


def readers() -> dict[str, list[list[str]]]:
    """The commands that read a file, by its path."""
    from benchmarks.campaigns.tasks import BUDGETS
    from genelab.config import TASKS
    from genelab.rl.backends import select_backend

    rsl = "Campaign-Rsl-v0"
    found: dict[str, list[list[str]]] = {
        "suite.json": [["benchmark", "--suite", "suite.json"]],
        "reference.json": [["benchmark", "--suite", "suite.json", "--reference", "reference.json"]],
        "bundle.json": [["benchmark", "compare", "bundle.json", "bundle.json"]],
        "whitelist.json": [["benchmark", "startup", rsl, *_SMALL, "--whitelist", "whitelist.json", "--out", "b"]],
        "demos.npz": [["train", "Campaign-Sac-v0", "--agent.demo_path=demos.npz", "--log-dir", "new", "-q"]],
        "Nan/nan_dump.pt": [["play", "Campaign-Nan-v0", "--replay", "Nan/nan_dump.pt"]],
        "Rsl/eval.json": [["report", "Rsl"]],
    }
    for folder in ("Deploy", "Bare"):
        deploying = [["deploy", folder, "--episodes", "1", "--seconds", "0.2", "--report", "r.json", "--log", "l.npz"]]
        for file in ("policy.onnx", "policy.onnx.metadata.json", "world.xml", "manifest.json"):
            found[f"{folder}/{file}"] = deploying
    del found["Bare/manifest.json"]
    for file in ("policy.onnx.metadata.json", "tables.npz", "world.xml"):
        found[f"Dance/{file}"] = [["deploy", "Dance", "--check"]]
    for file in ("motion.npz", "motion.csv"):
        out = ["--out", "new.npz"]
        found[file] = [
            ["motion", "check", file],
            ["motion", "convert", file, *out],
            ["motion", "play", file, "--headless"],
        ]
    for file, kinds in (("arm.xml", ("reach", "blank")), ("arm.urdf", ("blank",))):
        found[file] = [["new-task", "ab", "--from", file, "--kind", kind] for kind in kinds]
    found["meshes/base.obj"] = found["arm.urdf"]
    found["Sweep/study.db"] = [
        ["sweep", rsl, "--resume", "Sweep", "--import", forked.TASKS_MODULE, "-q"],
        ["report", "Sweep"],
    ]
    found["Sweep/trial_0001/run.json"] = found["Sweep/trial_0001/evaluations.json"] = found["Sweep/study.db"]
    for policy in ("policy.ts", "policy.onnx"):
        acting = [["eval", rsl, policy, *_EVAL], ["play", rsl, "--checkpoint", policy, *_SMALL, "--steps", "3"]]
        found[policy] = [*acting, ["export", rsl, policy, "--out", f"new{Path(policy).suffix}"]]
        found[f"{policy}.metadata.json"] = acting
    for name in LIBRARIES:
        task = f"Campaign-{name}-v0"
        resume = ["train", task, "--resume", name, "--max-iterations", str(2 * BUDGETS[name]), "-q"]
        backend = select_backend(TASKS.get(task).agent)
        model = f"{name}/{backend.final_name}{backend.suffix}"
        for file in ("resume.pt", "params/env.json", "params/agent.json"):
            found[f"{name}/{file}"] = [resume]
        found[f"{name}/run.json"] = [resume, ["report", name], ["eval", task, name, *_EVAL]]
        found[model] = [
            ["eval", task, model, *_EVAL],
            ["export", task, model, "--out", "new.ts"],
            *(["export", task, model, "--for", target, *words, "--out", "new"] for target, words in TARGETS.items()),
            ["play", task, "--checkpoint", model, *_SMALL, "--steps", "3"],
            ["train", task, "--checkpoint", model, "--log-dir", "new", "-q"],
        ]
    return found


def fixture(home: Path, targets: Iterable[str]) -> Path:
    """Runs of four libraries, one that left a dump, and everything made from them; what is slow if it is a target."""
    template = home / "template"
    forked.make_runs(template, [*LIBRARIES, "Nan"], home)
    shutil.copy(template / "suite.json", template / "whitelist.json")
    (template / "whitelist.json").write_text('{"env_creation": ["genelab.*:*"]}')
    for words in (
        ["benchmark", "--suite", "suite.json", "--out", "reference.json"],
        ["eval", "Campaign-Rsl-v0", "Rsl", "--num-envs", "2", "--episodes", "2", "--out", "Rsl/eval.json"],
    ):
        outcome = forked.run(words, template, seconds=120.0)
        assert outcome.code == 0, outcome.output
    _write_demos(template / "demos.npz")
    forked.make_robots(template)
    small = (*forked.SWEEP, *_SMALL, "--import", forked.TASKS_MODULE, "--log-dir", "Sweep", "-q")
    slow = {
        "Sweep": ["sweep", "Campaign-Rsl-v0", *small],
        "Dance": ["export", "Genelab-Tracking-Flat-Unitree-G1-v0", "pretrained", "--for", "mujoco", "--out", "Dance"],
        "motion": ["motion", "convert", "squat", "--out", "motion.npz", "--to-fps", "30", "--end", "0.5"],
    }
    for words in (words for name, words in slow.items() if any(target.startswith(name) for target in targets)):
        outcome = forked.run(words, template, seconds=600.0)
        assert outcome.code == 0, outcome.output
    (template / "Dance" / "manifest.json").unlink(missing_ok=True)
    if (template / "motion.npz").exists():
        _write_csv(template / "motion.npz", template / "motion.csv")
    return template


def _write_csv(motion: Path, path: Path) -> None:
    """The same motion as users have it: root, quaternion with w last, joints."""
    with np.load(motion) as file:
        root, quat = file["body_pos_w"][:, 0], file["body_quat_w"][:, 0]
        np.savetxt(path, np.hstack((root, quat[:, 1:], quat[:, :1], file["joint_pos"])), delimiter=",", fmt="%.6f")


def _write_demos(path: Path, steps: int = 6) -> None:
    from genelab.envs import ManagerBasedRlEnv, rl_cfg

    env = ManagerBasedRlEnv(rl_cfg("Campaign-Sac-v0"))
    shape, rng = (steps, env.num_envs), np.random.default_rng(0)
    arrays: dict[str, Any] = {"actions": rng.uniform(-1, 1, (*shape, env.action_dim))}
    arrays["rewards"] = rng.uniform(size=shape)
    for name, group in env.observation_manager.groups.items():
        arrays |= {f"{when}_{name}": rng.normal(size=(*shape, group.dim)) for when in ("obs", "next_obs")}
    np.savez(path, dones=np.zeros(shape, bool), truncateds=np.zeros(shape, bool), **arrays)
    env.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; returns 1 if a file broke a promise."""
    options = forked.options(__doc__, tries=600).parse_args(argv)
    forked.import_everything()
    tally = forked.Tally(verbose=options.verbose)
    commands = readers()
    if options.only:
        chosen = {path: [words for words in lines if options.only in words] for path, lines in commands.items()}
        commands = {path: lines for path, lines in chosen.items() if lines}
    drawn = {n: random.Random(f"{options.seed}:{n}") for n in range(options.first, options.first + options.tries)}
    targets = {number: rng.choice(sorted(commands)) for number, rng in drawn.items()}
    with forked.sandbox() as home:
        template = fixture(home, targets.values())
        for number, target in targets.items():
            scratch, rng = forked.fresh_scratch(home, template), drawn[number]
            done = spoil(scratch / target, rng)
            outcome = forked.run(rng.choice(commands[target]), scratch, seconds=options.seconds)
            tally.add(number, f"{target}: {done}\n    genelab ", outcome, outcome.complaints(scratch))
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
