"""What a fuzz target says when something is not as it should be."""

from __future__ import annotations


class BrokenPromiseError(AssertionError):
    """The code under test took an input in a way that it must not."""


def promise(holds: bool, what: str) -> None:
    """Raise where something does not hold.

    Raises:
        BrokenPromiseError: it does not.
    """
    if not holds:
        raise BrokenPromiseError(what)


def one_line(text: str) -> None:
    """Promise that a text may be shown on a terminal: one line, and no control characters.

    Raises:
        BrokenPromiseError: it is something else.
    """
    promise(bool(text) and text.isprintable(), f"not one clean line: {text!r}")
