"""What is published of a deadline, from what is left of the samples and of the time."""

from __future__ import annotations

from bftrainer_slurm.controller.publish.deadline import deadline_status
from bftrainer_slurm.planner.objectives.deadlines import Need
from bftrainer_slurm.spec import Spec
from tests.controller.worlds import cases

TOLD = "state", "needs", "late_s", "nodes", "nodes_left"


@cases(
    "samples, left_s, rate, need, told",
    on_time=(0.0, 100.0, 20.0, Need(3), ("on time", 10.0, None, 3, None)),
    late=(500.0, 50.0, 5.0, Need(3), ("late", 10.0, 50.0, 3, None)),
    late_while_it_makes_no_samples=(500.0, 50.0, None, Need(3), ("late", 10.0, None, 3, None)),
    late_though_it_is_in_no_plan=(500.0, 50.0, 5.0, None, ("late", 10.0, 50.0, None, None)),
    late_as_the_sites_share_leaves_too_little=(
        0.0, 100.0, 5.0, Need(3, left=1), ("late", 10.0, 100.0, 3, 1)
    ),
    not_to_be_met_by_any_nodes=(
        0.0, 100.0, 4.0, Need(0), ("cannot be met", 10.0, 150.0, 0, None)
    ),
    not_known_without_samples=(None, 100.0, None, Need(1), ("not known", 10.0, None, 1, None)),
    passed=(999.0, 0.0, 20.0, None, ("passed", None, None, None, None)),
    done=(1000.0, -100.0, 20.0, None, ("done", None, None, None, None)),
)  # fmt: skip
def test_a_deadline_is(
    samples: float | None,
    left_s: float,
    rate: float | None,
    need: Need | None,
    told: tuple[object, ...],
) -> None:
    found = deadline_status(Spec(samples=1000.0, by_s=left_s), samples, rate, need, now_s=0.0)
    assert found == dict(zip(TOLD, told, strict=True))


def test_without_a_deadline_nothing_is_said() -> None:
    assert deadline_status(Spec(samples=1000.0), 0.0, 5.0, None, now_s=0.0) is None
