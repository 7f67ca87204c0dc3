"""An upgrade of a running site: a new controller finds the state of the version before.

The file in `data` is that version's own: a dump of its history, as it ended beside four trainers.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId
from tests.controller.setting import Setting
from tests.controller.worlds import NOW_S, element, note

BEFORE = Path(__file__).parent / "data" / "history-fde0905.sql"
ENDED_S = NOW_S + 145  # when the controller of the version before ended
HAD = {11: ("n1", "n2"), 12: ("n3", "n4"), 13: ("n5", "n6"), 14: ("n7", "n8")}
SAMPLES = 11_900.0  # of each trainer by then


@pytest.fixture
def upgraded(tmp_path: Path) -> Setting:
    """A site half a minute after the old controller has ended; the new one has not looked yet."""
    with sqlite3.connect(tmp_path / "history.sqlite") as before:
        before.executescript(BEFORE.read_text())
    setting = Setting(8)
    setting.now_s = ENDED_S + 30
    setting.history = History(tmp_path / "history.sqlite", lambda: setting.now_s)
    for array, nodes in HAD.items():
        setting.submit(array, 4, f"{array:08x}")
        setting.slurm.be_(array, submit_s=NOW_S)
        for task, node in enumerate(nodes):
            setting.slurm.put_(element(task, "running", node, array, start_s=NOW_S + 5))
    setting.controller = setting.started()
    return setting


def report(setting: Setting, array: int, samples: float) -> None:
    """One of a trainer's members says how far it has come."""
    measures = {"samples": samples, "nodes": 2.0, "generation": 1.0}
    of = HAD[array][0]
    told = note(NoteKind.PROGRESS, setting.now_s, 0, of, array=array, **measures)
    setting.controller.take([told])


def test_four_trainers_train_on_where_they_are(upgraded: Setting) -> None:
    for turn in range(40):
        upgraded.turn()
        for array in HAD:
            report(upgraded, array, SAMPLES + 3000.0 + 500.0 * turn)
    assert {array: tuple(upgraded.on(array)) for array in HAD} == HAD
    slurm, told = upgraded.slurm, upgraded.told
    assert (slurm.starts_, slurm.cancelled_, told.parted, told.gone, told.ended) == ([],) * 5
    for shown in upgraded.controller.status({})["trainers"]:
        assert (shown["state"], shown["why"], shown["failures"]) == ("running", None, 0)
        assert (shown["grew"], shown["reclaimed"]) == (2, 0)
        assert shown["samples"] == SAMPLES + 3000 + 500 * 39


def test_what_was_learnt_of_them_is_known_and_their_time_goes_on(upgraded: Setting) -> None:
    upgraded.turn()
    for shown in upgraded.controller.status({})["trainers"]:
        assert shown["runtime"] == "bftrainer"
        measured = [one["nodes"] for one in shown["curve"]["points"] if one["measured"]]
        assert measured == [2]
        assert shown["goodput"]["trained_s"] == pytest.approx(119, abs=6)  # kept now and then
        assert shown["submit_s"] == NOW_S


def test_an_element_that_was_reclaimed_meanwhile_is_known_to_be_gone(upgraded: Setting) -> None:
    upgraded.slurm.start_ordinary_("n2")
    upgraded.turn()
    assert upgraded.told.gone == [ElementId(11, 1)]
    shown = {one["array"]: one for one in upgraded.controller.status({})["trainers"]}
    assert (shown[11]["reclaimed"], shown[11]["nodes"]) == (1, ["n1"])
