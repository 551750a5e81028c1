"""Mutated command lines: valid ones of every verb with words dropped, doubled, swapped or replaced by odd ones."""

from __future__ import annotations

import os
import random
import re
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.campaigns import forked

if TYPE_CHECKING:
    from genelab.config import FieldInfo

TASK = "Campaign-Rsl-v0"
LINES = (
    "list --json --filter pendulum",
    f"info {TASK} --play --json",
    f"info {TASK} --mjcf world.xml",
    f"play {TASK} --num-envs 2 --steps 3 --seed 1",
    f"play {TASK} --agent random --max-steps 3 --prof --prof-wait 0 --prof-warmup 1 --prof-active 1",
    f"play {TASK} --checkpoint Rsl --num-envs 2 --steps 3",
    f"train {TASK} --num-envs 4 --max-iterations 1 --log-dir new --seed 3",
    f"train {TASK} --num-envs 2 --max-iterations 1 --log-dir new --eval-every 1 --eval-episodes 1 --eval-num-envs 2",
    f"train {TASK} --resume Rsl --max-iterations 3",
    f"train {TASK} --checkpoint Rsl --max-iterations 1 --log-dir new",
    "train Campaign-Sac-v0 --max-iterations 64 --log-dir new",
    "train Campaign-Skrl-v0 --max-iterations 16 --log-dir new",
    "train Campaign-Games-v0 --max-iterations 16 --log-dir new",
    f"eval {TASK} Rsl --num-envs 2 --episodes 2 --max-steps 20 --out e.json",
    f"eval {TASK} policy.ts --num-envs 2 --episodes 2 --max-steps 20 --stochastic",
    f"export {TASK} Rsl --format torchscript --out new.ts",
    f"export {TASK} Rsl/model_final.pt --format onnx --opset 17 --out new.onnx",
    *(f"export {TASK} Rsl --for {target} --out new" for target in ("mujoco", "mjlab", "unitree")),
    f"export {TASK} Rsl --for hub --with episodes=0 --with film_steps=0 --with license=mit --out new",
    f"eval {TASK} Rsl --robustness --num-envs 2 --episodes 2 --max-steps 5",
    "report Rsl --out r.html --x steps",
    *3 * ("deploy Deploy --episodes 1 --seconds 0.2 --seed 1 --report r.json --log l.npz",),
    "deploy Deploy --check",
    "motion check squat --task Genelab-Tracking-Flat-Unitree-G1-v0",
    "motion convert squat --out new.npz --to-fps 30 --start 0.1 --end 0.5 --smooth 5",
    "motion play squat --headless --max-steps 3",
    *2 * ("new-task ab --from arm.xml --kind reach --dir new",),
    "new-task ab --from arm.urdf --fixed-base",
    f"sweep {TASK} {shlex.join(forked.SWEEP)} --num-envs 2 --import {forked.TASKS_MODULE} --log-dir new -q",
    f"sweep {TASK} --resume Rsl",
    "doctor --json",
    f"benchmark runtime {TASK} --num-envs 2 --num-steps 2 --warmup-steps 1 --out b --formatter schema,json,summary",
    f"benchmark startup {TASK} --num-envs 2 --top-n 3 --out b",
    f"benchmark training {TASK} --num-envs 2 --max-iterations 1 --out b --rl-library rsl_rl",
    f"benchmark play {TASK} --num-envs 2 --num-steps 2 --warmup-steps 0 --checkpoint Rsl --out b",
    "benchmark compare bundle.json bundle.json --fail 0.1 --warn 0.05",
    "benchmark --suite suite.json --out s.json --tolerance 0.1",
)
NUMBERS = (
    *("0", "-1", "1", "2", "3.7", "1e3", "-0.0", "nan", "inf", "-inf", "1e400", "1e-400", "2147483648", "1000000000"),
    *(
        "-2147483649",
        "4294967296",
        "99999999999999999999",
        "9" * 5000,
        "0x10",
        "1_000",
        "١٢",
        "½",
        "--",
        "true",
        "null",
    ),
)
WORDS = (
    *("", " ", "a", "latest", "pretrained", "none", "é" * 40, "\U0001f916", "\udcff\udcfe", "a\nb", "\x1b[31m", "%s%n"),
    *("a" * 300, "a/" * 2000, "-", "--", "=", "*", "~", "[]", "{}", "()", "[" * 2000, "{'a': 1}", "1,2,,3", "'", '"'),
    *("Rsl", "Rsl/resume.pt", "Rsl/params", "suite.json", "bundle.json", "policy.ts", "policy.onnx", "binary", "empty"),
    *("fifo", "loop", "dangling", "directory", "/", "/proc/self/mem", "/proc/self/maps", "/no/such", "../outside"),
    "x.py",
    f"$(touch {forked.CANARY})",
    f"__import__('os').system('touch {forked.CANARY}')",
    "GeneLab-Inverted-Pendulum-Memory-Rnn-v0",
    "GeneLab-Rubiks-Play-v0",
)

CALLABLES = (
    *("os:system", "os:getcwd", "builtins:exec", "builtins:print", "builtins:len", "no.such:thing", "genelab:nothing"),
    *(
        "genelab.mdp:time_out",
        "genelab.mdp:is_alive",
        "genelab.mdp:joint_pos_rel",
        "genelab.mdp:last_action",
        "math:pi",
    ),
    *("genelab.mdp:JointPositionActionCfg", "genelab_pendulum.robots:single_pendulum_cfg", "builtins:dict"),
)
SLOW = {"seeds", "parallel", "ranks", "gpus", "nnodes", "launcher", "vis"}
"""Options that start processes of their own or serve until they are stopped; they are tried elsewhere."""
OF_RUN = {
    **dict.fromkeys(("--command", "--seconds", "--episodes", "--seed"), NUMBERS),
    **dict.fromkeys(("--log", "--report", "--script"), WORDS),
    **dict.fromkeys(("--check", "--directions"), ()),
}
"""Options of `deploy`, which its `run.py` parses, with values of their type."""
TASKS = (TASK, "Campaign-Sac-v0", "Campaign-Skrl-v0", "Campaign-Games-v0")


def fixture(home: Path) -> Path:
    """A working directory with a run, its exports, a suite and a bundle."""
    template = home / "template"
    forked.make_runs(template, ["Rsl"], home)
    forked.make_robots(template)
    (template / "binary").write_bytes(bytes(range(256)) * 16)
    (template / "empty").touch()
    (template / "directory").mkdir()
    (template / "loop").symlink_to("loop")
    (template / "dangling").symlink_to("nowhere")
    (template / "x.py").write_text("raise GeneratorExit\n")
    return template


def config_fields(task: str) -> list[FieldInfo]:
    """Every setting of a task."""
    from genelab.config import TASKS, iter_fields

    cfg = TASKS.get(task)
    return list(iter_fields({"env": cfg.env, "agent": cfg.agent}))


def command_of(words: Sequence[str]) -> click.Command:
    """The command that a line begins with."""
    from genelab.cli.verbs import cli

    found: click.Command = cli
    for word in words:
        inner = found.get_command(click.Context(found), word) if isinstance(found, click.Group) else None
        if inner is None:
            break
        found = inner
    return found


class Mutator:
    """Makes odd lines; the same ones for the same seed and number."""

    def __init__(self, seed: int, lines: Sequence[str] = LINES) -> None:
        self._seed = seed
        self._lines = lines
        self._fields = {task: config_fields(task) for task in TASKS}

    def line(self, number: int) -> list[str]:
        """The line of a number: a valid one with one to three changes."""
        rng = random.Random(f"{self._seed}:{number}")
        words = shlex.split(rng.choice(self._lines))
        option, override = partial(self._option, command_of(words)), partial(self._override, self._fields_of(words))
        changes = (self._drop, self._double, self._swap, self._replace, option, override)
        for change in rng.choices(changes, weights=(1, 1, 1, 3, 5, 9), k=rng.choice((1, 1, 2, 3))):
            change(words, rng)
        return [word.replace("\0", "") for word in words]

    def _fields_of(self, words: Sequence[str]) -> list[FieldInfo]:
        return next((self._fields[word] for word in words if word in self._fields), [])

    def _drop(self, words: list[str], rng: random.Random) -> None:
        if words:
            words.pop(rng.randrange(len(words)))

    def _double(self, words: list[str], rng: random.Random) -> None:
        if words:
            at = rng.randrange(len(words))
            words.insert(at, words[at])

    def _swap(self, words: list[str], rng: random.Random) -> None:
        if len(words) > 1:
            i, j = rng.sample(range(len(words)), 2)
            words[i], words[j] = words[j], words[i]

    def _replace(self, words: list[str], rng: random.Random) -> None:
        if words:
            words[rng.randrange(len(words))] = self._anything(rng)

    def _option(self, command: click.Command, words: list[str], rng: random.Random) -> None:
        """An option of the command with a value of its type, or with anything."""
        if command.name == "deploy":
            name = rng.choice(sorted(OF_RUN))
            words.extend([name, rng.choice(OF_RUN[name])] if OF_RUN[name] else [name])
            return
        known = [one for one in command.params if isinstance(one, click.Option) and one.name not in SLOW]
        if not known:
            return
        option = rng.choice(known)
        words.append(rng.choice(option.opts))
        if not option.is_flag:
            words.append(self._fitting(option, rng) if rng.random() < 0.7 else self._anything(rng))

    def _fitting(self, option: click.Option, rng: random.Random) -> str:
        if isinstance(option.type, click.Choice):
            return str(rng.choice(option.type.choices))
        return rng.choice(WORDS if isinstance(option.type, click.Path) else NUMBERS)

    def _override(self, fields: Sequence[FieldInfo], words: list[str], rng: random.Random) -> None:
        """A setting of the task with a value of its type, or a wrong path, or anything."""
        if not fields:
            return
        field = rng.choice(fields)
        path = field.path
        if rng.random() < 0.1:
            parts = path.split(".")
            parts[rng.randrange(len(parts))] = rng.choice(("", "x", "0", "__class__", "weight", parts[-1][:-1]))
            path = ".".join(parts)
        value = self._alike(field, rng) if rng.random() < 0.8 else self._anything(rng)
        words.append(f"--{path}={value}")

    def _alike(self, field: FieldInfo, rng: random.Random) -> str:
        if isinstance(field.value, bool):
            return rng.choice(("true", "false"))
        if isinstance(field.value, int | float):
            return rng.choice(NUMBERS)
        if isinstance(field.value, tuple | list) and field.value:
            kinds = [rng.choice(NUMBERS if isinstance(one, int | float) else WORDS) for one in field.value]
            return f"[{','.join(kinds)}]"
        if callable(field.value):
            return rng.choice(CALLABLES)
        return rng.choice(re.findall(r"\w+", field.type) or WORDS) if rng.random() < 0.7 else rng.choice(WORDS)

    def _anything(self, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.5:
            return rng.choice(NUMBERS)
        if kind < 0.9:
            return rng.choice((*WORDS, *CALLABLES))
        return rng.choice(("[{}]", "[{},{}]", "({},)", "'{}'", "{{'a':{}}}")).format(*rng.choices(NUMBERS, k=2))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; returns 1 if a line broke a promise."""
    options = forked.options(__doc__, tries=2000).parse_args(argv)
    forked.import_everything()
    lines = [line for line in LINES if options.only is None or options.only in line.split()]
    mutator, tally = Mutator(options.seed, lines), forked.Tally(verbose=options.verbose)
    with forked.sandbox() as home:
        template = fixture(home)
        for number in range(options.first, options.first + options.tries):
            scratch = forked.fresh_scratch(home, template)
            os.mkfifo(scratch / "fifo")
            outcome = forked.run(mutator.line(number), scratch, seconds=options.seconds)
            tally.add(number, "genelab ", outcome, outcome.complaints(scratch))
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
