"""Every command that a page names, in a sentence, too, is one that the command line understands."""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
import sys
from collections.abc import Iterator

import click
import pytest

from genelab.cli.verbs import cli
from genelab.config import TASKS, apply_overrides
from tests.pages import DOCS, ROOT, shell_lines

TASK = "GeneLab-Inverted-Pendulum-v0"
PAGES = [
    *DOCS,
    *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("src/*/pretrained/*/README.md"))),
    "README.md",
    "CONTRIBUTING.md",
]
WORDS = {"TASK": TASK, "S": "1", "K": "2", "MODULE": "json", "N": "2", "NAME": "mujoco"}
"""What pages leave to the reader."""
NOT_HERE = {"--help", "--import", "works"}
"""They end at once, need a module of the reader's, or are no command: "genelab works here" is what the doctor says."""
NOT_ALL = re.compile(r"…|\.\.\.|[<>|]|\[[-@]")
"""In commands that are told in part."""
WITHOUT_OPTIONS = {"pytest", "genelab.bench.serialize", "genelab_showcase.gestures"}
"""Modules whose words are not options of theirs."""
OF_THE_READER = re.compile(r"^(My|Mine|mine|Acme|Swing|Biped)[A-Za-z-]*")
"""Tasks and libraries that a page has the reader write."""


def commands_of(page: str, start: str) -> Iterator[list[str]]:
    """What a page has of a command, in blocks and in sentences."""
    prose = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    in_sentences = (" ".join(words.split()) for words in re.findall(rf"`({start} [^`]+)`", prose))
    for line in (*shell_lines(page), *in_sentences):
        if line.startswith(start + " ") and not NOT_ALL.search(line):
            yield [WORDS.get(word, word) for word in shlex.split(line, comments=True)]


def parsed(words: list[str]) -> click.Context:
    """The context of the command that the words come to, which is not run."""
    command: click.Command = cli
    context = cli.make_context("genelab", words)
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]  # what a group leaves to its command
        if not rest:
            break
        name, found, rest = command.resolve_command(context, rest)
        assert name is not None
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context


def understood(words: list[str]) -> click.Context:
    """As `parsed`; a sentence may leave out the task, the checkpoint, or the value of a last option."""
    for _ in range(3):
        try:
            return parsed(words)
        except click.MissingParameter as error:
            words = [*words, {"task": TASK, "checkpoint": "pretrained"}.get(getattr(error.param, "name", ""), "")]
        except click.BadOptionUsage:
            words = [*words, "FILE"]
    return parsed(words)


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_overrides_are_understood(page: str) -> None:
    for words in commands_of(page, "genelab"):
        if len(words) < 3 or NOT_HERE.intersection(words) or any(OF_THE_READER.match(word) for word in words):
            continue
        try:
            options = understood(words[1:]).params
        except click.ClickException as error:
            pytest.fail(f"{' '.join(words)}: {error.format_message()}")
        if isinstance(options.get("task"), str):
            apply_overrides(TASKS.get(options["task"]), options.get("overrides") or {})


class _Understood(BaseException):
    """The words were parsed; what follows would be the work."""


@pytest.mark.parametrize("page", PAGES)
def test_scripts_and_their_options_are_understood(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, args: list[str] | None = None) -> None:
        parse(self, args)
        raise _Understood

    for words in commands_of(page, "python -m"):
        module, rest = words[2], words[3:]
        if module in WITHOUT_OPTIONS:
            continue
        found = importlib.util.find_spec(module)
        assert found is not None, f"{page}: no module {module}"
        assert found.origin is not None
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", [module, *rest])
            patched.setattr(argparse.ArgumentParser, "parse_args", stop)
            with pytest.raises(_Understood):
                runpy.run_path(found.origin, run_name="__main__")
