"""The metrics as a function of the status, as Prometheus reads them, and in the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from bftrainer_slurm import __version__
from bftrainer_slurm.controller.publish.status import no_status
from bftrainer_slurm.controller.state.statistics import Counts
from bftrainer_slurm.reader.metrics import MOST_USERS, families
from bftrainer_slurm.reader.site import site
from scripts.labcluster.stage import REPO
from tests.approved import approve_changes
from tests.cli.documents import DOCUMENT, SHOWN, STATUS
from tests.reader.asking import answer_of, facts_of

KEEPER = {"members": 7, "runs": 1, "refused": {"oversized": 2}}
ABOUT = STATUS["controller"] | {"since_s": 1000.0, "failed_turns": 3}
POOL = DOCUMENT["pool"] | {"starting": 1, "planned": 4, "free": ["n5"]}


def one(user: str, state: str = "running", nodes: int = 0, **more: Any) -> dict[str, Any]:
    """Return a trainer in the status."""
    names = [f"n{n}" for n in range(nodes)]
    return SHOWN | {"user": user, "state": state, "nodes": names, **more}


def counted() -> dict[str, Any]:
    """Return the counts of a controller in which everything has happened."""
    made = Counts()
    made.pauses["up"].add(3.0)
    made.requests["queue"].add(0.5)
    made.failed_requests["queue"] += 1
    for delay_s in (0.3, 1.0, 12.0, 500.0):
        made.delays.add(delay_s)
    more = {"started": 9, "ended": {"reclaimed": 4}, "preempted_elements": 4, "late_jobs": 1}
    return made.shown() | more


def status(*trainers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a status of these trainers."""
    return DOCUMENT | {
        "controller": ABOUT,
        "pool": POOL,
        "plan": {"objective": 12.5, "status": "optimal", "solve_s": 0.25},
        "malformed": {"9": "no record"},
        "trainers": list(trainers),
        "counts": Counts().shown(),
        "left_alone": {"needed soon": 2},
        "mute_nodes": ["n9"],
        "jobs_private": False,
        **changes,
    }


GPUS = {"left": 24, "used": 16, "starting": 4, "planned": 21}
SHARED = status(one("alice", nodes=3), pool=POOL | {"gpus": GPUS}, counts=counted())
SECRET = one("alice", nodes=1, name="secret plans", error="Traceback", samples=123456.0)
ALICES = (one("alice", nodes=2), one("alice", nodes=3), one("alice", "finished"))
STATUSES: dict[str, dict[str, Any]] = {
    "a pool, and no trainer": status(),
    "a deep queue": status(stopped_pass={"tried": 500, "left": 253}),
    "trainers by state, users by nodes and by trainers that are not over": status(
        *ALICES, one("bob", "waiting")
    ),
    "of a trainer nothing that only its owner may see": status(SECRET),
    "users beyond the most share a label, and no node is lost": status(
        *(one(f"u{n}", nodes=n) for n in range(1, MOST_USERS + 4))
    ),
    "users of a site with private jobs": status(*ALICES, jobs_private=True),
    "what was counted": status(counts=counted()),
    "GPUs of shared nodes": SHARED | {"trainers": [], "counts": Counts().shown()},
    "a greedy plan": status(plan={"objective": 1.0, "status": "greedy", "solve_s": 5.0}),
    "no plan": status(plan=None),
    "trouble": status(controller=ABOUT | {"error": "no answer", "history": "disk full"}),
    "a controller that has no status": no_status(0.0, ABOUT | {"error": "no status: KeyError"}),
}


def samples(read: Iterable[Metric]) -> list[str]:
    """Return all samples, as Prometheus writes them."""
    return [
        f"{sample.name}{{{labels}}} {sample.value:g}".replace("{}", "")
        for family in read
        for sample in family.samples
        for labels in [",".join(f'{name}="{one}"' for name, one in sorted(sample.labels.items()))]
    ]


def test_of_a_status_is_told_what_is_approved() -> None:
    told = {what: samples(families(one, 45.0, KEEPER)) for what, one in STATUSES.items()}
    told["a keeper that does not answer"] = samples(families(status(), 45.0, None))
    approve_changes(
        Path(__file__).with_name("metrics.txt"),
        {what: "\n".join(lines).replace(__version__, "VERSION") for what, lines in told.items()},
    )


def test_the_table_of_the_documentation_has_each_metric_with_its_type_and_labels() -> None:
    made = []
    for family in families(SHARED, 0.0, KEEPER):
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        end = {"counter": "_total", "info": "_info"}.get(family.type, "")
        made.append((f"{family.name}{end}", family.type, sorted(labels)))
    text = (REPO / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(bftrainer_\w+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
    told = [(name, kind, sorted(re.findall(r"\w+", own))) for name, kind, own in rows]
    assert sorted(told) == sorted(made)


def test_prometheus_parser_reads_back_what_is_served() -> None:
    document = SHARED | {"schema": 1, "time_s": 7.0, "keeper": KEEPER}
    answer = answer_of(site(Path("none"), facts_of(document, 0.5), ""), "/metrics")
    read = samples(text_string_to_metric_families(answer.body.decode()))
    assert sorted(read) == sorted(samples(families(SHARED, 0.5, KEEPER)))
    assert all(name.startswith("bftrainer_") for name in read)
