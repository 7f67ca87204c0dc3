"""What users see of the commands where nothing answers, or where the input is bad."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import main
from bftrainer_slurm.cli.status import render

TRAINER = {
    "array": 12,
    "name": "digits",
    "user": "alice",
    "state": "running",
    "nodes": ["n1", "n2"],
    "starting": ["n3"],
    "min_nodes": 1,
    "max_nodes": 4,
    "samples": 81_234.0,
    "samples_per_s": 1_234.5,
    "grew": 3,
    "shrank": 0,
    "reclaimed": 1,
}
DOCUMENT = {
    "down": None,
    "controller": {"error": None},
    "pool": {"nodes": 5, "used": 3, "free": ["n4", "n5"]},
    "malformed": 0,
    "trainers": [TRAINER],
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No slurmctld, no controller, a home of one's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=9\nNodeName=n1\n"
        "MessageTimeout=1\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    for name in ("BFTRAINER_STATE", "BFTRAINER_KEEPER", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def script(folder: Path, text: str = "#!/bin/sh\nsrun torchrun train.py\n") -> str:
    path = folder / "train.sh"
    path.write_text(text)
    return str(path)


def test_every_command_has_help_with_what_it_does() -> None:
    listed = call("--help").output
    for command in ("submit", "status", "show", "plan", "controller", "keeper"):
        assert command in listed
        assert call(command, "--help").exit_code == 0


def test_the_table_shows_a_trainer_in_a_line() -> None:
    lines = render(DOCUMENT).splitlines()
    assert lines[0] == "pool: 5 nodes in holes, 3 used by trainers"
    assert lines[2].split() == (
        ["12", "digits", "alice", "running", "2+1", "1-4", "81,234", "1,234", "3", "0", "1"]
    )


def test_a_hostile_name_cannot_write_to_the_terminal() -> None:
    hostile = TRAINER | {"name": "\x1b[2Jevil\n12 forged"}
    shown = render(DOCUMENT | {"trainers": [hostile]})
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3


def test_trouble_with_slurm_is_shown_first() -> None:
    troubled = DOCUMENT | {"controller": {"error": "slurmctld does not answer"}}
    assert render(troubled).splitlines()[0] == "trouble: slurmctld does not answer"


@pytest.mark.parametrize("command", [("status",), ("show", "12")])
def test_where_nothing_answers_it_says_so_in_a_line(command: tuple[str, ...]) -> None:
    result = call(*command)
    assert result.exit_code == 3
    assert result.stderr.startswith("bftrainer: neither the controller nor Slurm answers")
    assert result.stderr.count("\n") == 1


def test_a_bad_settings_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("forward_time = 3\n")
    result = call("controller", "--config", str(path))
    assert result.exit_code == 2
    assert "unknown key 'forward_time'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which script?"),
        (("-N", "2-4", "absent.sh"), "absent.sh: No such file"),
        (("-p", "idle", "SCRIPT"), "write -N MIN-MAX"),
        (("-N", "4-2", "-p", "idle", "SCRIPT"), "MIN is at least 1 and not above MAX"),
        (("-N", "2-8:2", "-p", "idle", "SCRIPT"), "a range, not a list"),
        (("-N", "2-4", "SCRIPT"), "in which partition?"),
        (("-N", "2-4", "-p", "idle", "--array=0-3", "SCRIPT"), "leave --array out"),
        (("-N", "2-4", "-p", "idle", "--bftrainer", "speed=9", "SCRIPT"), "unknown key 'speed'"),
        (("-N", "2-4", "-p", "idle", "-t", "soon", "SCRIPT"), "not a time limit"),
    ],
)
def test_a_bad_submission_is_refused_with_a_remedy(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    path = script(tmp_path)
    result = call("submit", *(path if word == "SCRIPT" else word for word in arguments))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_program_is_not_taken_for_a_script(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF\xff\xfe\x00")
    assert "not a text file" in call("submit", "-N", "1-2", str(path)).stderr
