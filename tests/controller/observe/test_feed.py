"""The notes of elements, whichever keeper there is."""

from __future__ import annotations

import pytest

from bftrainer_slurm.controller.observe import feed as feed_module
from bftrainer_slurm.controller.observe.feed import Feed
from bftrainer_slurm.keeper.client import KeeperError
from bftrainer_slurm.keeper.messages import Serving, encode
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote, ProtocolError, write_line
from scripts.labcluster.waiting import wait_until
from tests.controller.fake_keeper import FakeKeeper
from tests.keeper.test_client import somebody_who_says


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_RETRY_S", 0.01)


def started(first: FakeKeeper, *then: FakeKeeper | Exception) -> Feed:
    """A feed of these keepers, one after the other, or none for a reason; the last one stays."""
    left = list(then)

    def revive() -> FakeKeeper | Exception:
        one = left.pop(0) if left else (first, *then)[-1]
        if isinstance(one, Exception):
            raise one
        return one

    feed = Feed(first, revive)  # type: ignore[arg-type]
    feed.start()
    return feed


def ended(feed: Feed, keeper: FakeKeeper) -> None:
    feed.stop()
    keeper.hang_up.set()


@pytest.mark.parametrize("error", [KeeperError("gone"), ProtocolError("nonsense"), RuntimeError()])
def test_notes_come_in_order_and_once_whatever_goes_wrong_and_all_before_it_has_caught_up(
    error: Exception,
) -> None:
    keeper = FakeKeeper("a", 3, then=error)
    feed = started(keeper)
    wait_until(lambda: feed.caught_up and len(keeper.watched) == 2)
    assert keeper.watched[1] == ("a", 3)
    assert [note.number for note in feed.wait(120)] == [1, 2, 3]
    assert feed.wait(0) == []
    ended(feed, keeper)


def test_a_new_keeper_is_known_and_heard_from_its_first_note_on() -> None:
    first, second = FakeKeeper("a", 5, then=KeeperError("gone")), FakeKeeper("b", 0)
    second.then = KeeperError("gone too, before it had anything to say")
    third = FakeKeeper("b", 2)
    feed = started(first, second, third)
    wait_until(lambda: bool(third.watched))
    assert third.watched == [("b", 0)]
    wait_until(lambda: feed.keeper == ("b", third))
    ended(feed, third)


@pytest.mark.parametrize("error", [KeeperError("it does not start"), OSError("no space left")])
def test_whatever_goes_wrong_as_it_looks_for_a_keeper_it_looks_again(error: Exception) -> None:
    hung_up, keeper = FakeKeeper("a", 0), FakeKeeper("b", 0)
    hung_up.hang_up.set()
    feed = started(hung_up, error, keeper)
    wait_until(lambda: bool(keeper.watched))
    ended(feed, keeper)


def test_a_note_that_cannot_be_read_is_left_out() -> None:
    first, last = (NumberedNote(number, 5.0, Note(NoteKind.SUBMITTED)) for number in (1, 3))
    lines = [encode(Serving("a")), write_line({"note": first}), b"2 5.0 of another version\n"]
    lines.append(write_line({"note": last}))
    with somebody_who_says(b"".join(lines), ends=False) as client:
        feed = Feed(client, lambda: client)
        feed.start()
        heard = feed.wait(120)
        heard += feed.wait(120) if len(heard) < 2 else []
        feed.stop()
    assert [note.number for note in heard] == [1, 3]
