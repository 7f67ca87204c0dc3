"""Reads the controller's history: from the keeper, or else from its file."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bftrainer_slurm.cli.common import NO_ANSWER, fail, safe
from bftrainer_slurm.cli.endpoint import Endpoint
from bftrainer_slurm.keeper.client import KeeperError

A_WEEK_S = 7 * 86400.0
_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])\Z")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class Since(click.ParamType[float]):
    """A time as Unix seconds, written as a date or as how long ago it was."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read 90s, 30m, 2h, 7d, 4w, or what ISO 8601 allows, in local time."""
        if isinstance(value, float):
            return value
        if (match := _AGO.match(value)) is not None:
            return time.time() - float(match[1]) * _SECONDS[match[2]]
        try:
            return max(0.0, datetime.fromisoformat(value).timestamp())
        except (ValueError, OverflowError):
            self.fail(
                f"'{safe(value)}' is not a time; write 2h, 7d, or 2026-11-23T14:00", param, ctx
            )


def history_or_fail(what: str, since_s: float, endpoint: Endpoint) -> dict[str, Any]:
    """Return a document of ``reader.stories``; end the command without one.

    The keeper asks its reader. A user who may read the state folder needs neither.
    """
    try:
        document = endpoint.ask(lambda keeper, proof: keeper.history(what, since_s, proof))
    except KeeperError as error:
        document = {"error": str(error)}
    if "error" in document and endpoint.owns_folder:
        document = _from_file(endpoint.folder, what, since_s) or document
    if "error" in document:
        fail(str(document["error"]), NO_ANSWER)
    return document


def _from_file(state: Path, what: str, since_s: float) -> dict[str, Any] | None:
    from bftrainer_slurm.controller.state.history import HistoryError
    from bftrainer_slurm.reader.stories import read_history

    try:
        return read_history(
            state / "history.sqlite", what, since_s, time.time(), reader=None, private=False
        )
    except (HistoryError, OSError):
        return None


def trainer_history(trainer: str, since_s: float, endpoint: Endpoint) -> dict[str, Any]:
    """Return one trainer's history, by its job id, or by a name that only one trainer has."""
    array = trainer if re.fullmatch(r"[0-9]{1,15}", trainer) else _find_array(trainer, endpoint)
    document = history_or_fail(array, since_s, endpoint)
    if document["trainer"] is None:
        fail(f"no trainer '{safe(trainer)}' in the history that you may see")
    return document


def _find_array(name: str, endpoint: Endpoint) -> str:
    """Return the id of the trainer with this name: in the last week, or else at any time."""
    for since_s in (time.time() - A_WEEK_S, 0.0):
        known = history_or_fail("all", since_s, endpoint)["trainers"]
        found = [str(one["array"]) for one in known if one["name"] == name]
        if found:
            break
    if len(found) > 1:
        fail(f"{len(found)} trainers were named '{safe(name)}'; say which: {', '.join(found)}")
    if not found:
        fail(f"no trainer '{safe(name)}' in the history; 'bftrainer history' lists them all")
    return found[0]
