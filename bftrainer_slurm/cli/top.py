"""``bftrainer top``: shows the pool and every trainer, live in a terminal.

Python's curses draws, and sends a terminal only what has changed.
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
from bftrainer_slurm.cli.common import NO_ANSWER, fail, fail_if_unreadable, fail_on, safe
from bftrainer_slurm.cli.endpoint import Endpoint, endpoint_options
from bftrainer_slurm.cli.past import read_history
from bftrainer_slurm.cli.screen import Key, SelectedLine, Snapshot, View, frame, handle_key
from bftrainer_slurm.cli.status import no_answer, status_from_slurm, status_now
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
@endpoint_options
def top(every_s: float, endpoint: Endpoint) -> None:
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
    with fail_if_unreadable(), fail_on(GatewayError, code=NO_ANSWER, begin=no_answer(endpoint)):
        watch = _Poller(endpoint, every_s)
    _on_screen(watch)


def _on_screen(watch: _Poller) -> None:
    import curses

    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    os.environ.setdefault("ESCDELAY", "50")
    try:
        curses.setupterm()
    except curses.error:
        fail(f"top does not know a terminal like TERM={safe(os.environ['TERM'])}")
    curses.wrapper(lambda screen: _loop(screen, watch))


def _loop(screen: window, watch: _Poller) -> None:
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
            watch.refresh()
        elif code == curses.KEY_RESIZE:
            screen.clear()
        elif code != -1:
            view = handle_key(view, keys.get(code, Key.OTHER), seen, rows)


def _draw(screen: window, lines: list[str]) -> None:
    """Draw everything; curses sends only what is new."""
    import curses

    looks = {Heading: curses.A_BOLD, SelectedLine: curses.A_REVERSE}
    screen.erase()
    for row, line in enumerate(lines):
        with contextlib.suppress(curses.error):  # the last place of the screen
            screen.addstr(row, 0, line, looks.get(type(line), 0))
    screen.refresh()


class _Poller:
    """Asks for the status regularly, in its own thread, so that keys never wait.

    Raises:
        GatewayError: neither the controller nor Slurm answers at the beginning.
    """

    def __init__(self, endpoint: Endpoint, every_s: float) -> None:
        self._endpoint = endpoint
        self._every_s = every_s
        self._wake = threading.Event()
        self._strips_s = self._slurm_s = float("-inf")
        self._of_slurm: dict[str, Any] = {}
        self.seen = Snapshot(status_now(endpoint, self._ask_slurm), {})

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def refresh(self) -> None:
        """Ask at once."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            self.seen = self._poll()
            self._wake.wait(self._every_s)
            self._wake.clear()

    def _poll(self) -> Snapshot:
        """Return the new status; the last one if nobody answers."""
        try:
            document = status_now(self._endpoint, self._ask_slurm)
            return Snapshot(document, self._strips())
        except GatewayError as error:
            trouble = f"{no_answer(self._endpoint)}{safe(error, 200)}"
        except (SystemExit, ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
            trouble = f"the status cannot be read ({type(error).__name__})"
        return Snapshot(self.seen.document, self.seen.strips, trouble)

    def _strips(self) -> Any:
        if time.monotonic() - self._strips_s < _STRIPS_EVERY_S:
            return self.seen.strips
        self._strips_s = time.monotonic()
        try:
            return read_history("strips", 0.0, self._endpoint)["strips"]
        except KeeperError:
            return {}  # an older keeper, or no history yet

    def _ask_slurm(self) -> dict[str, Any]:
        if time.monotonic() - self._slurm_s > _SLURM_EVERY_S:
            self._of_slurm, self._slurm_s = status_from_slurm(), time.monotonic()
        return self._of_slurm
