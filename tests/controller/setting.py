"""A whole controller on the in-memory Slurm, with a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bftrainer_slurm.controller.act import Groups
from bftrainer_slurm.controller.loop import Controller
from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.keeper.messages import NOBODY, Engaged
from bftrainer_slurm.keeper.protocol import NoteKind
from bftrainer_slurm.model import ElementId
from bftrainer_slurm.planner.greedy import greedy_shares
from bftrainer_slurm.planner.packing import pack_most, shares_of
from bftrainer_slurm.planner.placement import place
from bftrainer_slurm.planner.problem import Plan, Problem, Share, value
from bftrainer_slurm.replay.policies import equal_shares
from bftrainer_slurm.replay.slurm import RUNNING
from bftrainer_slurm.sizes import ANY, Sizes
from tests.controller.made_up_slurm import MadeUpSlurm
from tests.controller.worlds import ARRAY, NOW_S, note, started


class Planner:
    """Shares equally where all nodes are alike, and remembers what it was asked."""

    def __init__(self, status: str = "optimal") -> None:
        self.asked: list[Problem] = []
        self.status = status

    def plan(self, problem: Problem) -> Plan:
        self.asked.append(problem)
        shares = self.shares(problem)
        if not problem.in_parts:
            return Plan(place(problem, shares), value(problem, shares), 0.0, self.status)
        nodes = pack_most(problem, shares)
        worth = value(problem, shares_of(problem, nodes))
        keys = (one.key for one in problem.trainers)
        return Plan(dict(zip(keys, nodes, strict=True)), worth, 0.0, self.status)

    def shares(self, problem: Problem) -> list[Share]:
        """How many nodes of each class each trainer is to have."""
        return greedy_shares(problem) if problem.classes else equal_shares(problem)


class Greedy(Planner):
    """Weighs gain against cost, as the product does, but without CBC."""

    def shares(self, problem: Problem) -> list[Share]:
        return greedy_shares(problem)


@dataclass
class Told(Groups):
    """What the keeper is told."""

    owned: list[tuple[int, str, int]] = field(default_factory=list)
    parted: list[tuple[int, list[int]]] = field(default_factory=list)
    gone: list[tuple[ElementId, str]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    silent: bool = False

    sizes: Sizes = ANY
    engaged: Engaged = NOBODY

    def __post_init__(self) -> None:
        super().__init__()

    def own(self, *about: Any, **_: Any) -> None:
        array, user, want, self.sizes, engaged = about
        self.owned.append((array, user, want))
        self.engaged = engaged()

    def part(self, leaving: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
        self.parted += [(array, list(tasks)) for array, tasks in leaving.items()]
        return {}

    def lost(self, element: ElementId, node: str) -> bool:
        self.gone += [] if self.silent else [(element, node)]
        return not self.silent

    def say(self, array: int, what: str) -> bool:
        if what != "ended":
            return super().say(array, what)
        self.ended += [] if self.silent else [array]
        return not self.silent


class Setting:
    """A controller on a made-up Slurm, with a clock that is set by hand.

    ``notes_arrive``: the stream of the keeper's notes is open.
    """

    notes_arrive = False

    def __init__(
        self,
        nodes: int,
        *arrays: int,
        most: int = 4,
        history: History | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings(queue_interval_s=0.25)
        names = [f"n{number}" for number in range(1, nodes + 1)]
        self.slurm = MadeUpSlurm(NOW_S, names, instant=True)
        for array in arrays:
            self.submit(array, most)
        self.told = Told()
        self.planner = Planner()
        self.history = history or History(":memory:")
        self.controller = self.started()

    @property
    def now_s(self) -> float:
        """The time of all of it, in Unix seconds."""
        return self.slurm.now_s

    @now_s.setter
    def now_s(self, time_s: float) -> None:
        self.slurm.now_s = time_s

    def submit(self, array: int, most: int, id_: str | None = None) -> None:
        """A trainer comes."""
        self.slurm.submit_(array, 1, most, id_)

    def on(self, array: int = ARRAY) -> dict[str, int]:
        """The task on each of a trainer's nodes."""
        running = (job for job in self.slurm.elements(RUNNING) if job.id.array == array)
        return {job.node: job.id.task for job in running if job.node}

    def started(self) -> Controller:
        """Return a controller that has just been started."""
        about = (self.slurm, self.planner, self.history, lambda: self.now_s, self.settings)
        return started(*about, self.told, lambda: self.notes_arrive)

    def restart(self, lost: bool = False) -> None:
        """Another controller is started, with the history of the last one, or it is ``lost``."""
        self.history = History(":memory:") if lost else self.history
        self.controller = self.started()

    @property
    def due_in_s(self) -> float:
        """In how many seconds it turns next."""
        return self.controller.schedule.due_s() - self.now_s

    def turn(self, seconds: float = 5.0) -> None:
        """Let time pass, and the controller look."""
        self.now_s += seconds
        self.controller.turn()

    def settle(self) -> None:
        """Turn until what was given up is given on."""
        for _ in range(4):
            self.turn()

    def has_also(self, *nodes: str) -> None:
        """Further nodes come to the cluster."""
        self.slurm.node_names += nodes
        self.settle()

    def say(self, kind: NoteKind, node: str = "", text: str = "", **measures: float) -> None:
        """A member of the trainer says something."""
        task = self.on().get(node, 0)
        self.controller.take([note(kind, self.now_s, task, node, text=text, **measures)])

    def train(self, seconds: int, rate: float = 100.0, generation: int = 1) -> None:
        """The trainer reports every second."""
        nodes = len(self.on())
        for second in range(seconds):
            self.now_s += 1
            self.say(NoteKind.PROGRESS, samples=rate * second, nodes=nodes, generation=generation)

    def shown_goodput(self) -> dict[str, float | None]:
        """Where its time went, as users are shown."""
        self.turn(0)
        spent: dict[str, float | None] = self.shown()["goodput"]  # type: ignore[assignment]
        return spent

    def shown(self) -> dict[str, object]:
        """What users are shown of the trainer."""
        status = self.controller.status({})
        found: dict[str, object] = next(one for one in status["trainers"] if one["array"] == ARRAY)
        return found


def at_work(nodes: int, *arrays: int, **more: Any) -> Setting:
    """Trainers that have the nodes that the plan gives them; one, if none is named."""
    setting = Setting(nodes, *(arrays or (ARRAY,)), **more)
    setting.settle()
    return setting
