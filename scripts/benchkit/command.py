"""How every bench is called and answers: --json or text, errors in a line, Ctrl-C, progress."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, for people and for programs; ``wrong`` says why the exit code is 1."""

    text: str
    document: object
    wrong: str = ""


def bench_command(*errors: type[Exception]) -> Callable[[Callable[..., Findings]], click.Command]:
    """Make a click command of what measures; it prints text, or with ``--json`` JSON.

    These errors, and a child process that fails or takes too long, end it in one line with exit
    code 1.
    SIGTERM is taken as Ctrl-C, so that all that was started is ended; the exit code is 130.
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
    """Return JSON; dataclasses are objects in it, and what else it has no word for is text."""
    return json.dumps(document, indent=2, default=_plain)


def progress(what: str = "") -> Callable[[str], None]:
    """Return what says on standard error how far it is, with the seconds since now."""
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
