"""The command line of every bench: options, --json or text, errors in one line, progress."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, TypeAlias

import click

from scripts.benchkit.figures import Target
from scripts.benchkit.machine import Machine

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, for people and for programs; ``wrong`` says why the exit code is 1."""

    text: str
    document: object
    wrong: str = ""


class RefusedError(click.ClickException):
    """This machine cannot do what was asked; exit code 2, as for a bad call."""

    exit_code = 2


def findings(
    machine: Machine,
    *parts: str,
    targets: Sequence[Target] = (),
    wrong: str = "",
    **document: object,
) -> Findings:
    """Return findings on this machine: ``parts`` of the text, and the ``document`` by name.

    Text and document begin with the machine and end with the targets, met or missed.
    """
    judged = ["\n".join(["targets", *map(str, targets)])] if targets else []
    text = "\n\n".join([str(machine), *filter(None, parts), *judged])
    return Findings(text, {"machine": machine, **document, "targets": targets}, wrong)


def number(name: str, default: float, least: float, most: float, about: str = "") -> Option:
    """Return an option: a number from ``least`` to ``most``, an integer if all three are."""
    whole = all(isinstance(one, int) for one in (default, least, most))
    kind: click.IntRange | click.FloatRange = click.FloatRange(least, most)
    if whole:
        kind = click.IntRange(int(least), int(most))
    return click.option(name, type=kind, default=default, help=about)


def several(name: str, argument: str, known: Collection[str], about: str) -> Option:
    """Return an option that may be given several times, each time one of ``known``; else all."""
    return click.option(
        name,
        argument,
        type=click.Choice(list(known)),
        multiple=True,
        default=tuple(known),
        show_default="all",
        callback=lambda context, parameter, given: list(dict.fromkeys(given)),
        help=f"{about} May be given again.",
    )


def folder(name: str, argument: str, about: str, default: Path | None = None) -> Option:
    """Return an option for a folder, which need not exist."""
    kind = click.Path(path_type=Path, file_okay=False)
    return click.option(name, argument, type=kind, default=default, help=about)


def bench_command(*errors: type[Exception]) -> Callable[[Callable[..., Findings]], click.Command]:
    """Make a click command of a function that measures; it prints text, or JSON with ``--json``.

    These errors, and a child process that fails or takes too long, end it with one line and exit
    code 1. SIGTERM works like Ctrl-C, so that all that was started is ended; the exit code is 130.
    """

    def decorate(measure: Callable[..., Findings]) -> click.Command:
        @click.option("--json", "as_json", is_flag=True, help="Print JSON, with every figure.")
        @wraps(measure)
        def run(as_json: bool, **options: Any) -> None:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                found = measure(**options)
            except KeyboardInterrupt:
                click.echo("stopped; all that was started has been ended", err=True)
                sys.exit(128 + signal.SIGINT)
            except SubprocessError as error:
                said = " ".join(str(getattr(error, "stderr", None) or "").split())
                raise click.ClickException(f"{error} {said}".strip()) from error
            except errors as error:
                raise click.ClickException(str(error)) from error
            click.echo(json_text(found.document) if as_json else found.text)
            if found.wrong:
                raise click.ClickException(found.wrong)

        return click.command(context_settings={"show_default": True})(run)

    return decorate


def json_text(document: object) -> str:
    """Return JSON; dataclasses become objects, and values of other unknown types become text."""
    return json.dumps(document, indent=2, default=_plain)


def progress(what: str = "") -> Callable[[str], None]:
    """Return a function that prints progress to standard error, with the seconds since now."""
    begun_s = time.monotonic()

    def tell(text: str) -> None:
        click.echo(f"{time.monotonic() - begun_s:6.0f} s  {what}{text}", err=True)

    return tell


def replace_file(path: Path, text: str) -> None:
    """Write a file whole, or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return str(value)
