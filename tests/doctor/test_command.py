"""``bftrainer doctor`` as admins see it, with made-up commands of Slurm's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import main
from bftrainer_slurm.keeper.client import KeeperClient
from tests.doctor.made import CONFIG, PARTITIONS
from tests.tools import program


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scontrol that prints recorded texts, and a slurm.conf."""
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "partition").write_text(PARTITIONS)
    program(tmp_path, "scontrol", 'for last; do :; done\nexec cat "${0%/*}/$last"')
    (tmp_path / "slurm.conf").write_text("CompleteWait=32\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_it_ends_with_1_where_something_must_change(slurm: Path) -> None:
    result, as_json = call(), call("--json")
    assert (result.exit_code, as_json.exit_code) == (1, 1)
    assert "plugstack.conf does not name bftrainer.so" in result.stdout
    count = json.loads(as_json.stdout)["counts"]["change"]
    assert result.stdout.count("\nchange ") + 1 == count
    assert result.stdout.splitlines()[-1].startswith(f"{count} to change, ")


@pytest.mark.parametrize(
    ("age_s", "error", "found"),
    [
        (3600.0, "stopped", "the controller is down: it was stopped"),
        (1.0, "no nodes", "no nodes"),
    ],
)
def test_a_controller_is_down_in_the_words_of_status(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, error: str, found: str
) -> None:
    (slurm / "bftrainer.toml").write_text('listen = "127.0.0.1:6740"\n')
    told = age_s, {"controller": {"error": error}}
    monkeypatch.setattr(KeeperClient, "status", lambda self: told)
    monkeypatch.setattr(KeeperClient, "history", lambda self, what, since_s: {})
    findings = json.loads(call("--json").stdout)["findings"]
    assert [one["found"] for one in findings if one["check"] == "controller answers"] == [found]


@pytest.mark.parametrize("answer", ["", "MaxJobCount = many\n", "\x00\xff"])
def test_a_slurm_that_talks_nonsense_is_one_line(slurm: Path, answer: str) -> None:
    (slurm / "config").write_text(answer)
    result = call()
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
