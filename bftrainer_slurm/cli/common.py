"""What the commands share: how their errors end them, and how they print what others wrote."""

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
NOT_THERE = 3  # the controller's side, or Slurm, does not answer
_TAKES_NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
_LONGEST_LINE = 4_000  # characters


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on stderr."""
    say_error(message)
    raise SystemExit(code)


def say_error(message: str, begin: str = "bftrainer") -> None:
    """Write one line on stderr, safe for a terminal whatever the message quotes."""
    click.echo(f"{begin}: {shown(' '.join(message.split()), _LONGEST_LINE)}", err=True)


@contextmanager
def fail_on(*errors: type[Exception], code: int = BAD_INPUT, begin: str = "") -> Iterator[None]:
    """End the command with the message of such an error; ``begin`` is put before it."""
    try:
        yield
    except errors as error:
        fail(f"{begin}{error}", code)


@contextmanager
def fail_where_unreadable() -> Iterator[None]:
    """End the command in one line if a status is not what a controller of ours publishes."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        if cannot_print(error):
            raise
        what = f"{type(error).__name__}: {shown(error)}"
        fail(f"the status cannot be read; is it of another version? ({what})", NOT_THERE)


def cannot_print(error: Exception) -> bool:
    """Whether standard output takes no more: a full disk, or a reader that has gone.

    Commands handle the errors of files by themselves.
    """
    return isinstance(error, OSError) and error.errno in _TAKES_NO_MORE


def safe_lines(text: str) -> str:
    """Make lines safe for a terminal, also if they hold users' texts."""
    return "\n".join(shown(line, _LONGEST_LINE) for line in text.split("\n"))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, all or none, safe for a terminal also if they hold users' texts."""
    for line in list(lines):
        text = shown(line, _LONGEST_LINE)
        click.echo(styled(text, bold=True) if isinstance(line, Heading) else text)


def print_json(document: object) -> None:
    """Print a document as JSON."""
    click.echo(json.dumps(document, indent=2))


def print_either(document: object, lines: Iterable[str], as_json: bool) -> None:
    """Print a document as JSON, or the lines that a person reads."""
    if as_json:
        print_json(document)
    else:
        print_lines(lines)


def who(one: Mapping[str, Any]) -> str:
    """Return the trainer's id, name and user."""
    return f"{one['array']} {shown(one['name'])} of {shown(one['user'])}"


def cells(one: Mapping[str, Any], *most: int) -> tuple[str, ...]:
    """Return what tables begin with: the trainer's id, name, user, state, nodes, and MIN-MAX.

    Behind its nodes stand the GPUs or cores that it has of them, if it has parts of nodes.
    ``most`` are how many characters of name, user and state are shown.
    """
    from bftrainer_slurm.reader.sentences import in_parts, size_of  # help does without

    starting = f"+{len(one['starting'])}" if one["starting"] else ""
    texts = zip((one["name"], one["user"], one["state"]), most or (60, 60, 60), strict=True)
    part = f" ({size_of(one, count)})" if (count := len(one["nodes"])) and in_parts(one) else ""
    nodes, bounds = f"{count}{starting}{part}", f"{one['min_nodes']}-{one['max_nodes']}"
    return (str(one["array"]), *(shown(text, room) for text, room in texts), nodes, bounds)


def part_hours(total: Mapping[str, Any]) -> str:
    """Return the GPU-hours and core-hours of a trainer that had parts of nodes, in parentheses."""
    parts = (("GPU", total.get("gpu_s")), ("core", total.get("core_s")))
    said = ", ".join(f"{seconds / 3600:.2f} {unit}-hours" for unit, seconds in parts if seconds)
    return f" ({said})" if said else ""


def changes(total: Mapping[str, Any]) -> str:
    """Return how often a trainer's nodes changed."""
    grew, shrank, reclaimed = (total[key] for key in ("grew", "shrank", "reclaimed"))
    return f"grew {grew}, shrank {shrank}, reclaimed {counted(reclaimed, 'time')}"


def shown(text: object, most: int = 60) -> str:
    """Make text from outside safe for a terminal: no control characters, and not too long."""
    return "".join(char if char.isprintable() else "?" for char in str(text)[:most])
