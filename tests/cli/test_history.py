"""``bftrainer history``, for who can read the controller's state folder: screens/history.txt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import history, main, past
from tests.approved import approve_commands
from tests.cli.pasts import HOSTILE, write_past

NOW_S = 1_795_518_400.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, utc: None) -> None:
    monkeypatch.setenv("BFTRAINER_STATE", str(tmp_path))
    for module in (history, past):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW_S))
    for folder, name in ((tmp_path, "digits"), (tmp_path / "hostile", HOSTILE)):
        folder.mkdir(exist_ok=True)
        write_past(folder, name, NOW_S)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)


def test_the_past_is_printed_as_approved() -> None:
    approve_commands(Path(__file__).parent / "screens" / "history.txt")


@pytest.mark.parametrize("when", ["3600s", "60m", "1.5h", "7d", "1w", "2026-01-01T12:00"])
def test_a_time_is_so_long_ago_or_a_date(when: str) -> None:
    result = CliRunner().invoke(main, ["history", "12", "--since", when])
    assert result.exit_code == 0
