"""What of sacct's output is a stretch of a job on nodes, and what is not."""

from __future__ import annotations

import math
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from bftrainer_slurm.replay.logs import columns
from bftrainer_slurm.replay.logs.jobs import Job, LogError, Notes
from bftrainer_slurm.replay.logs.sacct import is_header, read_sacct

HEADER = "JobID|NNodes|Submit|Start|End|State|NodeList"


def read(*lines: str, zone: str = "UTC") -> tuple[list[Job], Notes]:
    notes = Notes()
    return list(read_sacct(iter(enumerate(lines, 1)), notes, ZoneInfo(zone))), notes


FLAGS, ELIGIBLE = "JobID|Start|End|Flags|NodeList", "JobID|Submit|Eligible|Start|End|NodeList"
PRIORITY = "JobID|Start|End|Partition|Priority|NodeList"
TRES, LIMIT = "JobID|Start|End|ReqTRES|AllocTRES|NodeList", "JobID|Start|End|TimelimitRaw|NodeList"
QUEUED = {"eligible_s": 100, "start_s": math.inf, "end_s": 300, "nodes": 4}
ROWS: list[tuple[str, str, dict[str, object]]] = [
    (HEADER, "7|2|100|200|300|COMPLETED|n[1-2]",
     {"start_s": 200, "end_s": 300, "node_list": "n[1-2]", "line": 2}),
    ("end|START|nodelist|jobid", "300|200|n1|7",
     {"start_s": 200, "end_s": 300, "node_list": "n1"}),
    ("JobID,Start,End,NodeList", '7,200,300,"n1,n2"', {"node_list": "n1,n2"}),
    (HEADER, "7|1|100|200|Unknown|RUNNING|n1", {"end_s": math.inf}),
    (HEADER, "7|4|100|None|300|CANCELLED by 123|None assigned", QUEUED),
    (HEADER, "7|4K|100|None|300|CANCELLED|None assigned", {"nodes": 4096}),
    (ELIGIBLE, "7|100|150|200|300|n1", {"eligible_s": 150}),
    (ELIGIBLE, "8|100|Unknown|200|300|n1", {"eligible_s": 200}),
    (FLAGS, "7|200|300|SchedBackfill|n1", {"backfilled": True}),
    (FLAGS, "7|200|300|StartReceived,SchedMain|n1", {"backfilled": False}),
    (FLAGS, "7|200|300|SchedSubmit|n1", {"backfilled": False}),
    (FLAGS, "7|200|300|StartReceived|n1", {"backfilled": None}),
    (FLAGS, "7|200|300||n1", {"backfilled": None}),
    (PRIORITY, "7|200|300|gpu|4294901|n1", {"partition": "gpu", "priority": 4294901}),
    (PRIORITY, "8|200|300|gpu||n1", {"priority": 0}),
    ("JobID|AllocNodes|NNodes|Submit|Start|End|NodeList", "7|0|3|100|None|300|None assigned",
     {"nodes": 3}),
    (TRES, "7|2|3|cpu=4,mem=2G|billing=4,cpu=4,gres/gpu=2,mem=8G,node=1|n1", {"gpus": 2}),
    (TRES, "7|2|3||cpu=4,gres/gpu:a100=2,gres/gpu:v100=1,mem=500M|n1", {"gpus": 3}),
    (TRES, "7|2|3|cpu=4,gres/gpu:a100=4,gres/gpu=4,mem=1.50T||n1", {"gpus": 4}),
    (TRES, "7|2|3|||n1", {"gpus": 0}),
    (LIMIT, "7|2|3|90|n1", {"limit_s": 5400}),
    (LIMIT, "7|2|3|UNLIMITED|n1", {"limit_s": math.inf}),
    (LIMIT, "7|2|3|Partition_Limit|n1", {"limit_s": math.inf}),
]  # fmt: skip


@pytest.mark.parametrize(("header", "row", "known"), ROWS, ids=lambda one: str(one)[:40])
def test_a_row_is_a_stretch_on_its_nodes_or_in_the_queue(
    header: str, row: str, known: dict[str, object]
) -> None:
    (job,), notes = read(header, row)
    assert {name: getattr(job, name) for name in known} == known
    assert (notes.malformed, notes.never_ran) == (0, int(job.start_s == math.inf))


def test_iso_times_are_local_times_of_the_zone() -> None:
    row = "7|1|2024-01-01T00:00:00|2024-07-01T12:00:00|2024-07-01T13:00:00|COMPLETED|n1"
    (utc,), _ = read(HEADER, row)
    (berlin,), _ = read(HEADER, row, zone="Europe/Berlin")
    assert utc.start_s == 1719835200
    assert utc.start_s - berlin.start_s == 7200


@pytest.mark.parametrize(
    "row",
    [
        "7|1|100|Unknown|Unknown|PENDING|None assigned",
        "7|1|300|300|300|CANCELLED by 123|n1",
        "7_[5-9]|1|100|Unknown|Unknown|PENDING|None assigned",
    ],
)
def test_a_job_that_never_ran_is_counted_and_left_out(row: str) -> None:
    jobs, notes = read(HEADER, row)
    assert (jobs, notes.never_ran, notes.malformed) == ([], 1, 0)


def test_without_a_time_of_submission_nobody_knows_who_waited() -> None:
    (job,), _ = read("JobID|Start|End|NodeList", "7|200|300|n1")
    assert math.isnan(job.eligible_s)


def test_a_job_that_waits_still_says_when_the_log_was_taken() -> None:
    _, notes = read(HEADER, "7|1|950|Unknown|Unknown|PENDING|None assigned")
    assert notes.last_submit_s == 950


def test_steps_are_no_jobs() -> None:
    jobs, notes = read(HEADER, "7.batch|1|100|200|300|COMPLETED|n1")
    assert (jobs, notes.steps) == ([], 1)


def test_a_requeued_job_has_several_stretches() -> None:
    jobs, _ = read(HEADER, "7|1|100|200|300|PREEMPTED|n1", "7|1|100|400|500|COMPLETED|n2")
    assert len({job.key for job in jobs}) == 2


def test_the_same_stretch_has_the_same_key() -> None:
    row = "7|1|100|200|300|COMPLETED|n1"
    first, second = read(HEADER, row, row)[0]
    assert first.key == second.key


def test_headers_in_between_are_passed_over() -> None:
    jobs, notes = read(HEADER, "7|1|1|2|3|COMPLETED|n1", HEADER, "8|1|1|2|3|COMPLETED|n1")
    assert (len(jobs), notes.malformed) == (2, 0)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("7|1|100|200|300|COMPLETED", "6 columns"),
        ("7|1|100|200|300|COMPLETED|n1|more", "8 columns"),
        ("7|1|100|300|200|COMPLETED|n1", "ends before it starts"),
        ("7|1|100|yesterday|200|COMPLETED|n1", "is not a time"),
        ("7|1|100|9999999999|Unknown|RUNNING|n1", "not a time of this century"),
        ("7|1|100|200|" + "9" * 5000 + "|RUNNING|n1", "is not a time"),
    ],
)
def test_a_malformed_row_is_counted_and_explained(row: str, why: str) -> None:
    jobs, notes = read(HEADER, row, "8|1|100|200|300|COMPLETED|n1")
    assert (len(jobs), notes.malformed) == (1, 1)
    assert notes.bad_lines[0].number == 2
    assert why in notes.bad_lines[0].why


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("x", "invalid literal"),
        ("0", "is impossible"),
        ("-1", "is impossible"),
        ("9" * 5000, "digits"),
    ],
)
def test_a_number_of_nodes_that_cannot_be_is_malformed(nodes: str, why: str) -> None:
    row = f"7|{nodes}|100|None|300|CANCELLED|None assigned"
    jobs, notes = read(HEADER, row)
    assert (jobs, notes.malformed) == ([], 1)
    assert why in notes.bad_lines[0].why


def test_only_the_first_malformed_rows_are_kept() -> None:
    _, notes = read(HEADER, *["nonsense" * 1000] * 50)
    assert notes.malformed == 50
    assert sum(len(line.text) for line in notes.bad_lines) < 1000


@pytest.mark.parametrize("header", ["JobID|NNodes|Start|End", "JobID|NodeList", "JobID|NNodes"])
def test_a_header_without_what_is_needed_names_the_command(header: str) -> None:
    assert is_header(header)
    with pytest.raises(LogError, match=r"no column .* sacct --allusers"):
        read(header, "7|1|2")


def test_headers_are_recognised() -> None:
    assert is_header("JobID,NCPUS,NNodes,Submit,Start,End,ElapsedRaw,State")
    assert not is_header("time,node,idle")


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(LogError, match="empty"):
        list(read_sacct(iter(()), Notes(), UTC))


@pytest.mark.parametrize("tres", ["gres/gpu=many", "gres/gpu=-1"])
def test_resources_that_cannot_be_make_a_line_malformed(tres: str) -> None:
    jobs, notes = read("JobID|Start|End|AllocTRES|NodeList", f"7|2|3|{tres}|n1")
    assert (jobs, notes.malformed) == ([], 1)


MIXED = (HEADER, "1|1|100|200|300|COMPLETED|n1", "2|1|soon|2|3|COMPLETED|n1", "3|few",
         "4|1|100|300|200|COMPLETED|n1", "5|1|100|200|Unknown|RUNNING|n[1-2]")  # fmt: skip


def test_malformed_rows_are_kept_in_the_order_of_the_log() -> None:
    _, notes = read(*MIXED)
    assert [line.number for line in notes.bad_lines] == [3, 4, 5]


def test_reading_a_line_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(*MIXED)
    monkeypatch.setattr(columns, "_BATCH", 1)
    assert read(*MIXED) == whole


def test_job_ids_may_be_raw() -> None:
    header = "JobIDRaw|Start|End|NodeList"
    assert is_header(header)
    (job,), notes = read(header, "7|200|300|n[1-3]", "7.batch|200|300|n1")
    assert (job.node_list, notes.malformed, notes.steps) == ("n[1-3]", 0, 1)
