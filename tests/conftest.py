from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.lab_fixture import Lab, slurm_is_missing, started_lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = slurm_is_missing()
    if reason is not None:
        for item in items:
            if item.get_closest_marker("slurm"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A cluster of eight nodes that tests share: each leaves it as it found it."""
    with started_lab(nodes=8) as running:
        yield running


@pytest.fixture(scope="session")
def make_lab() -> Iterator[Callable[..., Lab]]:
    """Starts further clusters with options of their own; they are ended with the session."""
    with ExitStack() as stack:

        def make(**options: object) -> Lab:
            return stack.enter_context(started_lab(**options))  # type: ignore[arg-type]

        yield make
