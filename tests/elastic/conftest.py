from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.keeper import Keeper, started_keeper


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    state = tmp_path / "state"
    state.mkdir()
    with started_keeper(state) as running:
        yield running
