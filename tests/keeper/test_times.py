"""How long the keeper waits for whom, and for whom no time limit counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from bftrainer_slurm.keeper.messages import (
    Change,
    Dropped,
    Engaged,
    Generation,
    Measured,
    Role,
    StoreAt,
    Turn,
)
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.sizes import Sizes
from tests.keeper.simulated import (
    JOIN,
    LEADS,
    LOSS,
    Told,
    World,
    agent,
    controller,
    is_like,
    script,
    started,
)

BATCH = Role.BATCH


class Row(NamedTuple):
    """So many seconds after this has happened, who is told what, or a message of which kind."""

    seconds: float
    world: Callable[[], World]
    who: Told
    what: object

    def is_told(self, world: World) -> bool:
        return any(is_like(one, self.what) for one in self.who(world))


# For whom the keeper waits.
LIMITS = {
    # The first group.
    "nodes of the plan": Row(10, lambda: World(3).start(1), agent(1), Generation),
    "nodes of the plan, where fewer make an allowed size": Row(
        10, lambda: World(4, Sizes((2, 4, 8))).start(1, 2, 3), agent(1), Generation
    ),
    "more nodes, where the plan is not known": Row(
        1, lambda: World().start(1), agent(1), Generation
    ),
    "rank 0, which opens no store": Row(60, lambda: World(2).start(1, 2), agent(1), Dropped),
    # A change.
    "newcomers that are not warm yet": Row(
        3, lambda: started(1).start(2, 3, ready=False).ready(2), agent(1), JOIN
    ),
    "one that is not ready, since the first was": Row(
        300, lambda: started(2).start(3).wait(200).ready(1), agent(2), Dropped
    ),
    "all that are not ready, since a loss": Row(300, lambda: started(3).kill(3), agent(1), Dropped),
    "those that were told of a store, since a loss": Row(
        300, lambda: World(3).start(1, 2, 3).say(1, StoreAt("n:1001", 1)).kill(3), agent(2), Dropped
    ),
    "rank 0 alone, which has opened no store, since a loss": Row(
        300, lambda: World(3).start(1, 2, 3).kill(3), agent(2), Generation
    ),
    # After the keeper was away, or all were cut off.
    "others of the group that come back to the next keeper": Row(
        10, lambda: World().back(0), agent(0), LOSS
    ),
    "others of the group that come back after all were cut off": Row(
        10, lambda: started(2).cut(1, 2).come_back(1), agent(1), LOSS
    ),
    "any that come back, before the first group": Row(
        10, lambda: World(1, hold_s=10).start(1), agent(1), Generation
    ),
    "any that come back, before the script": Row(
        10, lambda: World(hold_s=10).batch(1), script(1), Turn("lead")
    ),
    "a later group, before one of an earlier group changes": Row(
        10, lambda: World(3, hold_s=10).back(0, number=5, size=1).start(7), agent(0), JOIN
    ),
    # What the controller is told.
    "a loss that explains a failure": Row(
        2, lambda: started(1).ready(1, cause="failed"), controller, NoteKind.FAILED
    ),
    "one that is cut off, while somebody waits": Row(
        30, lambda: started(1).cut(1).start(3), controller, NoteKind.CUT
    ),
    "one that is cut off, while the others go on": Row(
        30, lambda: started(3).cut(3).ready(1, 2), controller, NoteKind.CUT
    ),
    "one whose script others wait for": Row(
        30, lambda: World().batch(0, LEADS).batch(1).cut(0, role=BATCH), controller, NoteKind.CUT
    ),
    "one that is heard again, and does not stand still": Row(
        300, lambda: started(1).cut(1).start(3).start(1, ready=False), controller, NoteKind.CUT
    ),
    "one of whom the controller was told": Row(
        300, lambda: started(1).cut(1).start(3).wait(30).quiet(), controller, NoteKind.CUT
    ),
}


@pytest.mark.parametrize("row", LIMITS.values(), ids=LIMITS)
def test_so_long_is_waited_for(row: Row) -> None:
    world = row.world()
    assert not row.is_told(world.wait(row.seconds - 0.1))
    assert row.is_told(world.wait(0.2))


# For whom it waits without a limit.
NO_LIMIT = {
    "a newcomer that is not warm": Row(
        10_000, lambda: started(1).start(2, ready=False), agent(1), Change
    ),
    "a newcomer that makes no allowed size": Row(
        10_000, lambda: started(2, Sizes(step=2)).start(3), agent(1), Change
    ),
    "a validation that takes long": Row(10_000, lambda: started(2).start(3), agent(1), Dropped),
    "one that is to leave and ready, for those that stay": Row(
        10_000, lambda: started(2).part(1).start(3).ready(1), agent(2), Dropped
    ),
    "those that are all back at the next keeper": Row(
        10_000, lambda: World(2, engaged=Engaged(7, frozenset({0, 1}))).back(0, 1), agent(0), object
    ),
    "a group that is cut off, for the first of another": Row(
        10_000, lambda: started(2).cut(1, 2).start(3).lost(1, "n9"), agent(3), Generation
    ),
    "a group of which the controller knows, at the next keeper": Row(
        10_000, lambda: World(1, engaged=Engaged(5, frozenset({1}))).start(3), agent(3), Generation
    ),
    "a group of which the controller knows, for one of an earlier group": Row(
        10_000,
        lambda: World(2, engaged=Engaged(9, frozenset({1, 2}))).back(0, number=5, size=1).ready(0),
        agent(0),
        Generation,
    ),
    "who runs the script and is cut off": Row(
        10_000, lambda: World().batch(0, LEADS).batch(1).cut(0, role=BATCH), script(1), Turn("lead")
    ),
    "who ran the script, as the controller knows, at the next keeper": Row(
        10_000, lambda: World(engaged=Engaged(leader=1)).batch(3), script(3), Turn("lead")
    ),
    "one whose script others wait for, and that is heard again": Row(
        10_000,
        lambda: World().batch(0, LEADS).batch(1).cut(0, role=BATCH).wait(29).batch(0, LEADS),
        *(controller, NoteKind.CUT),
    ),
    "those that are cut off, while nobody waits": Row(
        10_000, lambda: started(2).cut(1, 2), controller, NoteKind.CUT
    ),
}


@pytest.mark.parametrize("row", NO_LIMIT.values(), ids=NO_LIMIT)
def test_no_time_ends_the_wait_for(row: Row) -> None:
    assert not row.is_told(row.world().wait(row.seconds))


def test_after_failures_in_a_row_without_a_step_the_next_group_comes_later_and_later() -> None:
    world = started(1).ready(1, cause="failed")
    pauses = []
    for steps in (0.0,) * 6 + (5.0,) * 3:
        before_s = world.now_s
        while not world[1].inbox:
            world.wait(world.run.due_s() - world.now_s)
        pauses.append(world.now_s - before_s)
        world.hear().say(1, Measured((("steps", steps),))).ready(1, cause="failed")
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 0, 1], "until there are more steps than before"
