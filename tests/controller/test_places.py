"""Parts of nodes: elements of several trainers beside ordinary jobs, whoever comes and goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.model import (
    Demands,
    Element,
    ElementId,
    Node,
    Queue,
    Resources,
)
from bftrainer_slurm.replay.slurm import (
    DELAYED,
    ENDING,
    PENDING,
    RUNNING,
    SUSPENDED,
    Job,
)
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.setting import Greedy
from tests.controller.worlds import ARRAY, NOW_S, started

NODES = ("n1", "n2")
GPUS = 8
HAS = Resources(8000, 16, frozenset({("gpu", GPUS), ("gpu:a100", GPUS)}))


@dataclass
class SharedSlurm(MadeUpSlurm):
    """Nodes of 8 GPUs, of which ``ordinary_gpus`` are in use by ordinary jobs."""

    gpus: dict[int, int] = field(default_factory=dict)  # of an element, by array; 0: whole nodes
    ordinary_gpus: Counter[str] = field(default_factory=Counter)

    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            replace(node, resources=HAS, used=self.used_(node.name)) for node in super().nodes()
        )

    def used_(self, node: str) -> Resources:
        """What jobs have of a node: memory too, where they have anything."""
        gpus = self.in_use(node)
        return replace(HAS, gres=frozenset({("gpu", gpus)}), cpus=0) if gpus else Resources()

    def queue(self) -> Queue:
        ordinary = frozenset(node for node, count in self.ordinary_gpus.items() if count)
        return replace(super().queue(), ordinary_nodes=ordinary)

    def _element(self, job: Job) -> Element:
        return replace(super()._element(job), gpus=self.gpus[job.id.array])

    def grow(
        self, elements: Sequence[ElementId], nodes: frozenset[str], *more: Any, **options: Any
    ) -> None:
        assert not self.gpus[elements[0].array] or len(elements) == 1, "one by one"
        super().grow(elements, nodes, *more, **options)
        assert not self.elements(PENDING), "there is room for all that are released"

    def in_use(self, node: str, but: ElementId | None = None) -> int:
        """GPUs of a node that jobs have, ours included."""
        jobs = [one for one in self.elements(RUNNING, SUSPENDED, ENDING) if one.node == node]
        ours = sum(self.gpus[one.id.array] or GPUS for one in jobs if one.id != but)
        return self.ordinary_gpus[node] + ours

    def room_for(self, job: Job, taken: set[str]) -> str | None:
        wants = self.gpus[job.id.array] or GPUS
        nodes = job.targets or self.node_names
        return min((one for one in nodes if self.in_use(one) + wants <= GPUS), default=None)

    def start_job_(self, node: str, gpus: int) -> None:
        """An ordinary job starts; as many elements as it needs are reclaimed."""
        gpus = min(gpus, GPUS - self.ordinary_gpus[node])
        for job in self.elements(RUNNING, ENDING):
            if job.node == node and self.in_use(node) + gpus > GPUS:
                self.end(job, DELAYED)
        self.ordinary_gpus[node] += gpus


def controlled(slurm: SharedSlurm, sizes: Sequence[tuple[int, int]]) -> Controller:
    """A controller of trainers of so many GPUs a node, on up to so many nodes."""
    for array, (gpus, most) in enumerate(sizes, ARRAY):
        slurm.gpus[array] = gpus
        slurm.submit_(array, 1, most, f"{array:08x}")
        slurm.be_(array, demands=Demands(gpus=gpus))
    settings = Settings(queue_interval_s=0.25, share=True)
    return started(slurm, Greedy(), History(":memory:"), lambda: slurm.now_s, settings)


def turns(slurm: SharedSlurm, controller: Controller) -> None:
    for _ in range(8):
        slurm.now_s += 10
        slurm.schedule()
        controller.turn()
        assert controller.decision.trouble is None


def test_a_node_that_ordinary_jobs_use_in_part_is_in_the_pool_used_or_not() -> None:
    slurm = SharedSlurm(NOW_S, ["n1", "n2", "n3"])
    slurm.ordinary_gpus.update(n1=3, n2=7, n3=8)
    controller = controlled(slurm, [(4, 1)])
    turns(slurm, controller)
    status = controller.status({})
    gpus = {"left": 6, "used": 4, "starting": 0, "planned": 4}
    pool = {"nodes": 2, "used": 1, "starting": 0, "planned": 1, "free": ["n2"], "gpus": gpus}
    assert status["pool"] == pool


@settings(max_examples=40)
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 4, 8]), st.integers(1, 3)),
        min_size=1,
        max_size=4,
    ),
    jobs=st.lists(st.none() | st.tuples(st.sampled_from(NODES), st.integers(1, GPUS)), max_size=5),
)
def test_whoever_comes_and_goes_no_gpu_is_given_twice(
    sizes: list[tuple[int, int]], jobs: list[tuple[str, int] | None]
) -> None:
    """Ordinary jobs take GPUs of one node after the other, or give all back (None)."""
    slurm = SharedSlurm(NOW_S, [*NODES])
    controller = controlled(slurm, sizes)
    for job in (None, *jobs):
        if job is None:
            slurm.ordinary_gpus.clear()
        else:
            slurm.start_job_(*job)
        turns(slurm, controller)
        placed = [one for view in controller.registry.views for one in view.placed.items()]
        assert dict(placed) == {one.id: one.node for one in slurm.elements(RUNNING)}
        assert all(len(one.nodes) == len(one.placed) for one in controller.registry.views)
        assert all(slurm.in_use(node) <= GPUS for node in NODES)
        if not any(slurm.ordinary_gpus.values()):
            assert placed, "there are idle nodes, and somebody has them"
