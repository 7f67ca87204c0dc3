"""What people run, unchanged, on a real cluster: nodes come and go, and it trains on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, started_site
from tests.frameworks.training import Change, lent, training

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slurm,
    pytest.mark.once,
    pytest.mark.nightly,
    pytest.mark.timeout(3600),
]
NODES = 3
SAVE_EVERY = 50
EXAMPLES = ("ddp", "huggingface", "accelerate", "lightning", "fsdp2")


@pytest.fixture
def site() -> Iterator[Site]:
    """One of its own: what the controller learns of one example, it would hold of the next."""
    with started_site(nodes=NODES) as running:
        yield running


def told(example: str, what: str, change: Change) -> None:
    print(
        f"\n{example}: {what}: stood still {change.stood_s:.1f} s, lost {change.lost} steps, "
        f"took {change.took_s:.1f} s",
        flush=True,
    )


def lived_through(site: Site, example: str, what: str, **options: str) -> list[Change]:
    """A node is reclaimed and comes back, then all; what each of these has cost."""
    with training(site, example, NODES, **options) as running:
        with site.taken(1) as since_s:
            reclaim = running.change(NODES - 1, since_s)
            told(example, f"{what}, a node is reclaimed", reclaim)
        join = running.change(NODES, time.monotonic())
        told(example, f"{what}, it joins", join)
        back = running.change(NODES, lent(site, NODES))
        told(example, f"{what}, all were reclaimed, and are back", back)
    return [reclaim, join, back]


@pytest.mark.parametrize("example", EXAMPLES)
def test_unchanged_it_loses_at_most_what_it_has_not_saved(site: Site, example: str) -> None:
    changes = lived_through(site, example, "unchanged", options=f"--save-every {SAVE_EVERY}")
    # What was being saved as the node went does not count yet.
    assert all(change.lost <= 2 * SAVE_EVERY for change in changes)


@pytest.mark.parametrize("example", EXAMPLES)
def test_where_it_saves_when_told_it_loses_nothing(site: Site, example: str) -> None:
    options = "--save-when-told --save-every 1000000"
    changes = lived_through(site, example, "saves when told", options=options, spec="grace=20")
    assert [change.lost for change in changes] == [0, 0, 0]
