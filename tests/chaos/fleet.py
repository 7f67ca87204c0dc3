"""Chaos without Slurm: random kills, joins and leaves of a trainer's nodes, and what is left of it.

Nobody waits for the trainer in between. The nodes are those of ``elastic_bench/fleet``.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

from scripts.elastic_bench.figures import Account, account, agreed
from scripts.elastic_bench.fleet import Fleet, Node, Setup, Training
from scripts.elastic_bench.measure import NODES, PATIENCE_S, settle
from scripts.labcluster.lab import Tell

# In each step the processor is free for a while, as beside an accelerator.
_TRAINING = Training("tiny", compute_s=0.02, save_every_s=0.0)
_MOST = 4
_BEHIND = 20  # steps
_END_STEPS = 20


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What became of the fleet's trainer."""

    setup: Setup
    events: Counter[str]  # kills, joins and leaves
    seconds: float
    trains_on: bool
    same_weights: bool | None  # on all nodes at the end; None: it did not train on
    account: Account
    last_words: str = ""  # where it does not train on

    @property
    def violations(self) -> list[str]:
        """What should not have happened, in words.

        A step that nobody logged is none: it may be in a checkpoint whose writer was killed.
        """
        made = self.account
        found = {
            f"it does not train on: {self.last_words}": not self.trains_on,
            f"nodes differ after {made.differing} of {made.compared} steps": made.differing > 0,
            "nodes differ at the end": self.same_weights is False,
        }
        return [words for words, wrong in found.items() if wrong]


def run_fleet(setup: Setup, events: int, pace_s: float, seed: int, tell: Tell) -> FleetResult:
    """Let ``events`` happen, ``pace_s`` apart on average, then see whether it trains on.

    Nodes go only while two train together, and one that has made one of the last steps is always
    spared: a step whose makers are all gone could not be told from the one that takes its place.

    Raises:
        NotSettledError: it does not begin to train.
    """
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    with Fleet(setup, _TRAINING) as fleet:
        fleet.start(NODES)
        settle(fleet)
        begun_s = time.monotonic()
        for number in range(events):
            fleet.wait(lambda: len(fleet.nodes) < _MOST or _may_shrink(fleet), PATIENCE_S)
            kinds = ["join"] * (len(fleet.nodes) < _MOST)
            kinds += ["kill", "leave"] * (_may_shrink(fleet) or not kinds)
            kind = chance.choice(kinds)
            if kind == "join":
                fleet.start()
            else:
                victim = chance.choice(spare_one(fleet.nodes, _steps(fleet), chance))
                (fleet.kill if kind == "kill" else fleet.part)(victim)
            done[kind] += 1
            tell(f"event {number + 1} of {events}, {len(fleet.nodes)} nodes")
            fleet.wait(lambda: False, chance.expovariate(1 / pace_s))
        seconds = time.monotonic() - begun_s
        tell("the last event was; does it train on?")
        fleet.start(max(0, NODES - len(fleet.nodes)))
        trains_on = fleet.wait(lambda: fleet.settled(_END_STEPS), 2 * PATIENCE_S)
        alive = {node.job: fleet.logs.of(node.job) for node in fleet.nodes}
        same, words = (agreed(alive), "") if trains_on else (None, fleet.messages(fleet.nodes[0]))
        made = account(fleet.logs.all)
        return FleetResult(setup, done, seconds, trains_on, same, made, words)


def spare_one(nodes: list[Node], steps: dict[str, int], chance: random.Random) -> list[Node]:
    """Return the nodes that may be taken: all but one of those that have made a last step."""
    spared = chance.choice(_holders(nodes, steps) or [None])
    return [node for node in nodes if node is not spared]


def _holders(nodes: list[Node], steps: dict[str, int]) -> list[Node]:
    """Return the nodes that have made one of the last steps, given the last one of each."""
    furthest = max(steps.values(), default=0)
    return [node for node in nodes if steps[node.job] > max(0, furthest - _BEHIND)]


def _may_shrink(fleet: Fleet) -> bool:
    fleet.logs.read()
    return len(_holders(fleet.nodes, _steps(fleet))) > 1


def _steps(fleet: Fleet) -> dict[str, int]:
    made = {node.job: fleet.logs.of(node.job) for node in fleet.nodes}
    return {job: steps[-1].step if steps else 0 for job, steps in made.items()}
