"""Everything on the first control host is killed while two trainers train."""

from __future__ import annotations

import os

import pytest

from tests.chaos.failover import host_dies
from tests.chaos.hosts import started_hosts
from tests.chaos.run import begin, inject

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.once,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: hosts have networks"),
]


def test_trainers_train_on_and_grow_again_on_the_second_host() -> None:
    with started_hosts(4, 0, print) as (world, hosts):
        begin(world)
        outcome = inject(world, [("host-dies", host_dies(hosts))])
        assert outcome is not None and outcome.violations == []
