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
from bftrainer_slurm.cli import files, joblogs, simulation
from bftrainer_slurm.cli.common import INTERRUPTED
from bftrainer_slurm.replay.assessment.harvest import HarvestResult
from tests.approved import approve_commands
from tests.replay.assessment.standin import equal_shares
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
    monkeypatch.setattr(simulation, "harvest", equal_shares)


def assess(*arguments: str | Path) -> Result:
    return CliRunner().invoke(module.assess, list(map(str, arguments)))


def test_it_is_printed_as_approved(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    job = "1|1|2024-01-01T09:00:00|2024-01-01T09:00:00|2024-01-05T09:00:00|COMPLETED|n1\n"
    Path("dates.txt").write_text(f"{LOG.splitlines()[0]}\n{job}")
    steps = "1.0|1|1|1|1|COMPLETED|n1\n" * 200  # with more than 5 % malformed a log is refused
    Path("odd.txt").write_text(LOG + "\x1b[2J evil\n" * 9 + steps)
    approve_commands(Path(__file__).parent / "screens" / "assess.txt")


def test_trainers_are_replayed_at_each_number(log: Path) -> None:
    result = assess(log, *WINDOW, "--at-once", "1", "--at-once", "2", "--json")
    assert result.exit_code == 0
    replays = json.loads(result.stdout)["replays"]
    assert {one["at_once"] for one in replays} == {1, 2}
    assert all(0 <= one["used_share"] <= 1 for one in replays)


def test_json_has_the_figures(log: Path) -> None:
    found = json.loads(assess(log, *WINDOW, "--no-replay", "--json").stdout)
    assert found["machine_nodes"] == 2
    assert found["idle_node_hours"] == pytest.approx((300 + 2700 + 100) / 3600)
    assert found["lines"]["jobs"] == 3


def test_a_report_is_written(log: Path, tmp_path: Path) -> None:
    result = assess(log, *WINDOW, "--report", tmp_path / "report")
    assert f"report: {tmp_path}/report/assessment.html" in result.stdout
    assert "equivalent nodes" in (tmp_path / "report" / "assessment.html").read_text()


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_files_that_cannot_be_written_are_told_before_the_log_is_read(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "read_file", lambda *_: pytest.fail("the log was read"))
    result = assess(log, *WINDOW, "--csv", tmp_path / "no" / "use.csv")
    assert result.exit_code == 2
    assert f"--csv {tmp_path}/no/use.csv: No such file or directory; name" in result.stderr
    assert "this is the file to read" in assess(log, *WINDOW, "--csv", log).stderr
    (tmp_path / "full").mkdir()
    monkeypatch.setattr(files, "TemporaryFile", lambda **_: full_disk())
    assert "No space left" in assess(log, *WINDOW, "--report", tmp_path / "full").stderr
    assert log.read_text() == LOG
    assert sorted(tmp_path.iterdir()) == [tmp_path / "full", log]


def test_where_a_file_cannot_be_written_after_all_the_result_is_shown(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "write_report", full_disk)
    result = assess(log, *WINDOW, "--report", tmp_path, "--csv", "/dev/full")
    assert result.exit_code == 2
    assert f"--report {tmp_path}: No space left on device; it was not written" in result.stderr
    assert "--csv /dev/full: No space left on device; it was not written" in result.stderr
    assert "10 trainers at once" in result.stdout
    assert "report:" not in result.stdout


def test_what_is_used_has_a_price_and_takes_energy(log: Path) -> None:
    rates = ("--at-once", "1", "--price", "2EUR", "--watts", "500")
    (found,) = json.loads(assess(log, *WINDOW, *rates, "--json").stdout)["summaries"]
    worth = found["worth"]
    assert worth["money"] > 0
    assert worth["money"] == pytest.approx(2 * worth["used_node_hours"])
    assert worth["megawatt_hours"] == pytest.approx(0.0005 * worth["used_node_hours"])


def test_idle_and_used_nodes_over_time_are_a_table(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the product's own replay
    result = assess(log, *WINDOW, "--csv", tmp_path / "use.csv")
    assert result.exit_code == 0
    assert (tmp_path / "use.csv").read_bytes().splitlines(keepends=True)[1].startswith(b"10,1000,")
    assert b"\r" not in (tmp_path / "use.csv").read_bytes()
    with (tmp_path / "use.csv").open() as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    assert list(rows[0]) == ["trainers", "time", "idle_nodes", "used_nodes"]
    assert (rows[0]["trainers"], rows[0]["time"]) == (10, 1000)
    assert any(row["used_nodes"] > 0 for row in rows)


def test_trainers_may_be_ones_own(log: Path, tmp_path: Path) -> None:
    trainer = {"name": "a", "submit": 0, "min_nodes": 1, "max_nodes": 2, "rescale_up_s": 1}
    trainer |= {"rescale_down_s": 1, "total_samples": 1e9, "curve_nodes": [0, 1, 2]}
    trainer |= {"curve_throughput": [0, 10, 20]}
    (tmp_path / "trainers.json").write_text(json.dumps([trainer]))
    found = assess(log, *WINDOW, "--trainers", tmp_path / "trainers.json", "--json")
    assert max(one["samples"] for one in json.loads(found.stdout)["replays"]) > 0


def command(folder: Path, name: str, prints: str) -> None:
    program(folder, name, f"printf '%s\\n' \"$*\" >> {folder}/asked\ncat <<'E'\n{prints}E")


def test_without_a_log_slurms_accounting_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time())
    job = f"1|1|{now - 9000}|{now - 9000}|{now - 3600}|COMPLETED|n1\n"
    command(tmp_path, "sacct", "JobID|NNodes|Submit|Start|End|State|NodeList\n" + job)
    times = "NodeName|TimeStart|TimeEnd\n"
    down, reserved = f"n3|{now - 90000}|Unknown\n", f"n2|{now - 3600}|{now - 1800}\n"
    either = f"E\n[ $3 = event ] && cat <<'E' || cat <<'F'\n{times}{down}E\n{times}{reserved}F\n"
    command(tmp_path, "sacctmgr", either + "cat <<'E'\n")
    command(tmp_path, "sinfo", "n[1-2]\nn3\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = assess("--days", "0.125", "--no-replay", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["machine_nodes"], found["holes"]) == (3, 4)
    assert found["idle_node_hours"] == pytest.approx(3 + 1 + 0.5 - 0.5, abs=0.1)
    assert found["reasons"]["total"]["node_hours"]["down"] == pytest.approx(3.5, abs=0.1)
    assert "--starttime=now-3hours" in (tmp_path / "asked").read_text()


def interrupt_after(monkeypatch: pytest.MonkeyPatch, finished: int) -> None:
    """Let Ctrl-C come in the next sample."""
    replayed: list[HarvestResult] = []

    def harvest(*arguments: Any) -> HarvestResult:
        if len(replayed) == finished:
            raise KeyboardInterrupt
        replayed.append(equal_shares(*arguments))
        return replayed[-1]

    monkeypatch.setattr(simulation, "harvest", harvest)


def test_ctrl_c_keeps_the_samples_that_were_finished(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (log, *WINDOW, "--sample-hours", "0.2", "--samples", "3")
    files = ("--csv", tmp_path / "use.csv", "--report", tmp_path / "report")
    interrupt_after(monkeypatch, 1)
    result = assess(*options, *files)
    said = "Ctrl-C: 1 of 3 samples were finished, and count here."
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (INTERRUPTED, f"note: {said}")
    assert "with its defaults: 1 sample of 12 min" in result.stdout
    assert (tmp_path / "use.csv").exists()
    assert said in (tmp_path / "report" / "assessment.html").read_text()
    interrupt_after(monkeypatch, 1)
    result = assess(*options, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, len(found["replays"])) == (INTERRUPTED, 1)
    assert found["caveats"][-1] == said


def test_ctrl_c_before_a_sample_was_finished_is_one_line(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(monkeypatch, 0)
    result = assess(log, *WINDOW)
    said = "bftrainer: Ctrl-C: no sample was finished; --no-replay shows the holes alone\n"
    assert (result.exit_code, result.stdout, result.stderr) == (INTERRUPTED, "", said)


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_reads_that_a_cluster_is_made_up(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joblogs, "on_terminal", lambda: terminal)
    result = assess("--synthetic", "50", "--days", "1", "--no-replay")
    assert ("making up a cluster of 50 nodes ..." in result.stderr) is terminal
