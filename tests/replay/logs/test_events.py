"""Nodes that were down are not idle."""

from __future__ import annotations

import math
from datetime import UTC
from pathlib import Path

import pytest

from bftrainer_slurm.replay.logs import caveats
from bftrainer_slurm.replay.logs.events import DOWN, RESERVED, NodeEvent, read_events
from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.log import LogOptions, read_log
from tests.replay.logs.test_log import SACCT, SWF, rows, write

HEADER = "NodeName|TimeStart|TimeEnd|State\n"


def read(path: Path, text: str) -> list[NodeEvent]:
    return list(read_events(write(path, text), UTC, DOWN))


def test_an_event_is_a_node_from_when_to_when(tmp_path: Path) -> None:
    assert read(tmp_path / "down", HEADER + "n1|100|200|DOWN*\n") == [(("n1",), 100, 200)]


def test_a_node_that_is_still_down_has_no_end(tmp_path: Path) -> None:
    ((_, _, end_s),) = read(tmp_path / "down", HEADER + "n1|100|Unknown|DRAIN\n")
    assert end_s == math.inf


def test_events_of_the_cluster_are_passed_over(tmp_path: Path) -> None:
    assert read(tmp_path / "down", HEADER + "|100|200|\n") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column nodename, timeend, timestart; use: .*sacctmgr"),
        ("NodeName|TimeStart\n", "no column timeend"),
        ("NodeName,\rTimeStart\n", "no column nodename"),
        (HEADER + "n1|soon|200|DOWN\n", "line 2: 'soon' is not a time"),
        (HEADER + "n1|Unknown|200|DOWN\n", "line 2: it has no beginning"),
        (HEADER + "n1\n", "line 2"),
        (HEADER + "n[1-|100|200|DOWN\n", "line 2: .* is not a node list"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LogError, match=message):
        read(tmp_path / "down", text)


def test_holes_leave_out_when_the_node_was_down(tmp_path: Path) -> None:
    down = write(tmp_path / "down", HEADER + "n1|1250|1450|DOWN\n")
    options = LogOptions(down=down, from_s=1000, to_s=2000)
    log = read_log(write(tmp_path / "log", SACCT), options)
    assert rows(log) == [("n1", 1200, 1250), ("n1", 1450, 1500), ("n1", 1900, 2000)]
    assert caveats.RESERVED in log.caveats
    assert caveats.DOWN not in log.caveats


def test_without_node_lists_it_cannot_be_used(tmp_path: Path) -> None:
    down = write(tmp_path / "down", HEADER)
    with pytest.raises(LogError, match="--down"):
        read_log(write(tmp_path / "log", SWF), LogOptions(down=down))


RESERVATIONS = "NodeName|TimeStart|TimeEnd|Name\nn[1-2]|1200|1300|maintenance\n"


def test_a_reservation_has_several_nodes(tmp_path: Path) -> None:
    (found,) = read_events(write(tmp_path / "resv", RESERVATIONS), UTC, RESERVED)
    assert found == (("n1", "n2"), 1200, 1300)


def test_a_malformed_list_of_reservations_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "resv", RESERVATIONS.replace("1200", "soon"))
    with pytest.raises(
        LogError, match=r"--reservations .*'soon' is not a time; use: .*reservation"
    ):
        list(read_events(path, UTC, RESERVED))


def test_reserved_and_down_times_are_no_holes(tmp_path: Path) -> None:
    options = LogOptions(
        down=write(tmp_path / "down", HEADER + "n1|1250|1450|DOWN\n"),
        reservations=write(tmp_path / "resv", RESERVATIONS),
        from_s=1000,
        to_s=2000,
    )
    log = read_log(write(tmp_path / "log", SACCT), options)
    assert rows(log) == [("n1", 1450, 1500), ("n1", 1900, 2000)]
    assert log.unusable is not None
    assert log.unusable.length_s.sum() == 200 + 50
    assert not {caveats.DOWN, caveats.RESERVED, caveats.ONLY_RESERVED} & set(log.caveats)


def test_node_types_are_as_sinfo_lists_them(tmp_path: Path) -> None:
    types = write(tmp_path / "types", "n[1-2] rome,ib\nn7 (null)\n")
    log = read_log(
        write(tmp_path / "log", SACCT), LogOptions(node_types=types, from_s=1, to_s=2000)
    )
    assert log.types == ("rome,ib", "rome,ib")


@pytest.mark.parametrize("text", ["n1\n", "n[1- rome\n"])
def test_malformed_node_types_are_refused(tmp_path: Path, text: str) -> None:
    options = LogOptions(node_types=write(tmp_path / "types", text), from_s=1000, to_s=2000)
    with pytest.raises(LogError, match=r"--node-types .*line 1: .*; use: sinfo"):
        read_log(write(tmp_path / "log", SACCT), options)
