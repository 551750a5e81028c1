"""What a message from below the command line names in backticks, as the flags of the command that runs.

The rooms below speak Python: `num_envs`, `num_envs=4`, `resume_task('run')`. Whoever typed a command reads
`--num-envs`, `--num-envs 4` and `--resume run`; of another verb's options, `train_task.evaluation`, he reads the whole
command, `genelab train --eval-every`.
"""

from __future__ import annotations

import importlib
import re
import shlex

import click

_NAMED = re.compile(r"`(?P<name>[A-Za-z_][\w.]*)(?:=(?P<value>[^`]*)|\((?P<argument>[^`]*)\))?`")
_OF_A_VERB = re.compile(r"(?P<verb>[a-z]+)_task\.(?P<name>\w+)")
_OPTIONS = {
    "TASKS.import_module": "import",
    "env.simulation.gpu": "gpu",
    "env.simulation.vis": "vis",
    "evaluation": "eval_every",
    "film.num_envs": "video_envs",
    "film.path": "video",
    "film.size": "video_size",
    "formatters": "formatter",
    "profile": "prof",
    "profile.out": "prof_out",
    "profile.wait": "prof_wait",
    "profile.warmup": "prof_warmup",
    "resume_sweep": "resume",
    "resume_task": "resume",
    "run_dir": "resume",
    "success_threshold": "check_success",
    "viewer.host": "host",
    "viewer.kind": "viewer",
    "viewer.port": "port",
}
"""Options that are called otherwise than what they stand for."""


def in_flags(message: str, command: click.Command) -> str:
    """The message with a flag for each name that the command has an option for; other names are left alone.

    A value for a config path becomes the word that sets it.
    """

    def flag(found: re.Match[str]) -> str:
        name = found["name"]
        value = found["value"] or found["argument"]
        if other := _OF_A_VERB.fullmatch(name):
            verb = importlib.import_module(f"genelab.cli.{other['verb']}").command
            return f"genelab {other['verb']} {_long_name(_options(verb)[_OPTIONS.get(other['name'], other['name'])])}"
        option = _options(command).get(_OPTIONS.get(name, name))
        if option is None:
            is_override = value is not None and name.startswith(("env.", "agent."))
            return shlex.quote(f"--{name}={value}") if is_override else found[0]
        word = _long_name(option, off=value == "False")
        return word if value is None or option.is_flag else " ".join([word, value.strip("'")])

    return _NAMED.sub(flag, message)


def _options(command: click.Command) -> dict[str | None, click.Option]:
    return {param.name: param for param in command.params if isinstance(param, click.Option)}


def _long_name(option: click.Option, *, off: bool = False) -> str:
    words = option.secondary_opts if off and option.secondary_opts else option.opts
    return next(word for word in words if word.startswith("--"))
