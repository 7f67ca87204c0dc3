"""What a report says, and that nothing in a log can make it do anything."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest

from bftrainer_slurm.cli.joblogs import print_notes
from bftrainer_slurm.replay.assessment import report
from bftrainer_slurm.replay.assessment.assess import Assessment, Replays, assess
from bftrainer_slurm.replay.assessment.document import document, table
from bftrainer_slurm.replay.assessment.harvest import HarvestOptions
from bftrainer_slurm.replay.assessment.reasons import Reason, Reasons, Share
from bftrainer_slurm.replay.assessment.report import render, write_report
from bftrainer_slurm.replay.drive import Outcome
from bftrainer_slurm.replay.figures import Replayed, rows
from bftrainer_slurm.replay.logs.gpus import FreeGpus, GpuUse
from bftrainer_slurm.replay.logs.jobs import BadLine, Notes
from bftrainer_slurm.replay.trainers import typical_trainers
from bftrainer_slurm.words import counted
from tests.replay.assessment.standin import equal_shares
from tests.replay.assessment.test_figures import log

PLANNED = (HarvestOptions(2), HarvestOptions(4))
WANTED = Replays(equal_shares, typical_trainers(4), "typical ones", PLANNED)
EVIL = "<script>alert(1)</script>\x1b[2J$x^$"  # would like to be HTML, or a terminal's command
NOTES = Notes(jobs=3, malformed=1, bad_lines=[BadLine(7, "it has <b>2</b> columns", EVIL)])
LOG = log([(k, k, 20 + k) for k in range(8)], 40, notes=NOTES, caveats=("Nodes <down> look idle.",))
WORTH = ("idle GPU-hours", "dedicated GPUs", "GPU-hours, if as many")
FREE = FreeGpus(idle_nodes=100.0, together={1: 20.0, 3: 30.0}, fit={1: 50.0, 2: 20.0})


@pytest.fixture(scope="module")
def assessment() -> Assessment:
    return assess("<img src=x>.log", LOG, UTC, WANTED)


@pytest.fixture(scope="module")
def page(assessment: Assessment) -> str:
    return render(assessment)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, which take a second of a processor each time."""
    monkeypatch.setattr(report, "pictures", lambda *_: defaultdict(str))


def test_dedicated_are_u_times_the_mean_pool(assessment: Assessment) -> None:
    (first, *_) = assessment.summaries
    assert first.dedicated.mean == pytest.approx(first.efficiency.mean * 4.0)
    assert 0 < first.used_share.least <= first.used_share.mean <= first.used_share.most <= 1


def test_the_share_done_is_told_within_each_replay(assessment: Assessment) -> None:
    told: list[float] = []
    assess("log", LOG, UTC, WANTED, told.append)
    assert told == sorted(told) and told[-1] == 1
    assert len(set(told)) > len(PLANNED) * len(assessment.samples)


def test_what_comes_from_the_log_is_escaped(page: str) -> None:
    assert "<script" not in page
    assert "<img src=x>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;?[2J$x^$" in page
    assert "Nodes &lt;down&gt; look idle." in page


def test_the_page_needs_nothing_from_outside_and_is_always_the_same(
    assessment: Assessment, page: str
) -> None:
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert page.count('src="data:image/svg+xml;base64,') == 4
    assert render(assessment) == page


def test_a_director_reads_what_it_comes_to_first_and_an_analyst_checks_it_at_last(
    assessment: Assessment, page: str
) -> None:
    first, last = page[: page.index("Every batch machine")], page[page.index("To check it") :]
    used = assessment.worth(assessment.summaries[0]).used_node_hours
    for words in (
        "40.0 % of the machine's node-hours were idle.",
        "dedicated nodes would train as much",
        f"<b>{used * 8766 / 40:,.0f}</b> node-hours of training a year",
        "What ordinary jobs feel",
        "<h1>What the idle nodes of this cluster are worth</h1>",
    ):
        assert words in first
    for words in ("160</b> node-hours idle", "equivalent nodes", "line 7", "not known"):
        assert words in page
    for one in assessment.replayed:
        assert f"<td>{one.sample.from_s:.0f}<br>" in last
        assert f"<td>{one.result.used_hours:,.2f}</td>" in last


@pytest.mark.usefixtures("undrawn")
def test_gpus_idle_in_nodes_in_use_are_said_apart(assessment: Assessment, page: str) -> None:
    use = GpuUse(nodes=2, gpus=8, allocated_hours=30.0, idle_hours=50.0)
    found = replace(assessment, log=replace(assessment.log, gpu_use=use, free_gpus=FREE))
    assert "50 GPU-hours were idle" in render(found)
    assert "<tr><td>3</td><td>30</td><td>60.0 %</td></tr>" in render(found)
    assert "GPU" not in page
    text = table(found)
    assert "50 GPU-hours idle in nodes that had a job, beside 30 allocated" in text
    assert "150 GPU-hours, 33.3 % of them in nodes that had a job" in text
    assert "by how many of a node are free together: 1: 40.0 %, 3: 60.0 %" in text
    assert "elements find room, by their GPUs: 100.0 % for 1, 40.0 % for 2" in text
    assert document(found)["gpus"]["idle_hours"] == 50
    assert document(found)["gpus"]["fit_hours"] == {"1": 50.0, "2": 20.0}
    same = {key: value for key, value in document(found).items() if key != "gpus"}
    assert same.items() <= document(assessment).items()


@pytest.mark.usefixtures("undrawn")
def test_where_gpus_are_replayed_they_are_the_headline(assessment: Assessment) -> None:
    use = GpuUse(nodes=10, gpus=40, allocated_hours=30.0, idle_hours=50.0)
    places = log([(0, 0, 30), (1, 10, 40), (2, 0, 40)], hours=40, nodes=40)
    of_log = replace(assessment.log, gpus=np.full(10, 4), gpu_use=use, free_gpus=FREE, kept=0.23)
    found = replace(assessment, log=replace(of_log, in_gpus=places))
    first = table(found).splitlines()
    assert "(1.7 days, 23% of the log), 10 nodes with 40 GPUs" in first[0]
    assert first[1] == (
        "idle             100 GPU-hours, 6.2 % of all, 2.5 GPUs on average; 33.3 % of that in "
        "nodes that had a job"
    )
    for line, words in zip(first[3:6], WORTH, strict=True):
        assert words in line
    assert "idle nodes       160 node-hours" in table(found)
    assert "<h1>What the idle GPUs of this cluster are worth</h1>" in render(found)
    assert "share = true" in render(found)
    worth = found.worth(found.summaries[0])
    assert worth.used_node_hours == pytest.approx((worth.gpu_hours or 0.0) / 4)
    assert document(found)["unit"] == "GPU"


@pytest.mark.usefixtures("undrawn")
def test_a_page_says_why_nodes_were_idle(assessment: Assessment) -> None:
    hours = {one.name.lower(): 0.0 for one in Reason} | {"waited": 7.0, "down": 3.0}
    types = (Share("4 <GPUs>", hours), Share("rome", hours))
    why = Reasons(Share("all", hours), (Share("p", hours),), types, ())
    found = replace(assessment, reasons=why)
    page, text = render(found), table(found)
    assert Reason.WAITED.value in page
    assert Reason.EMPTY.value not in page
    assert "4 &lt;GPUs&gt;" in page
    shown = "WHY, NODE-HOURS             WAITED      DOWN\nall                              7"
    assert shown in text


def test_the_document_is_plain_json(assessment: Assessment) -> None:
    found = json.loads(json.dumps(document(assessment), allow_nan=False))
    assert found["idle_node_hours"] == 160
    assert found["lengths"][-1]["to_s"] is None
    assert len(found["replays"]) == 2 * len(assessment.samples)
    assert found["lines"]["malformed"] == 1


def test_the_table_says_that_nothing_is_known_of_jobs(assessment: Assessment) -> None:
    text = table(assessment)
    why = "the log has no times of submission, or no job starts in what was replayed"
    assert text.count(f"ordinary jobs    unknown: {why}") == 2
    assert "\x1b" not in text


@pytest.mark.usefixtures("undrawn")
def test_without_a_hole_nothing_is_replayed() -> None:
    empty = assess("log", log([], hours=10), UTC, WANTED)
    assert not empty.samples
    assert "What trainers would make" not in render(empty)
    assert json.dumps(document(empty), allow_nan=False)
    assert "replayed" not in table(empty)


@pytest.mark.usefixtures("undrawn")
def test_a_report_replaces_the_one_before(assessment: Assessment, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    page = write_report(assessment, folder)
    page.write_text("old")
    write_report(assessment, folder)
    assert page.read_text() != "old"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["assessment.html", "assessment.json"]


def test_node_names_are_no_markup_for_pictures() -> None:
    one = log([(0, 0, 5)], hours=10, nodes=1)
    strange = replace(one, holes=replace(one.holes, nodes=("$\\frac{<b>",)))
    assert "frac" not in render(assess("log", strange, UTC, None))


def test_one_thing_is_not_many(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1)
    shown = dict(rows(Replayed(outcome, 1.0, 1.0, ())))
    assert (shown["time"], shown["samples"]) == ("1.0 hours, 1 event", "1, 1 trainer done")
    print_notes(Notes(malformed=1))
    assert capsys.readouterr().err.startswith("skipped 1 line that could not be read:\n")
    assert (counted(0, "node"), counted(1000, "node")) == ("0 nodes", "1,000 nodes")
