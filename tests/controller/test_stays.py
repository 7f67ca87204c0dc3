from bftrainer_slurm.controller.history import History, Tally
from bftrainer_slurm.controller.stays import Stays
from bftrainer_slurm.keeper.protocol import Note, NoteKind, NumberedNote
from bftrainer_slurm.model import ElementId, ElementState
from tests.controller.worlds import ARRAY, NOW_S, element, trainer

FIRST = ElementId(ARRAY, 0)
RUNNING = element(0, ElementState.RUNNING, "n1", start_s=NOW_S)


def tally_after(*readings: object, shrunk: bool = False) -> Tally:
    history = History(":memory:")
    stays = Stays(history)
    for number, reading in enumerate(readings):
        if shrunk and number == len(readings) - 1:
            stays.shrunk((FIRST,))
        stays.update((trainer(reading),), NOW_S + 10 * number, {})  # type: ignore[arg-type]
    return history.tally(ARRAY)


def test_an_element_taken_back_by_slurm_was_reclaimed() -> None:
    assert tally_after(RUNNING, element(0, ElementState.DELAYED)) == Tally(1, 0, 1, 10.0)


def test_an_element_that_we_ended_shrank() -> None:
    assert tally_after(RUNNING, element(0, ElementState.HELD), shrunk=True) == Tally(1, 1, 0, 10.0)


def test_an_element_that_completed_is_neither() -> None:
    assert tally_after(RUNNING, element(0, ElementState.COMPLETED)) == Tally(1, 0, 0, 10.0)


def test_an_element_that_runs_elsewhere_was_reclaimed_and_grew_in_between() -> None:
    elsewhere = element(0, ElementState.RUNNING, "n2", start_s=NOW_S + 10)
    assert tally_after(RUNNING, elsewhere) == Tally(2, 0, 1, 10.0)


def test_an_element_that_is_ending_has_not_left_yet() -> None:
    assert tally_after(RUNNING, element(0, ElementState.ENDING, "n1")) == Tally(1, 0, 0, 0.0)


def test_the_elements_own_notes_give_the_times_more_exactly() -> None:
    history = History(":memory:")
    stays = Stays(history)
    stays.take(NumberedNote(1, NOW_S + 0.25, Note(NoteKind.UP, ARRAY, 0, "n1")))
    stays.update((trainer(RUNNING),), NOW_S + 5, {})
    stays.take(NumberedNote(2, NOW_S + 7.5, Note(NoteKind.GONE, ARRAY, 0, "n1")))
    stays.update((trainer(element(0, ElementState.DELAYED)),), NOW_S + 10, {})
    assert history.tally(ARRAY).node_s == 7.25


def test_an_element_that_came_and_was_taken_back_between_two_readings_was_reclaimed() -> None:
    history = History(":memory:")
    stays = Stays(history)
    stays.update((trainer(element(0, ElementState.HELD)),), NOW_S, {})
    stays.take(NumberedNote(2, NOW_S + 7.5, Note(NoteKind.GONE, ARRAY, 0, "n1")))
    came = {FIRST: ("n1", NOW_S + 2.5)}
    taken_back = trainer(element(0, ElementState.DELAYED))
    assert stays.update((taken_back,), NOW_S + 10, came) == [FIRST]
    assert history.tally(ARRAY) == Tally(1, 0, 1, 5.0)


def test_an_element_that_is_ending_when_it_is_first_seen_had_a_stay() -> None:
    history = History(":memory:")
    stays = Stays(history)
    ending = trainer(element(0, ElementState.ENDING, "n1"))
    assert stays.update((ending,), NOW_S + 10, {FIRST: ("n1", NOW_S)}) == []
    assert stays.update((trainer(element(0, ElementState.DELAYED)),), NOW_S + 20, {}) == [FIRST]
    assert history.tally(ARRAY) == Tally(1, 0, 1, 20.0)


def test_an_element_that_slurm_has_not_started_had_no_stay_whatever_it_said() -> None:
    history = History(":memory:")
    came = {FIRST: ("n1", NOW_S)}
    Stays(history).update((trainer(element(0, ElementState.PENDING)),), NOW_S + 10, came)
    assert history.tally(ARRAY) == Tally()


def test_a_note_from_before_the_last_reading_begins_no_stay() -> None:
    history = History(":memory:")
    stays = Stays(history)
    stays.update((trainer(element(0, ElementState.PENDING)),), NOW_S, {})
    came = {FIRST: ("n1", NOW_S - 500.0)}
    assert stays.update((trainer(element(0, ElementState.DELAYED)),), NOW_S + 10, came) == []
    assert history.tally(ARRAY) == Tally()
