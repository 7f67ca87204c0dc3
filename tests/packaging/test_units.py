"""The units of systemd: what they start is there. ``packaging/try`` starts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer_slurm.cli import main

_PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
_UNITS = sorted((_PACKAGING / "systemd").glob("*.service"))


def value(unit: Path, key: str) -> str:
    lines = [line for line in unit.read_text().splitlines() if line.startswith(f"{key}=")]
    assert len(lines) == 1
    return lines[0].partition("=")[2]


@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.stem)
def test_its_command_is_known_it_gains_no_rights_and_starts_again_soon(unit: Path) -> None:
    program, *words = value(unit, "ExecStart").split()
    assert program == "/opt/bftrainer/bin/bftrainer"
    assert CliRunner().invoke(main, [*words, "--help"]).exit_code == 0
    assert CliRunner().invoke(main, [*words, "--no-such-option", "--help"]).exit_code == 2
    wanted = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "StateDirectory": "bftrainer"}
    wanted |= {"Restart": "always", "RestartSec": "2", "StartLimitIntervalSec": "0"}
    assert {key: value(unit, key) for key in wanted} == wanted
