"""Text that others wrote, shown as it is: on a terminal, in Markdown and in HTML."""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories that a terminal or a browser acts on instead of drawing: controls, bidirectional marks, halves of
characters, private and unassigned code points, separators of lines."""


def printable(text: str, keep: str = "") -> str:
    r"""Return the text with every character that is not drawn as an escape: ESC is `\x1b`, U+202E is `\u202e`.

    Names in files of others, and answers of servers, may hold sequences that set the title of a terminal, write to
    its clipboard, or turn the order of what is read.

    Args:
        text: Text of any origin.
        keep: Characters that stay as they are, the line feed for one.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(char) if unicodedata.category(char) in _HIDDEN and char not in keep else char for char in text
    )


def one_line(text: str) -> str:
    """Return the text in one line that a terminal shows as it is."""
    return printable(" ".join(text.split()))


def markdown(text: str) -> str:
    """Return the text as one line that Markdown shows as it is: no tag, no link, no new cell."""
    escaped = one_line(text)
    for char, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\\", "\\\\")):
        escaped = escaped.replace(char, shown)
    return re.sub(r"[|`]|(?<=\])[(\[]", r"\\\g<0>", escaped)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
