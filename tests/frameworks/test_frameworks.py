"""What people run, unchanged, on a real cluster: nodes come and go, and it trains on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.benchkit.steps import StepLog
from scripts.labcluster.site import Site, started_site
from scripts.labcluster.waiting import wait_until
from tests.lab.test_training import training

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slurm,
    pytest.mark.once,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
]
NODES = 3
SAVE_EVERY = 50
SETTLED = 5  # steps
EXAMPLES = ("ddp", "huggingface", "accelerate", "lightning", "fsdp2")


@pytest.fixture
def site() -> Iterator[Site]:
    """One of its own: what the controller learns of one example, it would hold of the next."""
    with started_site(nodes=NODES) as running:
        yield running


def after(log: StepLog, what: str, world: int, since_s: float) -> int:
    """Wait until so many nodes train together; return how many steps the change since has lost."""

    def settled() -> bool:
        last = log.all()[-SETTLED * world :]
        together = all(step.world == world and step.time_s > since_s for step in last)
        return together and len(last) == SETTLED * world

    wait_until(settled, 600, f"{world} nodes do not train together")
    steps = log.all()
    first = next(step for step in steps if step.time_s > since_s and step.world == world)
    before = [step for step in steps if step.time_s < first.time_s]
    lost = max((step.number for step in before), default=0) - first.number + 1
    took_s = first.time_s - since_s
    stood_s = first.time_s - before[-1].time_s if before else took_s
    print(f"\n{what}: stood still {stood_s:.1f} s, lost {lost} steps, took {took_s:.1f} s")
    return lost


def lost(site: Site, example: str, options: str, spec: str = "") -> list[int]:
    """A node is reclaimed and comes back, then all; the steps that each of these has lost."""
    train = site.stage.repo / "examples" / "frameworks" / example / "train.py"
    command = f"torchrun {train} --steps 1000000 {options} --folder"
    what, folder = f"{example} {options}", site.folder()
    shutil.copy(Path(__file__).with_name("recorder.py"), folder)
    records = f"export BFTRAINER_PRELOAD=recorder PYTHONPATH=$PYTHONPATH:{folder}"
    with training(site, f"1-{NODES}", records, command, f"--bftrainer={spec}") as trainer:
        log = StepLog(trainer.folder / "steps")
        after(log, f"{what}, it begins", NODES, time.monotonic())
        with site.taken(1) as since_s:
            reclaim = after(log, f"{what}, a node is reclaimed", NODES - 1, since_s)
        join = after(log, f"{what}, it joins", NODES, time.monotonic())
        with site.taken(NODES):
            pass
        back = after(log, f"{what}, all were reclaimed, and are back", NODES, time.monotonic())
    return [reclaim, join, back]


@pytest.mark.parametrize("example", EXAMPLES)
def test_unchanged_it_loses_at_most_what_it_has_not_saved(site: Site, example: str) -> None:
    # What was being saved as the node went does not count yet.
    assert max(lost(site, example, f"--save-every {SAVE_EVERY}")) <= 2 * SAVE_EVERY


@pytest.mark.parametrize("example", EXAMPLES)
def test_where_it_saves_when_told_it_loses_nothing(site: Site, example: str) -> None:
    options = "--save-when-told --save-every 1000000"
    assert lost(site, example, options, "grace=20") == [0, 0, 0]
