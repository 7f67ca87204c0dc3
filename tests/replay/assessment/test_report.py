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
from tests.approved import approve_changes
from tests.replay.assessment.standin import a_share
from tests.replay.assessment.test_figures import log

PLANNED = (HarvestOptions(2), HarvestOptions(4))
WANTED = Replays(a_share, typical_trainers(4), "typical ones", PLANNED)
EVIL = "<script>alert(1)</script>\x1b[2J$x^$"  # would like to be HTML, or a terminal's command
NOTES = Notes(jobs=3, malformed=1, bad_lines=[BadLine(7, "it has <b>2</b> columns", EVIL)])
LOG = log([(k, k, 20 + k) for k in range(8)], 40, notes=NOTES, caveats=("Nodes <down> look idle.",))
FREE = FreeGpus(idle_nodes=100.0, together={1: 20.0, 3: 30.0}, fit={1: 50.0, 2: 20.0})


@pytest.fixture(scope="module")
def assessment() -> Assessment:
    return assess("<img src=x>.log", LOG, UTC, WANTED)


@pytest.fixture(scope="module")
def page(assessment: Assessment) -> str:
    return render(assessment)


@pytest.fixture(scope="module")
def known(assessment: Assessment) -> dict[str, Assessment]:
    """The same of logs that tell more or less."""
    hours = {one.name.lower(): 0.0 for one in Reason} | {"waited": 7.0, "down": 3.0}
    types = (Share("4 <GPUs>", hours), Share("rome", hours))
    beside = replace(assessment.log, gpu_use=GpuUse(2, 8, 30.0, 50.0), free_gpus=FREE)
    places = log([(0, 0, 30), (1, 10, 40), (2, 0, 40)], hours=40, nodes=40)
    use = {"gpus": np.full(10, 4), "gpu_use": GpuUse(10, 40, 30.0, 50.0)}
    return {
        "nodes alone": assessment,
        "GPUs of nodes in use": replace(assessment, log=beside),
        "GPUs in place of nodes": replace(
            assessment, log=replace(beside, **use, kept=0.23, in_gpus=places)
        ),
        "why nodes were idle": replace(
            assessment, reasons=Reasons(Share("all", hours), (Share("p", hours),), types, ())
        ),
        "no hole": assess("log", log([], hours=10), UTC, WANTED),
    }


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, which take a second of a processor each time."""
    monkeypatch.setattr(report, "pictures", lambda *_: defaultdict(str))


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


@pytest.mark.usefixtures("undrawn")
def test_tables_and_pages_are_said_as_approved(known: dict[str, Assessment]) -> None:
    """A director reads first what it comes to; at the end an analyst can check it."""
    for name, shown in (("tables", table), ("pages", said_by_the_page)):
        file = Path(__file__).with_name(f"{name}.txt")
        approve_changes(file, {what: shown(one) for what, one in known.items()})


def said_by_the_page(one: Assessment) -> str:
    lines = re.sub("<style.*?</style>|<[^>]*>", "\n", render(one), flags=re.DOTALL).splitlines()
    return "\n".join(filter(None, map(str.strip, lines)))


def test_documents_are_plain_json(known: dict[str, Assessment]) -> None:
    found = {
        what: json.loads(json.dumps(document(one), allow_nan=False)) for what, one in known.items()
    }
    nodes, gpus = found["nodes alone"], found["GPUs of nodes in use"]
    assert nodes["idle_node_hours"] == 160
    assert nodes["lengths"][-1]["to_s"] is None
    assert len(nodes["replays"]) == 2 * len(known["nodes alone"].samples)
    assert nodes["lines"]["malformed"] == 1
    assert {key for key in nodes if gpus[key] != nodes[key]} == {"gpus"}
    assert gpus["gpus"]["idle_hours"] == 50
    assert gpus["gpus"]["fit_hours"] == {"1": 50.0, "2": 20.0}
    assert found["GPUs in place of nodes"]["unit"] == "GPU"
    assert found["no hole"]["replays"] == []


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
