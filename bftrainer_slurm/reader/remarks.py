"""Remarks on a trainer for its user: what is unusual, and what to do about it. Pure.

Remarks are made from the trainer's entry in the status; a hidden entry says little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer_slurm.planner.limit import Limit
from bftrainer_slurm.reader.sentences import amount, nodes, size_of
from bftrainer_slurm.words import ARE, counted

_LONG_S = 600.0  # a trainer with less time on nodes is not judged
_SLOW_S = 10.0  # a longer pause for a rescale is slow
_MUCH = 0.2  # a share of the time with nodes
_OFTEN = 2.0  # reclaims in a node-hour
_SEVERAL = 10
_OVER = ("finished", "cancelled", "given up")

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remark:
    """``level``: trouble (it does not train), advice (it could train faster), or fact."""

    level: str
    text: str
    do: str = ""


def remarks(one: Entry, free: int) -> list[Remark]:
    """Return the remarks on a trainer, the gravest first; the pool has ``free`` unused nodes."""
    found = [remark for ask in _CHECKS for remark in ask(one, free)]
    return sorted(found, key=lambda remark: ("trouble", "advice", "fact").index(remark.level))


def _failures(one: Entry, free: int) -> Iterator[Remark]:
    array, count = one["array"], one.get("failures") or 0
    if one["state"] == "given up":
        why = one.get("why") or "it failed again and again"
        yield Remark("trouble", f"It was given up: {why}.", f"Read 'bftrainer logs {array}'.")
    elif count:
        times = "once" if count == 1 else f"{count} times in a row"
        on = f" on {', '.join(one['failed_on'][:5])}" if one.get("failed_on") else ""
        yield Remark(
            "trouble" if count > 1 else "advice",
            f"It has failed {times}{on}.",
            f"Read its last output below, or all of it: 'bftrainer logs {array}'.",
        )


def _notices(one: Entry, free: int) -> Iterator[Remark]:
    """Quote the status: elements that never joined, why the trainer cannot grow."""
    if one["state"] in _OVER:
        return
    if one.get("notice") and not one.get("failures"):
        yield Remark("trouble", f"{one['notice']}.")
    if one.get("why"):
        yield Remark("advice", f"It cannot have more nodes now: {one['why']}.")
    if one.get("left_out"):
        yield Remark("advice", f"It does without {one['left_out']}.")


def _waiting(one: Entry, free: int) -> Iterator[Remark]:
    plan = one.get("plan")
    if not plan or plan["nodes"] or plan["usable"] >= plan["least"]:
        return
    yield Remark(
        "advice",
        f"It waits: it needs at least {size_of(plan, plan['least'])} and can use "
        f"{amount(plan, plan['usable'])} now.",
        "If it can train on fewer, submit it with a lower MIN (-N MIN-MAX).",
    )


def _size(one: Entry, free: int) -> Iterator[Remark]:
    if one["state"] in _OVER:
        return
    if len(one["nodes"]) >= one["max_nodes"]:
        more = f", and {counted(free, 'node', ARE)} free" if free else ""
        do = "If it scales further, submit it with a higher MAX (-N MIN-MAX)." if free else ""
        yield Remark(
            "advice" if free else "fact", f"It has its MAX of {nodes(one['max_nodes'])}{more}.", do
        )
    elif (one.get("plan") or {}).get("limit") == Limit.NO_GAIN.value:
        yield Remark(
            "advice",
            "By what was measured, more nodes would not make it faster.",
            "A larger batch on each node may scale better.",
        )


def _reclaims(one: Entry, free: int) -> Iterator[Remark]:
    hours, count = one.get("node_s", 0.0) / 3600, one.get("reclaimed", 0)
    if count >= _SEVERAL and count > _OFTEN * hours:
        yield Remark(
            "advice",
            f"Slurm took nodes back {count:,} times in {hours:,.1f} node-hours.",
            "Save checkpoints every few minutes, and when told to (docs/frameworks/index.md).",
        )
    elif count:
        times = "once" if count == 1 else f"{count:,} times"
        yield Remark("fact", f"Slurm took a node back {times} in {hours:,.1f} node-hours.")


def _rescales(one: Entry, free: int) -> Iterator[Remark]:
    cost = (one.get("rescale") or {}).get("up") or {}
    if cost.get("count") and cost["seconds"] > _SLOW_S:
        yield Remark(
            "advice",
            f"It stands still for {cost['seconds']:.0f} s whenever it grows.",
            "Read data and import less at the start of the script.",
        )


def _ranks(one: Entry, free: int) -> Iterator[Remark]:
    if (one.get("loss") or {}).get("other_ranks"):
        yield Remark(
            "advice",
            "It went on with another number of ranks: where its checkpoint counts batches or steps "
            "of an epoch, these mean other samples now, and some may be left out.",
            "If it does not do so yet, let it write down which samples it has seen, and skip these "
            "(docs/frameworks/ddp.md).",
        )


def _goodput(one: Entry, free: int) -> Iterator[Remark]:
    spent = one.get("goodput") or {}
    with_nodes_s = spent.get("with_nodes_s") or 0.0
    if with_nodes_s < _LONG_S or spent.get("trained_s") is None:
        return
    lost, rescaling = spent["lost_s"] / with_nodes_s, spent["rescaling_s"] / with_nodes_s
    if lost > _MUCH:
        yield Remark(
            "advice",
            f"It made no progress in {lost:.0%} of its time with nodes: it started, failed, hung.",
            f"'bftrainer logs {one['array']}' shows what it did then.",
        )
    if rescaling > _MUCH:
        yield Remark(
            "advice",
            f"It was rescaling in {rescaling:.0%} of its time with nodes.",
            "Ask for a narrower MIN-MAX.",
        )


def _reports(one: Entry, free: int) -> Iterator[Remark]:
    if one.get("refused_reports"):
        yield Remark(
            "advice",
            f"{one['refused_reports']} of its reports of progress were refused as impossible.",
            "Samples and steps must grow, but not faster than hardware allows.",
        )
    runs = one["state"] == "running" and "samples" in one
    long = (one.get("goodput") or {}).get("with_nodes_s", 0.0) >= _LONG_S
    if runs and long and one["samples"] is None and not one.get("notice"):
        yield Remark(
            "advice",
            "It does not report its samples, so the plan guesses how it scales.",
            "Call bftrainer_slurm.elastic.step(samples=...) after each step.",
        )


_CHECKS: tuple[Callable[[Entry, int], Iterator[Remark]], ...] = (
    *(_failures, _notices, _waiting, _size, _reclaims, _rescales, _ranks, _goodput, _reports),
)
