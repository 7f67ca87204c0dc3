"""A log of any kind becomes holes, a machine, and what must be said about them."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bftrainer_slurm.replay.logs import caveats
from bftrainer_slurm.replay.logs.history import read_history
from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.log import LogOptions, read_log
from bftrainer_slurm.replay.logs.sacct import COMMAND
from tests.controller.worlds import cases
from tests.replay.logs.conftest import Reads
from tests.replay.traces import rows_of

HEAD = "JobID|NNodes|Submit|Start|End|State|NodeList\n"
SACCT = f"""{HEAD}1|2|900|900|1200|COMPLETED|n[1-2]
2|1|900|1500|1900|COMPLETED|n1
3|1|900|1205|Unknown|RUNNING|n2
"""
SHORT = "JobID|Start|End|NodeList\n"
TWICE = f"{SHORT}1|1000|Unknown|n1\n2|1000|1100|n2\n{SHORT}1|1000|1500|n1\n3|1900|2000|n2\n"
SWF = """; MaxNodes: 3
; MaxProcs: 6
1 900 0 300 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
2 1500 0 400 1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
"""
SMALL = SWF.replace("MaxNodes: 3", "MaxNodes: 1").replace("Procs: 6", "Procs: 2")
SWF_NO_WAITS = "; MaxNodes: 3\n1 900 -1 300 4" + " -1" * 13 + "\n"
NO_MACHINE = SWF.partition("Procs: 6\n")[2]
EVENTS = "time,node,idle\n1000,n1,true\n1400,n1,false\n1500,n2,true\n1504,n2,false\n2000,n1,true\n"
TURNED = "\n".join(",".join(line.split(",")[::-1]) for line in EVENTS.splitlines())
OF_N1 = [("n1", 1200, 1500), ("n1", 1900, 2000)]
OF_TWO = [("node0", 1200, 2000), ("node1", 1200, 1500), ("node1", 1900, 2000)]
OF_THREE = [("node0", 1000, 2000), *((f"node{int(n[-1]) + 1}", a, b) for n, a, b in OF_TWO)]
DOWN = "NodeName|TimeStart|TimeEnd|State\n"
N1_DOWN = f"{DOWN}n1|1250|1450|DOWN*\n|100|2000|\n"  # the last line is of the cluster
RESERVED = "NodeName|TimeStart|TimeEnd|Name\nn[1-2]|1200|1300|maintenance\n"


@cases(
    "log, options, nodes, holes",
    with_node_lists_they_are_those_of_each_node=(SACCT, {}, 2, OF_N1),  # n2's is too short
    nodes_may_be_named=(SACCT, {"node_list": "n[2-3]"}, 2, [("n3", 1000, 2000)]),
    swf_knows_its_machine=(SWF, {}, 3, OF_THREE),
    or_the_user_knows_it_better=(SWF, {"nodes": 2}, 2, OF_TWO),
    or_all_processors_are_nodes=("; MaxProcs: 2\n" + NO_MACHINE.replace("4", "2", 1), {}, 2, None),
    or_the_peak_is_the_machine=(NO_MACHINE, {}, 4, None),
    a_gzipped_log_is_the_same=(gzip.compress(SWF.encode()), {"nodes": 2}, 2, OF_TWO),
    a_list_of_holes_is_taken_as_it_is=(EVENTS, {"nodes": 50}, 50, [("n1", 1000, 1400)]),
    its_columns_may_be_in_any_order_and_it_gzipped=(
        *(gzip.compress(TURNED.encode()), {"nodes": 50}, 50, [("n1", 1000, 1400)]),
    ),
    a_job_that_still_ran_in_the_first_of_two_outputs_has_its_end=(
        *(TWICE, {}, 2, [("n1", 1500, 2000), ("n2", 1100, 1900)]),
    ),
    while_a_node_is_down_it_is_no_hole=(
        *(SACCT, {"down": N1_DOWN}, 2, [("n1", 1200, 1250), ("n1", 1450, 1500), OF_N1[1]]),
    ),
    one_that_is_still_down_has_no_end=(
        *(SACCT, {"down": DOWN + "n1|1300|Unknown|DRAIN\n"}, 2, [("n1", 1200, 1300)]),
    ),
    nor_while_it_is_reserved=(
        *(SACCT, {"reservations": RESERVED}, 2, [("n1", 1300, 1500), OF_N1[1]]),
    ),
    a_node_that_only_events_name_is_none_of_the_machine=(
        *(SHORT + "1|1000|2000|n1\n", {"down": DOWN + "old99|1000|1100|DOWN\n"}, 1, []),
    ),
)
def test_its_holes(
    reads: Reads, log: str | bytes, options: Any, nodes: int, holes: list[Any] | None
) -> None:
    found = reads(log, **options)
    assert (found.nodes, found.from_s, found.to_s) == (nodes, 1000, 2000)
    assert holes is None or rows_of(found.holes) == holes


LOCAL = SACCT.replace("|1200|", "|1970-01-01T00:20:00|")
LOCAL = LOCAL.replace("|900|900", "|900|1970-01-01T00:15:00", 1)
NO_ZONE = "The log's times name no zone; they are read as times of UTC (--time-zone)."
ONLY_PART = caveats.BEYOND.format(held="1970-01-01 00:15 to 1970-01-01 00:31")
BEGAN = "; UnixStartTime: 845000000\n" + SWF
IN_1996 = {"from_s": 845001000, "to_s": 845002000}
BOTH = {"down": N1_DOWN, "reservations": RESERVED}
# The first job has ended when the 11th starts; most of the log, but not its edges, can be trusted.
LONG = HEAD + "".join(f"{k}|1|{k}0|{k}0|{k + 10}0|COMPLETED|n{k}\n" for k in range(1000))
ALL = {"from_s": None, "to_s": None}


@cases(
    "log, options, said, unsaid",
    a_job_without_an_end=(
        *(SACCT, {"to_s": 1900}, ["1 job without an end", caveats.DOWN], [ONLY_PART, NO_ZONE]),
    ),
    a_time_after_the_log=(SACCT, {"to_s": 9000}, [ONLY_PART], []),
    a_time_before_it=(SACCT, {"from_s": 1, "to_s": 1900}, [ONLY_PART], []),
    nodes_without_names_and_without_dates=(SWF, {}, [caveats.ANONYMOUS, caveats.NO_DATES], []),
    a_beginning_that_is_unknown=("; UnixStartTime: UNKNOWN\n" + SWF, {}, [caveats.NO_DATES], []),
    a_beginning_that_is_known=(BEGAN, IN_1996, [], [caveats.NO_DATES]),
    a_machine_of_unknown_size=(NO_MACHINE, {}, [caveats.PEAK], []),
    more_busy_than_the_header_says_there_are=(SMALL, {}, ["2 nodes busy, more than the 1"], []),
    no_times_of_submission=(SHORT + "7|1000|2000|n1\n", {}, ["no column Submit", COMMAND], []),
    local_times=(LOCAL, {}, [NO_ZONE], []),
    where_it_begins_and_ends=(LONG, ALL, ["its edges were cut off", "(97 %) are left"], []),
    which_nodes_were_reserved=(SACCT, {"down": N1_DOWN}, [caveats.RESERVED], [caveats.DOWN]),
    which_nodes_were_down=(
        *(SACCT, {"reservations": RESERVED}, [caveats.ONLY_RESERVED], [caveats.DOWN]),
    ),
    nothing_where_both_is_known=(
        *(SACCT, BOTH, [], [caveats.DOWN, caveats.RESERVED, caveats.ONLY_RESERVED]),
    ),
)
def test_it_says_what_it_does_not_know_which_is(
    reads: Reads, log: str, options: Any, said: list[str], unsaid: list[str]
) -> None:
    found = "\n".join(reads(log, **options).caveats)
    assert [words for words in said if words not in found] == []
    assert [words for words in unsaid if words in found] == []


def test_jobs_are_counted_once_and_lists_that_are_none_are_malformed_lines(reads: Reads) -> None:
    notes = reads(TWICE).notes
    assert (notes.jobs, notes.running) == (3, 0)
    notes = reads(SACCT + "4|1|900|1000|1100|COMPLETED|n[1-\n").notes
    assert (notes.jobs, notes.malformed, notes.bad_lines[0].number) == (3, 1, 5)


def test_partitions_of_nodes_are_those_of_their_jobs_and_types_as_sinfo_lists_them(
    reads: Reads,
) -> None:
    head = "JobID|Start|End|Partition|NodeList\n"
    log = reads(
        head + "1|1000|1500|cpu|n[1-2]\n2|1600|1700|gpu|n2\n",
        node_types="n[1-2] rome,ib\nn7 (null)\n",
    )
    assert log.kinds == (frozenset({"cpu"}), frozenset({"cpu", "gpu"}))
    assert log.types == ("rome,ib", "rome,ib")


def test_times_in_which_nodes_were_reserved_or_down_are_told_apart(reads: Reads) -> None:
    assert reads(SACCT, **BOTH).unusable.length_s.sum() == 200 + 50


def bad(down: str, head: str = DOWN) -> dict[str, str]:
    return {"down": head + down}


WHOLE = gzip.compress(SWF.encode() * 100)
HELD = "the log holds 1970-01-01 00:15 to 1970"
REFUSED: list[tuple[str | bytes, dict[str, Any], str]] = [
    ("", {}, "the log is empty"),
    ("hello\n", {}, "neither sacct output"),
    ("\x00\x01\x02", {}, "neither sacct output"),
    (SACCT, {"gpus_per_node": 4}, "no job in the log has GPUs"),
    (HEAD, {}, "no job in it ever held a node"),
    (HEAD + "x|y\n", {}, "1 of 1 line cannot be read, the first is line 2"),
    (SACCT + "4|1|9\n" * 6, {}, "6 of 9 lines cannot be read, .*; write it anew: SLURM"),
    (SACCT + "5|1|900|950|Unknown|FAILED|n1\n" * 6, {}, "it is over, but has no end"),
    (SACCT.replace("|1200|", "||").replace("|1900|", "||").replace("COMPLETED", ""), {},
     "no job in it has an end"),
    (SWF, {"nodes": 1}, "--nodes 1: jobs used 2 at once"),
    (SACCT, {"nodes": 3}, "the log has node lists"),
    (SACCT, {"node_list": "n[1-"}, "--node-list"),
    (SWF, {"node_list": "n1"}, "an SWF log has no node lists"),
    (SWF, bad(""), "an SWF log has no node lists: .*--down"),
    ("JobID|NNodes|Start|End\n7|2|100|200\n", {}, "no column NodeList; use: SLURM"),
    ("JobID|NodeList\n7|n1\n", {}, "no column .* sacct --allusers"),
    (SACCT, {"from_s": 5000, "to_s": 4000}, "nothing is left"),
    (EVENTS, {"from_s": 5000, "to_s": None}, "nothing is left"),
    (NO_MACHINE, {"from_s": 1250, "to_s": 1400}, "no job had a node between"),
    (SACCT, {"from_s": 5000, "to_s": 6000}, HELD),
    (SACCT, {"from_s": 1, "to_s": 1e9}, "the log holds only 1970-01-01 00:15 to 1970"),
    (SACCT, {"node_list": "zzz"}, "no job had one of these nodes; one had n"),
    (SWF_NO_WAITS, {}, "no line of a job can be used; 1 of 1 line .* its wait"),
    (gzip.compress(b"SQLite format 3\0" * 9), {}, "unpack it first"),
    (WHOLE[: len(WHOLE) // 2], {}, "damaged"),
    (SACCT, bad("", ""), "no column nodename, timeend, timestart; use: .*sacctmgr"),
    (SACCT, bad("NodeName|TimeStart\n", ""), "no column timeend"),
    (SACCT, bad("NodeName,\rTimeStart\n", ""), "no column nodename"),
    (SACCT, bad("n1|soon|200|DOWN\n"), "--down .*line 2: 'soon' is not a time"),
    (SACCT, bad("n1|Unknown|200|DOWN\n"), "line 2: it has no beginning"),
    (SACCT, bad("n1\n"), "line 2"),
    (SACCT, bad("n[1-|100|200|DOWN\n"), "line 2: .* is not a node list"),
    (SACCT, {"reservations": RESERVED.replace("1200", "soon")},
     "--reservations .*'soon' is not a time; use: .*reservation"),
    (SACCT, {"node_types": "n1\n"}, "--node-types .*line 1: .*; use: sinfo"),
    (SACCT, {"node_types": "n[1- rome\n"}, "--node-types .*line 1: .*; use: sinfo"),
]  # fmt: skip


@pytest.mark.parametrize(("log", "options", "why"), REFUSED, ids=lambda one: str(one)[:30])
def test_what_holds_no_log_is_refused(
    reads: Reads, log: str | bytes, options: Any, why: str, tmp_path: Path
) -> None:
    with pytest.raises(LogError, match=why) as refused:
        reads(log, **options)
    assert str(refused.value).count(str(tmp_path / "log")) == 1


# The holes that our own controller saw.


def history(path: Path, *rows: tuple[object, object, object]) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE holes (node TEXT, start_s REAL, end_s REAL)")
        database.executemany("INSERT INTO holes VALUES (?, ?, ?)", rows)
    return path


@cases(
    "rows, holes",
    come_back_by_node=(
        *([("n2", 100, 200), ("n1", 150, 250)], [("n1", 150, 250), ("n2", 100, 200)]),
    ),
    last_until_the_file_knows_no_more_where_they_are_open=(
        *([("n1", 100, None), ("n2", 100, 300)], [("n1", 100, 300), ("n2", 100, 300)]),
    ),
    are_left_out_where_they_are_short=([("n1", 100, 105), ("n1", 200, 300)], [("n1", 200, 300)]),
    are_left_out_where_they_cannot_be=(
        [("n1", 100, 200), ("n1", "x", 200), (b"\xff", 1, 2), ("n1", 300, 200)],
        [("n1", 100, 200)],
    ),
)
def test_holes_of_a_history(tmp_path: Path, rows: list[Any], holes: list[Any]) -> None:
    path = history(tmp_path / "h", *rows)
    before = path.read_bytes()
    log = read_log(path, LogOptions())
    assert rows_of(log.holes) == holes
    assert (log.from_s, log.to_s) == (100, max(end for _, _, end in holes))
    assert caveats.CONTROLLER in log.caveats
    assert (path.read_bytes(), [*tmp_path.iterdir()]) == (before, [path])  # nothing left behind


def test_the_controller_may_go_on_writing(tmp_path: Path) -> None:
    path = history(tmp_path / "h", ("n1", 100, 200))
    with closing(sqlite3.connect(path, isolation_level=None)) as controller:
        controller.execute("INSERT INTO holes VALUES ('n2', 150, 300)")
        assert read_history(path, 0.0)[0].nodes == ("n1", "n2")
        controller.execute("INSERT INTO holes VALUES ('n3', 150, 300)")


def test_a_history_without_holes_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other") as database:
        database.execute("CREATE TABLE t (x)")
    for path, why in ((tmp_path / "other", "no such table"), (history(tmp_path / "h"), "no hole")):
        with pytest.raises(LogError, match=why):
            read_log(path, LogOptions())
