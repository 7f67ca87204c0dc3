"""``bftrainer status --watch``: the table of ``status``, again and again on a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import struct
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import main, status
from bftrainer_slurm.cli.terminal import Heading, on_one_screen
from scripts.labcluster.keeper import started_keeper
from tests.cli.documents import DOCUMENT, TRAINER

HOSTILE = "\x1b[2Jevil\n\u202e"


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["status", *words])


@pytest.mark.parametrize(
    ("words", "down", "pauses_s"),
    [
        ([], None, [2.0] * 3),
        (["7"], None, [7.0]),
        ([], "the controller is down", [30.0]),
        (["60"], "the controller is down", [60.0]),
    ],
)
def test_the_table_is_drawn_again_until_ctrl_c_and_slurm_is_asked_seldom(
    monkeypatch: pytest.MonkeyPatch, words: list[str], down: str | None, pauses_s: list[float]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == len(pauses_s):
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "_can_redraw", lambda: True)
    monkeypatch.setattr(status, "current_status", lambda _: DOCUMENT | {"down": down})
    monkeypatch.setattr("bftrainer_slurm.cli.status.time.sleep", sleep)
    result = call("--watch", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("12       digits  alice  running") == len(pauses_s)
    assert slept == pauses_s


@pytest.mark.parametrize(("columns", "shown"), [("20", 6), ("80", 9)])
def test_as_much_is_drawn_as_the_screen_has_room_for(
    monkeypatch: pytest.MonkeyPatch, columns: str, shown: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "10")
    lines = ["\u5b66" * 35, "", Heading("name"), *map(str, range(40))]
    assert on_one_screen(lines) == lines[:shown]
    assert isinstance(on_one_screen(lines)[2], Heading)


def test_on_a_real_terminal_ctrl_c_ends_it_and_no_name_harms(tmp_path: Path) -> None:
    with started_keeper(tmp_path) as keeper:
        document = DOCUMENT | {"time_s": time.time(), "trainers": [TRAINER | {"name": HOSTILE}]}
        keeper.client.publish(document)
        pid, terminal = pty.fork()
        if pid == 0:
            own = {"TERM": "xterm", "LANG": "C.UTF-8", "BFTRAINER_STATE": str(keeper.state)}
            command = [sys.executable, "-m", "bftrainer_slurm", "status", "--watch"]
            os.execve(sys.executable, command, os.environ | own)
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        sent, deadline = b"", time.monotonic() + 300
        while b"evil" not in sent and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1.0)[0]:
                sent += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(terminal, 65536):
                sent += chunk
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(terminal)
    assert b"Traceback" not in sent
    assert HOSTILE.encode() not in sent
