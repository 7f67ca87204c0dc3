"""What people run, unchanged, on a real cluster: nodes come and go, and it trains on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from tests.frameworks.training import Change, taken, training

pytestmark = [
    *(pytest.mark.frameworks, pytest.mark.slurm, pytest.mark.torch, pytest.mark.load),
    pytest.mark.timeout(900),
]
NODES = 3
SAVE_EVERY = 50
EXAMPLES = ("ddp", "huggingface", "accelerate", "lightning", "fsdp2")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with started_site(nodes=NODES) as running:
        yield running


def told(example: str, what: str, change: Change) -> None:
    print(
        f"\n{example}: {what}: stood still {change.stood_s:.1f} s, lost {change.lost} steps, "
        f"took {change.took_s:.1f} s",
        flush=True,
    )


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_trains_on_whatever_nodes_come_and_go(site: Site, example: str) -> None:
    with training(site, example, NODES, options=f"--save-every {SAVE_EVERY}") as running:
        with taken(site, 1) as since_s:
            reclaim = running.change(NODES - 1, since_s)
            told(example, "a node is reclaimed", reclaim)
        join = running.change(NODES, time.monotonic())
        told(example, "it joins", join)
        with taken(site, NODES):
            idle_s = time.monotonic()
        back = running.change(NODES, idle_s)
        told(example, "all were reclaimed, and are back", back)
        # What is saved last may have been torn by the reclaim, or not have reached the disk.
        assert all(change.lost <= 2 * SAVE_EVERY for change in (reclaim, join, back))
