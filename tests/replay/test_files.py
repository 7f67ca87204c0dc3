"""The files of a replay: traces, what is cut out of them, and trainers; or one line of refusal."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from bftrainer_slurm.replay.logs.holes import select
from bftrainer_slurm.replay.trace import TraceError, read_events
from bftrainer_slurm.replay.trainers import TrainersError, read_trainers
from tests.controller.worlds import cases
from tests.replay.traces import T0, holes, rows_of

CSV = "time,node,idle\n10,b,true\n10,a,true\n30,b,false\n40,b,true\n"


def written(folder: Path, content: object, name: str = "events.csv") -> Path:
    path = folder / name
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    # "\udcff" is the byte 0xff
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogateescape"))
    return path


OF_CSV = [("a", 10, 40), ("b", 10, 30), ("b", 40, 40)]


@cases(
    "content, name, holes",
    as_csv=(CSV, "events.csv", OF_CSV),
    gzipped=(gzip.compress(CSV.encode()), "events", OF_CSV),
    with_columns_in_any_order=(
        *("idle,why,node,time\ntrue,x,a,1\nfalse,y,a,5\n", "events", [("a", 1, 5)]),
    ),
    in_any_order=(
        "time,node,idle\n30,b,false\n5,a,true\n30,b,true\n9,a,false\n40,b,false\n10,b,true\n",
        *("events", [("a", 5, 9), ("b", 10, 30), ("b", 30, 40)]),
    ),
)
def test_reads_events(tmp_path: Path, content: object, name: str, holes: list[Any]) -> None:
    assert rows_of(read_events(written(tmp_path, content, name))) == holes


def test_reads_parquet_with_the_nodes_that_are_never_idle_whatever_its_name(
    tmp_path: Path,
) -> None:
    names = pyarrow.DictionaryArray.from_arrays([0, 0], ["a", "never"])
    table = pyarrow.table({"idle": [True, False], "node": names, "time": [1, 5]})
    parquet.write_table(table, tmp_path / "events")
    trace = read_events(tmp_path / "events")
    assert trace.nodes == ("a", "never")
    assert rows_of(trace) == [("a", 1, 5)]


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
        (gzip.compress(CSV.encode())[:-9], "Compressed file ended"),
    ],
)
def test_says_what_is_wrong_with_events(tmp_path: Path, text: object, said: str) -> None:
    with pytest.raises(TraceError, match=said) as caught:
        read_events(written(tmp_path, text))
    assert "\n" not in str(caught.value)


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


def test_refuses_what_is_not_there_or_has_no_time() -> None:
    empty = holes(("a", 100, 100), ("b", 0, 100))
    for trace, nodes, from_s in ((holes(("a", 0, 100)), None, T0 + 200), (empty, 1, None)):
        with pytest.raises(TraceError, match="no hole is left"):
            select(trace, nodes, from_s, None)


ENTRY: dict[str, Any] = {
    "name": "J0",
    "submit": 10,
    "min_nodes": 1,
    "max_nodes": 4,
    "rescale_up_s": 18,
    "rescale_down_s": 12.5,
    "total_samples": 1e6,
    "curve_nodes": [0, 1, 4],
    "curve_throughput": [0, 10, 35.5],
}


def test_reads_trainers_and_what_may_be_left_out(tmp_path: Path) -> None:
    entries = [ENTRY, ENTRY | {"start_s": 8, "checkpoint_s": 300}]
    plain, known = read_trainers(written(tmp_path, entries))
    assert (plain.name, plain.submit_s, plain.rescale_down_s) == ("J0", 10.0, 12.5)
    assert plain.curve.at(4) == 35.5
    assert (known.start_s, known.step_s, known.checkpoint_s) == (8.0, 0.0, 300.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_nodes": 0}, "min_nodes: Expected `int` >= 1"),
        ({"min_nodes": 5}, "1 <= min_nodes"),
        ({"max_nodes": True}, "max_nodes: Expected `int`"),
        ({"rescale_up_s": -1}, "rescale_up_s: Expected `float` >= 0"),
        ({"total_samples": 0}, "total_samples: Expected `float` > 0"),
        ({"curve_nodes": [1, 2, 4]}, "first count 0"),
        ({"curve_nodes": [0, 4]}, "one value for each"),
        ({"curve_throughput": [0, 0, 0]}, "above 0 on min_nodes"),
        ({"curve_throughput": [0, "x", 1]}, r"curve_throughput\[1\]: Expected `float`"),
        ({"total_samples": 10**400}, "total_samples: Number out of range"),
        ({"start_s": -1}, "start_s: Expected `float` >= 0"),
    ],
)
def test_names_the_key_that_is_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainersError, match=rf"(trainer 1|\[1\]).*{said}"):
        read_trainers(written(tmp_path, [ENTRY, ENTRY | changes]))


@pytest.mark.parametrize("document", ["", "{", "{}", "[]", "[1]", "[{}]", "[" * 100_000, "[NaN]"])
def test_refuses_what_is_no_list_of_trainers(tmp_path: Path, document: str) -> None:
    with pytest.raises(TrainersError, match=r"trainers\.json"):
        read_trainers(written(tmp_path, document, "trainers.json"))
