"""Whatever is cut, dies, ends or restarts: one element runs the script, as far as Slurm has it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bftrainer_slurm.keeper.messages import (
    NOBODY,
    Batch,
    Engaged,
    HangUp,
    Identity,
    Role,
    Send,
    Turn,
)
from bftrainer_slurm.keeper.protocol import Note, NoteKind
from bftrainer_slurm.keeper.rendezvous import Rendezvous
from bftrainer_slurm.sizes import ANY

MOST = 4
numbers = st.integers(0, 1_000)


@dataclass
class Element:
    task: int
    key: int = 0
    alive: bool = True  # Slurm runs it
    known: bool = True  # the controller has not said that it is gone
    connected: bool = False
    doing: str = "waits"


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.run = Rendezvous(0)
        self.now_s = 0.0
        self.keys = 0
        self.elements: list[Element] = []
        self.engaged = NOBODY

    def pick(self, number: int, **states: object) -> Element | None:
        found = [
            one
            for one in self.elements
            if all(getattr(one, name) == value for name, value in states.items())
        ]
        return found[number % len(found)] if found else None

    def deliver(self) -> None:
        while outputs := self.run.outputs():
            for output in outputs:
                if isinstance(output, Note) and output.kind is NoteKind.SCRIPT:
                    self.engaged = Engaged(leader=int(dict(output.measures)["leads"]))
                elif isinstance(output, HangUp | Send):
                    for one in self.elements:
                        if one.key == output.key and one.connected:
                            self.hear(one, output)

    def hear(self, one: Element, output: HangUp | Send) -> None:
        if isinstance(output, HangUp):
            one.connected = False
        elif isinstance(output.message, Turn) and one.doing == "waits":
            if output.message.do == "lead":
                one.doing = "leads"
                self.run.hear(one.key, Batch("leads"), self.now_s)
            elif output.message.do == "over":
                self.end(one)

    def connect(self, one: Element) -> None:
        self.keys += 1
        one.key, one.connected = self.keys, True
        who = Identity(7, one.task, f"n{one.task}", Role.BATCH)
        self.run.join(one.key, who, None, self.now_s)
        self.run.hear(one.key, Batch(one.doing), self.now_s)
        self.deliver()

    def disconnect(self, one: Element) -> None:
        one.connected = False
        self.run.lose(one.key, self.now_s)
        self.deliver()

    def end(self, one: Element) -> None:
        """Slurm has ended it, and says so."""
        one.alive = one.known = one.connected = False
        self.engaged = self.engaged.without({one.task})
        self.run.lose_task(one.task, f"n{one.task}", self.now_s)
        self.deliver()

    @rule()
    def an_element_starts(self) -> None:
        if sum(one.known for one in self.elements) < MOST:
            task = next(t for t in range(MOST) if self.pick(0, task=t, known=True) is None)
            self.elements.append(Element(task))
            self.connect(self.elements[-1])

    @rule(number=numbers)
    def one_is_cut_off(self, number: int) -> None:
        if one := self.pick(number, alive=True, connected=True):
            self.disconnect(one)

    @rule(number=numbers)
    def one_comes_back(self, number: int) -> None:
        if one := self.pick(number, alive=True, connected=False):
            self.connect(one)

    @rule(number=numbers)
    def a_node_dies(self, number: int) -> None:
        if one := self.pick(number, alive=True):
            one.alive = False
            if one.connected:
                self.disconnect(one)

    @rule(number=numbers)
    def slurm_ends_one(self, number: int) -> None:
        if one := self.pick(number, known=True):
            self.end(one)

    @rule(number=numbers, code=st.integers(0, 1))
    def its_script_ends(self, number: int, code: int) -> None:
        if one := self.pick(number, alive=True, connected=True, doing="leads"):
            self.run.hear(one.key, Batch("over", code=code), self.now_s)
            one.alive = one.connected = False
            self.run.lose(one.key, self.now_s)
            self.deliver()

    @rule()
    def the_keeper_restarts(self) -> None:
        for one in self.elements:
            one.connected = False
        self.run = Rendezvous(0)
        self.run.own(0, ANY, self.engaged, self.now_s)

    @rule(seconds=st.sampled_from([0.5, 12.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.run.tick(self.now_s)
        self.deliver()

    @invariant()
    def one_runs_the_script(self) -> None:
        leaders = [one.task for one in self.elements if one.alive and one.doing == "leads"]
        assert len(leaders) <= 1

    def teardown(self) -> None:
        for one in list(self.elements):
            if not one.alive and one.known:
                self.end(one)
        for one in list(self.elements):
            if one.alive and not one.connected:
                self.connect(one)
        live = [one for one in self.elements if one.alive]
        assert not live or any(one.doing == "leads" for one in live), "somebody runs it"
        self.one_runs_the_script()


AnyOrder.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestWhateverTheOrder = AnyOrder.TestCase
