"""``bftrainer assess`` as an admin meets it."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bftrainer_slurm.cli import assess as module
from bftrainer_slurm.cli import joblogs, simulation
from bftrainer_slurm.cli.common import INTERRUPTED
from bftrainer_slurm.replay.assessment.harvest import HarvestResult
from tests.approved import approve_commands
from tests.replay.assessment.standin import a_share
from tests.tools import program

LOG = """JobID|NNodes|Submit|Start|End|State|NodeList
1|2|900|900|1200|COMPLETED|n[1-2]
2|1|900|1500|1900|CANCELLED by 7|n1
3|1|900|1300|5000|COMPLETED|n2
"""
WINDOW = ("--from", "1000", "--to", "4600")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text(LOG)
    return path


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "harvest", a_share)


def assess(*arguments: str | Path) -> Result:
    return CliRunner().invoke(module.assess, list(map(str, arguments)))


def test_it_is_printed_as_approved(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    job = "1|1|2024-01-01T09:00:00|2024-01-01T09:00:00|2024-01-05T09:00:00|COMPLETED|n1\n"
    Path("dates.txt").write_text(f"{LOG.splitlines()[0]}\n{job}")
    steps = "1.0|1|1|1|1|COMPLETED|n1\n" * 200  # with more than 5 % malformed a log is refused
    Path("odd.txt").write_text(LOG + "\x1b[2J evil\n" * 9 + steps)
    Path("taken/assessment.html").mkdir(parents=True)
    approve_commands(Path(__file__).parent / "screens" / "assess.txt")


def test_idle_and_used_nodes_over_time_are_a_table(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the product's own replay
    result = assess(log, *WINDOW, "--csv", tmp_path / "use.csv")
    assert result.exit_code == 0
    text = (tmp_path / "use.csv").read_bytes().decode()
    assert text.startswith("trainers,time,idle_nodes,used_nodes\n10,1000,")
    assert "\r" not in text
    assert any(float(row["used_nodes"]) > 0 for row in csv.DictReader(text.splitlines()))


def test_without_a_log_slurms_accounting_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time())
    job = f"1|1|{now - 9000}|{now - 9000}|{now - 3600}|COMPLETED|n1"
    times = "NodeName|TimeStart|TimeEnd"
    said = {
        "jobs": f"{LOG.splitlines()[0]}\n{job}\n",
        "event": f"{times}\nn3|{now - 90000}|Unknown\n",
        "reservation": f"{times}\nn2|{now - 3600}|{now - 1800}\n",
        "nodes": "n[1-2]\nn3\n",
    }
    for name, text in said.items():
        (tmp_path / name).write_text(text)
    program(tmp_path, "sacct", f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/jobs')
    program(tmp_path, "sacctmgr", f"cat {tmp_path}/$3")
    program(tmp_path, "sinfo", f"cat {tmp_path}/nodes")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = json.loads(assess("--days", "0.125", "--no-replay", "--json").stdout)
    assert (found["machine_nodes"], found["holes"]) == (3, 4)
    assert found["idle_node_hours"] == pytest.approx(3 + 1 + 0.5 - 0.5, abs=0.1)
    assert found["reasons"]["total"]["node_hours"]["down"] == pytest.approx(3.5, abs=0.1)
    assert "--starttime=now-3hours" in (tmp_path / "asked").read_text()


def interrupt_after(monkeypatch: pytest.MonkeyPatch, finished: int) -> None:
    """Let Ctrl-C come in the next sample."""
    left = iter(range(finished))

    def harvest(*arguments: Any) -> HarvestResult:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return a_share(*arguments)

    monkeypatch.setattr(simulation, "harvest", harvest)


def test_ctrl_c_keeps_the_samples_that_were_finished_and_without_one_is_one_line(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (log, *WINDOW, "--sample-hours", "0.2", "--samples", "3")
    interrupt_after(monkeypatch, 1)
    result = assess(*options, "--csv", tmp_path / "use.csv", "--report", tmp_path)
    said = "Ctrl-C: 1 of 3 samples were finished, and count here."
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (INTERRUPTED, f"note: {said}")
    assert "with its defaults: 1 sample of 12 min" in result.stdout
    assert f"report: {tmp_path}/assessment.html" in result.stdout
    assert (tmp_path / "use.csv").exists()
    assert said in (tmp_path / "assessment.html").read_text()
    interrupt_after(monkeypatch, 1)
    found = json.loads(assess(*options, "--json").stdout)
    assert (len(found["replays"]), found["caveats"][-1]) == (1, said)
    interrupt_after(monkeypatch, 0)
    result = assess(*options)
    said = "bftrainer: Ctrl-C: no sample was finished; --no-replay shows the holes alone\n"
    assert (result.exit_code, result.stdout, result.stderr) == (INTERRUPTED, "", said)


def test_a_terminal_reads_that_a_cluster_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblogs, "on_terminal", lambda: True)
    result = assess("--synthetic", "50", "--days", "1", "--no-replay")
    assert "making up a cluster of 50 nodes ..." in result.stderr
