"""Makes the screen of ``bftrainer top``: a document and a view in, lines out. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from bftrainer_slurm.cli.chart import strip
from bftrainer_slurm.cli.common import row_cells, safe
from bftrainer_slurm.cli.explain import lines as explained
from bftrainer_slurm.cli.show import lines as all_known
from bftrainer_slurm.cli.status import notice_lines, summary
from bftrainer_slurm.cli.terminal import Heading, aligned, cut, padded, text_width
from bftrainer_slurm.words import number

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

NODES      its nodes, and those where it is starting: 3+1; in parentheses
           how many GPUs or cores it has of them, if not all
WANTS      its MIN-MAX, as given with -N
LAST HOUR  its nodes in each minute, up to the most that it had

You see what the controller published last, as in 'bftrainer status'. This
costs slurmctld nothing. While the controller is down, Slurm is asked every
30 s."""


class Key(Enum):
    """The meaning of a key; several keys may have the same."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    ENTER = "enter"
    BACK = "back"
    SORT = "sort"
    HELP = "help"
    OTHER = "other"


class SelectedLine(str):
    """The line of the chosen trainer, which a terminal shows in reverse."""


class Page(Enum):
    """A page of the screen."""

    LIST = "list"
    TRAINER = "trainer"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A status, each trainer's nodes in the last hour, and the ``trouble`` of the last request."""

    document: dict[str, Any]
    strips: Mapping[str, Sequence[float]]
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What the user sees: ``selected`` is a trainer's id, ``first`` the first line of a page."""

    page: Page = Page.LIST
    sort: int = 0
    selected: int | None = None
    first: int = 0


_SORTS: tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...] = (
    ("nodes", lambda one: (-len(one["nodes"]), one["array"])),
    ("trainer", lambda one: one["array"]),
    ("name", lambda one: (str(one["name"]), one["array"])),
    ("user", lambda one: (str(one["user"]), one["array"])),
    ("samples/s", lambda one: (-(one.get("samples_per_s") or 0.0), one["array"])),
)


def handle_key(view: View, key: Key, seen: Snapshot, rows: int) -> View:
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
        return replace(view, page=Page.TRAINER, selected=_selected(arrays, view), first=0)
    place = arrays.index(_selected(arrays, view)) + step
    return replace(view, selected=arrays[min(len(arrays) - 1, max(0, place))])


def frame(
    seen: Snapshot, view: View, columns: int, rows: int, now_s: float, *, blocks: bool = True
) -> list[str]:
    """Return the screen: at most ``rows`` lines of at most ``columns``."""
    match view.page:
        case Page.LIST:
            hint = f"q end  s sort: {_SORTS[view.sort][0]}  enter details  ? help"
            lines = _list(seen, view, columns, rows - 1, blocks)
        case Page.TRAINER:
            hint = "enter back  up, down scroll  q end  ? help"
            lines = _trainer(seen, view, columns, rows - 1, now_s, blocks)
        case Page.HELP:
            hint = "any key goes back"
            lines = ["", *_wrapped(_HELP.splitlines(), columns, 11)]
    clock = time.strftime("%H:%M:%S", time.localtime(seen.document["time_s"]))
    head = padded(f"bftrainer top  {hint}", columns - len(clock) - 1)
    found = [Heading(f"{head} {clock}"), *lines][:rows]
    return [type(line)(cut(safe(line, 1000), columns)) for line in found]


def _list(seen: Snapshot, view: View, columns: int, rows: int, blocks: bool) -> list[str]:
    trainers = _sorted(seen, view)
    trouble = [seen.trouble] if seen.trouble else []
    lines = _wrapped([*trouble, *summary(seen.document)], columns)
    used = [sum(values) for values in zip(*seen.strips.values(), strict=False)]
    if used:
        label = f"used in the last hour, up to {round(max(used))}: "
        room = min(_MOST_STRIP, max(0, columns - len(label)))
        lines.append(label + strip(used, room, blocks=blocks))
    lines.append("")
    if not trainers:
        return [*lines, "no trainers; sbatch --bftrainer -N 2-16 train.sh"]
    arrays = [one["array"] for one in trainers]
    place = arrays.index(_selected(arrays, view))
    heading, *table = _table(trainers, seen.strips, columns, blocks)
    table[place] = SelectedLine(table[place])
    said = notice_lines(trainers[place])  # what its user should know
    note = ["", *_wrapped(said, columns, 2)] if said else []
    room = max(1, rows - len(lines) - 1 - len(note))
    first = max(0, min(place - room // 2, len(trainers) - room))
    return [*lines, Heading(heading), *table[first : first + room], *note]


def _trainer(
    seen: Snapshot, view: View, columns: int, rows: int, now_s: float, blocks: bool
) -> list[str]:
    one = next((one for one in seen.document["trainers"] if one["array"] == view.selected), None)
    if one is None:
        return [f"trainer {view.selected} is gone; see 'bftrainer history'"]
    values = seen.strips.get(str(one["array"]), ())
    lines = list(all_known(one))
    if values:
        room = min(_MOST_STRIP, max(1, columns - 12))
        top = number(max(values))
        lines += [f"{'last hour':<12}{strip(values, room, blocks=blocks)}", f"{'':<12}up to {top}"]
    wrapped = _wrapped([*lines, "", *explained(one, seen.document, now_s)], columns, 12)
    first = max(0, min(view.first, len(wrapped) - rows))
    return wrapped[first : first + rows]


def _sorted(seen: Snapshot, view: View) -> list[dict[str, Any]]:
    return sorted(seen.document["trainers"], key=_SORTS[view.sort][1])


def _selected(arrays: Sequence[int], view: View) -> int:
    return arrays[arrays.index(view.selected)] if view.selected in arrays else arrays[0]


def _table(
    trainers: Sequence[Mapping[str, Any]],
    strips: Mapping[str, Sequence[float]],
    room: int,
    blocks: bool,
) -> list[str]:
    """Return a heading and a line for each trainer, each with its strip in the space left."""
    texts = aligned([_HEADING, *map(_row, trainers)], room - 2 - _LEAST_STRIP, _SPARE)
    left = min(_MOST_STRIP, max(0, room - 2 - text_width(texts[0])))
    drawn = (strip(strips.get(str(one["array"]), ()), left, blocks=blocks) for one in trainers)
    return [f"{text}  {more}" for text, more in zip(texts, (_STRIP, *drawn), strict=True)]


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    rate = one.get("samples_per_s")
    return (*row_cells(one, 14, 10, 9), "-" if rate is None else number(rate))


def _wrapped(lines: Iterable[str], columns: int, indent: int = 0) -> list[str]:
    """Return the lines wrapped to ``columns``; drawings have no blanks, and are cut."""
    wrap = partial(textwrap.wrap, subsequent_indent=" " * indent, break_on_hyphens=False)
    return [
        text for line in lines for text in ([line] if len(line) <= columns else wrap(line, columns))
    ]
