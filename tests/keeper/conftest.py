from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.keeper.process import KeeperProcess, started_keeper


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[KeeperProcess]:
    with started_keeper(tmp_path) as running:
        yield running
