"""Below the command line messages name fields and keywords; `genelab.cli` makes flags of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click

from genelab.cli.benchmark import command as benchmark
from genelab.cli.eval import command as evaluate
from genelab.cli.export import command as export
from genelab.cli.flags import in_flags
from genelab.cli.play import command as play
from genelab.cli.train import command as train

SRC = Path(__file__).parents[1] / "src"
FLAG = re.compile(r"(?<!-)--(?:[a-z]\S*|$)")
COMMAND_LINES = {
    "genelab/config/overrides.py": {"--"},  # reads the words of a command line
    "genelab/doctor/checks.py": {"--force-reinstall", "--index-url", "--gpu"},  # words for pip and genelab train
    "genelab/rl/launch/ranks.py": {  # words for torchrun, and for the training that it starts
        "--",
        "--log-dir",
        "--nnodes",
        "--node-rank",
        "--nproc-per-node",
        "--rdzv-backend",
        "--rdzv-conf",
        "--rdzv-endpoint",
        "--rdzv-id",
    },
    "genelab/rl/launch/children.py": {"--env.simulation.threads="},  # a word for a training
    "genelab/rl/launch/seeds.py": {
        "--log-dir",
        "--seed",
    },  # words for each seed's training
    "genelab/rl/nan_guard.py": {"--", "--import=", "--replay"},  # the whole command that shows a NaN again
    "genelab/rl/provenance.py": {  # words for git
        "--abbrev-ref",
        "--error-unmatch",
        "--file",
        "--ignore-submodules=dirty",
        "--list",
        "--no-renames",
        "--porcelain",
        "--type=path",
    },
    "genelab/rl/sweep/search.py": {"--", "--log-dir"},  # words for each trial's training
    "genelab/rl/sweep/space.py": {"--"},  # reads the words of a command line
    "genelab/rl/targets/hub.py": {"--help"},  # a command in the README of an export
    "genelab/rl/targets/run.py": {  # a program with a command line of its own
        "--check",
        "--command",
        "--directions",
        "--episodes",
        "--for",
        "--help",
        "--log",
        "--report",
        "--script",
        "--seconds",
        "--seed",
        "--window",
    },
    "genelab/rl/targets/web.py": {"--directory", "--prefer-offline", "--silent"},  # words for npm and for a file server
    "genelab/scaffold/templates.py": {"--agent", "--checkpoint", "--seed"},  # commands in the README of a project
    "genelab/viewer/film.py": {"--force-reinstall"},  # words for pip
    "genelab_unitree/motions.py": {"--out"},  # a program with a command line of its own
    "genelab_franka/collect_demos.py": {  # a program with a command line of its own
        "--",
        "--engine",
        "--episode-length-s",
        "--num-envs",
        "--out",
        "--seed",
        "--steps",
    },
}
"""Flags in the code below `genelab.cli` that are no messages of ours, by file."""


def flags_in(source: str) -> set[str]:
    """The flags in all strings but docstrings; `--` where its name is filled in."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return {flag for node in strings if isinstance(node.value, str) for flag in FLAG.findall(node.value)}


def test_flags_are_found_in_messages_and_not_in_docstrings() -> None:
    source = 'def f(x):\n    """See `--doc`."""\n    return "pass --num-envs 4", f"pass --{x}", "a -- b", "---"\n'
    assert flags_in(source) == {"--num-envs", "--"}


def test_no_message_below_the_command_line_names_a_flag() -> None:
    files = {path.relative_to(SRC).as_posix(): path for path in SRC.rglob("*.py")}
    below = {name: path for name, path in files.items() if not name.startswith("genelab/cli/")}
    found = {name: flags for name, path in below.items() if (flags := flags_in(path.read_text(encoding="utf-8")))}
    assert found == COMMAND_LINES


def test_a_name_becomes_the_flag_of_the_verb_that_has_it() -> None:
    assert in_flags("`num_envs`: 5 does not divide", train) == "--num-envs: 5 does not divide"
    assert in_flags("pass `num_envs=4`", train) == "pass --num-envs 4"
    assert in_flags("`opset` is for `format='onnx'`", export) == "--opset is for --format onnx"
    assert in_flags("`opset` is for `format='onnx'`", train) == "`opset` is for `format='onnx'`"
    assert in_flags("`task` is an argument here", evaluate) == "`task` is an argument here"


def test_the_first_long_name_of_an_option_is_told() -> None:
    assert in_flags("`env.simulation.vis`", play) == "--vis"  # of -v and --vis
    assert in_flags("`num_steps=30`", benchmark.commands["runtime"]) == "--num-steps 30"  # of that and --num-frames


def test_what_is_called_otherwise_in_python_becomes_its_flag_too() -> None:
    assert in_flags("`deterministic=False` needs a checkpoint", evaluate) == "--stochastic needs a checkpoint"
    assert in_flags("`film.path`: cannot write", play) == "--video: cannot write"
    assert in_flags("or `resume_task('run')`", train) == "or --resume run"
    assert in_flags("pass `TASKS.import_module('mine')`", play) == "pass --import mine"


def test_a_config_path_stays_and_its_value_is_a_word_for_the_shell() -> None:
    assert in_flags("`env.simulation.dt`: too long", train) == "`env.simulation.dt`: too long"
    assert in_flags("pass `env.simulation.dt=0.01`", train) == "pass --env.simulation.dt=0.01"
    assert in_flags("pass `env.a.b=[1, 2]`", train) == "pass '--env.a.b=[1, 2]'"


def test_an_option_of_another_verb_is_told_with_the_verb() -> None:
    for verb in (evaluate, play, export):
        assert in_flags("trained without `train_task.evaluation`", verb) == "trained without genelab train --eval-every"


def test_other_words_in_backticks_stay() -> None:
    for message in ("`genelab list` shows all 11", "give it `state_dict`", "`film.path`"):
        assert in_flags(message, train) == message


def test_each_name_of_the_table_is_an_option_of_some_verb() -> None:
    from genelab.cli.flags import _OPTIONS

    commands: list[click.Command] = [train, play, evaluate, export, *benchmark.commands.values()]
    options = {param.name for command in commands for param in command.params if isinstance(param, click.Option)}
    assert set(_OPTIONS.values()) <= options
