"""Notes on a trainer for its user: what is remarkable, and what to do about it. Pure.

They are made of the trainer's entry in the status; of one that is hidden little can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer_slurm.planner.limit import Limit

_LONG_S = 600.0  # with nodes: from then on it can be judged
_SLOW_S = 10.0  # of a rescale
_MUCH = 0.2  # of the time with nodes
_OFTEN = 2.0  # reclaims a node-hour
_SEVERAL = 10
_OVER = ("finished", "cancelled", "given up")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """``level``: trouble (it does not train), advice (it could train faster), or fact."""

    level: str
    text: str
    do: str = ""


def notes(one: Entry, free: int) -> list[Note]:
    """Return the notes on a trainer, the gravest first; ``free`` nodes of the pool nobody has."""
    found = [note for ask in _ASK for note in ask(one, free)]
    return sorted(found, key=lambda note: ("trouble", "advice", "fact").index(note.level))


def _failures(one: Entry, free: int) -> Iterator[Note]:
    array, count = one["array"], one.get("failures") or 0
    if one["state"] == "given up":
        why = one.get("why") or "it failed again and again"
        yield Note("trouble", f"It was given up: {why}.", f"Read 'bftrainer logs {array}'.")
    elif count:
        times = "once" if count == 1 else f"{count} times in a row"
        on = f" on {', '.join(one['failed_on'][:5])}" if one.get("failed_on") else ""
        yield Note(
            "trouble" if count > 1 else "advice",
            f"It has failed {times}{on}.",
            f"Read its last words below, or all of them: 'bftrainer logs {array}'.",
        )


def _told(one: Entry, free: int) -> Iterator[Note]:
    """What the status says of it in words: elements that never joined, why it cannot grow."""
    if one["state"] in _OVER:
        return
    if one.get("notice") and not one.get("failures"):
        yield Note("trouble", f"{one['notice']}.")
    if one.get("why"):
        yield Note("advice", f"It cannot have more nodes now: {one['why']}.")


def _waits(one: Entry, free: int) -> Iterator[Note]:
    plan = one.get("plan")
    if not plan or plan["nodes"] or plan["usable"] >= plan["least"]:
        return
    yield Note(
        "advice",
        f"It waits: it needs {plan['least']} nodes at least, there are {plan['usable']} for it.",
        "If it can train on fewer, submit it with a lower MIN (-N MIN-MAX).",
    )


def _size(one: Entry, free: int) -> Iterator[Note]:
    if one["state"] in _OVER:
        return
    if len(one["nodes"]) >= one["max_nodes"]:
        more = f", and {free} nodes are free" if free else ""
        do = "If it scales further, submit it with a higher MAX (-N MIN-MAX)." if free else ""
        yield Note(
            "advice" if free else "fact", f"It has its MAX of {one['max_nodes']} nodes{more}.", do
        )
    elif (one.get("plan") or {}).get("limit") == Limit.NO_GAIN.value:
        yield Note(
            "advice",
            "More nodes would make it no faster, by what was measured.",
            "A larger batch on each node may scale better.",
        )


def _reclaims(one: Entry, free: int) -> Iterator[Note]:
    hours, count = one.get("node_s", 0.0) / 3600, one.get("reclaimed", 0)
    if count >= _SEVERAL and count > _OFTEN * hours:
        yield Note(
            "advice",
            f"Slurm took nodes back {count:,} times in {hours:,.1f} node-hours.",
            "Rescale in process, so that the others go on at once (docs/elastic.md); and keep "
            "checkpoints a few minutes apart.",
        )
    elif count:
        times = "once" if count == 1 else f"{count:,} times"
        yield Note("fact", f"Slurm took a node back {times} in {hours:,.1f} node-hours.")


def _rescales(one: Entry, free: int) -> Iterator[Note]:
    cost = (one.get("rescale") or {}).get("up") or {}
    if cost.get("count") and cost["seconds"] > _SLOW_S:
        yield Note(
            "advice",
            f"It stands still for {cost['seconds']:.0f} s whenever it grows.",
            "Read data and import less at the start of the script, or rescale in process "
            "(docs/elastic.md).",
        )


def _goodput(one: Entry, free: int) -> Iterator[Note]:
    spent = one.get("goodput") or {}
    with_nodes_s = spent.get("with_nodes_s") or 0.0
    if with_nodes_s < _LONG_S or spent.get("trained_s") is None:
        return
    lost, rescaling = spent["lost_s"] / with_nodes_s, spent["rescaling_s"] / with_nodes_s
    if lost > _MUCH:
        yield Note(
            "advice",
            f"In {lost:.0%} of its time with nodes it started, failed or hung: no progress.",
            f"'bftrainer logs {one['array']}' shows what it did then.",
        )
    if rescaling > _MUCH:
        yield Note(
            "advice",
            f"In {rescaling:.0%} of its time with nodes it was rescaling.",
            "Rescale in process (docs/elastic.md), or ask for a narrower MIN-MAX.",
        )


def _reports(one: Entry, free: int) -> Iterator[Note]:
    if one.get("refused_reports"):
        yield Note(
            "advice",
            f"{one['refused_reports']} of its reports of progress cannot be true: refused.",
            "Samples and steps must grow, and no faster than hardware can.",
        )
    runs = one["state"] == "running" and "samples" in one
    long = (one.get("goodput") or {}).get("with_nodes_s", 0.0) >= _LONG_S
    if runs and long and one["samples"] is None and not one.get("notice"):
        yield Note(
            "advice",
            "How many samples it trains on is not known, so the plan guesses how it scales.",
            "Call bftrainer_slurm.elastic.step(samples=...) after each step.",
        )


_ASK: tuple[Callable[[Entry, int], Iterator[Note]], ...] = (
    *(_failures, _told, _waits, _size, _reclaims, _rescales, _goodput, _reports),
)
