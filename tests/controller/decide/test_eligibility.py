"""Which trainers cannot have which nodes: by what they ask for, and by what Slurm has said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bftrainer_slurm.controller.decide.eligibility import Eligibility, eligibility
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.observe.snapshot import Snapshot
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import Wait
from bftrainer_slurm.controller.state.view import TrainerView
from bftrainer_slurm.model import (
    Configuration,
    Demands,
    Element,
    Memory,
    NodeState,
    Part,
    Resources,
)
from bftrainer_slurm.slurm.nodelists import expand
from tests.controller.worlds import (
    ARRAY,
    NOW_S,
    cases,
    element,
    named,
    node,
    snapshot,
    trainer,
    view,
    view_of,
)

HELD = element(0, "held")
BIG, SMALL = Resources(8000, 64, frozenset({("gpu", 4)})), Resources(1000, 16)
NODES = (
    replace(node("n1"), features=frozenset({"red"}), resources=BIG),
    replace(node("n2"), features=frozenset({"red", "big"}), resources=SMALL),
    replace(node("n3"), resources=SMALL),
)


GPU = node("g1", partition="bftrainer gpu")
ELSEWHERE = node("g2", partition="gpu")
EVERY = snapshot((*NODES, GPU, ELSEWHERE))
SITE = snapshot(NODES)


def asking(
    *elements: Element | str,
    min_nodes: int = 1,
    partitions: str = "",
    nodes: str = "",
    **demands: object,
) -> TrainerView:
    """A trainer as its job record makes it."""
    of, names = trainer(*elements, min_nodes=min_nodes), tuple(partitions.split())
    record = replace(of.record, partitions=names, nodes=nodes)
    asked = Demands(partitions=frozenset(names), nodes=frozenset(expand(nodes)), **demands)  # type: ignore[arg-type]
    return view_of(replace(of, record=record, demands=asked))


def found(view: TrainerView, of: Snapshot = SITE, after_s: float = 0.0) -> Eligibility:
    return eligibility((view,), replace(of, time_s=NOW_S + after_s))


RED, GRES = frozenset({"red"}), frozenset({("gpu", 1)})
FULL = {name: SharedNode(8, Part(8, 3, 1000), Part(8, 3, 1000)) for name in ("n1", "n2", "n3")}


@cases(
    "mine, of, names",
    who_asks_for_nothing_may_have_every_node=(view(HELD), SITE, ""),
    without_the_features=(asking(HELD, constraints=RED), SITE, "n3"),
    without_all_features=(asking(HELD, constraints=frozenset({"red", "big|blue"})), SITE, "n1 n3"),
    that_are_excluded=(asking(HELD, excluded=frozenset({"n1", "n9"})), SITE, "n1"),
    but_not_one_that_it_has=(asking("running n3", constraints=RED), SITE, ""),
    that_have_too_little_memory=(asking(HELD, resources=Resources(4000)), SITE, "n2 n3"),
    that_have_too_few_processors=(asking(HELD, resources=Resources(0, 32)), SITE, "n2 n3"),
    none_where_all_have_enough=(asking(HELD, resources=Resources(500, 8)), SITE, ""),
    that_lack_its_gres=(asking(HELD, resources=Resources(gres=GRES)), SITE, "n2 n3"),
    of_which_others_leave_too_little_for_now=(
        asking(HELD, gpus=2, resources=Resources(cpus=4), memory=Memory(100)),
        replace(SITE, shared=FULL), "n1 n2 n3"
    ),
    that_slurm_refuses_it=(view(HELD, refused={"n1": NOW_S + 3600}), SITE, "n1"),
    of_other_partitions=(asking(HELD, partitions="gpu"), EVERY, "n1 n2 n3"),
    of_none_of_its_partitions=(asking(HELD, partitions="gpu bftrainer"), EVERY, ""),
    that_are_not_in_its_list=(asking(HELD, nodes="n[2-9],g2"), EVERY, "n1 g1"),
    that_are_not_in_both=(asking(HELD, partitions="gpu", nodes="n1,g1"), EVERY, "n1 n2 n3"),
    but_not_its_own_that_an_admin_takes_out_of_the_partition=(
        asking(element(1, "running n3"), HELD, partitions="gpu"), EVERY, "n1 n2"
    ),
)  # fmt: skip
def test_nodes_are_barred(mine: TrainerView, of: Snapshot, names: str) -> None:
    assert found(mine, of).barred.get(ARRAY, set()) == named(names)
    assert found(mine, of).stuck == {}


def test_what_slurm_refuses_is_believed_for_a_while() -> None:
    assert found(view(HELD, refused={"n1": NOW_S + 3600}), after_s=3601).barred == {}


@pytest.mark.parametrize(
    ("memory", "free_mb"),
    [
        (Memory(), 6000),
        (Memory(100), 6000),
        (Memory(7000), 7000),
        (Memory(cpu_mb=800), 6400),
        (Memory(gpu_mb=500), 1000),
        (Memory(7000, 800, default=True), 6000),
    ],
    ids=["nothing", "less", "more", "with each core", "with each GPU", "another default"],
)
def test_what_the_site_gives_by_default_with_gpus_counts_unless_the_user_asks_for_more(
    memory: Memory, free_mb: float
) -> None:
    """Two GPUs: by default 8 cores and 6000 MB."""
    wants = asking(HELD, gpus=2, resources=Resources(cpus=1), default_cpus=True, memory=memory)
    of = snapshot([replace(node(name), resources=BIG) for name in ("n1", "n2", "n3")])
    defaults = {"bftrainer": Part(1, 4, 3000.0), "main": Part(1, 9, 9999.0)}
    configuration = Configuration(per_gpu=defaults, counts_memory=True)
    left = {"n1": (8, free_mb), "n2": (7, free_mb), "n3": (8, free_mb - 1)}
    shared = {
        name: SharedNode(8, Part(8, cpus, mb), Part(8, cpus, mb))
        for name, (cpus, mb) in left.items()
    }
    seen = replace(of, shared=shared, configuration=configuration)
    assert found(wants, seen).barred == {ARRAY: {"n2", "n3"}}


FOUR = view(*[HELD] * 4, min_nodes=4)
SHORT = "it wants at least 4 nodes, and 3 of the 4 in bftrainer are in service"
WITH_DOWN = snapshot((*NODES, node("n4", NodeState.UNAVAILABLE), node("x1", partition="other")))
WITH_OFF = snapshot((*NODES, node("n4", NodeState.POWERED_DOWN)))
TRAINERS_QOS = replace(SITE, settings=Settings(qos="trainers"))
WAITS = view(HELD, wait=Wait("Licenses", NOW_S + 300, NOW_S, 0))
EVERYWHERE = view(HELD, refused=dict.fromkeys(("n1", "n2", "n3"), NOW_S + 30))


def wanting(**asked: Any) -> TrainerView:
    """A trainer of at least two nodes."""
    return asking(HELD, HELD, min_nodes=2, **asked)


def greedy(resources: Resources) -> TrainerView:
    return asking(HELD, resources=resources)


NONE_FITS = "0 of 3 nodes fit: it asks for"


@cases(
    "mine, of, said",
    who_has_too_few_that_fit=(wanting(constraints=frozenset({"big"})), SITE, "1 of 3 nodes fit: "),
    who_asks_for_more_gpus_than_any_has=(
        greedy(Resources(gres=frozenset({("gpu", 16)}))), SITE,
        f"{NONE_FITS} 16 gpu of each, and no node has more than 4",
    ),
    or_of_a_kind_that_none_has=(
        greedy(Resources(gres=frozenset({("fpga", 1)}))), SITE,
        f"{NONE_FITS} 1 fpga of each, and no node has more than 0",
    ),
    or_more_memory=(
        greedy(Resources(9000.5)), SITE,
        f"{NONE_FITS} 9001 MB of memory of each, and no node has more than 8000",
    ),
    or_more_processors=(
        greedy(Resources(cpus=65)), SITE,
        f"{NONE_FITS} 65 processors of each, and no node has more than 64",
    ),
    who_wants_more_than_there_are=(FOUR, SITE, "it wants at least 4 nodes, and bftrainer has 3"),
    who_waits_for_one_that_is_down=(FOUR, WITH_DOWN, SHORT),
    who_waits_for_one_that_slurm_has_switched_off=(
        FOUR, WITH_OFF,
        f"{SHORT} (1 powered down by Slurm; trainers do not wake nodes (wake_nodes))",
    ),
    who_wants_more_of_a_partition=(
        wanting(partitions="gpu"), EVERY,
        "it wants at least 2 nodes of partition gpu, and bftrainer has 1",
    ),
    who_asks_for_one_that_there_is_not=(
        wanting(partitions="gpu other"), EVERY,
        "it asks for partition other, which does not exist or has no nodes",
    ),
    who_wants_more_of_both=(
        wanting(partitions="gpu", nodes="n[1-9]"), EVERY,
        "it wants at least 2 nodes of partition gpu among n[1-9], and bftrainer has 0",
    ),
    who_wants_more_of_a_list=(
        wanting(nodes="g2,n1"), EVERY, "it wants at least 2 nodes among g2,n1, and bftrainer has 1"
    ),
    whom_slurm_refuses_all=(EVERYWHERE, SITE, "0 of 3 nodes fit: others lack"),
    who_waits_for_licences=(WAITS, SITE, "Slurm starts no more of its elements now: Licenses"),
    given_licences=(asking(HELD, licenses="matlab:1"), SITE, "it asks for licences (matlab:1)"),
    given_a_reservation=(asking(HELD, reservation="exam"), SITE, "it asks for reservation exam"),
    whom_it_gave_a_constraint_on_nodes_together=(
        asking(HELD, constraints=frozenset({"[red|big]"})), SITE,
        "it asks for --constraint=[red|big], but its nodes come one by one",
    ),
    from_whom_it_took_exclusive=(asking(HELD, shares=True), SITE, "it has lost --exclusive"),
    whom_it_put_into_another_qos=(
        asking(HELD, qos="normal"), TRAINERS_QOS,
        "it is in QOS normal, and trainers have to be in QOS trainers",
    ),
)  # fmt: skip
def test_is_told_why_it_cannot_grow(mine: TrainerView, of: Snapshot, said: str) -> None:
    assert found(mine, of).stuck[ARRAY].startswith(said)


@cases(
    "mine, of, after_s",
    who_finds_as_many_as_it_wants=(view(*[HELD] * 3, min_nodes=3), SITE, 0),
    who_may_wake_what_is_off=(FOUR, replace(WITH_OFF, settings=Settings(wake_nodes=True)), 0),
    before_nodes_are_known=(FOUR, snapshot(), 0),
    who_waits_no_more=(WAITS, SITE, 300),
    who_is_in_the_qos_of_trainers=(asking(HELD, qos="trainers"), TRAINERS_QOS, 0),
    who_is_in_any_where_trainers_have_none=(asking(HELD, qos="normal"), SITE, 0),
)
def test_nothing_is_said(mine: TrainerView, of: Snapshot, after_s: float) -> None:
    assert found(mine, of, after_s) == Eligibility()


def test_what_keeps_one_trainer_back_is_nothing_to_others() -> None:
    stuck = view_of(replace(trainer(HELD), array=99), WAITS.state)
    assert eligibility((view(HELD), stuck), SITE).stuck.keys() == {99}
