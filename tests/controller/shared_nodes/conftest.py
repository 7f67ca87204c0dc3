"""A site of two nodes with 8 GPUs, 16 cores and 8000 MB each, where trainers have parts.

It accounts and preempts by QOS (slurmdbd), and keeps jobs from GPUs of others where this host can.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster import gpus
from scripts.labcluster.site import Site, started_site
from tests.controller.sites import leave_nothing

KILL_WAIT_S = 120
GPUS = 8
CONF = ("DefMemPerGPU=700", "DefCpuPerGPU=2", "DefMemPerCPU=400")


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    options = {"share": True, "qos": True, "kill_wait": KILL_WAIT_S, "conf": CONF}
    with started_site(2, gpus=GPUS, confine=gpus.obstacle() is None, **options) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(site: Site) -> Iterator[None]:
    yield
    leave_nothing(site)
