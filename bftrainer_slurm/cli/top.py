"""``bftrainer top``: the pool and every trainer, live in a terminal.

Drawn by Python's own curses, which sends a terminal only what has changed.
"""

from __future__ import annotations

import contextlib
import locale
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from bftrainer_slurm.cli.chart import draws_blocks
from bftrainer_slurm.cli.common import NOT_THERE, fail, fail_on, fail_where_unreadable, shown
from bftrainer_slurm.cli.past import past_or_none
from bftrainer_slurm.cli.screen import Chosen, Key, Seen, View, frame, pressed
from bftrainer_slurm.cli.side import Side, side_options
from bftrainer_slurm.cli.status import from_slurm, silent, status_now
from bftrainer_slurm.cli.terminal import Heading
from bftrainer_slurm.keeper.client import KeeperError
from bftrainer_slurm.slurm.gateway import GatewayError

if TYPE_CHECKING:
    from curses import window

_LEAST_EVERY_S = 2.0  # as often as the controller publishes
_STRIPS_EVERY_S = 60.0  # a strip has one value for each minute
_SLURM_EVERY_S = 30.0
_DRAW_EVERY_MS = 250  # how often to look for new answers
_NO_TERMINALS = ("", "dumb", "unknown")


@click.command()
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(_LEAST_EVERY_S, 3600.0),
    default=5.0,
    metavar="SECONDS",
    help="How often to ask for the controller's status. [default: 5]",
)
@side_options
def top(every_s: float, side: Side) -> None:
    """Watch the pool and every trainer, with its nodes in the last hour. 'q' quits, '?' helps.

    This costs slurmctld nothing: you see what the controller has published. It works at 80
    columns, and over a slow connection: only what has changed is sent.

    \b
    Example:
      bftrainer top --every 30
    """
    if os.environ.get("TERM", "") in _NO_TERMINALS or not (
        sys.stdin.isatty() and sys.stdout.isatty()
    ):
        fail("top needs a terminal; 'bftrainer status' prints the same once")
    with fail_where_unreadable(), fail_on(GatewayError, code=NOT_THERE, begin=silent(side)):
        watch = _Watch(side, every_s)
    _on_screen(watch)


def _on_screen(watch: _Watch) -> None:
    import curses

    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    os.environ.setdefault("ESCDELAY", "50")
    try:
        curses.setupterm()
    except curses.error:
        fail(f"top does not know a terminal like TERM={shown(os.environ['TERM'])}")
    curses.wrapper(lambda screen: _loop(screen, watch))


def _loop(screen: window, watch: _Watch) -> None:
    """Draw and listen until the user quits."""
    import curses

    with contextlib.suppress(curses.error):  # not every terminal can hide its cursor
        curses.curs_set(0)
    keys = {
        curses.KEY_UP: Key.UP,
        curses.KEY_DOWN: Key.DOWN,
        curses.KEY_PPAGE: Key.PAGE_UP,
        curses.KEY_NPAGE: Key.PAGE_DOWN,
        curses.KEY_ENTER: Key.ENTER,
        curses.KEY_LEFT: Key.BACK,
        curses.KEY_BACKSPACE: Key.BACK,
        **dict.fromkeys(map(ord, "\r\n"), Key.ENTER),
        **dict.fromkeys(map(ord, "\x1b\x7f"), Key.BACK),
        **dict.fromkeys(map(ord, "?h"), Key.HELP),
        ord("k"): Key.UP,
        ord("j"): Key.DOWN,
        ord("s"): Key.SORT,
    }
    screen.timeout(_DRAW_EVERY_MS)
    view, blocks, drawn = View(), draws_blocks(), None
    watch.start()
    while True:
        seen, (rows, columns) = watch.seen, screen.getmaxyx()
        wanted = (seen, view, rows, columns)
        if wanted != drawn:
            _draw(screen, frame(seen, view, columns, rows, time.time(), blocks=blocks))
            drawn = wanted
        code = screen.getch()
        if code in (ord("q"), ord("Q")):
            return
        if code == ord("r"):
            watch.now()
        elif code == curses.KEY_RESIZE:
            screen.clear()
        elif code != -1:
            view = pressed(view, keys.get(code, Key.OTHER), seen, rows)


def _draw(screen: window, lines: list[str]) -> None:
    """Draw everything: curses finds out what is new."""
    import curses

    looks = {Heading: curses.A_BOLD, Chosen: curses.A_REVERSE}
    screen.erase()
    for row, line in enumerate(lines):
        with contextlib.suppress(curses.error):  # the last place of the screen
            screen.addstr(row, 0, line, looks.get(type(line), 0))
    screen.refresh()


class _Watch:
    """Asks again and again in a thread of its own, so that keys never wait.

    Raises:
        GatewayError: neither the controller nor Slurm answers at the beginning.
    """

    def __init__(self, side: Side, every_s: float) -> None:
        self._side = side
        self._every_s = every_s
        self._wake = threading.Event()
        self._strips_s = self._slurm_s = float("-inf")
        self._of_slurm: dict[str, Any] = {}
        self.seen = Seen(status_now(side, self._ask_slurm), {})

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def now(self) -> None:
        """Ask at once."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            self.seen = self._ask()
            self._wake.wait(self._every_s)
            self._wake.clear()

    def _ask(self) -> Seen:
        """Return what is new; if nobody answers, what was seen last."""
        try:
            document = status_now(self._side, self._ask_slurm)
            return Seen(document, self._strips())
        except GatewayError as error:
            trouble = f"{silent(self._side)}{shown(error, 200)}"
        except (SystemExit, ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
            trouble = f"the status cannot be read ({type(error).__name__})"
        return Seen(self.seen.document, self.seen.strips, trouble)

    def _strips(self) -> Any:
        if time.monotonic() - self._strips_s < _STRIPS_EVERY_S:
            return self.seen.strips
        self._strips_s = time.monotonic()
        try:
            return past_or_none("strips", 0.0, self._side)["strips"]
        except KeeperError:
            return {}  # an older keeper, or no history yet

    def _ask_slurm(self) -> dict[str, Any]:
        if time.monotonic() - self._slurm_s > _SLURM_EVERY_S:
            self._of_slurm, self._slurm_s = from_slurm(), time.monotonic()
        return self._of_slurm
