from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site


@pytest.fixture
def nothing_is_left(site: Site) -> Iterator[None]:
    """Ends what a test leaves on its site, so that the next one finds all nodes idle."""
    yield
    for user in ("alice", "bob"):
        site.run("scancel", "--me", user=user)
    site.lab.wait_until_idle()
