"""When an element may start again on the node that it has just left, on a real cluster.

slurmd refuses a launch whose credential is not younger than the end of the last one, by the second
(22.05, 24.11; from 26.05 on each run has a credential of its own). slurmctld then books a failure
of the script: FAILED, NonZeroExitCode, exit status 1, begun and ended in the second of its requeue.
"""

from __future__ import annotations

import time

import pytest

from bftrainer_slurm.model import ElementId, ElementState
from scripts.labcluster.waiting import wait_until
from tests.slurm.conftest import Bench, ordinary

# All gateways act alike; this is of Slurm, so it is looked at through one of them.
pytestmark = [pytest.mark.slurm, pytest.mark.parametrize("gateway", ["look"], indirect=True)]
ROUNDS = 3


def wait_for(bench: Bench, array: int, state: ElementState) -> None:
    """Return a second after an element was seen in this state."""
    bench.wait_for(array, state, 0)
    seen_s = time.monotonic()
    wait_until(lambda: time.monotonic() >= seen_s + 1)


@pytest.mark.parametrize("reclaimed", [False, True], ids=["held", "reclaimed"])
def test_a_second_after_it_was_seen_to_have_left_it_starts_there_again(
    bench: Bench, reclaimed: bool
) -> None:
    array = bench.submit(script="exec sleep 600")
    for _ in range(ROUNDS):
        bench.run_on(array, 0, "n1")
        wait_until(lambda: time.time() % 1 < 0.1)  # a new second
        if not reclaimed:
            bench.gateway.shrink([ElementId(array, 0)])
            wait_for(bench, array, ElementState.HELD)
            continue
        job = ordinary(bench, "--nodelist=n1")
        wait_for(bench, array, ElementState.DELAYED)
        bench.lab.run("scancel", str(job), user="root")
        wait_until(lambda: not bench.gateway.queue().ordinary_nodes)
    bench.run_on(array, 0, "n1")
