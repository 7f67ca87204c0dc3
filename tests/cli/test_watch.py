"""``bftrainer status --watch``: the table of ``status``, again and again on a terminal."""

from __future__ import annotations

from unittest.mock import Mock, call

import pytest

from bftrainer_slurm.cli import main, status
from bftrainer_slurm.cli.terminal import Heading, on_one_screen
from tests.cli.documents import DOCUMENT, TRAINER

CLEARS = "\x1b[2J"
STATUS = DOCUMENT | {"trainers": [TRAINER | {"name": f"{CLEARS}evil\n\u202e"}]}


@pytest.mark.parametrize(
    ("words", "down", "pauses_s"),
    [
        ([], None, [2.0] * 3),
        (["7"], None, [7.0]),
        ([], "the controller is down", [30.0]),
        (["60"], "the controller is down", [60.0]),
    ],
)
def test_the_table_is_drawn_again_until_ctrl_c_and_slurm_is_asked_seldom_and_no_name_harms(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    down: str | None,
    pauses_s: list[float],
) -> None:
    sleep = Mock(side_effect=[*[None] * (len(pauses_s) - 1), KeyboardInterrupt])
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(status, "current_status", lambda _: STATUS | {"down": down})
    monkeypatch.setattr("bftrainer_slurm.cli.status.time.sleep", sleep)
    with pytest.raises(SystemExit) as ended:
        main(["status", "--watch", *words])
    shown = capsys.readouterr().out
    assert (ended.value.code, sleep.mock_calls) == (0, [*map(call, pauses_s)])
    assert shown.count(CLEARS) == shown.count("alice  running") == len(pauses_s)
    assert "\u202e" not in shown


@pytest.mark.parametrize(("columns", "shown"), [("20", 6), ("80", 9)])
def test_as_much_is_drawn_as_the_screen_has_room_for(
    monkeypatch: pytest.MonkeyPatch, columns: str, shown: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "10")
    lines = ["\u5b66" * 35, "", Heading("name"), *map(str, range(40))]
    assert on_one_screen(lines) == lines[:shown]
    assert isinstance(on_one_screen(lines)[2], Heading)
