"""``bftrainer history``, for who can read the controller's state folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import main
from tests.cli.pasts import HOSTILE, write_past


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setenv("BFTRAINER_STATE", str(tmp_path))
    monkeypatch.delenv("BFTRAINER_KEEPER", raising=False)
    write_past(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_without_a_trainer_all_that_had_nodes_are_listed_also_ended_ones() -> None:
    lines = call("history").output.splitlines()
    assert lines[0].split()[:3] == ["TRAINER", "NAME", "USER"]
    assert [line.split()[0] for line in lines[1:]] == ["12", "14", "13"]
    assert "has nodes" in lines[1]
    hours, *counts = lines[1].split()[-4:]
    assert 1.16 < float(hours) < 1.5  # one of its nodes it has still
    assert counts == ["2", "0", "1"]


def test_beside_node_hours_stand_the_gpu_hours_of_parts_of_nodes() -> None:
    lines = call("history").output.splitlines()
    assert all("  1.00 (4.00 GPU-hours)  " in line for line in lines[2:])
    assert "GPU" not in lines[1]
    lines = call("history", "13").output.splitlines()
    assert "used        1.00 node-hours (4.00 GPU-hours), 1 node at most" in lines


def test_since_leaves_out_who_ended_before() -> None:
    lines = call("history", "--since", "30m").output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["12"]


def test_a_story_has_sums_and_then_the_changes() -> None:
    lines = call("history", "12").output.splitlines()
    assert lines[0] == "trainer     12 digits of alice"
    assert "used        1.17 node-hours, 2 nodes at most" in lines
    assert "changes     grew 2, shrank 0, reclaimed 1 time" in lines
    assert "rescaling   1 pause, 1.75 s in the median, 1.75 s at most, 1.8 s in all" in lines
    assert [line[21:].split(maxsplit=1) for line in lines[-3:]] == [
        ["2", "+2 n[1-2]"],
        ["1", "-1 n2 reclaimed"],
        ["1", "trains again after 1.75 s"],
    ]


def test_the_last_changes_are_shown_and_how_many_there_were_before() -> None:
    lines = call("history", "12", "-n", "1").output.splitlines()
    assert "trains again" in lines[-2]
    assert lines[-1] == "2 earlier changes are not shown; see -n and --since"


def test_an_ended_trainer_is_found_by_its_id() -> None:
    lines = call("history", "13").output.splitlines()
    assert "ended       finished" in lines


def test_a_name_that_several_had_is_asked_back() -> None:
    result = call("history", "resnet")
    assert result.exit_code == 2
    assert result.stderr == "bftrainer: 2 trainers were named 'resnet'; say which: 14, 13\n"


@pytest.mark.parametrize("trainer", ["99", "nobody"])
def test_a_trainer_that_nobody_knows_is_said_in_one_line(trainer: str) -> None:
    result = call("history", trainer)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"'{trainer}'" in result.stderr


@pytest.mark.parametrize("when", ["yesterday", "2x", "", "1e9h", "-1h", "9" * 30])
def test_a_time_that_is_none_is_refused(when: str) -> None:
    result = call("history", "--since", when)
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)


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
