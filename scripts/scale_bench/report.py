"""The report of a run: its targets, tables and document. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scripts.benchkit.figures import Summary, Target, at_most, summarise
from scripts.benchkit.text import columns, table
from scripts.scale_bench.course import Phase
from scripts.scale_bench.measure import Found

SIMULATED = (
    "slurmctld, its nodes and the elements are simulated, because this host cannot run so many.\n"
    "The controller's daemon, its keeper, its planner and the clock are real."
)


def phase(found: Found, name: str) -> Phase:
    """Return the phase of this name. Raises KeyError: there is none."""
    return {one.name: one for one in found.phases}[name]


def after_s(one: Phase) -> float:
    """Return the time from a burst to its last action; infinite if a part was not dealt with."""
    dealt_with = len(one.reactions_s) == len(one.changes) > 0
    return max(one.reactions_s) if dealt_with else math.inf


def targets(found: Found) -> list[Target]:
    """Return the targets, met or missed."""
    rest, busy = phase(found, "at rest"), phase(found, "ordinary jobs change")
    freed = phase(found, "nodes freed at once")
    reclaimed = {
        "neighbours": phase(found, "neighbours reclaimed at once"),
        "scattered elements": phase(found, "scattered ones reclaimed"),
    }
    size = found.size
    limited = [
        at_most("RPCs that rl_enable turns away", sum(one.limited for one in found.phases), 0)
    ]
    return [
        at_most("processor s a look at rest, mean", _cpu(rest).mean, 0.1),
        at_most(
            f"processor s a look, {size.ordinary:,} ordinary jobs change", _cpu(busy).mean, 0.3
        ),
        at_most("MB read a look at rest, mean", _read_mb(rest).mean, 1.0),
        at_most(f"{size.joins:,} joins: s from the first request to the last", freed.acting_s, 10),
        at_most(f"{size.joins:,} joins: RPCs", freed.rpcs, 60),
        *(limited if size.rl_enable else []),
        *(
            at_most(
                f"{size.reclaims:,} {who} reclaimed: s until the last is held", after_s(one), 121
            )
            for who, one in reclaimed.items()
        ),
        *(
            at_most(f"{who} that started by themselves after it", one.started_alone, 0)
            for who, one in reclaimed.items()
        ),
    ]


def tables(found: Found) -> list[str]:
    """Return the report's tables, without the targets."""
    size = found.size
    heading = (
        f"{size.nodes:,} nodes, {size.trainers:,} trainers of at most 64 nodes, about "
        f"{size.elements:,} running elements, {size.ordinary:,} ordinary jobs; "
        f"bf_interval={size.bf_interval_s}{', rl_enable' * size.rl_enable}"
    )
    changed = [one for one in found.phases if one.changes]
    return [
        f"{SIMULATED}\n{heading}",
        "looks: processor time of a turn (reading, deciding, acting), without what is simulated\n"
        + columns(found.phases, _LOOKS),
        f"from a change to the last action that it causes\n{columns(changed, _CHANGES)}",
        "beside\n" + table(_beside(found), "<>"),
    ]


def _cpu(one: Phase) -> Summary:
    return summarise([look.cpu_s for look in one.looks] or [0.0])


def _read_mb(one: Phase) -> Summary:
    return summarise([look.read_bytes / 1e6 for look in one.looks] or [0.0])


def _reaction(what: str) -> Callable[[Phase], str]:
    """Return a function that formats one figure of a phase's reaction times."""

    def text(one: Phase) -> str:
        took_s = one.reactions_s
        return f"{getattr(summarise(took_s), what):.1f}" if took_s else "-"

    return text


_LOOKS: Sequence[tuple[str, Callable[[Phase], str]]] = (
    ("PHASE", lambda one: one.name),
    ("MINUTES", lambda one: f"{one.minutes:.1f}"),
    ("LOOKS", lambda one: str(len(one.looks))),
    ("CPU S", lambda one: f"{_cpu(one).mean:.3f}"),
    ("P95", lambda one: f"{_cpu(one).p95:.3f}"),
    ("MAX", lambda one: f"{_cpu(one).most:.3f}"),
    ("MB READ", lambda one: f"{_read_mb(one).mean:.2f}"),
    ("MAX", lambda one: f"{_read_mb(one).most:.2f}"),
    ("RPCS A MIN", lambda one: f"{one.rpcs / one.minutes:.0f}"),
    ("DAEMON CPU %", lambda one: f"{one.cpu_s / one.minutes / 0.6:.1f}"),
    ("CHILDREN %", lambda one: f"{one.children_cpu_s / one.minutes / 0.6:.1f}"),
    ("RSS MB", lambda one: f"{one.rss_mb:.0f}"),
    ("ELEMENTS", lambda one: f"{one.elements:,}"),
)
_CHANGES: Sequence[tuple[str, Callable[[Phase], str]]] = (
    ("PHASE", lambda one: one.name),
    ("CHANGES", lambda one: str(len(one.changes))),
    ("PARTS", lambda one: f"{sum(change.size for change in one.changes):,}"),
    ("DEALT WITH", lambda one: str(len(one.reactions_s))),
    ("P50 S", _reaction("median")),
    ("P95 S", _reaction("p95")),
    ("MAX S", _reaction("most")),
    ("REQUESTS OVER S", lambda one: f"{one.acting_s:.1f}"),
    ("RPCS", lambda one: str(one.rpcs)),
)


def _beside(found: Found) -> list[tuple[str, str]]:
    first, last = found.phases[0], found.phases[-1]
    empty_ms, full_ms = (1e3 * one.cpu_s for one in (found.empty_program, found.full_program))
    statuses = summarise([cpu_s for one in found.phases for cpu_s in one.statuses_cpu_s] or [0.0])
    return [
        ("a look that reads everything, MB", f"{found.full_look_bytes / 1e6:.2f}"),
        (
            "to run a program that prints nothing: processor ms",
            f"{empty_ms:.1f}",
        ),
        (
            "to run one that prints a full look: processor ms",
            f"{full_ms:.1f}",
        ),
        ("a status for users: processor s, mean", f"{statuses.mean:.3f}"),
        ("a status for users: MB", f"{found.status_bytes / 1e6:.2f}"),
        ("memory before the daemon starts (what is simulated), MB", f"{found.base_mb:.0f}"),
        ("memory after the start phase, MB", f"{first.rss_mb:.0f}"),
        ("memory at the end, MB", f"{last.rss_mb:.0f}"),
        ("memory, growth between, MB", f"{last.rss_mb - first.rss_mb:.0f}"),
        ("turns that failed", str(found.failed_turns)),
        ("trouble at the end", found.trouble or "none"),
    ]
