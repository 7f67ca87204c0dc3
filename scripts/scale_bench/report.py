"""What is said of a run: the targets, tables and the document. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.benchkit.figures import Summary, Target, at_most, summarise
from scripts.benchkit.machine import Machine
from scripts.benchkit.text import table
from scripts.scale_bench.course import Phase
from scripts.scale_bench.measure import Found, Program

SIMULATED = (
    "slurmctld, its nodes and the elements are simulated: a real one of this size cannot be had "
    "here.\nThe controller's daemon, its keeper, its planner and the clock are real."
)


@dataclass(frozen=True, slots=True)
class Acting:
    """How long a controller acted in a phase: from its first to its last request, in seconds.

    ``after_s`` is from the change to the last action, infinite where one was not dealt with.
    """

    seconds: float
    after_s: float


def phase(found: Found, name: str) -> Phase:
    """Return one of the phases. Raises KeyError: there is none of this name."""
    return {one.name: one for one in found.phases}[name]


def reactions(one: Phase) -> Summary | None:
    """Return how many seconds passed from changes to their last actions; None: there were none."""
    took = [change.took_s for change in one.changes if change.took_s is not None]
    return summarise(took) if took else None


def acting(one: Phase) -> Acting:
    """Return how long a burst took the controller."""
    first_s, last_s = one.acting_s or (0.0, 0.0)
    took = [change.took_s for change in one.changes]
    after_s = max((math.inf if one_s is None else one_s for one_s in took), default=math.inf)
    return Acting(last_s - first_s, after_s)


def targets(found: Found) -> list[Target]:
    """Hold what was measured to what was asked."""
    rest, busy = phase(found, "at rest"), phase(found, "ordinary jobs change")
    freed = phase(found, "nodes freed at once")
    taken = phase(found, "elements reclaimed at once")
    limited = sum(one.limited for one in found.phases)
    size = found.size
    return [
        at_most("processor s a look at rest, mean", _cpu(rest).mean, 0.1),
        at_most(
            f"processor s a look, {size.ordinary:,} ordinary jobs change", _cpu(busy).mean, 0.3
        ),
        at_most("MB read a look at rest, mean", _read_mb(rest).mean, 1.0),
        at_most(
            f"{size.joins:,} joins: s from the first request to the last", acting(freed).seconds, 10
        ),
        at_most(f"{size.joins:,} joins: RPCs", freed.rpcs, 60),
        at_most("RPCs that rl_enable would have turned away", limited, 0),
        at_most(
            f"{size.reclaims:,} reclaimed: s until the last is held again",
            acting(taken).after_s,
            121,
        ),
        at_most("elements that started by themselves after a reclaim", found.started_alone, 0),
    ]


def document(machine: Machine, found: Found) -> dict[str, Any]:
    """Return all of it, with every look and every change."""
    return {
        "machine": machine,
        "simulated": SIMULATED,
        "size": found.size,
        "phases": [_as_object(one) for one in found.phases],
        "full_look_bytes": found.full_look_bytes,
        "base_mb": found.base_mb,
        "empty_program": found.empty_program,
        "full_program": found.full_program,
        "failed_turns": found.failed_turns,
        "trouble": found.trouble,
        "status_bytes": found.status_bytes,
        "targets": targets(found),
    }


def tables(machine: Machine, found: Found) -> str:
    """Return all of it as text for a terminal."""
    size = found.size
    heading = (
        f"{size.nodes:,} nodes, {size.trainers:,} trainers of at most 64 nodes, about "
        f"{size.elements:,} running elements, {size.ordinary:,} ordinary jobs"
    )
    looks = (
        "PHASE",
        "MINUTES",
        "LOOKS",
        "CPU S",
        "P95",
        "MAX",
        "MB READ",
        "MAX",
        "RPCS A MIN",
        "DAEMON CPU %",
        "CHILDREN %",
        "RSS MB",
        "ELEMENTS",
    )
    changes = (
        "PHASE",
        "CHANGES",
        "PARTS",
        "DEALT WITH",
        "P50 S",
        "P95 S",
        "MAX S",
        "REQUESTS OVER S",
        "RPCS",
    )
    parts = [
        f"{machine}\n{SIMULATED}\n{heading}",
        "looks: processor time of a turn (reading, deciding, acting), without what is simulated\n"
        + table([looks, *map(_looks_row, found.phases)]),
        "from a change to the last action that it causes\n"
        + table([changes, *(_changes_row(one) for one in found.phases if one.changes)]),
        "beside\n" + table(_beside(found), "<>"),
        "\n".join(["targets", *map(str, targets(found))]),
    ]
    return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Spread:
    mean: float
    p95: float
    most: float


def _spread(values: Sequence[float]) -> _Spread:
    if not values:
        return _Spread(0.0, 0.0, 0.0)
    found = summarise(values)
    return _Spread(sum(values) / len(values), found.p95, found.most)


def _cpu(one: Phase) -> _Spread:
    return _spread([look.cpu_s for look in one.looks])


def _read_mb(one: Phase) -> _Spread:
    return _spread([look.read_bytes / 1e6 for look in one.looks])


def _looks_row(one: Phase) -> tuple[str, ...]:
    cpu, read, seconds = _cpu(one), _read_mb(one), max(1e-9, 60 * one.minutes)
    times = (f"{value:.3f}" for value in (cpu.mean, cpu.p95, cpu.most))
    return (
        one.name,
        f"{one.minutes:.1f}",
        str(len(one.looks)),
        *times,
        f"{read.mean:.2f}",
        f"{read.most:.2f}",
        f"{one.rpcs / one.minutes:.0f}",
        f"{100 * one.cpu_s / seconds:.1f}",
        f"{100 * one.children_cpu_s / seconds:.1f}",
        f"{one.rss_mb:.0f}",
        f"{one.elements:,}",
    )


def _changes_row(one: Phase) -> tuple[str, ...]:
    found, acted = reactions(one), acting(one)
    times = ("-", "-", "-")
    if found is not None:
        times = (f"{found.median:.1f}", f"{found.p95:.1f}", f"{found.most:.1f}")
    dealt = "0" if found is None else str(found.count)
    parts = f"{sum(change.size for change in one.changes):,}"
    return (
        one.name,
        str(len(one.changes)),
        parts,
        dealt,
        *times,
        f"{acted.seconds:.1f}",
        str(one.rpcs),
    )


def _beside(found: Found) -> list[tuple[str, str]]:
    first, last = found.phases[0], found.phases[-1]
    statuses = _spread([cpu_s for one in found.phases for cpu_s in one.statuses_cpu_s])
    return [
        ("a look that reads everything, MB", f"{found.full_look_bytes / 1e6:.2f}"),
        ("to run a program that prints nothing: processor ms", _ms(found.empty_program)),
        ("to run one that prints a full look: processor ms", _ms(found.full_program)),
        ("a status for users: processor s, mean", f"{statuses.mean:.3f}"),
        ("a status for users: MB", f"{found.status_bytes / 1e6:.2f}"),
        ("memory before the daemon starts (what is simulated), MB", f"{found.base_mb:.0f}"),
        ("memory after the start phase, MB", f"{first.rss_mb:.0f}"),
        ("memory at the end, MB", f"{last.rss_mb:.0f}"),
        ("memory, growth between, MB", f"{last.rss_mb - first.rss_mb:.0f}"),
        ("turns that failed", str(found.failed_turns)),
        ("trouble at the end", found.trouble or "none"),
    ]


def _ms(program: Program) -> str:
    return f"{1e3 * program.cpu_s:.1f}"


def _as_object(one: Phase) -> dict[str, Any]:
    return {
        "name": one.name,
        "minutes": one.minutes,
        "looks": one.looks,
        "statuses_cpu_s": one.statuses_cpu_s,
        "changes": [{"size": change.size, "took_s": change.took_s} for change in one.changes],
        "rpcs": one.rpcs,
        "limited": one.limited,
        "acting_s": acting(one).seconds,
        "cpu_s": one.cpu_s,
        "children_cpu_s": one.children_cpu_s,
        "rss_mb": one.rss_mb,
        "elements": one.elements,
    }
