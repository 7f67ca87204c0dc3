"""Traces: what files may hold, and what is cut out of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from bftrainer_slurm.replay.logs.holes import select
from bftrainer_slurm.replay.trace import TraceError, read_events
from tests.replay.traces import NO_SUMMIT, SUMMIT, T0, holes, rows_of

CSV = "time,node,idle\n10,b,true\n10,a,true\n30,b,false\n40,b,true\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "events.csv"
    path.write_text(text, errors="surrogateescape")  # "\udcff" is the byte 0xff
    return path


def test_reads_csv(tmp_path: Path) -> None:
    trace = read_events(written(tmp_path, CSV))
    assert rows_of(trace) == [("a", 10, 40), ("b", 10, 30), ("b", 40, 40)]


def test_reads_parquet_with_the_nodes_that_are_never_idle(tmp_path: Path) -> None:
    names = pyarrow.DictionaryArray.from_arrays([0, 0], ["a", "never"])
    table = pyarrow.table({"time": [1, 5], "node": names, "idle": [True, False]})
    parquet.write_table(table, tmp_path / "events.parquet")
    trace = read_events(tmp_path / "events.parquet")
    assert trace.nodes == ("a", "never")
    assert rows_of(trace) == [("a", 1, 5)]


def test_the_order_of_columns_and_the_name_of_the_file_do_not_matter(tmp_path: Path) -> None:
    swapped = "idle,why,node,time\ntrue,x,a,1\nfalse,y,a,5\n"
    assert rows_of(read_events(written(tmp_path, swapped))) == [("a", 1, 5)]
    table = pyarrow.table({"idle": [True, False], "node": ["a", "a"], "time": [1, 5]})
    parquet.write_table(table, tmp_path / "events")
    assert rows_of(read_events(tmp_path / "events")) == [("a", 1, 5)]


def test_the_events_may_be_in_any_order(tmp_path: Path) -> None:
    rows = ["10,b,true", "30,b,false", "30,b,true", "40,b,false", "5,a,true", "9,a,false"]
    mixed = [rows[number] for number in (1, 4, 2, 5, 3, 0)]
    trace = read_events(written(tmp_path, "\n".join(["time,node,idle", *mixed])))
    assert rows_of(trace) == [("a", 5, 9), ("b", 10, 30), ("b", 30, 40)]


def test_reads_gzipped_files(tmp_path: Path) -> None:
    zipped = gzip.compress(CSV.encode())
    (tmp_path / "events.csv.gz").write_bytes(zipped)
    assert len(rows_of(read_events(tmp_path / "events.csv.gz"))) == 3
    (tmp_path / "cut.gz").write_bytes(zipped[:-9])
    with pytest.raises(TraceError, match="Compressed file ended"):
        read_events(tmp_path / "cut.gz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,node\n1,a\n", "no column idle"),
        ("time,node,node,idle\n1,a,a,true\n", "2 columns node"),
        ("time,node,idle\n", "events.csv: it has no events"),
        ("time,node,idle\nsoon,a,true\n", "column time must hold Unix seconds"),
        ("time,node,idle\n-5,a,true\n", "column time must hold Unix seconds"),
        ("time,node,idle\n1e18,a,true\n", "column time must hold Unix seconds"),
        ("time,node,idle\n1,a,perhaps\n", "column idle must hold true or false"),
        ("time,node,idle\n1,,true\n,b,true\n", "column time has empty values"),
        ("", "events.csv"),
        ("\0\0\0", "events.csv"),
        ("time,n\udcffde,idle\n1,a,true\n", "events.csv"),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TraceError, match=said) as caught:
        read_events(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_says_that_a_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_events(tmp_path / "nope.parquet")


def test_takes_the_first_nodes_by_name() -> None:
    trace = select(holes(("c", 0, 9), ("a", 1, 9), ("b", 2, 9)), 2, None, None)
    assert trace.nodes == ("a", "b")
    assert {node for node, _, _ in rows_of(trace)} == {"a", "b"}


def test_cuts_holes_at_the_edges_of_what_is_asked_for() -> None:
    trace = select(holes(("a", 0, 7200), ("b", 0, 100)), None, T0 + 1800, 1)
    assert rows_of(trace) == [("a", T0 + 1800, T0 + 5400)]
    assert trace.end_s == T0 + 5400


def test_the_time_before_the_first_hole_counts_as_the_time_after_the_last_does() -> None:
    trace = select(holes(("a", 0, 3600), ("a", 82800, 86400)), None, T0 + 3600, 23)
    assert (trace.start_s, trace.end_s) == (T0 + 3600, T0 + 86400)


def test_refuses_a_part_that_is_not_there() -> None:
    with pytest.raises(TraceError, match="no hole is left"):
        select(holes(("a", 0, 100)), None, T0 + 200, None)


def test_refuses_nodes_of_which_no_time_is_left() -> None:
    with pytest.raises(TraceError, match="no hole is left"):
        select(holes(("a", 100, 100), ("b", 0, 100)), 1, None, None)


@pytest.mark.skipif(not SUMMIT.is_dir(), reason=NO_SUMMIT)
def test_reads_a_week_of_summit() -> None:
    trace = read_events(SUMMIT / "node-events-week1.parquet")
    assert (len(trace.nodes), len(set(trace.time_s.tolist()))) == (4734, 11_475)
