"""The ``bftrainer`` command: one module for each of its commands."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Any

import click
from click.shell_completion import CompletionItem

from bftrainer_slurm import __version__
from bftrainer_slurm.cli.common import BAD_INPUT, INTERRUPTED, output_failed, say_error

# Each is imported only when it runs: `bftrainer status` must not wait for the controller's imports.
COMMANDS = {
    "submit": "Submit an elastic training job.",
    "status": "Show the pool and every trainer.",
    "show": "Show one trainer.",
    "history": "Say what trainers had, gained and lost.",
    "explain": "Say why a trainer has so many nodes, or waits.",
    "logs": "Show what all elements of a trainer have written.",
    "doctor": "Check this cluster's settings, and say what to change for trainers.",
    "assess": "Say what a cluster's idle nodes are worth, from its own log.",
    "replay": "Replay a trace of holes with elastic trainers.",
    "plan": "Solve one planning problem from a file.",
    "controller": "Run the controller.",
    "keeper": "Run the keeper by itself.",
    "reader": "Serve the web page, metrics and the history.",
}

# The extra that a command needs; the keeper and users' commands need none.
_EXTRAS = {"assess": "replay", "replay": "replay"}
_DEFAULT_EXTRA = "controller"
_COMMAND = "bftrainer_slurm.command"
_FAILED = 1


@contextmanager
def _usage_errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "bftrainer"
        said = error.format_message().rstrip(".")
        see = " See" if said.endswith("?") else "; see"
        say_error(f"{said}{see} '{command} --help'", command)
        raise SystemExit(error.exit_code) from error


class _Group(click.Group):
    def main(self, *arguments: Any, **options: Any) -> Any:
        warnings.simplefilter("ignore")  # of libraries, and with PYTHONWARNINGS=error fatal
        if isinstance(sys.stdout, TextIOWrapper):  # a locale may lack what names are written with
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().main(*arguments, **options)
        except OSError as error:
            if not output_failed(error):
                raise
            say_error(f"standard output: {error.strerror}")
            # Python flushes the rest of the output as it ends: that must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(_FAILED) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _usage_errors_in_one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _usage_errors_in_one_line():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("bftrainer_slurm"):
                raise
            extra = _EXTRAS.get(ctx.meta[_COMMAND], _DEFAULT_EXTRA)
            remedy = f"install bftrainer-slurm[{extra}], in a clone: pip install '.[{extra}]'"
            say_error(f"{error.name} is missing: {remedy}")
            ctx.exit(BAD_INPUT)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and (close := get_close_matches(args[0], COMMANDS, 1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{close[0]}'?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        ctx.meta[_COMMAND] = cmd_name
        module = importlib.import_module(f"bftrainer_slurm.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them, unlike click."""
        commands = [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bftrainer")
def main() -> None:
    """Train neural networks on the nodes that a Slurm cluster cannot fill."""
