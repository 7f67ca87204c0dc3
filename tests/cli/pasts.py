"""A history as the controller writes it, for tests of what commands make of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from bftrainer_slurm.controller.observe.reports import Work
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.measurements import Job, Measurements
from bftrainer_slurm.model import ElementId
from tests.controller.worlds import trainer

HOSTILE = "re$net <b>\x1b[2J\n13 forged"


def write_past(folder: Path, name: str = "digits", now_s: float | None = None) -> float:
    """Write a trainer's last hour into ``history.sqlite``; return when it was submitted.

    12 of alice had nodes n1 and n2 from ten minutes later on, lost n2 to an ordinary job after half
    an hour, and has n1 still. 13 and 14 of bob, of one name, have ended; they had parts of a node.
    """
    now_s = time.time() if now_s is None else now_s
    history, began_s = History(folder / "history.sqlite"), now_s - 3600
    history.meet(replace(trainer(), name=name, submit_s=began_s), now_s)
    for task, node in enumerate(("n1", "n2")):
        history.begin_allocation(ElementId(12, task), node, began_s + 600)
    history.end_allocation(ElementId(12, 1), began_s + 1800, "reclaimed")
    for minute in range(11, 60):
        Measurements(history).add_progress(12, began_s + 60 * minute, 1000.0 * minute)
    Measurements(history).add_pause(Job("alice", name), 12, began_s + 1802, 1, 1.75, None)
    Measurements(history).keep(12, Work(began_s, now_s, 2900.0, 1.75, 2))
    ends = ((13, 2, 8, "it failed 3 times\nImportError: bob's secret"), (14, 4, 0, "finished"))
    for array, gpus, node_gpus, why in ends:
        bobs = replace(trainer(), array=array, user="bob", name="resnet", submit_s=began_s - 7200)
        history.meet(bobs, now_s)
        history.begin_allocation(ElementId(array, 0), "n3", began_s - 7100, gpus, node_gpus)
        history.end_allocation(ElementId(array, 0), began_s - 3500, "ended")
        history.end(array, why)
    history.close()
    return began_s
