"""The command `genelab`: from the first signal to the exit code. What takes time to import is imported inside."""

from __future__ import annotations

import os
import sys

from genelab.cli.process import Output, StandardError, leave_on_signals, stop_on_signals

TYPE_CHECKING = False  # as in `typing`, which takes time to import
if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; ends the process with 0, 1 for a failed run, 2 for bad input, 130 if it was interrupted."""
    stop_on_signals()
    import logging

    logging.basicConfig(format="genelab: %(message)s", level=logging.WARNING, stream=StandardError())
    for handler in logging.getLogger().handlers:
        handler.addFilter(_as_text)
    output = Output()
    code = run(list(sys.argv[1:] if args is None else args))
    leave_on_signals()
    sys.exit(output.close(code))


def run(args: list[str]) -> int:
    """Run the command line and return its exit code."""
    import click

    from genelab.cli.failures import explain
    from genelab.cli.verbs import cli
    from genelab.errors import GenelabError

    try:
        os.getcwd()
    except FileNotFoundError:  # torch would end the process
        return _fail("the working directory was deleted: change into another", 2)
    try:
        with cli.make_context("genelab", args) as context:
            cli.invoke(context)
        return 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except GenelabError as error:
        return _fail(str(error), error.exit_code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except (Exception, SystemExit, GeneratorExit) as error:
        explained = explain(error)
        if explained is None:
            raise  # a bug of ours, or of a task: its traceback is what helps
        return _fail(*explained)


def _as_text(record: logging.LogRecord) -> bool:
    """Let a record through, with what a terminal would act on as an escape: remarks name parts of files of others."""
    from genelab.text import printable

    record.msg, record.args = printable(record.getMessage(), keep="\n"), ()
    return True


def _fail(message: str, code: int) -> int:
    import click

    from genelab.text import one_line

    click.echo(f"genelab: {one_line(message)}", err=True)
    return code


if __name__ == "__main__":
    main()
