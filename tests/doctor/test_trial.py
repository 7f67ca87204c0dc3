"""The trial as its user sees it, with made-up commands of Slurm's that note their words."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import main
from scripts.labcluster.waiting import wait_until
from tests.tools import program

_COMMANDS = {
    "sbatch": 'touch "$here/there"; echo Submitted batch job 7',
    "squeue": (
        'case "$*" in *%k) echo "bftrainer:min=1,max=1" ;; '
        '*) [ ! -e "$here/there" ] || echo "R n3" ;; esac'
    ),
    "srun": "true",
    "scancel": 'rm -f "$here/there"',
}


UNREACHABLE = "Unable to contact slurm controller"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with commands; ``told`` in it has the lines that they were called with."""
    for name, does in _COMMANDS.items():
        replace(tmp_path, name, does)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path


def replace(folder: Path, name: str, does: str) -> None:
    program(folder, name, f'here=${{0%/*}}\necho "{name} $*" >> "$here/told"\n{does}')


def told(slurm: Path) -> list[str]:
    """The names of the commands that were called."""
    return [line.partition(" ")[0] for line in (slurm / "told").read_text().splitlines()]


def call(*options: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--try", *options])


def test_it_says_how_late_the_ordinary_job_came_on_the_trainers_node(slurm: Path) -> None:
    result = call("--ordinary", "short")
    assert result.exit_code == 0, result.output
    said = result.stdout.splitlines()
    assert said[0] == "Submitted batch job 7"
    assert said[-1].startswith("an ordinary job on n3 took ")
    runs = [line for line in (slurm / "told").read_text().splitlines() if line.startswith("srun")]
    assert len(runs) == 2
    assert all("--nodelist=n3" in line and "--partition=short" in line for line in runs)
    # All that it submits has one name, and is cancelled by it.
    words = (slurm / "told").read_text().split()
    assert len({one.partition("=")[2] for one in words if re.match("--(job-)?name=", one)}) == 1
    assert told(slurm)[-1] == "scancel"


def test_a_record_that_the_site_has_replaced_ends_it(slurm: Path) -> None:
    replace(slurm, "squeue", 'echo "account=x"')
    result = call()
    assert (result.exit_code, told(slurm)) == (1, ["sbatch", "squeue", "scancel"])
    assert "replaces comments" in result.stderr


@pytest.mark.parametrize("cancels", ["", "echo no such job >&2; exit 1"])
@pytest.mark.parametrize(
    ("command", "error", "code"),
    [("sbatch", "no such thing", 1), ("srun", "no such thing", 1), ("sbatch", UNREACHABLE, 3)],
)
def test_what_slurm_refuses_is_said_in_a_line_and_nothing_is_left(
    slurm: Path, command: str, error: str, code: int, cancels: str
) -> None:
    replace(slurm, command, f"echo {error} >&2; exit 1")
    replace(slurm, "scancel", cancels)  # an error of cleaning up does not hide the first one
    result = call()
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1)
    assert error in result.stderr
    assert told(slurm)[-1] == "scancel"


def test_it_refuses_to_run_inside_a_job(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert call().exit_code == 2
    assert not (slurm / "told").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trial_that_is_broken_off_leaves_nothing(slurm: Path, number: signal.Signals) -> None:
    replace(slurm, "srun", "exec sleep 60")
    words = [sys.executable, "-m", "bftrainer_slurm", "doctor", "--try"]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (slurm / "told").exists() and "srun" in told(slurm))
        running.send_signal(number)
        assert running.wait(120) != 0
    finally:
        running.kill()
        running.wait()
    assert told(slurm)[-1] == "scancel"
    assert not (slurm / "there").exists()
