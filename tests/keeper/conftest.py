from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.labcluster.keeper import Keeper, started_keeper


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    with started_keeper(tmp_path) as running:
        yield running
