"""The table and the JSON say what was measured, what failed, and which targets are met."""

from __future__ import annotations

import json

import pytest

from scripts.benchkit.command import json_text
from scripts.impact_bench import report
from scripts.impact_bench.figures import Measured, Side, figures_of
from scripts.impact_bench.report import late_jobs, picture
from scripts.impact_bench.trainers import Work
from tests.impact_bench.starts import start


@pytest.fixture
def measured() -> Measured:
    """Two jobs, the second one with a node that it takes from an element, and a pass later."""
    first = start(delay_s=0.2, number=1, on=("n1",))
    off = Side("without", [first, start(delay_s=0.4, nodes=8, number=2, on=("n2",))])
    first = start(delay_s=0.3, number=1, on=("n1",))
    on = Side("with", [first, start(delay_s=1.9, nodes=8, number=2, on=("n2",))])
    off.passes_s, on.passes_s = [0.0, 1.0, 2.0, 3.0], [0.0, 1.1, 2.0]
    on.log = {("preempted", 2): [(0.5, "3")], ("allocated", 3): [(2.0, "")]}
    on.left_behind = 2
    on.work = Work([1, 2], nodes=8, reclaimed=9, left=40)
    return Measured(off, on, 3)


def rendered(measured: Measured) -> str:
    return "\n\n".join(report.rendered(measured, figures_of(measured)))


def unwatched(off: Side, on: Side) -> Measured:
    """Return what was measured where no log could be read."""
    return Measured(off, on, 8)


def row(text: str, begin: str) -> list[str]:
    line = next(one for one in text.splitlines() if one.startswith(begin))
    return line.removeprefix(begin).split()


def test_both_sides_and_the_difference_stand_below_each_other(measured: Measured) -> None:
    text = rendered(measured)
    assert row(text, "without trainers ") == ["2", "0.30", "0.30", "0.39", "0.40"]
    assert row(text, "with trainers ") == ["2", "1.10", "1.10", "1.82", "1.90"]
    assert row(text, "difference of each job") == ["2", "+0.80", "+0.80", "+1.43", "+1.50"]


def test_the_difference_is_told_by_size_as_well(measured: Measured) -> None:
    assert row(rendered(measured), "  nodes: 8") == ["1", "+1.50", "+1.50"]


def test_jobs_that_backfill_starts_without_trainers_are_told_by_themselves() -> None:
    off = Side("without", [start(delay_s=0.2), start(delay_s=30.0, number=2)])
    off.log = {("backfilled", 2): [(30.0, "")]}
    on = Side("with", [start(delay_s=0.3), start(delay_s=28.0)])
    text = rendered(unwatched(off, on))
    assert row(text, "  started by the main scheduler without") == ["1", "+0.10", "+0.10"]
    assert row(text, "  started by backfill without") == ["1", "-2.00", "-2.00"]


def test_targets_are_judged(measured: Measured) -> None:
    text = "\n".join(map(str, figures_of(measured).targets))
    assert "MISSED  median of the differences, s: 0.800 <= 0.05" in text
    assert "MISSED  jobs that missed a pass, %: 50.000 <= 1" in text
    assert "met     jobs failed that did not without: 0 <= 0" in text
    assert "MISSED  processes of trainers left behind: 2 <= 0" in text


def test_jobs_that_elements_had_to_go_for_and_that_missed_a_pass_are_counted(
    measured: Measured,
) -> None:
    text = rendered(measured)
    assert row(text, "  preempted an element") == ["1", "50.0"]
    assert row(text, "  missed a pass that they made without") == ["1", "50.0"]
    assert row(text, "  made an earlier pass") == ["0", "0.0"]


def test_each_job_that_missed_a_pass_is_told_with_its_times(measured: Measured) -> None:
    text = late_jobs(measured)
    assert len(text.splitlines()) == 2
    assert row(text, "  2 ") == ["8", "0.0", "0.4", "1.9", "1", "yes"]


def test_nodes_that_trainers_used_stand_beside_those_that_were_idle(measured: Measured) -> None:
    # Until 5.4: one node never had a job, the two others from 0.2 to 5.2 and from 0.4 to 5.4.
    idle = "idle after a pass, without trainers: 6 node-seconds, 0 of them in holes of a minute"
    assert f"{idle} or more; used: 3" in rendered(measured)


def test_how_alike_the_passes_of_both_sides_were_is_told(measured: Measured) -> None:
    assert "passes of backfill: 4 and 3, 0.100 s out of phase at most" in rendered(measured)


def test_what_trainers_did_meanwhile_is_told(measured: Measured) -> None:
    assert (
        "on 8 nodes as the stream began, 40 elements left for jobs, "
        "9 were reclaimed, 2 processes left behind" in rendered(measured)
    )


def test_the_document_has_every_job_and_the_verdicts(measured: Measured) -> None:
    found = json.loads(json_text(report.document(measured, figures_of(measured))))
    assert [one["start_s"] for one in found["jobs"]["with"]] == [0.3, 1.9]
    assert found["makespan_s"].keys() == found["failed"].keys() == {"without", "with"}
    assert [one["met"] for one in found["targets"]] == [False] * 6 + [True, False, False]
    assert found["shares"]["preempted"] == 50.0


def test_a_run_in_which_no_job_started_still_has_a_table() -> None:
    never = [start(delay_s=None)]
    text = rendered(unwatched(Side("without", never), Side("with", never)))
    assert "jobs failed: 1 without trainers, 1 with" in text


def test_the_same_results_give_the_same_picture() -> None:
    delays = [(0.2, 0.25), (0.4, 1.9)]
    drawn = picture(delays)
    assert drawn == picture(delays)
    assert "with trainers" in drawn
