"""One user floods the keeper while another's trainer rescales: the other is not starved.

How long exactly a rescale takes then, ``scripts/run bench-keeper`` measures.
"""

from __future__ import annotations

import asyncio

from scripts.keeper_bench.agents import many_files
from scripts.keeper_bench.command import site_keeper
from scripts.keeper_bench.flood import (
    ARRAY,
    FLOODER,
    FLOODERS_ARRAY,
    NODES,
    VICTIM,
    flooded,
    rescales,
)

STARVED_S = 30.0


def test_a_flood_of_all_kinds_starves_nobody_else() -> None:
    with many_files(), site_keeper() as (keeper, key):
        keeper.client.own(ARRAY, VICTIM, NODES)
        keeper.client.own(FLOODERS_ARRAY, FLOODER, 256)
        with flooded("all at once", keeper.address, key):
            found = asyncio.run(rescales(keeper, key.read_bytes(), 3))
    assert max(found.losses_s + found.joins_s) < STARVED_S
