"""``bftrainer history``, for who can read the controller's state folder: screens/history.txt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import history, main, past
from tests.approved import approve_commands
from tests.cli.pasts import HOSTILE, write_past

NOW_S = 1_795_518_400.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, utc: None) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setenv("BFTRAINER_STATE", str(tmp_path))
    monkeypatch.delenv("BFTRAINER_KEEPER", raising=False)
    for module in (history, past):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW_S))
    write_past(tmp_path, now_s=NOW_S)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_the_past_is_printed_as_approved() -> None:
    approve_commands(Path(__file__).parent / "screens" / "history.txt")


@pytest.mark.parametrize("when", ["3600s", "60m", "1.5h", "7d", "1w", "2026-01-01T12:00"])
def test_a_time_is_so_long_ago_or_a_date(when: str) -> None:
    assert call("history", "12", "--since", when).exit_code == 0


def test_hostile_names_do_not_reach_the_terminal(state: Path) -> None:
    (state / "history.sqlite").unlink()
    write_past(state, HOSTILE)
    for words in (["history"], ["history", "12"]):
        output = call(*words).output
        assert "\x1b" not in output
        assert not any(line.startswith("13 forged") for line in output.splitlines())


def test_without_a_history_it_says_so_in_one_line(state: Path) -> None:
    (state / "history.sqlite").unlink()
    result = call("history")
    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
