"""The errors a user sees. Each is one line that says what was wrong and, where it can, what would be right."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher

MAX_REASON = 200
"""Characters of a library's message that are passed on."""


class GenelabError(Exception):
    """A message for the user, printed in one line."""

    exit_code = 1


class UsageError(GenelabError):
    """Bad input: a wrong option, task id, file or value."""

    exit_code = 2


class ConfigError(UsageError):
    """A config that cannot be changed, written or read as asked."""


def did_you_mean(name: str, options: Iterable[str], n: int = 3) -> str:
    """The nearest options as " Did you mean 'a', 'b' or 'c'?", or nothing if none is near."""
    typed = name.casefold()
    closeness = {option: SequenceMatcher(None, typed, option.casefold()).ratio() for option in options}
    ranked = sorted(closeness, key=lambda option: (-closeness[option], option))
    best = closeness[ranked[0]] if ranked else 0.0
    # A slip of one letter has one meaning; a looser match is worth several guesses.
    threshold = best - 0.05 if best >= 0.9 else 0.6
    near = [option for option in ranked if closeness[option] >= threshold]
    near += [option for option in ranked if option not in near and _one_contains_the_other(typed, option.casefold())]
    if not near:
        return ""
    *others, last = [repr(option) for option in near[:n]]
    return f" Did you mean {', '.join(others)} or {last}?" if others else f" Did you mean {last}?"


def summary(error: BaseException) -> str:
    """The type and message of any exception, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


@contextmanager
def refusing(file: object, why: str = "") -> Iterator[None]:
    """Turn whatever goes wrong with the content of a file into one line: `file: why: the error`."""
    try:
        yield
    except GenelabError as error:
        if isinstance(error, UsageError) and str(error).startswith(str(file)):
            raise
        raise UsageError(": ".join(filter(None, (str(file), why, str(error))))) from error
    except Exception as error:
        reason = summary(error)[:MAX_REASON]
        raise UsageError(": ".join(filter(None, (str(file), why, reason)))) from error


def _one_contains_the_other(first: str, second: str) -> bool:
    shorter, longer = sorted((first, second), key=len)
    return len(shorter) >= 2 and shorter in longer
