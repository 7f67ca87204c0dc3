"""What ``bftrainer top`` shows: a document and a view in, lines out. Pure; ``top`` draws them."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from bftrainer_slurm.cli.chart import strip
from bftrainer_slurm.cli.common import shown
from bftrainer_slurm.cli.explain import lines as explained
from bftrainer_slurm.cli.plot import number
from bftrainer_slurm.cli.show import render
from bftrainer_slurm.cli.status import notice, summary
from bftrainer_slurm.cli.terminal import aligned, cut, padded, wide

_HEADING = ("TRAINER", "NAME", "USER", "STATE", "NODES", "WANTS", "SAMPLES/S")
_SPARE = tuple(map(_HEADING.index, ("USER", "SAMPLES/S", "NAME")))
_STRIP = "LAST HOUR"
_LEAST_STRIP, _MOST_STRIP = 12, 60  # columns
_HELP = """\
q          quit
up, down   choose a trainer, or scroll; also k and j, page up and page down
enter      show all about the trainer, and why it has so many nodes
s          sort by the next of: nodes, trainer, name, user, samples per second
r          ask again now
?          this help; any key leaves it

NODES      its nodes, and those where it is starting: 3+1
WANTS      its MIN-MAX, as given with -N
LAST HOUR  its nodes in each minute, up to the most that it had

You see what the controller published last, as in 'bftrainer status'. This
costs slurmctld nothing. While the controller is down, Slurm is asked every
30 s."""


class Key(Enum):
    """What a key means, whatever it is called on a keyboard."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    ENTER = "enter"
    BACK = "back"
    SORT = "sort"
    HELP = "help"
    OTHER = "other"


class Look(Enum):
    """How a line looks."""

    PLAIN = "plain"
    HEADING = "heading"
    CHOSEN = "chosen"


class Page(Enum):
    """What is looked at."""

    LIST = "list"
    TRAINER = "trainer"
    HELP = "help"


Line: TypeAlias = tuple[str, Look]


@dataclass(frozen=True, slots=True)
class Seen:
    """A status, the nodes of the last hour by trainer, and the ``trouble`` of the last request."""

    document: dict[str, Any]
    strips: Mapping[str, Sequence[float]]
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at: ``chosen`` is a trainer's id; ``first`` is the first line of a page."""

    page: Page = Page.LIST
    sort: int = 0
    chosen: int | None = None
    first: int = 0


_SORTS: tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...] = (
    ("nodes", lambda one: (-len(one["nodes"]), one["array"])),
    ("trainer", lambda one: one["array"]),
    ("name", lambda one: (str(one["name"]), one["array"])),
    ("user", lambda one: (str(one["user"]), one["array"])),
    ("samples/s", lambda one: (-(one.get("samples_per_s") or 0.0), one["array"])),
)


def pressed(view: View, key: Key, seen: Seen, rows: int) -> View:
    """Return the view after a key; ``rows`` is how many lines the screen has."""
    step = {Key.UP: -1, Key.DOWN: 1, Key.PAGE_UP: 4 - rows, Key.PAGE_DOWN: rows - 4}.get(key, 0)
    if view.page is Page.HELP:
        return replace(view, page=Page.LIST, first=0)
    if key is Key.HELP:
        return replace(view, page=Page.HELP, first=0)
    if view.page is Page.TRAINER:
        if key in (Key.BACK, Key.ENTER):
            return replace(view, page=Page.LIST, first=0)
        return replace(view, first=max(0, view.first + step))
    if key is Key.SORT:
        return replace(view, sort=(view.sort + 1) % len(_SORTS))
    arrays = [one["array"] for one in _sorted(seen, view)]
    if not arrays:
        return view
    if key is Key.ENTER:
        return replace(view, page=Page.TRAINER, chosen=_chosen(arrays, view), first=0)
    place = arrays.index(_chosen(arrays, view)) + step
    return replace(view, chosen=arrays[min(len(arrays) - 1, max(0, place))])


def frame(
    seen: Seen, view: View, columns: int, rows: int, now_s: float, *, blocks: bool = True
) -> list[Line]:
    """Return the screen: at most so many lines, of at most so many columns."""
    lines = {Page.LIST: _list, Page.TRAINER: _trainer, Page.HELP: _help}[view.page](
        seen, view, columns, rows - 1, now_s, blocks
    )
    hints = {
        Page.LIST: f"q end  s sort: {_SORTS[view.sort][0]}  enter details  ? help",
        Page.TRAINER: "enter back  up, down scroll  q end  ? help",
        Page.HELP: "any key goes back",
    }
    clock = time.strftime("%H:%M:%S", time.localtime(seen.document["time_s"]))
    head = padded(f"bftrainer top  {hints[view.page]}", columns - len(clock) - 1)
    found = [(f"{head} {clock}", Look.HEADING), *lines][:rows]
    return [(cut(shown(text, 1000), columns), look) for text, look in found]


def _list(
    seen: Seen, view: View, columns: int, rows: int, now_s: float, blocks: bool
) -> list[Line]:
    document, trainers = seen.document, _sorted(seen, view)
    said = ([seen.trouble] if seen.trouble else []) + summary(document)
    lines: list[Line] = [(text, Look.PLAIN) for long in said for text in _wrapped(long, columns)]
    used = [sum(values) for values in zip(*seen.strips.values(), strict=False)]
    if used:
        label = f"used in the last hour, up to {round(max(used))}: "
        room = min(_MOST_STRIP, max(0, columns - len(label)))
        lines.append((label + strip(used, room, blocks=blocks), Look.PLAIN))
    lines.append(("", Look.PLAIN))
    if not trainers:
        return [*lines, ("no trainers; sbatch --bftrainer -N 2-16 train.sh", Look.PLAIN)]
    chosen = _chosen([one["array"] for one in trainers], view)
    table = _table(trainers, seen.strips, columns, blocks)
    place = next(place for place, one in enumerate(trainers) if one["array"] == chosen)
    note = _note(trainers[place], columns)
    room = max(1, rows - len(lines) - 1 - len(note))
    first = max(0, min(place - room // 2, len(trainers) - room))
    lines.append((table[0], Look.HEADING))
    for at in range(first, min(len(trainers), first + room)):
        lines.append((table[1 + at], Look.CHOSEN if at == place else Look.PLAIN))
    return [*lines, *((text, Look.PLAIN) for text in note)]


def _note(one: dict[str, Any], columns: int) -> list[str]:
    """Return what the user of the chosen trainer should know."""
    said = notice(one)
    return ["", *(text for line in said for text in _wrapped(line, columns, 2))] if said else []


def _trainer(
    seen: Seen, view: View, columns: int, rows: int, now_s: float, blocks: bool
) -> list[Line]:
    found = [one for one in seen.document["trainers"] if one["array"] == view.chosen]
    if not found:
        return [(f"trainer {view.chosen} is gone; see 'bftrainer history'", Look.PLAIN)]
    one = found[0]
    values = seen.strips.get(str(one["array"]), ())
    lines = [*render(one).splitlines()]
    if values:
        room = min(_MOST_STRIP, max(1, columns - 12))
        top = number(max(values))
        lines += [f"{'last hour':<12}{strip(values, room, blocks=blocks)}", f"{'':<12}up to {top}"]
    lines += ["", *explained(one, seen.document, now_s)]
    wrapped = [text for line in lines for text in _wrapped(line, columns, 12)]
    first = max(0, min(view.first, len(wrapped) - rows))
    return [(text, Look.PLAIN) for text in wrapped[first : first + rows]]


def _help(
    seen: Seen, view: View, columns: int, rows: int, now_s: float, blocks: bool
) -> list[Line]:
    lines = (text for line in _HELP.splitlines() for text in _wrapped(line, columns, 11))
    return [("", Look.PLAIN), *((text, Look.PLAIN) for text in lines)]


def _sorted(seen: Seen, view: View) -> list[dict[str, Any]]:
    return sorted(seen.document["trainers"], key=_SORTS[view.sort][1])


def _chosen(arrays: Sequence[int], view: View) -> int:
    return arrays[arrays.index(view.chosen)] if view.chosen in arrays else arrays[0]


def _table(
    trainers: Iterable[Mapping[str, Any]],
    strips: Mapping[str, Sequence[float]],
    room: int,
    blocks: bool,
) -> list[str]:
    """Return a heading and a line for each trainer, each with its strip in the space left."""
    known = list(trainers)
    texts = aligned([_HEADING, *map(_row, known)], room - 2 - _LEAST_STRIP, _SPARE)
    left = min(_MOST_STRIP, max(0, room - 2 - wide(texts[0])))
    drawn = (strip(strips.get(str(one["array"]), ()), left, blocks=blocks) for one in known)
    return [f"{text}  {more}" for text, more in zip(texts, (_STRIP, *drawn), strict=True)]


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    starting = f"+{len(one['starting'])}" if one["starting"] else ""
    rate = one.get("samples_per_s")
    return (
        str(one["array"]),
        shown(one["name"], 14),
        shown(one["user"], 10),
        shown(one["state"], 9),
        f"{len(one['nodes'])}{starting}",
        f"{one['min_nodes']}-{one['max_nodes']}",
        "-" if rate is None else number(rate),
    )


def _wrapped(line: str, columns: int, indent: int = 0) -> list[str]:
    """Return a line split into lines that fit; drawings are cut."""
    if len(line) <= columns:
        return [line]
    margin = " " * indent
    return textwrap.wrap(line, columns, subsequent_indent=margin, break_on_hyphens=False)
