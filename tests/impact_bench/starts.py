"""Made ordinary jobs, so that figures can be told by heart."""

from __future__ import annotations

from scripts.demonstration.stream import OrdinaryJob
from scripts.impact_bench.course import Account, Start


def start(
    submit_s: float = 0.0,
    delay_s: float | None = 0.1,
    runs_s: float = 5.0,
    nodes: int = 1,
    number: int = 1,
    state: str = "COMPLETED",
    restarts: int = 0,
    on: tuple[str, ...] = (),
    gpus: int = 0,
) -> Start:
    """Return a job that started so long after its submission; None: never."""
    start_s = None if delay_s is None else submit_s + delay_s
    return Start(
        OrdinaryJob(submit_s, nodes, runs_s, gpus=gpus),
        number,
        submit_s,
        start_s,
        None if start_s is None else start_s + runs_s,
        Account(state, restarts, on),
    )
