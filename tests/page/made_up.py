"""A made-up week of a cluster: jobs in their order, holes before them, trainers in these.

Nothing of it was ever seen anywhere: it is there to be looked at, and to be measured with.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer_slurm.controller.state.history import History
from bftrainer_slurm.controller.state.statistics import Delay, summary
from bftrainer_slurm.replay.synthetic.schedule import simulate
from bftrainer_slurm.replay.synthetic.workload import Workload
from tests.cli.documents import SHOWN, STATUS, TERMS

HOUR_S, DAY_S = 3600.0, 86_400.0
_FIRST_ARRAY = 40_900_001
_TAKEN_AFTER_S = (45.0, 120.0)  # from the begin of a hole until a trainer has the node
_NAMES = ("resnet50", "bert-base", "gpt-small", "vit", "unet", "whisper", "schnet", "climate")
_USERS = ("alice", "bob", "chen", "dora", "emil", "farah", "goran", "hana")


@dataclass(frozen=True)
class Hole:
    """A node without ordinary job; ``end_s`` None: still."""

    node: int
    start_s: float
    end_s: float | None


@dataclass
class Trainer:
    """Lives for a while, and has nodes: ends of its allocations, by which a count falls."""

    array: int
    name: str
    user: str
    born_s: float
    dies_s: float
    most: int
    nodes: list[float] = field(default_factory=list)
    now: list[int] = field(default_factory=list)
    node_s: float = 0.0
    grew: int = 0
    reclaimed: int = 0


class Week:
    """The whole of it, up to ``now_s``; the same seed makes the same one."""

    def __init__(self, nodes: int, now_s: float, days: float = 7.0, seed: int = 1) -> None:
        self.now_s, self.begin_s = now_s, now_s - days * DAY_S
        self._draw = random.Random(seed)
        log = simulate(Workload(nodes, load=0.85, seed=seed, days=days), min_hole_s=30.0)
        assert log.jobs is not None
        self.names, shift_s = log.holes.nodes, now_s - log.to_s
        starts_s, ends_s = log.holes.start_s + shift_s, log.holes.end_s + shift_s
        holes = zip(starts_s.tolist(), ends_s.tolist(), log.holes.node.tolist(), strict=True)
        self.holes = [
            Hole(node, start_s, end_s if end_s < now_s else None)
            for start_s, end_s, node in sorted(holes)
        ]
        jobs = zip((log.jobs.start_s + shift_s).tolist(), log.jobs.nodes.tolist(), strict=True)
        self.preemptions = [
            (start_s, width // 2, self._delay_s())
            for start_s, width in sorted(jobs)
            if self.begin_s < start_s < now_s and width > 3 and self._draw.random() < 0.5
        ]
        rack = range(nodes // 3, min(nodes, nodes // 3 + 64))  # taken out of service
        self.outages = [Hole(node, now_s - 20 * HOUR_S, now_s - 11 * HOUR_S) for node in rack]
        self.trainers = list(self._born(days))
        self.allocations = list(self._train())

    def _delay_s(self) -> float:
        late = self._draw.random() < 0.01
        return self._draw.uniform(10, 34) if late else self._draw.expovariate(1 / 1.1)

    def _born(self, days: float) -> Iterator[Trainer]:
        count = max(8, round(12 * days))
        for number in range(count):
            lives_s = self._draw.uniform(8, 48) * HOUR_S
            born_s = self.begin_s + (days * DAY_S) * number / count - 12 * HOUR_S
            yield Trainer(
                _FIRST_ARRAY + 17 * number,
                self._draw.choice(_NAMES),
                self._draw.choice(_USERS),
                born_s,
                born_s + lives_s,
                max(4, round(self._draw.lognormvariate(np.log(len(self.names) / 60), 0.6))),
            )

    def _train(self) -> Iterator[tuple[Trainer, Hole, str | None]]:
        """Give each hole to a trainer that has room for it."""
        for hole in self.holes:
            begin_s = hole.start_s + self._draw.uniform(*_TAKEN_AFTER_S)
            ends_s = self.now_s + 1 if hole.end_s is None else hole.end_s
            living = [one for one in self.trainers if one.born_s <= begin_s < one.dies_s]
            for one in living:
                one.nodes = [end_s for end_s in one.nodes if end_s > begin_s]
            room = [one for one in living if len(one.nodes) < one.most]
            if begin_s >= min(ends_s, self.now_s) or not room:
                continue
            one = max(room, key=lambda trainer: (trainer.most - len(trainer.nodes)) // 16)
            end_s = min(ends_s, one.dies_s)
            one.nodes.append(end_s)
            one.grew += 1
            one.node_s += min(end_s, self.now_s) - begin_s
            if end_s >= self.now_s:
                one.now.append(hole.node)
                yield one, Hole(hole.node, begin_s, None), None
            else:
                reclaimed = end_s == ends_s
                one.reclaimed += reclaimed
                yield one, Hole(hole.node, begin_s, end_s), "reclaimed" if reclaimed else "ended"


def write_history(week: Week, path: Path) -> None:
    """Write it as a controller would have."""
    History(path).close()  # which makes the tables
    with closing(sqlite3.connect(path)) as history, history:
        history.executemany("INSERT INTO nodes VALUES (?)", ((name,) for name in week.names))
        for table, holes in (("holes", week.holes), ("outages", week.outages)):
            rows = ((week.names[one.node], one.start_s, one.end_s) for one in holes)
            history.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?)", rows)
        tasks: dict[int, int] = {}
        for trainer, stay, how in week.allocations:
            task = tasks[trainer.array] = tasks.get(trainer.array, -1) + 1
            row = (trainer.array, task, week.names[stay.node], stay.start_s, stay.end_s, how)
            history.execute("INSERT INTO allocations VALUES (?, ?, ?, ?, ?, ?, 0, 0)", row)
        for one in week.trainers:
            history.execute(
                "INSERT INTO trainers VALUES (?, '', ?, ?, ?, ?, 2, ?, '', NULL)",
                (one.array, one.born_s, one.user, one.name, one.born_s, one.most),
            )
        history.executemany("INSERT INTO preemptions VALUES (?, ?, ?)", week.preemptions)
        parts = ((time_s - time_s % 300, 8) for time_s in np.arange(week.begin_s, week.now_s, 300))
        history.executemany("INSERT INTO ordinary VALUES (?, ?)", parts)
        away_s = week.now_s - 31 * HOUR_S
        watches = ((week.begin_s, away_s), (away_s + 0.7 * HOUR_S, week.now_s))
        history.executemany("INSERT INTO watches VALUES (?, ?)", watches)


def status_of(week: Week) -> dict[str, Any]:
    """Return what its controller would publish, and that it is made up."""
    alive = [one for one in week.trainers if one.born_s <= week.now_s < one.dies_s]
    used = sum(len(one.now) for one in alive)
    taken = {node for one in alive for node in one.now}
    idle = {hole.node for hole in week.holes if hole.end_s is None} - taken
    free = sorted(week.names[node] for node in idle)
    pool = {"nodes": used + len(free), "used": used, "planned": used, "starting": 0, "gpus": None}
    lately = [one for one in week.preemptions if one[0] > week.now_s - DAY_S]
    return STATUS | {
        "schema": 1,
        "time_s": week.now_s,
        "controller": STATUS["controller"] | {"mode": "made-up data", "since_s": week.begin_s},
        "nodes": len(week.names),
        "pool": pool | {"free": free},
        "left_alone": {"needed soon": 3, "kept for ordinary jobs": 2},
        "mute_nodes": [],
        "plan": STATUS["plan"] | {"objective": 0.9 * used},
        "preempted": {"started": 2412, **summary(Delay(*one) for one in lately)},
        "trainers": [
            _entry(week, one, place, used + len(free), len(free)) for place, one in enumerate(alive)
        ],
    }


def _entry(week: Week, one: Trainer, place: int, pool: int, free: int) -> dict[str, Any]:
    """Return a trainer in the status; some have troubles."""
    nodes = sorted(week.names[node] for node in one.now)
    had_s = 0.8 * (week.now_s - one.born_s)
    lost = 0.31 if place % 3 == 2 else 0.04
    failing = place % 5 == 4
    silent = place % 4 == 1
    return SHOWN | {
        "array": one.array,
        "name": one.name,
        "user": one.user,
        "submit_s": one.born_s,
        "state": "running" if nodes else "waiting",
        "failures": 3 if failing else 0,
        "failed_on": nodes[:2] if failing else [],
        "error": "RuntimeError: CUDA out of memory (made up)" if failing else None,
        "min_nodes": 2,
        "max_nodes": one.most,
        "nodes": nodes,
        "starting": [],
        "grew": one.grew,
        "reclaimed": one.reclaimed,
        "node_s": one.node_s,
        **dict.fromkeys(("wanted_samples", "by_s", "deadline")),
        "samples": None if silent else 3.1e7,
        "samples_per_s": None if silent else 41.0 * len(nodes),
        "rescale": {
            "up": {"seconds": 19.0 if place % 3 == 0 else 1.2, "count": 14},
            "down": {"seconds": 0.4, "count": 9},
        },
        "goodput": {
            "trained_s": (0.94 - lost) * had_s,
            "waiting_s": had_s / 4,
            "rescaling_s": 0.06 * had_s,
            "lost_s": lost * had_s,
            "with_nodes_s": had_s,
        },
        "plan": _terms(week, one, len(nodes), pool, free),
    }


def _terms(week: Week, one: Trainer, size: int, pool: int, free: int) -> dict[str, Any]:
    sizes = sorted({0, 2, max(0, size - 1), size, min(one.most, size + 1), one.most})
    return TERMS | {
        "time_s": week.now_s - 8,
        "had": size,
        "nodes": size,
        "least": 2,
        "most": one.most,
        "limit": "most" if size >= one.most else "cost" if free else "others",
        "pool": pool,
        "usable": pool,
        "better": None if size >= one.most else size + 1,
        "sizes": [
            {"nodes": nodes, "rate": rate, "rescale": rescale, "worth": 120.0 * rate - rescale}
            for nodes in sizes
            for rate, rescale in [(nodes**0.9, 8.0 * (nodes != size))]
        ],
    }
