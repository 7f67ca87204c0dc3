"""Which trainer a command is about: TRAINER as it is given, or completed by the shell."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import click
from click.shell_completion import CompletionItem

from bftrainer_slurm.cli.common import fail, shown
from bftrainer_slurm.cli.side import Side

_KEYS = ("array", "name")
_SAFE = re.compile(r"[\w.+-]+")  # a name that no shell takes for more than a word


def the_one(trainers: list[dict[str, Any]], said: str) -> dict[str, Any]:
    """Return the trainer that is meant; end the command if there is none, or more than one."""
    found = [one for one in trainers if said in (str(one["array"]), one["name"])]
    if not found:
        fail(
            f"no trainer '{shown(said)}'; 'bftrainer status' lists them all, 'bftrainer history' "
            "those that have ended, too"
        )
    if len(found) > 1:
        ids = ", ".join(str(one["array"]) for one in found)
        fail(f"{len(found)} trainers are named '{shown(said)}'; say which: {ids}")
    return found[0]


def complete(context: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the job ids and names that begin so, as published; Slurm is not asked.

    After any error nothing is completed.
    """
    side = Side(context.params.get("state"), context.params.get("address"))
    with contextlib.suppress(Exception, SystemExit):
        trainers = (side.published()[1] or {})["trainers"]
        words = [
            (str(one[key]), shown(one["state"])) for one in trainers for key in ("array", "name")
        ]
        return [
            CompletionItem(word, help=state)
            for word, state in words
            if word.startswith(begun) and _SAFE.fullmatch(word)
        ]
    return []
