"""``bftrainer top``: what it shows, what keys do, and how little it sends."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from typing import Any

import pytest

from bftrainer_slurm.cli.screen import Key, Page, SelectedLine, Snapshot, View, frame, handle_key
from bftrainer_slurm.cli.status import status_lines
from scripts.labcluster.keeper import Keeper, started_keeper
from tests.cli.test_commands import DOCUMENT, SHOWN

NOW_S = 1_000_000.0
HOSTILE = "\x1b[2Jevil\n\u202e"


def one(array: int, **more: Any) -> dict[str, Any]:
    return SHOWN | {"array": array, "name": f"job{array}", "goodput": None, "plan": None} | more


def seen(*trainers: dict[str, Any], **more: Any) -> Snapshot:
    strips = {str(each["array"]): [0.0] * 30 + [4.0] * 30 for each in trainers}
    document = DOCUMENT | {"time_s": NOW_S, "trainers": list(trainers)} | more
    return Snapshot(document, strips)


MANY = seen(*(one(array, nodes=["n1"] * (array % 7)) for array in range(1, 51)))


def texts(known: Snapshot, view: View = View(), columns: int = 80, rows: int = 24) -> list[str]:  # noqa: B008
    return frame(known, view, columns, rows, NOW_S)


def test_a_line_has_a_trainer_and_its_last_hour() -> None:
    lines = texts(seen(one(12)))
    (heading,) = [line for line in lines if line.startswith("TRAINER")]
    (line,) = [line for line in lines if line.startswith("12 ")]
    assert line.split()[:7] == ["12", "job12", "alice", "running", "2+1", "1-4", "1,234"]
    drawn = line[heading.index("LAST HOUR") :]
    assert drawn.lstrip(" ▁▂▃▄▅▆▇") == "█" * (len(drawn) // 2)


@pytest.mark.parametrize(
    ("part", "said"),
    [({"gpus": 2}, "2+1 (4 GPUs)"), ({"cores": 3}, "2+1 (6 cores)"), ({"gpus": 0}, "2+1  ")],
)
def test_beside_its_nodes_stands_how_much_it_has_of_them(part: dict[str, int], said: str) -> None:
    shared = one(12, **part)
    (line,) = [line for line in texts(seen(shared), columns=120) if line.startswith("12 ")]
    assert f"  {said}  " in line
    assert f"  {said}  " in "\n".join(status_lines(DOCUMENT | {"trainers": [shared]}))


def test_the_pool_and_what_ordinary_jobs_felt_stand_above() -> None:
    lines = texts(seen(one(12), preempted={"jobs": 0}))
    assert lines[1] == "Trainers use 3 of the 5 nodes without ordinary jobs."
    assert lines[2] == "ordinary jobs, last 24 h: none had to preempt a trainer"


@pytest.mark.parametrize("page", Page)
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (200, 60), (20, 5), (1, 1)])
def test_every_page_fits_the_terminal(page: Page, columns: int, rows: int) -> None:
    lines = texts(MANY, View(page, selected=3), columns, rows)
    assert len(lines) <= rows
    assert all(len(line) <= columns for line in lines)


def test_names_that_are_wide_or_hostile_break_no_line() -> None:
    lines = texts(seen(one(12, name="学習" * 20), one(13, name=HOSTILE, user=HOSTILE, why=HOSTILE)))
    table = [line for line in lines if line.startswith(("12 ", "13 "))]
    assert all(line.isprintable() for line in lines)
    assert len(table) == 2


def test_the_chosen_trainer_stays_on_the_screen_however_many_there_are() -> None:
    view = View()
    for _ in range(60):
        view = handle_key(view, Key.DOWN, MANY, 24)
        (chosen,) = [
            line for line in frame(MANY, view, 80, 24, NOW_S) if isinstance(line, SelectedLine)
        ]
        assert chosen.startswith(f"{view.selected} ")
    assert view.selected == 49  # the last by the number of its nodes


def test_the_chosen_trainer_stays_chosen_however_it_is_sorted() -> None:
    view = handle_key(View(), Key.DOWN, MANY, 24)
    assert handle_key(view, Key.SORT, MANY, 24).selected == view.selected


def test_trainers_are_sorted_by_nodes_and_then_as_is_wished() -> None:
    known = seen(one(1, nodes=["n1"]), one(2, nodes=["n2", "n3"], user="aaron"), one(3, nodes=[]))

    def order(view: View) -> list[str]:
        return [line.split()[0] for line in texts(known, view) if line[:2] in ("1 ", "2 ", "3 ")]

    assert order(View()) == ["2", "1", "3"]
    assert order(handle_key(View(), Key.SORT, known, 24)) == ["1", "2", "3"]


def test_enter_shows_all_that_is_known_and_enter_goes_back() -> None:
    known = seen(one(12))
    inside = handle_key(View(), Key.ENTER, known, 24)
    lines = texts(known, inside, rows=60)
    assert any(line.startswith("trainer     12 job12 of alice") for line in lines)
    assert any(line.startswith("last hour") for line in lines)
    assert any("more is starting" in line for line in lines)
    assert handle_key(inside, Key.ENTER, known, 24).page is Page.LIST


def test_a_trainer_that_has_gone_while_it_is_looked_at_is_no_error() -> None:
    assert "trainer 99 is gone" in texts(seen(one(12)), View(Page.TRAINER, selected=99))[1]


def test_any_key_leaves_the_help() -> None:
    view = handle_key(View(), Key.HELP, MANY, 24)
    assert view.page is Page.HELP
    assert handle_key(view, Key.OTHER, MANY, 24).page is Page.LIST


@pytest.mark.parametrize("page", Page)
@pytest.mark.parametrize("key", Key)
def test_without_trainers_no_key_harms(page: Page, key: Key) -> None:
    nothing = seen()
    assert texts(nothing, handle_key(View(page), key, nothing, 24))


def test_what_slurm_alone_knows_is_shown_too() -> None:
    names = ("array", "name", "user", "state", "nodes", "starting", "min_nodes", "max_nodes")
    known = {key: SHOWN[key] for key in (*names, "submit_s", "weight", "grace_s")}
    down = {"down": "the controller is down", "controller": None, "pool": None, "preempted": None}
    for view in (View(), View(Page.TRAINER, selected=12)):
        assert texts(seen(known, **down), view)


class Terminal:
    """``bftrainer top`` on a terminal of 80 columns and 24 rows, as ssh would carry it."""

    def __init__(self, keeper: Keeper) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:
            command = [sys.executable, "-m", "bftrainer_slurm", "top", "--every", "2"]
            own = {"TERM": "xterm", "LANG": "C.UTF-8", "BFTRAINER_STATE": str(keeper.state)}
            os.execve(sys.executable, command, os.environ | own)
        self.pid = pid
        ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.sent = b""

    def until(self, text: bytes) -> bytes:
        """Return what is sent until this is among it."""
        begin = len(self.sent)
        deadline = time.monotonic() + 300
        while text not in self.sent[begin:] and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 1.0)[0]:
                self.sent += os.read(self.fd, 65536)
        assert text in self.sent[begin:], self.sent
        return self.sent[begin:]

    def rest(self) -> None:
        """Read on until nothing is sent for a second."""
        while select.select([self.fd], [], [], 1.0)[0]:
            self.sent += os.read(self.fd, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def ended(self) -> int:
        """Return the exit code; what is still sent is read."""
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(self.fd, 65536):
                self.sent += chunk
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def publishing(keeper: Keeper, document: dict[str, Any]) -> Iterator[None]:
    """Publish a status once a second, as the controller does."""
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.5):
            keeper.client.publish(document | {"time_s": time.time()})

    keeper.client.publish(document | {"time_s": time.time()})
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def terminal(tmp_path: Any) -> Iterator[Terminal]:
    with (
        started_keeper(tmp_path) as keeper,
        publishing(keeper, seen(one(12, name="first"), one(13, name=HOSTILE)).document),
    ):
        terminal = Terminal(keeper)
        yield terminal
        os.close(terminal.fd)


def test_on_a_terminal_keys_work_and_a_refresh_sends_little(terminal: Terminal) -> None:
    terminal.until(b"first")
    terminal.rest()
    begin, begin_s = len(terminal.sent), time.monotonic()
    while time.monotonic() - begin_s < 5:  # two refreshes: little but the clock has changed
        if select.select([terminal.fd], [], [], 0.5)[0]:
            terminal.sent += os.read(terminal.fd, 65536)
    assert len(terminal.sent) - begin < begin  # not all of it again, twice
    terminal.press(b"?")
    terminal.until(b"ask again now")
    terminal.press(b"xq")
    assert terminal.ended() == 0
    assert HOSTILE.encode() not in terminal.sent


def test_ctrl_c_ends_it_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    terminal.until(b"first")
    terminal.press(b"\x03")
    assert terminal.ended() == 130
    assert b"\x1b[?1049l" in terminal.sent  # back from the other screen
    assert b"Traceback" not in terminal.sent


@pytest.mark.parametrize("name", ["", "dumb", "xterm"])
def test_without_a_terminal_it_says_so_in_one_line(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bftrainer_slurm", "top"],
        capture_output=True,
        text=True,
        env=os.environ | {"TERM": name},
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "bftrainer: top needs a terminal; 'bftrainer status' prints the same once"
