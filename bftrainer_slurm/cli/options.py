"""Types of options for all commands: files, and finite numbers within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
from click.core import ParameterSource

from bftrainer_slurm.cli.common import safe

_FC = TypeVar("_FC", bound=Callable[..., Any] | click.Command)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def given_options() -> dict[str, str]:
    """Return the options that the user gave to this command: how each is written, by name."""
    context = click.get_current_context()
    return {
        str(option.name): option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT
    }


def count(unit: str, least: int, most: int | None = None, default: object = None) -> dict[str, Any]:
    """Return click's arguments for an option that is a whole number of ``unit``."""
    return _metavar(unit, default) | {"type": click.IntRange(least, most)}


def number(
    unit: str,
    least: float,
    most: float | None = None,
    default: float | None = None,
    *,
    min_open: bool = False,
) -> dict[str, Any]:
    """Return click's arguments for an option that is a finite number of ``unit``."""
    kind = click.FloatRange(least, most, min_open)
    return _metavar(unit, default) | {"type": kind, "callback": _finite}


def _metavar(unit: str, default: object) -> dict[str, Any]:
    known = {} if default is None else {"default": default, "show_default": True}
    return {"metavar": unit, **known}


def _finite(_: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which every FloatRange accepts, and infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number.", param=parameter)
    return value


def time_zone_option(of: str) -> Callable[[_FC], _FC]:
    """Return the option ``--time-zone``; ``of`` says which times are in this zone."""
    return click.option(
        "--time-zone",
        "zone",
        metavar="ZONE",
        callback=_time_zone,
        default="UTC",
        show_default=True,
        help=f"Time zone of {of}.",
    )


def _time_zone(_: click.Context, parameter: click.Parameter, value: str) -> tzinfo:
    """Return the time zone of this name."""
    try:
        return ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        name = safe(value)
        raise click.BadParameter(
            f"'{name}' is not a time zone; write for example Europe/Berlin.", param=parameter
        ) from None
