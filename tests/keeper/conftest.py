from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.keeper import Keeper, started_keeper
from tests.keeper.inside import Inside, keeper_inside


@pytest.fixture
def keeper() -> Iterator[Inside]:
    with keeper_inside() as running:
        yield running


@pytest.fixture
def keeper_process(tmp_path: Path) -> Iterator[Keeper]:
    with started_keeper(tmp_path) as running:
        yield running
