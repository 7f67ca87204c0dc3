"""What a line says of a job: of sacct's output, and of the Standard Workload Format (SWF)."""

from __future__ import annotations

import math
from zoneinfo import ZoneInfo

import pytest

from bftrainer_slurm.replay.logs import columns
from bftrainer_slurm.replay.logs.jobs import Job, Notes
from bftrainer_slurm.replay.logs.sacct import read_sacct
from bftrainer_slurm.replay.logs.swf import Machine, is_swf, read_swf

HEADER = "JobID|NNodes|Submit|Start|End|State|NodeList"


def read(*lines: str, zone: str = "UTC") -> tuple[list[Job], Notes]:
    notes, numbered = Notes(), iter(enumerate("\n".join(lines).split("\n"), 1))
    if is_swf(lines[0]):
        return list(read_swf(numbered, notes, Machine())), notes
    return list(read_sacct(numbered, notes, ZoneInfo(zone))), notes


def swf(
    submit: float = 10, wait: float = 5, run: float = 100, had: int = 4, asked: int = -1
) -> str:
    return f"1 {submit} {wait} {run} {had} -1 -1 {asked}" + " -1" * 10


SWF, MACHINE = "; Version: 2.2", "; MaxNodes: 128\n;MaxProcs: 2048 (16 a node)"
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
    ("JobIDRaw|Start|End|NodeList", "7|200|300|n[1-3]", {"node_list": "n[1-3]"}),
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
    ("; UnixStartTime: 1000", swf(), {"start_s": 1015, "end_s": 1115, "nodes": 4}),
    (MACHINE, swf(had=17), {"nodes": 2}),  # processors fill whole nodes
    ("; MaxProcs: 40", swf(had=5), {"nodes": 5}),  # and are nodes where the header does not say
    (SWF, swf(had=-1, asked=8), {"nodes": 8}),
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
    starts = [read(HEADER, row, zone=zone)[0][0].start_s for zone in ("UTC", "Europe/Berlin")]
    assert starts == [1719835200, 1719835200 - 7200]


NEVER_RAN = [
    (HEADER, "7|1|100|Unknown|Unknown|PENDING|None assigned"),
    (HEADER, "7|1|300|300|300|CANCELLED by 123|n1"),
    (HEADER, "7_[5-9]|1|100|Unknown|Unknown|PENDING|None assigned"),
    *((SWF, row) for row in (swf(run=-1), swf(run=0), swf(run=0, wait=-1), swf(had=-1))),
]


@pytest.mark.parametrize(("header", "row"), NEVER_RAN)
def test_a_job_that_never_ran_is_counted_and_left_out(header: str, row: str) -> None:
    jobs, notes = read(header, row)
    assert (jobs, notes.never_ran, notes.malformed) == ([], 1, 0)


def test_without_a_time_of_submission_nobody_knows_who_waited() -> None:
    (job,), _ = read("JobID|Start|End|NodeList", "7|200|300|n1")
    assert math.isnan(job.eligible_s)


def test_a_job_that_waits_still_says_when_the_log_was_taken() -> None:
    assert read(HEADER, "7|1|950|Unknown|Unknown|PENDING|None assigned")[1].last_submit_s == 950


def test_steps_are_no_jobs_and_headers_in_between_are_passed_over() -> None:
    jobs, notes = read(HEADER, "7|1|1|2|3|COMPLETED|n1", "7.batch|1|1|2|3|COMPLETED|n1", HEADER)
    assert (len(jobs), notes.steps, notes.malformed) == (1, 1, 0)


def test_a_requeued_job_has_several_stretches_and_one_that_is_shown_twice_one_key() -> None:
    row, later = "7|1|100|200|300|PREEMPTED|n1", "7|1|100|400|500|COMPLETED|n2"
    first, again, other = read(HEADER, row, row, later)[0]
    assert first.key == again.key != other.key


ACTS = "JobID|Start|End|AllocTRES|NodeList"
MALFORMED = [
    (HEADER, "7|1|100|200|300|COMPLETED", "6 columns"),
    (HEADER, "7|1|100|200|300|COMPLETED|n1|more", "8 columns"),
    (HEADER, "7|1|100|300|200|COMPLETED|n1", "ends before it starts"),
    (HEADER, "7|1|100|yesterday|200|COMPLETED|n1", "is not a time"),
    (HEADER, "7|1|100|9999999999|Unknown|RUNNING|n1", "not a time of this century"),
    (HEADER, "7|1|100|200|" + "9" * 5000 + "|RUNNING|n1", "is not a time"),
    (HEADER, "7|x|100|None|300|CANCELLED|None assigned", "invalid literal"),
    (HEADER, "7|0|100|None|300|CANCELLED|None assigned", "is impossible"),
    (HEADER, "7|-1|100|None|300|CANCELLED|None assigned", "is impossible"),
    (HEADER, f"7|{'9' * 5000}|100|None|300|CANCELLED|None assigned", "digits"),
    (ACTS, "7|2|3|gres/gpu=many|n1", "invalid literal"),
    (ACTS, "7|2|3|gres/gpu=-1|n1", "is impossible"),
    (SWF, "1 2 3", "3 columns"),
    (SWF, swf() + " 7", "19 columns"),
    (SWF, swf(submit=math.nan), "is not finite"),
    (SWF, swf().replace("100", "x"), "could not convert"),
    (SWF, swf(wait=-1), "its wait (field 3) is unknown"),  # and yet it ran
]


@pytest.mark.parametrize(("header", "row", "why"), MALFORMED, ids=lambda one: one[:40])
def test_a_malformed_row_is_counted_and_explained(header: str, row: str, why: str) -> None:
    jobs, notes = read(header, row)
    assert (jobs, notes.malformed, notes.bad_lines[0].number) == ([], 1, 2)
    assert notes.never_ran == ("CANCELLED" in row)
    assert why in notes.bad_lines[0].why


MIXED = (HEADER, "1|1|100|200|300|COMPLETED|n1", "2|1|soon|2|3|COMPLETED|n1", "3|few",
         "4|1|100|300|200|COMPLETED|n1", "5|1|100|200|Unknown|RUNNING|n[1-2]")  # fmt: skip


def test_malformed_rows_are_kept_in_the_order_of_the_log_also_if_they_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = read(*MIXED)
    assert [line.number for line in whole[1].bad_lines] == [3, 4, 5]
    monkeypatch.setattr(columns, "_BATCH", 1)
    assert read(*MIXED) == whole


def test_only_the_first_malformed_rows_are_kept() -> None:
    _, notes = read(HEADER, *["nonsense" * 1000] * 50)
    assert notes.malformed == 50
    assert sum(len(line.text) for line in notes.bad_lines) < 1000
