"""What the controller did: elements that it released, and GPUs that its plans could give out.

Its log and its history tell.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

_LINE = re.compile(r"(\S+ \S+),(\d{3}) INFO +(\w+) (\d+_\d.*)")
_ON = re.compile(r"(\S+) on (?:\d+ GPUs of )?(\S+)$")

Key: TypeAlias = tuple[str, str]  # an array, and a node
Offers: TypeAlias = Sequence[tuple[float, Mapping[str, int]]]


@dataclass(frozen=True)
class ControllerRecord:
    """What the controller did, in Unix seconds and in order.

    ``released`` and ``held`` say when it released an element onto a node, and held it again.
    ``looks_s`` is when it looked at Slurm. ``offers`` has the GPUs of each node that its plans
    could give out, and since when.
    """

    released: Sequence[tuple[float, Key]] = ()
    held: Sequence[tuple[float, Key]] = ()
    looks_s: Sequence[float] = ()
    offers: Offers = ()


def read_offers(history: Path) -> Offers:
    """Read how many GPUs of each node the last 100 plans could give out, and since when."""
    with closing(sqlite3.connect(f"file:{history}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT time_s, document FROM problems ORDER BY rowid").fetchall()
    problems = [(time_s, json.loads(zlib.decompress(text))) for time_s, text in rows]
    return [
        (time_s, {node: has for node, has in _parts(one) if has is not None})
        for time_s, one in problems
    ]


def _parts(problem: Mapping[str, Any]) -> Iterator[tuple[str, int | None]]:
    """Yield how many GPUs of each node there are; None: it is given out whole, or not at all."""
    return zip(problem["node_names"], problem.get("node_gpus", ()), strict=False)


def read_controller(
    lines: Iterable[str],
    looks_s: Sequence[float] = (),
    offers: Offers = (),
) -> ControllerRecord:
    """Read the controller's log: which elements it released, and held again."""
    released, held = list[tuple[float, Key]](), list[tuple[float, Key]]()
    where: dict[str, Key] = {}
    for line in lines:
        if not (found := _LINE.match(line)):
            continue
        at_s = datetime.fromisoformat(found[1]).timestamp() + int(found[2]) / 1000
        if found[3] == "grow" and (grown := _ON.match(found[4])):
            where[grown[1]] = key = grown[1].partition("_")[0], grown[2]
            released.append((at_s, key))
        elif found[3] == "hold":
            names = found[4].partition(":")[0].split(", ")
            held += [(at_s, where[name]) for name in names if name in where]
    return ControllerRecord(released, held, looks_s, offers)
