"""torch's stores for stock c10d, and the process that hosts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from bftrainer_slurm.keeper.stores import Run, Stores
from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.torch


@pytest.fixture
def stores() -> Iterator[Stores]:
    made = Stores("127.0.0.1")
    yield made
    made.stop()


def reached(run: Run, timeout_s: float = 60.0) -> TCPStore:
    return TCPStore(
        run.host,
        run.port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
    )


def host_of(stores: Stores) -> int:
    process = stores._stores._process
    assert process is not None
    return process.pid


def test_the_keeper_itself_does_without_torch() -> None:
    program = "import sys, bftrainer_slurm.keeper.__main__; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "False\n"


def test_a_store_can_be_reached_before_its_process_has_imported_torch(stores: Stores) -> None:
    reached(stores.run(7)).set("key", "value")
    assert reached(stores.run(7)).get("key") == b"value"


def test_a_run_that_ended_has_no_store_and_the_next_has_another(stores: Stores) -> None:
    first = stores.run(7)
    reached(first)
    stores.end(7)

    def is_closed() -> bool:
        try:
            reached(first, 1.0)
        except DistError:
            return True
        return False

    wait_until(is_closed)
    second = stores.run(7)
    assert (first.id, second.id) == ("7.1", "7.2")
    reached(second)


def test_when_the_process_dies_the_next_element_begins_another_run(stores: Stores) -> None:
    stores.run(7)
    os.kill(host_of(stores), signal.SIGKILL)
    wait_until(lambda: stores.run(7).id == "7.2")
    reached(stores.run(7))


def test_the_process_ends_with_the_keeper(stores: Stores) -> None:
    process = stores._stores._process
    assert process is not None
    assert stores._stores._channel is not None
    stores._stores._channel.close()  # as the keeper's end does, however it comes
    process.wait(60)
