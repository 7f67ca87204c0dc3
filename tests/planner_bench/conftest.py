"""One node-level child for all tests that do not break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.planner_bench.apart import NodeLevel


@pytest.fixture(scope="session")
def node_level() -> Iterator[NodeLevel]:
    with NodeLevel() as child:
        yield child
