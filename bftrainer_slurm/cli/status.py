"""``bftrainer status``: the pool and every trainer, for any user."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from bftrainer_slurm.cli.advice import advice
from bftrainer_slurm.cli.common import (
    NO_ANSWER,
    fail,
    fail_if_unreadable,
    print_either,
    print_lines,
    safe,
)
from bftrainer_slurm.cli.endpoint import Endpoint, endpoint_options
from bftrainer_slurm.cli.options import json_option
from bftrainer_slurm.cli.terminal import on_one_screen, table
from bftrainer_slurm.controller.state.bad_nodes import mute_sentence
from bftrainer_slurm.controller.state.trainer_state import BATCH_SCRIPT
from bftrainer_slurm.model import ElementState, Trainer
from bftrainer_slurm.reader.sentences import (
    deadline,
    down,
    in_parts,
    pool_sentence,
    size_of,
    troubles,
)
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.words import ARE, HAVE, counted

SCHEMA = 1
_HEADING = (
    *("TRAINER", "NAME", "USER", "STATE", "NODES", "MIN-MAX", "SAMPLES", "SAMPLES/S"),
    *("GREW", "SHRANK", "RECLAIMED"),
)
_SPARE = tuple(map(_HEADING.index, ("SHRANK", "GREW", "SAMPLES", "RECLAIMED", "USER")))
_SOME = 5
_WATCH_S = 2.0  # as often as the controller publishes
_SLURM_EVERY_S = 30.0


@click.command()
@click.option(
    "--watch",
    "every_s",
    is_flag=False,
    flag_value=_WATCH_S,
    type=click.FloatRange(1.0, 3600.0),
    metavar="[SECONDS]",
    help="Draw it again every SECONDS, until Ctrl-C; not with --json. Without SECONDS: every 2.",
)
@endpoint_options
@json_option
def status(every_s: float | None, endpoint: Endpoint, as_json: bool) -> None:
    """Show the pool, how much of it is used, and every trainer.

    Works for any user. While the controller is down it says so, and shows what Slurm knows
    (with --watch, Slurm is asked every 30 s).

    \b
    Examples:
      bftrainer status --json
      bftrainer status --watch
    """
    if every_s is not None and as_json:
        fail("--watch or --json, not both; call 'bftrainer status --json' again and again")
    if every_s is not None and not _can_redraw():
        fail("--watch needs a terminal; 'bftrainer status' prints the same once")
    with fail_if_unreadable():
        if every_s is not None:
            _watch(endpoint, every_s)
            return
        document = current_status(endpoint)
        print_either({"schema": SCHEMA, **document}, status_lines(document), as_json)


def _can_redraw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _watch(endpoint: Endpoint, every_s: float) -> None:
    """Draw the status again and again, as much as the screen has room for, until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        while True:
            document = current_status(endpoint)
            lines = [time.strftime("%H:%M:%S; Ctrl-C ends"), *status_lines(document)]
            click.clear()
            print_lines(on_one_screen(lines))
            time.sleep(max(every_s, _SLURM_EVERY_S) if document["down"] else every_s)


def current_status(endpoint: Endpoint) -> dict[str, Any]:
    """Return the controller's status, or what Slurm knows if it is down (``down`` says why)."""
    age_s, document = endpoint.read_status()
    why = endpoint.silence_reason if document is None else down(document, age_s)
    if document is not None and why is None:
        return document | {"down": None}
    try:
        return _status_from_slurm() | {"down": why}
    except GatewayError as error:
        silence = "neither the controller nor Slurm answers"
        if endpoint.address or endpoint.state:
            silence = f"{endpoint.silence_reason}, and Slurm does not answer"
        fail(f"{silence}: {error}", NO_ANSWER)


def status_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the pool, the table of trainers, and problems."""
    trainers = document["trainers"]
    yield from _summary(document)
    if trainers:
        yield from table([_HEADING, *map(_row, trainers)], _SPARE)
    else:
        yield "no trainers; submit one with: sbatch --bftrainer -N 2-16 train.sh"
    troubled = [one for one in trainers if _notice(one)]
    for one in troubled[:_SOME]:
        yield from _notice_lines(one)
    if (more := len(troubled) - _SOME) > 0:
        yield f"{counted(more, 'more trainer', HAVE)} problems: see 'bftrainer show TRAINER'"
    if document.get("mute_nodes"):
        yield safe(mute_sentence(document["mute_nodes"]), 400)
    left_alone = sorted(document["malformed"].items(), key=lambda pair: int(pair[0]))
    for array, why in left_alone[:_SOME]:
        yield f"job {array} is left alone: {safe(why, 400)}"
    if (more := len(left_alone) - _SOME) > 0:
        yield f"{counted(more, 'more job', ARE)} left alone"
    if refused := document.get("keeper", {}).get("refused", {}):
        kinds = ", ".join(f"{safe(kind)} {count}" for kind, count in sorted(refused.items()))
        yield f"the keeper refused: {kinds}"


def _notice(one: dict[str, Any]) -> str | None:
    """Return what a trainer's user should know first."""
    left_out = f"left out: {one['left_out']}" if one.get("left_out") else None
    about = one.get("deadline") or {"state": "done"}
    state, fits = about["state"], about.get("nodes_left") is None
    is_met = state == "done" or (state == "on time" and fits)
    return one.get("notice") or one.get("why") or left_out or (None if is_met else deadline(one))


def _notice_lines(one: dict[str, Any]) -> list[str]:
    """Return a trainer's problem, its last output, and what to do; empty without a problem."""
    text = _notice(one)
    lines = [f"trainer {one['array']}: {safe(text, 400)}"] if text else []
    if lines and one.get("error") == BATCH_SCRIPT:
        return [*lines, f"  'bftrainer show {one['array']}' has the end of its output"]
    said = [line for line in (one.get("error") or "").splitlines() if line.strip()]
    if lines and said:
        lines.append(f"  its last output: {safe(said[-1].strip(), 150)}")
        lines += [f"  try: {remedy}" for remedy in (advice(said),) if remedy]
    return lines


def _summary(document: dict[str, Any]) -> Iterator[str]:
    """Give what concerns the whole cluster: problems, the pool, the delays of ordinary jobs."""
    if document["down"]:
        yield f"{document['down']}; this is what Slurm knows:"
    else:
        yield from (f"trouble: {safe(trouble, 250)}" for trouble in troubles(document))
    if document["pool"] is not None:
        yield pool_sentence(document)
    if document.get("preempted"):
        yield _delay_line(document["preempted"])


def _delay_line(sums: dict[str, Any]) -> str:
    """Say how trainers delayed ordinary jobs in the last 24 hours."""
    started = f"{sums['started']:,} started, " if sums.get("started") else ""
    if not sums["jobs"]:
        return f"ordinary jobs, last 24 h: {started}none waited for trainers"
    usual, most = (_waited(sums[f"delay_{of}_s"]) for of in ("median", "max"))
    text = (
        f"ordinary jobs, last 24 h: {started}{sums['jobs']} waited for trainers, {usual} (median; "
        f"{most} at most)"
    )
    return text + (f"; {sums['late_jobs']} missed a backfill pass" if sums["late_jobs"] else "")


def _waited(seconds: float) -> str:
    """Return a delay in words; Slurm gives whole seconds."""
    return "less than 1 s" if seconds < 1.0 else f"{seconds:.0f} s"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    """Return a trainer's cells; after its nodes come its GPUs, if it has parts of them."""
    starting = f"+{len(one['starting'])}" if one["starting"] else ""
    part = f" ({size_of(one, count)})" if (count := len(one["nodes"])) and in_parts(one) else ""
    forms = dict.fromkeys(("samples", "samples_per_s"), ",.0f")
    forms |= dict.fromkeys(("grew", "shrank", "reclaimed"), "d")
    return (
        str(one["array"]),
        *(safe(one[key]) for key in ("name", "user", "state")),
        f"{count}{starting}{part}",
        f"{one['min_nodes']}-{one['max_nodes']}",
        *(_number(one.get(key), form) for key, form in forms.items()),
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _status_from_slurm() -> dict[str, Any]:
    """Return a status of what Slurm knows; costs slurmctld one request.

    Raises:
        GatewayError: Slurm does not answer.
    """
    from bftrainer_slurm.slurm.open import open_gateway

    queue = open_gateway("commands").queue()
    return {
        "time_s": time.time(),
        "controller": None,
        "pool": None,
        "plan": None,
        "preempted": None,
        "malformed": {str(array): why for array, why in queue.malformed.items()},
        "trainers": [
            entry_from_slurm(one)
            for one in queue.trainers
            if not all(element.state.over for element in one.elements)
        ],
    }


def entry_from_slurm(trainer: Trainer) -> dict[str, Any]:
    """Return a trainer's entry in the status, without its controller."""
    nodes = [
        element.node
        for element in trainer.elements
        if element.state is ElementState.RUNNING and element.node
    ]
    return {
        "array": trainer.array,
        "name": trainer.name,
        "user": trainer.user,
        "state": "running" if nodes else "waiting",
        **trainer.record.shown,
        "submit_s": trainer.submit_s,
        "nodes": sorted(nodes),
        "starting": [],
    }
