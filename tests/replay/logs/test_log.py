"""A log of any kind becomes holes, a machine, and what must be said about them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bftrainer_slurm.replay.logs import caveats
from bftrainer_slurm.replay.logs.jobs import LogError
from bftrainer_slurm.replay.logs.log import Log, LogOptions, read_log
from bftrainer_slurm.replay.logs.sacct import COMMAND
from tests.replay.logs.test_history import history

ALL = LogOptions(from_s=1000, to_s=2000)
SACCT = """JobID|NNodes|Submit|Start|End|State|NodeList
1|2|900|900|1200|COMPLETED|n[1-2]
2|1|900|1500|1900|COMPLETED|n1
3|1|900|1205|Unknown|RUNNING|n2
"""
SWF = """; MaxNodes: 3
; MaxProcs: 6
1 900 0 300 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
2 1500 0 400 1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1
"""
SWF_NO_WAITS = "; MaxNodes: 3\n1 900 -1 300 4" + " -1" * 13 + "\n"
NO_MACHINE = SWF.partition("Procs: 6\n")[2]
EVENTS = "time,node,idle\n1000,n1,true\n1400,n1,false\n1500,n2,true\n1504,n2,false\n2000,n1,true\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def rows(log: Log) -> list[tuple[str, float, float]]:
    holes = log.holes
    columns = holes.node.tolist(), holes.start_s.tolist(), holes.end_s.tolist()
    return sorted((holes.nodes[node], a, b) for node, a, b in zip(*columns, strict=True))


def test_with_node_lists_holes_are_those_of_each_node(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log", SACCT), ALL)
    assert rows(log) == [("n1", 1200, 1500), ("n1", 1900, 2000)]  # n2's 5 s are too short
    assert (log.nodes, log.from_s, log.to_s) == (2, 1000, 2000)


def test_a_job_without_end_is_pointed_out(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log", SACCT), ALL)
    assert any("1 job without an end" in caveat for caveat in log.caveats)
    assert caveats.DOWN in log.caveats


def test_a_time_that_the_log_does_not_reach_is_pointed_out(tmp_path: Path) -> None:
    path = write(tmp_path / "log", SACCT)
    said = caveats.BEYOND.format(held="1970-01-01 00:15 to 1970-01-01 00:31")
    assert said not in read_log(path, LogOptions(from_s=1000, to_s=1900)).caveats
    assert said in read_log(path, LogOptions(from_s=1000, to_s=9000)).caveats
    assert said in read_log(path, LogOptions(from_s=1, to_s=1900)).caveats


def test_nodes_may_be_named(tmp_path: Path) -> None:
    log = read_log(
        write(tmp_path / "log", SACCT), LogOptions(node_list="n[2-3]", from_s=1000, to_s=2000)
    )
    assert rows(log) == [("n3", 1000, 2000)]


def test_nodes_of_an_swf_log_have_numbers(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log", SWF), LogOptions(nodes=2, from_s=1000, to_s=2000))
    assert rows(log) == [("node0", 1200, 2000), ("node1", 1200, 1500), ("node1", 1900, 2000)]
    assert {caveats.ANONYMOUS, caveats.NO_DATES} <= set(log.caveats)


def test_where_an_swf_log_does_not_say_the_peak_is_the_machine(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log", NO_MACHINE), ALL)
    assert log.nodes == 4
    assert caveats.PEAK in log.caveats


def test_a_log_without_submissions_says_what_to_write(tmp_path: Path) -> None:
    lines = "JobID|NodeList|Start|End\n7|n[1-2]|1000|2000\n8|n3|1000|1500\n"
    log = read_log(write(tmp_path / "log", lines), ALL)
    assert any("no column Submit" in said and COMMAND in said for said in log.caveats)


def test_more_busy_than_the_header_says_there_are_is_pointed_out(tmp_path: Path) -> None:
    log = read_log(
        write(
            tmp_path / "log",
            SWF.replace("MaxNodes: 3", "MaxNodes: 1").replace("Procs: 6", "Procs: 2"),
        ),
        ALL,
    )
    assert any("2 nodes busy, more than the 1" in caveat for caveat in log.caveats)


def test_local_times_are_pointed_out_with_the_zone_in_which_they_are_read(tmp_path: Path) -> None:
    text = SACCT.replace("|1200|", "|1970-01-01T00:20:00|").replace(
        "|900|900", "|900|1970-01-01T00:15:00", 1
    )
    said = "The log's times name no zone; they are read as times of UTC (--time-zone)."
    assert said in read_log(write(tmp_path / "log", text), ALL).caveats
    assert said not in read_log(write(tmp_path / "log", SACCT), ALL).caveats


def test_swf_knows_its_machine(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "log", SWF), ALL)
    assert log.nodes == 3
    assert ("node1", 1200, 2000) in rows(log)


def test_gzipped_logs_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(SWF.encode()))
    assert rows(read_log(tmp_path / "log.gz", ALL)) == rows(
        read_log(write(tmp_path / "log", SWF), ALL)
    )


def test_our_own_history_has_holes_already(tmp_path: Path) -> None:
    log = read_log(history(tmp_path / "h", ("n1", 1100, 1200), ("n2", 1150, None)), LogOptions())
    assert rows(log) == [("n1", 1100, 1200), ("n2", 1150, 1200)]
    assert caveats.CONTROLLER in log.caveats


def test_a_list_of_holes_is_taken_as_it_is(tmp_path: Path) -> None:
    log = read_log(write(tmp_path / "holes.csv", EVENTS), LogOptions(nodes=50))
    assert (rows(log), log.nodes) == ([("n1", 1000, 1400)], 50)


def test_a_log_without_times_is_trusted_in_its_middle(tmp_path: Path) -> None:
    jobs = "".join(f"{k}|1|{10 * k}|{10 * k}|{10 * k + 100}|COMPLETED|n{k}\n" for k in range(1000))
    log = read_log(write(tmp_path / "log", SACCT.splitlines()[0] + "\n" + jobs), LogOptions())
    assert 100 < log.from_s < 300
    assert log.to_s == 9990
    (edges,) = (one for one in log.caveats if "its edges were cut off" in one)
    assert f"({100 * log.kept:.0f} %) are left" in edges
    assert 0 < log.kept < 1


HEADER = "JobID|Start|End|NodeList\n"


def test_a_job_that_still_ran_in_the_first_of_two_outputs_has_its_end(tmp_path: Path) -> None:
    rows_of = [HEADER, "1|1000|Unknown|n1\n", "2|1000|1100|n2\n", HEADER]
    text = "".join([*rows_of, "1|1000|1500|n1\n", "3|1900|2000|n2\n"])
    log = read_log(write(tmp_path / "log", text), ALL)
    assert log.holes.length_s.sum() == 500 + 800
    assert log.notes is not None
    assert (log.notes.jobs, log.notes.running) == (3, 0)


def test_a_node_that_only_events_name_is_none_of_the_machine(tmp_path: Path) -> None:
    events = write(tmp_path / "down", "NodeName|TimeStart|TimeEnd\nold99|1000|1100\n")
    options = LogOptions(from_s=1000, to_s=2000, down=events)
    log = read_log(write(tmp_path / "log", HEADER + "1|1000|2000|n1\n"), options)
    assert (log.nodes, rows(log)) == (1, [])


def test_partitions_of_nodes_are_those_of_their_jobs(tmp_path: Path) -> None:
    text = "JobID|Start|End|Partition|NodeList\n1|1000|1500|cpu|n[1-2]\n2|1600|1700|gpu|n2\n"
    log = read_log(write(tmp_path / "log", text), ALL)
    assert log.kinds == (frozenset({"cpu"}), frozenset({"cpu", "gpu"}))


def test_a_list_that_is_none_is_a_malformed_line(tmp_path: Path) -> None:
    text = SACCT + "4|1|900|1000|1100|COMPLETED|n[1-\n"
    notes = read_log(write(tmp_path / "log", text), ALL).notes
    assert notes is not None
    assert (notes.jobs, notes.malformed, notes.bad_lines[0].number) == (3, 1, 5)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", ALL, "the log is empty"),
        ("hello\n", ALL, "neither sacct output"),
        (SACCT, LogOptions(from_s=1000, to_s=2000, gpus_per_node=4), "no job in the log has GPUs"),
        ("\x00\x01\x02", ALL, "neither sacct output"),
        ("a\rb,c\n", ALL, "neither sacct output"),
        (SACCT.splitlines()[0], LogOptions(node_list="n1"), "no job in it ever held a node"),
        (SACCT.splitlines()[0], ALL, "no job in it ever held a node"),
        (
            SACCT.splitlines()[0] + "\nx|y\n",
            ALL,
            "1 of 1 line cannot be read, the first is line 2",
        ),
        (SACCT + "4|1|9\n" * 6, ALL, "6 of 9 lines cannot be read, .*; write it anew: SLURM"),
        (SACCT + "5|1|900|950|Unknown|FAILED|n1\n" * 6, ALL, "it is over, but has no end"),
        (
            SACCT.replace("|1200|", "||").replace("|1900|", "||").replace("COMPLETED", ""),
            ALL,
            "no job in it has an end",
        ),
        (SWF, LogOptions(nodes=1, from_s=1000, to_s=2000), "--nodes 1: jobs used 2 at once"),
        (SACCT, LogOptions(nodes=3), "the log has node lists"),
        (SACCT, LogOptions(node_list="n[1-"), "--node-list"),
        (SWF, LogOptions(node_list="n1"), "an SWF log has no node lists"),
        ("JobID|NNodes|Start|End\n7|2|100|200\n", ALL, "no column NodeList; use: SLURM"),
        (SACCT, LogOptions(from_s=5000, to_s=4000), "nothing is left"),
        (EVENTS, LogOptions(from_s=5000), "nothing is left"),
        (NO_MACHINE, LogOptions(from_s=1250, to_s=1400), "no job had a node between"),
        (SWF, LogOptions(from_s=5000, to_s=6000), "the log holds 1970-01-01 00:15 to 1970"),
        (SACCT, LogOptions(from_s=5000, to_s=6000), "the log holds 1970-01-01 00:15 to 1970"),
        (SACCT, LogOptions(from_s=1, to_s=1e9), "the log holds only 1970-01-01 00:15 to 1970"),
        (SACCT, LogOptions(node_list="zzz"), "no job had one of these nodes; one had n"),
        ("time,node,idle\nx,y,z\n", ALL, "column time"),
        ("; MaxNodes: 3\n", ALL, "no job in it ever held a node"),
        (SWF_NO_WAITS, ALL, "no line of a job can be used; 1 of 1 line .* its wait"),
    ],
)
def test_what_holds_no_log_is_refused(
    tmp_path: Path, text: str, options: LogOptions, message: str
) -> None:
    path = write(tmp_path / "log", text)
    with pytest.raises(LogError, match=message) as refused:
        read_log(path, options)
    assert str(refused.value).count(str(path)) == 1


def test_a_list_of_holes_may_be_gzipped_and_have_its_columns_in_any_order(tmp_path: Path) -> None:
    plain = read_log(write(tmp_path / "holes.csv", EVENTS), LogOptions(nodes=50))
    turned = "\n".join(",".join(line.split(",")[::-1]) for line in EVENTS.splitlines())
    (tmp_path / "holes").write_bytes(gzip.compress(turned.encode()))
    assert rows(read_log(tmp_path / "holes", LogOptions(nodes=50))) == rows(plain)


def test_a_gzipped_history_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(gzip.compress(b"SQLite format 3\0" * 9))
    with pytest.raises(LogError, match="unpack it first"):
        read_log(tmp_path / "log", ALL)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(SWF.encode() * 100)
    (tmp_path / "log.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match="damaged"):
        read_log(tmp_path / "log.gz", ALL)


@pytest.mark.parametrize(("began", "unknown"), [("UNKNOWN", True), ("845000000", False)])
def test_a_log_that_does_not_say_when_it_began_has_no_dates(
    tmp_path: Path, began: str, unknown: bool
) -> None:
    from_s = 0 if unknown else int(began)
    options = LogOptions(from_s=from_s + 1000, to_s=from_s + 2000)
    log = read_log(write(tmp_path / "log", f"; UnixStartTime: {began}\n{SWF}"), options)
    assert (caveats.NO_DATES in log.caveats) == unknown
