"""What commands share: how errors end them, and how they print texts of others."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from bftrainer_slurm.cli.terminal import Heading, styled
from bftrainer_slurm.words import counted

BAD_INPUT = 2
NO_ANSWER = 3  # the controller, or Slurm, does not answer
INTERRUPTED = 130  # what a shell reports after Ctrl-C
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
_LONGEST_LINE = 4_000  # characters


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on stderr."""
    say_error(message)
    raise SystemExit(code)


def say_error(message: str, begin: str = "bftrainer") -> None:
    """Write one line on stderr, safe for a terminal whatever the message quotes."""
    click.echo(f"{begin}: {safe(' '.join(message.split()), _LONGEST_LINE)}", err=True)


@contextmanager
def fail_on(*errors: type[Exception], code: int = BAD_INPUT, begin: str = "") -> Iterator[None]:
    """End the command with the message of one of these errors, after ``begin``."""
    try:
        yield
    except errors as error:
        fail(f"{begin}{error}", code)


@contextmanager
def fail_if_unreadable() -> Iterator[None]:
    """End the command with one line if a status is not in our format."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        if output_failed(error):
            raise
        what = f"{type(error).__name__}: {safe(error)}"
        fail(f"the status cannot be read; is it of another version? ({what})", NO_ANSWER)


def output_failed(error: Exception) -> bool:
    """Return whether this is an error of standard output: a full disk, or a closed pipe.

    Commands handle errors of files themselves.
    """
    return isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS


def safe_lines(text: str) -> str:
    """Make lines with users' texts safe for a terminal."""
    return "\n".join(safe(line, _LONGEST_LINE) for line in text.split("\n"))


def print_lines(lines: Iterable[str]) -> None:
    """Print all lines, or none; users' texts in them are made safe for a terminal."""
    for line in list(lines):
        text = safe(line, _LONGEST_LINE)
        click.echo(styled(text, bold=True) if isinstance(line, Heading) else text)


def print_json(document: object) -> None:
    """Print a document as JSON."""
    click.echo(json.dumps(document, indent=2))


def print_either(document: object, lines: Iterable[str], as_json: bool) -> None:
    """Print a document as JSON, or the lines for people."""
    if as_json:
        print_json(document)
    else:
        print_lines(lines)


def identity(one: Mapping[str, Any]) -> str:
    """Return the trainer's id, name and user."""
    return f"{one['array']} {safe(one['name'])} of {safe(one['user'])}"


def fact_lines(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what is known of a trainer, a line for each fact: label and text."""
    return (f"{label:<12}{text}" for label, text in facts)


def size_changes(total: Mapping[str, Any]) -> str:
    """Return how often a trainer's nodes changed."""
    grew, shrank, reclaimed = (total[key] for key in ("grew", "shrank", "reclaimed"))
    return f"grew {grew}, shrank {shrank}, reclaimed {counted(reclaimed, 'time')}"


def safe(text: object, most: int = 60) -> str:
    """Make text from outside safe for a terminal: no control characters, and not too long."""
    return "".join(char if char.isprintable() else "?" for char in str(text)[:most])
