"""How members get into generations, and what ends them: no sockets, virtual time.

What holds in any order of events is in ``test_any_order``, time limits are in ``test_times``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from bftrainer_slurm.keeper import rendezvous
from bftrainer_slurm.keeper.batches import Batches
from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Batch,
    Change,
    Done,
    Dropped,
    Finished,
    Finishing,
    Generation,
    HangUp,
    Held,
    Identity,
    Leave,
    Left,
    Measured,
    Released,
    Role,
    Send,
    Turn,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import WITHOUT_YOU, Rendezvous
from bftrainer_slurm.sizes import Sizes
from scripts.labcluster.stage import REPO
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

DOCS = REPO / "docs" / "internals" / "keeper.md"


def test_the_states_in_the_docs_are_those_of_the_code() -> None:
    code = list[list[str]]()
    for line in (rendezvous.__doc__ or "").split("===  ===")[-3].splitlines()[1:-1]:
        cells = [line[:13].strip(), line[13:49].strip(), line[49:].strip()]
        if cells[0]:
            code.append(cells)
        else:
            code[-1] = [f"{one} {more}".strip() for one, more in zip(code[-1], cells, strict=True)]
    docs = [row for row in DOCS.read_text().splitlines() if row.count(" | ") == 2]
    assert [f"| {' | '.join(cells)} |".replace("``", "`") for cells in code] == docs[1:5]


class Event(NamedTuple):
    """What has happened, and all that one is told of it: messages, or of which kinds."""

    world: Callable[[], World]
    who: Told
    told: list[object]


STEP = Batch("leads", 0, "c3RlcA==")
LEAVE, ANEW = Change(planned=False, why="leave"), Dropped(WITHOUT_YOU)
ENDED = Change(planned=False, why="finished")
EVENTS = {
    # A group begins, and grows.
    "one of the planned nodes is ready: nothing": Event(lambda: World(2).start(1), agent(1), []),
    "all of the planned nodes are ready": Event(
        lambda: World(2).start(1, 2), agent(1), [Generation]
    ),
    "the last of several newcomers is warm": Event(
        lambda: started(1).start(2, 3, ready=False).ready(2).wait(2).ready(3), agent(1), [JOIN]
    ),
    # It loses members.
    "a node is lost": Event(lambda: started(3).kill(2), agent(1), [LOSS]),
    "Slurm says that a task is gone": Event(lambda: started(2).lost(1, "n1"), agent(2), [LOSS]),
    "Slurm says that it is gone from another node: nothing": Event(
        lambda: started(2).lost(1, "n9"), agent(2), []
    ),
    "another process comes in a member's place": Event(
        lambda: started(2).start(2, ready=False), agent(1), [LOSS]
    ),
    # Members leave.
    "one is to leave": Event(lambda: started(3).part(1).settle(8), agent(1), [Change, Released]),
    "another one is to leave": Event(
        lambda: started(3).part(1).settle(8), agent(2), [Change, Generation]
    ),
    "all are to leave": Event(
        lambda: started(2).part(1, 2).settle(8), agent(2), [Change, Released]
    ),
    "a newcomer is to leave": Event(
        lambda: started(1).start(2, ready=False).part(2), agent(2), [Released()]
    ),
    "one has got SIGTERM": Event(lambda: started(2).say(2, Leave()), agent(2), [Released()]),
    "one of the others has got SIGTERM": Event(
        lambda: started(2).say(2, Leave()), agent(1), [LEAVE]
    ),
    "one of the others says that it has left": Event(
        lambda: started(2).say(2, Left()), agent(1), [LOSS]
    ),
    "one says twice that it has left": Event(
        lambda: World(1).start(1, ready=False).part(1).say(1, Left()).say(1, Left()),
        *(controller, [NoteKind.LEFT]),
    ),
    "one says that it has left another keeper": Event(
        lambda: World(1).start(1, ready=False).say(1, Left()), controller, [NoteKind.LEFT]
    ),
    # The training ends.
    "one of the others has ended well: nothing": Event(
        lambda: started(2).say(1, Done()), agent(2), []
    ),
    "one has ended well": Event(lambda: started(2).say(1, Done()), controller, [NoteKind.FINISHED]),
    "all others have ended, as one is not warm yet": Event(
        lambda: started(1).start(2, ready=False).say(1, Done()), agent(2), [Finished()]
    ),
    "one comes as others have ended": Event(
        lambda: started(2).say(1, Finishing()).start(3), agent(3), [Finished()]
    ),
    "one comes when all have ended": Event(
        lambda: started(2).say(1, Done()).say(2, Done()).start(3), agent(3), [Finished()]
    ),
    "others have ended, and one is lost, as one saves: nothing": Event(
        lambda: started(3).say(2, Finishing()).start(4).kill(3), agent(1), []
    ),
    "all that are not lost have ended": Event(
        lambda: started(3).say(1, Finishing()).say(2, Finishing()).kill(3), agent(1), [ENDED]
    ),
    "one fails as another one has ended": Event(
        lambda: started(2).say(1, Finishing()).ready(2, cause="failed"), agent(2), [Finished()]
    ),
    "and no failure of the script": Event(
        lambda: started(2).say(1, Finishing()).ready(2, cause="failed").wait(10), controller, []
    ),
    "the script runs the program again": Event(
        lambda: started(1).say(1, Done()).start(1).wait(10), agent(1), [Generation]
    ),
    # Members come back.
    "one is back at the next keeper, and there is a newcomer: nothing": Event(
        lambda: World().back(0).start(5).wait(5), agent(0), []
    ),
    "the last one is back, too": Event(
        lambda: World().back(0).start(5).wait(5).back(1), agent(0), [JOIN]
    ),
    "all nodes of the plan are back": Event(
        lambda: World(2, hold_s=10).back(0, 1).start(7), agent(0), [JOIN]
    ),
    "a change was announced as one was not heard": Event(
        lambda: started(2).start(3).quiet().come_back(1), agent(1), [JOIN]
    ),
    "the others have formed another group": Event(
        lambda: started(2).cut(1).settle(4).quiet().come_back(1), agent(1), [ANEW]
    ),
    "one holds a place that nobody has": Event(
        lambda: started(2).back(9, number=1, size=12), agent(9), [ANEW]
    ),
    # With the batch script.
    "the first agent of the script's step comes": Event(
        lambda: World(2).batch(1, LEADS).quiet().start(1, ready=False, step=3),
        *(script(1), [Turn("trains", 3)]),
    ),
    "a step of the script has ended": Event(
        lambda: World(1).batch(1, STEP).start(1).say(1, Done()).cut(1).start(2, ready=False),
        *(agent(2), [Finished()]),
    ),
    # The first srun of a script that runs again may be another one then.
    "one of several steps at a time has ended: nothing": Event(
        lambda: (
            World(1)
            .batch(1, replace(STEP, beside=True))
            .start(1)
            .say(1, Done())
            .cut(1)
            .start(2, ready=False)
        ),
        *(agent(2), []),
    ),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_of_this_one_is_told_at_once(event: Event) -> None:
    told = event.who(event.world())
    assert len(told) == len(event.told), told
    assert all(map(is_like, told, event.told)), told


def test_after_a_loss_the_longest_serving_go_on_at_once_in_their_order_at_an_allowed_size() -> None:
    world = started(4, Sizes((2, 4, 8))).kill(2).settle(4)
    assert [peer.task for peer in world.run.generation.members] == [1, 3]
    assert ([world[task].number for task in (1, 3, 4)], world.now_s) == ([2, 2, 1], 0.0)
    world.wait(1_000).settle(8)
    assert [world[task].number for task in (1, 3, 4)] == [2, 2, 1], "nothing else changes"
    world.start(5).settle(8)
    assert [world[task].size for task in (1, 3, 4, 5)] == [4] * 4


def test_the_sizes_of_a_run_are_those_of_its_group() -> None:
    world = World(4, Sizes((2, 4, 8))).start(1, 2, 3)
    world.run.own(3, Sizes(step=3), NOBODY, 1.0)
    assert [one.world for one in world.deliver().told(1)] == [3]


def test_the_newest_of_very_many_trainings_are_known_to_have_ended() -> None:
    run = Rendezvous()
    identity = Identity(7, 1, "n1", Role.AGENT)
    for number in range(250):
        run.join(number, replace(identity, program=f"{number:x}"), None, 0.0)
        run.hear(number, Done(), 0.0)
        run.lose(number, 0.0)
    run.outputs()
    for number in (149, 150, 249):
        run.join(number, replace(identity, task=number, program=f"{number:x}"), None, 0.0)
    told = [(one.key, one.message) for one in run.outputs() if isinstance(one, Send)]
    assert told == [(150, Finished()), (249, Finished())]


# After the keeper was away.


def reformed(generation: int, nodes: int) -> Note:
    """What the controller is told of a generation of tasks."""
    measures = (("generation", float(generation)), ("nodes", float(nodes)))
    return Note(NoteKind.REFORMED, 12, measures=measures, tasks=f"0-{nodes - 1}")


def test_the_highest_generation_lives_whoever_comes_back_first() -> None:
    world = World(3, hold_s=10).back(9, number=5, size=10).back(0, 1, 2, number=9, size=3)
    assert [type(one) for one in world.told(9)] == [Dropped]
    assert not world[9].connected and world.run.away, "it may still train"
    assert not any(world.told(task) for task in range(3))
    assert world.notes[-1] == reformed(9, 3)


def test_a_second_connection_of_a_member_takes_the_place_of_its_first() -> None:
    world = started(2)
    world.run.join(99, world[2].identity, Held(1, 1, 2), world.now_s)
    assert world.run.outputs() == [HangUp(world[2].key)]


# Failing.


def test_the_first_failure_of_a_generation_is_passed_on_with_its_size_then() -> None:
    world = started(3)
    for task in (1, 2, 3):
        world.ready(task, cause="failed", error=f"Error on n{task}")
    world.run.sizes = Sizes(without=(3,))
    assert world.wait(1.9).hear()[1].size == 2
    failed = Note(NoteKind.FAILED, 12, 1, "n1", (("nodes", 3.0),), "Error on n1")
    assert world.wait(3).noted(NoteKind.FAILED) == [failed]


@pytest.mark.parametrize("cause", ["failed", "change"])
@pytest.mark.parametrize(
    ("text", "also"), [("Error on n1", 2.0), ("Traceback\nError on n1\n", 2.0), ("other", None)]
)
def test_another_that_fails_at_the_same_time_is_named_if_it_says_the_same(
    text: str, also: float | None, cause: str
) -> None:
    world = started(3).ready(1, cause="failed", error="Error on n1")
    world.ready(2, cause=cause, error=text).ready(3)
    (failed,) = world.wait(3).noted(NoteKind.FAILED)
    assert dict(failed.measures).get("also") == also


def test_a_loss_just_before_or_soon_after_or_a_planned_change_explains_a_failure() -> None:
    for world in (
        started(3).ready(2, cause="failed").wait(1).kill(1),
        started(3).kill(1).wait(1.5).ready(2, cause="failed"),
        started(2).start(3).ready(2, cause="failed"),
    ):
        assert not world.wait(10).noted(NoteKind.FAILED)


def test_after_a_generation_that_made_steps_the_next_comes_at_once() -> None:
    world = started(1).say(1, Measured((("steps", 10.0),))).ready(1, cause="failed").hear()
    assert (world[1].number, world.now_s) == (2, 0.0)


def test_what_fails_again_since_the_scripts_node_was_lost_ends_on_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Batches, "orphaned", True)
    world = started(2).ready(1, 2, cause="failed").wait(1).hear()
    assert [one.number for one in world.processes] == [2, 2]
    world.ready(1, 2, cause="failed")
    assert [world.told(task)[-1] for task in (1, 2)] == [Finished(1), Finished(1)]
    assert not world.wait(10).noted(NoteKind.FAILED), "the script's node is to blame"


# With the batch script.


@pytest.mark.parametrize("finished", [False, True])
def test_at_the_end_of_a_script_its_step_is_stopped_unless_it_has_finished(finished: bool) -> None:
    """As with ``timeout 3h srun ...`` in it, where srun and so the step would end on all nodes."""
    world = World(1).batch(0, Batch("leads", 0, "c3RlcA==")).batch(2, Batch("steps", 0, "c3RlcA=="))
    world.start(2, step=0)
    if finished:
        world.say(2, Finishing())
    world.turns()
    world.say(0, Batch("over"), Role.BATCH)
    assert world.turns() == {2: Turn("over" if finished else "stop")}
