"""Which trainers cannot have which nodes: by what they ask for, and by what Slurm has said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer_slurm.controller.decide.eligibility import Eligibility, eligibility, why_never
from bftrainer_slurm.controller.observe.shared_nodes import SharedNode
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.trainer_state import TrainerState, Wait
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


def asking(*elements: Element | str, min_nodes: int = 1, **demands: object) -> TrainerView:
    asked = Demands(**demands)  # type: ignore[arg-type]
    return view_of(replace(trainer(*elements, min_nodes=min_nodes), demands=asked))


def found(*views: TrainerView, after_s: float = 0.0) -> Eligibility:
    seen = replace(snapshot(NODES), time_s=NOW_S + after_s)
    return eligibility(views, seen)


@cases(
    "views, names",
    who_asks_for_nothing_may_have_every_node=(view(HELD), set()),
    without_the_features=(asking(HELD, constraints=frozenset({"red"})), {"n3"}),
    where_not_all_constraints_hold=(
        asking(HELD, constraints=frozenset({"red", "big|blue"})), {"n1", "n3"}
    ),
    that_are_excluded=(asking(HELD, excluded=frozenset({"n1", "n9"})), {"n1"}),
    but_not_one_that_it_has=(asking("running n3", constraints=frozenset({"red"})), set()),
    that_have_too_little_memory=(asking(HELD, resources=Resources(4000)), {"n2", "n3"}),
    that_have_too_few_processors=(asking(HELD, resources=Resources(0, 32)), {"n2", "n3"}),
    none_where_all_have_enough=(asking(HELD, resources=Resources(500, 8)), set()),
    that_lack_its_gres=(
        asking(HELD, resources=Resources(gres=frozenset({("gpu", 1)}))), {"n2", "n3"}
    ),
)  # fmt: skip
def test_nodes_are_barred(views: TrainerView, names: set[str]) -> None:
    assert found(views).barred.get(ARRAY, set()) == names
    assert found(views).stuck == {}


def test_nodes_of_which_others_leave_too_little_fit_but_are_barred_for_now() -> None:
    wants = asking(HELD, gpus=2, resources=Resources(cpus=4), memory=Memory(100))
    full = {name: SharedNode(8, Part(8, 3, 1000), Part(8, 3, 1000)) for name in ("n1", "n2", "n3")}
    busy = eligibility((wants,), replace(snapshot(NODES), shared=full))
    assert busy.stuck == {}
    assert busy.barred == {ARRAY: {"n1", "n2", "n3"}}


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
    assert eligibility((wants,), seen).barred == {ARRAY: {"n2", "n3"}}


def test_who_has_too_few_nodes_that_fit_cannot_grow() -> None:
    wants_two = asking(HELD, HELD, min_nodes=2, constraints=frozenset({"big"}))
    assert found(wants_two).stuck[ARRAY].startswith("1 of 3 nodes fit")
    assert found(wants_two).barred == {}


@pytest.mark.parametrize(
    ("resources", "missing"),
    [
        (Resources(gres=frozenset({("gpu", 16)})), "16 gpu of each, and no node has more than 4"),
        (Resources(gres=frozenset({("gpu:v", 1)})), "1 gpu:v of each, and no node has more than 0"),
        (Resources(9000.5), "9001 MB of memory of each, and no node has more than 8000"),
        (Resources(cpus=65), "65 processors of each, and no node has more than 64"),
    ],
)
def test_who_asks_for_more_than_any_node_has_is_told_what(
    resources: Resources, missing: str
) -> None:
    said = found(asking(HELD, resources=resources)).stuck[ARRAY]
    assert said == f"0 of 3 nodes fit: it asks for {missing}"


def test_who_wants_more_nodes_than_the_partition_has_is_told_so() -> None:
    wants_four = view(*["held"] * 4, min_nodes=4)
    assert found(wants_four).stuck == {ARRAY: "it wants at least 4 nodes, and bftrainer has 3"}
    assert found(view(*[HELD] * 3, min_nodes=3)).stuck == {}


def test_who_waits_for_nodes_that_are_down_is_told_so() -> None:
    seen = snapshot((*NODES, node("n4", NodeState.UNAVAILABLE), node("x1", partition="other")))
    assert eligibility((view(*[HELD] * 4, min_nodes=4),), seen).stuck == {
        ARRAY: "it wants at least 4 nodes, and 3 of the 4 in bftrainer are in service"
    }


def test_who_waits_for_nodes_that_slurm_has_switched_off_is_told_so() -> None:
    seen = snapshot((*NODES, node("n4", NodeState.POWERED_DOWN)))
    assert eligibility((view(*[HELD] * 4, min_nodes=4),), seen).stuck == {
        ARRAY: "it wants at least 4 nodes, and 3 of the 4 in bftrainer are in service "
        "(1 powered down by Slurm; trainers do not wake nodes (wake_nodes))"
    }
    wakes = replace(seen, settings=Settings(wake_nodes=True))
    assert eligibility((view(*[HELD] * 4, min_nodes=4),), wakes).stuck == {}


GPU = replace(node("g1"), partitions=frozenset({"bftrainer", "gpu"}))
ELSEWHERE = replace(node("g2"), partitions=frozenset({"gpu"}))


def asking_for(
    *elements: Element, min_nodes: int = 1, partitions: str = "", nodes: str = ""
) -> TrainerView:
    """A trainer as a job record with these words makes it."""
    of, names = trainer(*elements, min_nodes=min_nodes), tuple(partitions.split())
    record = replace(of.record, partitions=names, nodes=nodes)
    demands = Demands(partitions=frozenset(names), nodes=frozenset(expand(nodes)))
    return view_of(replace(of, record=record, demands=demands))


@pytest.mark.parametrize(
    ("asked", "had"),
    [
        ({"partitions": "gpu"}, {"g1"}),
        ({"partitions": "gpu bftrainer"}, {"n1", "n2", "n3", "g1"}),
        ({"nodes": "n[2-9],g2"}, {"n2", "n3"}),
        ({"partitions": "gpu", "nodes": "n1,g1"}, {"g1"}),
    ],
)
def test_a_trainer_may_have_only_nodes_of_its_partitions_and_list(
    asked: dict[str, str], had: set[str]
) -> None:
    seen = snapshot((*NODES, GPU, ELSEWHERE))
    eligible = eligibility((asking_for(HELD, **asked),), seen)
    assert eligible.stuck == {}
    assert seen.all_nodes - eligible.barred.get(ARRAY, frozenset()) == had


def test_a_node_that_it_has_is_its_own_although_an_admin_takes_it_out_of_the_partition() -> None:
    runs = asking_for(element(1, "running n3"), HELD, partitions="gpu")
    assert eligibility((runs,), snapshot((*NODES, GPU))).barred == {ARRAY: {"n1", "n2"}}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"partitions": "gpu"}, "it wants at least 2 nodes of partition gpu, and bftrainer has 1"),
        (
            {"partitions": "gpu other"},
            "it asks for partition other, which does not exist or has no nodes",
        ),
        (
            {"partitions": "gpu", "nodes": "n[1-9]"},
            "it wants at least 2 nodes of partition gpu among n[1-9], and bftrainer has 0",
        ),
        ({"nodes": "g2,n1"}, "it wants at least 2 nodes among g2,n1, and bftrainer has 1"),
    ],
)
def test_who_asks_for_nodes_that_are_not_there_is_told_so(asked: dict[str, str], said: str) -> None:
    wants_two = asking_for(HELD, HELD, min_nodes=2, **asked)
    assert eligibility((wants_two,), snapshot((*NODES, GPU, ELSEWHERE))).stuck == {ARRAY: said}


def test_before_nodes_are_known_nobody_is_told_that_there_are_too_few() -> None:
    assert eligibility((view(*[HELD] * 4, min_nodes=4),), snapshot()) == Eligibility()


@pytest.mark.parametrize(
    ("demands", "said"),
    [
        ({"licenses": "matlab:1"}, "licences (matlab:1)"),
        ({"reservation": "exam"}, "reservation exam"),
        ({"constraints": frozenset({"[red|big]"})}, "--constraint=[red|big], but its nodes come"),
        ({"shares": True}, "it has lost --exclusive"),
        ({"qos": "normal"}, "it is in QOS normal, and trainers have to be in QOS trainers"),
    ],
)
def test_some_demands_are_not_met_at_all_and_their_user_did_not_make_them(
    demands: dict[str, object], said: str
) -> None:
    why = str(why_never(Demands(**demands), "trainers"))  # type: ignore[arg-type]
    assert said in why
    assert why.endswith("the site's job_submit plugin did that, or scontrol update: ask your admin")
    seen = replace(snapshot(), settings=Settings(qos="trainers"))
    assert eligibility((asking(HELD, **demands),), seen).stuck == {ARRAY: why}


@pytest.mark.parametrize("qos", ["", "trainers"])
def test_a_trainer_may_be_in_the_qos_of_trainers_and_in_any_where_they_have_none(qos: str) -> None:
    assert why_never(Demands(qos="trainers"), qos) is None


def test_a_node_that_slurm_refuses_is_barred_as_long_as_that_is_believed() -> None:
    refused = view(HELD, refused={"n1": NOW_S + 3600})
    assert found(refused).barred == {ARRAY: {"n1"}}
    assert found(refused, after_s=3601).barred == {}


def test_who_is_refused_all_nodes_cannot_grow() -> None:
    everywhere = view(HELD, refused=dict.fromkeys(("n1", "n2", "n3"), NOW_S + 30))
    assert "Slurm refuses them" in found(everywhere).stuck[ARRAY]


def test_whose_elements_wait_for_no_node_cannot_grow_until_that_is_over() -> None:
    waits = view(HELD, wait=Wait("Licenses", NOW_S + 300, NOW_S, 0))
    assert found(waits).stuck[ARRAY].endswith("now: Licenses")
    assert found(waits, after_s=300) == Eligibility()


def test_what_keeps_one_trainer_back_is_nothing_to_others() -> None:
    qos = TrainerState(wait=Wait("QOS", NOW_S + 300, NOW_S, 0))
    stuck = view_of(replace(trainer(HELD), array=99), qos)
    assert found(view(HELD), stuck).stuck.keys() == {99}
