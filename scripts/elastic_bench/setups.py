"""The three measured ways for a trainer to follow changes of its nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setup:
    """One way: which rendezvous, which script, and whether a leave can be planned."""

    name: str
    title: str
    backend: str
    script: str
    parts: bool  # whether the controller can ask for a leave at a step boundary


SETUPS = {
    one.name: one
    for one in (
        Setup("c10d", "stock c10d, tuned", "c10d", "plain", parts=False),
        Setup("handler", "our rendezvous, script unchanged", "bftrainer", "plain", parts=True),
        Setup("inprocess", "in-process", "bftrainer", "inprocess", parts=True),
    )
}
