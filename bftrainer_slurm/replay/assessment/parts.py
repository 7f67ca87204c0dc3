"""What trainers would have of a log's free GPUs: on whole nodes, and on parts of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

from bftrainer_slurm.planner.problem import PlanMaker
from bftrainer_slurm.replay.logs.gpus import FreeGpus
from bftrainer_slurm.replay.parts import PartsResult, over_gpus, replay_parts
from bftrainer_slurm.replay.trainers import TrainerSpec

SIZES = (1, 2, 4, 8)  # GPUs of an element, for what finds room


@dataclass(frozen=True, slots=True)
class FreeHours:
    """GPU-hours that no ordinary job had: in idle nodes and in nodes that had a job.

    ``fit`` is how many of the latter elements of so many GPUs find room for, one beside the other.
    """

    idle_nodes: float
    used_nodes: float
    fit: dict[int, float]

    @property
    def total(self) -> float:
        """All of them."""
        return self.idle_nodes + self.used_nodes


@dataclass(frozen=True, slots=True)
class Compared:
    """The same trainers on whole nodes and on parts of nodes, in all samples together."""

    element_gpus: tuple[tuple[int, ...], ...]  # of which the plan chooses; of trainers, in turn
    at_once: int
    whole: PartsResult
    parts: PartsResult

    @property
    def sizes(self) -> str:
        """What an element has, in words: ``1, 2:4 GPUs``."""
        texts = [":".join(map(str, sizes)) for sizes in self.element_gpus]
        return "1 GPU" if texts == ["1"] else f"{', '.join(texts)} GPUs"

    @property
    def times_training(self) -> float | None:
        """How many times as much they train on parts; None if they get no whole node."""
        return self.parts.samples / self.whole.samples if self.whole.samples else None


def free_hours(gpus: FreeGpus) -> FreeHours:
    """Return the hours of a whole log."""
    most = int(gpus.has.max())
    fit = {size: gpus.hours(size, in_use=True) for size in SIZES if size < most}
    return FreeHours(gpus.hours(in_use=False), gpus.hours(in_use=True), fit)


def within(
    from_s: float, to_s: float, done: int, advance: Callable[[float], None]
) -> Callable[[float], None]:
    """Return what tells ``advance``, at a moment of a replay, how many are done: 2.5, say."""
    return lambda now_s: advance(done + (now_s - from_s) / (to_s - from_s))


def compare(
    gpus: FreeGpus,
    spans: Sequence[tuple[float, float]],
    trainers: Sequence[TrainerSpec],
    element_gpus: tuple[tuple[int, ...], ...],
    planner: PlanMaker,
    every_s: float,
    advance: Callable[[float], None] = lambda done: None,
) -> Compared:
    """Replay these times (Unix seconds, from and to) twice; tells ``advance`` how many are done."""
    most = int(gpus.has.max())
    in_turn = tuple(element_gpus[at % len(element_gpus)] for at in range(len(trainers)))
    results: list[PartsResult] = []
    for each, specs in (
        (((),) * len(trainers), trainers),
        (in_turn, [over_gpus(one, most) for one in trainers]),
    ):
        done = [PartsResult(0.0, 0.0, 0.0, 0, 0)]
        for span in spans:
            reached = within(*span, len(results) * len(spans) + len(done) - 1, advance)
            part = gpus.between(*span)
            done.append(replay_parts(part, specs, each, planner, every_s, reached))
        results.append(PartsResult(*map(sum, zip(*map(astuple, done), strict=True))))
    return Compared(element_gpus, len(trainers), *results)
