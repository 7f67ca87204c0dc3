"""The metrics as a function of the status, as Prometheus reads them, and in the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from bftrainer_slurm.controller.publish.status import no_status
from bftrainer_slurm.controller.state.statistics import Counts
from bftrainer_slurm.reader.metrics import MOST_USERS, OTHERS, families
from bftrainer_slurm.reader.site import site
from tests.reader.asking import answer_of, facts_of

DOCUMENTS = Path(__file__).parents[2] / "docs"
KEEPER = {"members": 7, "runs": 1, "refused": {"oversized": 2}}
ABOUT = {
    "mode": "site",
    "partition": "bftrainer",
    "gateway": "look",
    "since_s": 1000.0,
    "failed_turns": 3,
    "error": None,
    "history": None,
}


def one(user: str, state: str = "running", nodes: int = 0, **more: Any) -> dict[str, Any]:
    """A trainer in the status."""
    return {"user": user, "state": state, "nodes": [f"n{n}" for n in range(nodes)], **more}


SHARED = {"left": 24, "used": 16, "starting": 4, "planned": 21}  # GPUs


POOL = {"nodes": 5, "used": 3, "starting": 1, "planned": 4, "free": ["n5"], "gpus": None}


def status(*trainers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A status of these trainers."""
    return {
        "controller": ABOUT,
        "pool": POOL,
        "plan": {"objective": 12.5, "status": "optimal", "solve_s": 0.25},
        "malformed": {"9": "no record"},
        "trainers": list(trainers),
        "counts": Counts().shown(),
        "left_alone": {"needed soon": 2},
        "mute_nodes": ["n9"],
        "jobs_private": False,
    } | changes


def samples(
    document: dict[str, Any], age_s: float = 0.0, keeper: dict[str, Any] | None = KEEPER
) -> dict[str, float]:
    """All samples by their names, with the labels as Prometheus writes them."""
    found = {}
    for family in families(document, age_s, keeper):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def counted(**counts: Any) -> dict[str, float]:
    """The samples where these were counted."""
    return samples(status(counts=Counts().shown() | counts))


def counts(**more: Any) -> dict[str, Any]:
    """A status where these were counted."""
    made = Counts()
    made.pauses["up"].add(3.0)
    made.requests["queue"].add(0.5)
    made.failed_requests["queue"] += 1
    return status(counts=made.shown() | more)


ALICES = one("alice", nodes=2), one("alice", nodes=3), one("alice", "finished")
TOLD: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "the pool": (status(), {
        "pool_nodes": 5, "pool_used_nodes": 3, "pool_starting_nodes": 1, "pool_planned_nodes": 4,
        "pool_free_nodes": 1, "mute_nodes": 1,
        'left_alone_nodes{why="needed soon"}': 2,
    }),
    "a queue that passes come to the end of": (status(), {"backfill_untried_jobs": 0}),
    "a deep queue": (
        status(stopped_pass={"tried": 500, "left": 253}), {"backfill_untried_jobs": 253}
    ),
    "trainers by state, each of which is always there": (
        status(one("alice"), one("bob"), one("bob", "waiting")),
        {'trainers{state="running"}': 2, 'trainers{state="waiting"}': 1,
         'trainers{state="given up"}': 0},
    ),
    "users by nodes and trainers that are not over": (
        status(*ALICES, one("bob", "waiting")),
        {'user_nodes{username="alice"}': 5, 'user_trainers{username="alice"}': 2,
         'user_trainers{username="bob"}': 1},
    ),
    "what was counted": (
        counts(started=9, ended={"reclaimed": 4}, preempted_elements=4, late_jobs=1),
        {"elements_started_total": 9, 'elements_ended_total{how="reclaimed"}': 4,
         'elements_ended_total{how="shrank"}': 0, "preempted_elements_total": 4,
         "late_ordinary_jobs_total": 1, 'rescale_pause_seconds_sum{direction="up"}': 3,
         'rescale_pause_seconds_count{direction="down"}': 0,
         'slurm_request_seconds_sum{request="queue"}': 0.5,
         'slurm_request_failures_total{request="queue"}': 1},
    ),
    "the plan in force": (
        status(plan={"objective": 1.0, "status": "greedy", "solve_s": 5.0}),
        {f'plan_status{{status="{kind}"}}': float(kind == "greedy")
         for kind in ("optimal", "feasible", "greedy")},
    ),
    "no plan": (status(plan=None), {'plan_status{status="optimal"}': 0}),
    "trouble and age": (
        status(controller=ABOUT | {"error": "no answer", "history": "disk full"}),
        {"trouble": 1, "history_trouble": 1, "status_age_seconds": 45, "failed_turns_total": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "told"), TOLD.values(), ids=TOLD)
def test_of_the_status_is_told(document: dict[str, Any], told: dict[str, float]) -> None:
    found = samples(document, age_s=45.0)
    assert {name: found[f"bftrainer_{name}"] for name in told} == told


def test_gpus_of_shared_nodes_are_told_where_there_are_any() -> None:
    kinds = ("gpus", "used_gpus", "starting_gpus", "planned_gpus")
    names = [f"bftrainer_pool_{kind}" for kind in kinds]
    found = samples(status(pool=POOL | {"gpus": SHARED}))
    assert [found[name] for name in names] == [24, 16, 4, 21]
    assert not samples(status()).keys() & set(names)


def test_users_beyond_the_most_share_a_label_and_no_node_is_lost() -> None:
    found = samples(status(*(one(f"u{n}", nodes=n) for n in range(1, MOST_USERS + 4))))
    nodes = {key: value for key, value in found.items() if key.startswith("bftrainer_user_nodes")}
    assert len(nodes) == MOST_USERS + 1
    assert nodes[f'bftrainer_user_nodes{{username="{OTHERS}"}}'] == 1 + 2 + 3
    assert sum(nodes.values()) == sum(range(1, MOST_USERS + 4))


def test_where_slurm_keeps_jobs_private_no_user_is_named() -> None:
    found = samples(status(one("alice", nodes=2), jobs_private=True))
    assert not any("username" in key for key in found)
    assert found['bftrainer_trainers{state="running"}'] == 1


def test_the_number_of_series_does_not_grow_with_trainers_elements_and_users() -> None:
    few = samples(status(*(one(f"u{n}", nodes=1) for n in range(MOST_USERS + 1))))
    many = samples(status(*(one(f"u{n}", nodes=50, array=n, name=f"job {n}") for n in range(500))))
    assert few.keys() == {key for key in many if "username" not in key} | {
        key for key in few if "username" in key
    }
    assert len(many) == len(few) < 250


def test_nothing_that_only_its_owner_may_see_is_in_it() -> None:
    trainer = one("alice", nodes=1, name="secret plans", error="Traceback", samples=123456.0)
    text = repr(samples(status(trainer)))
    assert not re.search("secret|Traceback|123456", text)


def test_the_delay_of_ordinary_jobs_is_a_histogram() -> None:
    counts = Counts()
    for delay_s in (0.3, 1.0, 12.0, 500.0):
        counts.delays.add(delay_s)
    found = counted(delays=counts.delays.shown())
    name = "bftrainer_preemption_delay_seconds"
    assert [found[f'{name}_bucket{{le="{le}"}}'] for le in ("0.5", "1.0", "10.0", "30.0")] == [
        *(1, 2, 2, 3)
    ]
    assert (found[f'{name}_bucket{{le="+Inf"}}'], found[f"{name}_count"]) == (4, 4)
    assert found[f"{name}_sum"] == pytest.approx(513.3)


def test_a_keeper_that_does_not_answer_is_down_and_the_rest_is_still_told() -> None:
    found = samples(status(), keeper=None)
    assert found["bftrainer_keeper_up"] == 0
    assert "bftrainer_keeper_members" not in found
    assert found["bftrainer_pool_nodes"] == 5
    assert samples(status())['bftrainer_keeper_refusals_total{kind="oversized"}'] == 2


def test_a_controller_that_has_no_status_still_tells_of_itself() -> None:
    found = samples(no_status(0.0, ABOUT | {"error": "no status: KeyError"}))
    assert found["bftrainer_trouble"] == 1
    assert "bftrainer_pool_nodes" not in found


def described(family: Metric) -> str:
    """The name under which a family is in the table."""
    return {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(
        family.type, family.name
    )


def test_the_table_of_the_documentation_has_each_metric_with_its_type_and_labels() -> None:
    counts = Counts()
    counts.requests["queue"].add(0.1)
    made = {}
    pool = POOL | {"gpus": SHARED}
    for family in families(status(one("alice"), pool=pool, counts=counts.shown()), 0.0, KEEPER):
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        made[described(family)] = (family.type, tuple(sorted(labels)))
    text = (DOCUMENTS / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(bftrainer_\w+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
    told = {name: (kind, tuple(sorted(re.findall(r"\w+", own)))) for name, kind, own in rows}
    assert told == made
    assert max(Counter(name for name, _, _ in rows).values()) == 1


def everything() -> Iterable[Metric]:
    return families(status(one("alice", nodes=3)), 0.5, KEEPER)


def told(read: Iterable[Metric]) -> list[tuple[str, str, float]]:
    """Names, labels and values of all samples."""
    samples = (sample for family in read for sample in family.samples)
    return sorted((one.name, repr(sorted(one.labels.items())), one.value) for one in samples)


def test_prometheus_parser_reads_back_what_is_served() -> None:
    document = status(one("alice", nodes=3)) | {"schema": 1, "time_s": 7.0, "keeper": KEEPER}
    answer = answer_of(site(Path("none"), facts_of(document, 0.5), ""), "/metrics")
    read = told(text_string_to_metric_families(answer.body.decode()))
    assert answer.status == 200
    assert read == told(everything())
    assert all(name.startswith("bftrainer_") for name, _, _ in read)
