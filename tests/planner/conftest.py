"""One planner for all tests that do not break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrainer_slurm.planner.solver import Planner


@pytest.fixture(scope="session")
def planner() -> Iterator[Planner]:
    with Planner(time_limit_s=50.0) as planner:
        planner.warm_up()
        yield planner
