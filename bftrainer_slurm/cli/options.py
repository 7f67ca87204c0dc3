"""Options of all commands: files, finite numbers within bounds, times; and which go together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
from click.core import ParameterSource

from bftrainer_slurm.cli.common import fail, safe

_FC = TypeVar("_FC", bound=Callable[..., Any] | click.Command)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

_DATE_DIGITS = 8  # 20240301 is a date: as Unix seconds it would be in 1970

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


def refuse_unused(place: str, goes_with: Mapping[str, tuple[str, ...]]) -> None:
    """End the command if an option was given that would change nothing.

    ``place`` is where the holes come from. ``goes_with`` has, by name, the options that count for
    some places only: ``--days goes with --synthetic only``.
    """
    for name, option in given_options().items():
        places = goes_with.get(name, (place,))
        if place not in places:
            fail(f"{option} goes with {' or '.join(places)} only; leave it out")


def parse_price(
    _: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[float | None, str]:
    """Return a number and its currency, "" without one: a callback of click."""
    if text is None:
        return None, ""
    read = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([^\W\d_]{0,12}|[^\w\s<>&])", text)
    if read is None:
        raise click.BadParameter(f"{safe(text)} is not a price such as 2.5EUR", param=parameter)
    return float(read[1]), read[2]


def unix_time(option: str, text: str | None, zone: tzinfo) -> float | None:
    """Return the time that an option has, as Unix seconds; end the command if it is none."""
    if text is None:
        return None
    try:
        if text.isdecimal() and len(text) != _DATE_DIGITS:
            return float(text)
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        fail(f"{option} {safe(text)}: write 2024-03-01, 2024-03-01T12:00 or Unix seconds")
