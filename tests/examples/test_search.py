"""The search over trainers, with a Slurm that ends each trial as it is submitted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.labcluster.stage import REPO
from tests.tools import program

_SEARCH = REPO / "examples" / "search" / "search.py"
# What is submitted is kept in a file a trial; the trial's own script is not run.
_SBATCH = """for word; do case $word in --folder=*) folder=${word#--folder=} ;; esac; done
echo "$@" >> submitted
case $folder in *-1) ;; *) echo '{"accuracy": 0.5}' > $folder/result.json ;; esac
wc -l < submitted
"""
_NONE_LIVES = ""
_ALL_LIVE = "printf '1\\n2\\n'\n"
# Its third answer comes when the trial has ended.
_FAILS_SECOND = """echo >> asked
case $(wc -l < asked) in
2) exit 1 ;;
3) echo '{"accuracy": 0.5}' > search/trial-0/result.json ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program(tmp_path, "sbatch", _SBATCH)
    program(tmp_path, "squeue", _NONE_LIVES)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(_SEARCH), "--every-s", "0.01", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def searched(*arguments: str) -> list[str]:
    """Run the search to its end, and return the lines that it printed."""
    with started(*arguments) as search:
        said, error = search.communicate(timeout=600)
    assert search.returncode == 0, error
    return said.splitlines()


def submitted(folder: Path) -> list[str]:
    return (folder / "submitted").read_text().splitlines()


def test_every_trial_is_a_trainer_and_the_best_one_is_named(folder: Path) -> None:
    said = searched("--trials", "3", "--at-once", "1")
    assert len(submitted(folder)) == 3
    assert "--rate=" in submitted(folder)[0]
    assert said[-2] == "2 of 3 trials have a result"  # trial 1 left none
    assert "trial 1: ended without a result" in said
    assert said[-1].startswith("best: trial 0, 0.500")


def test_a_search_that_was_stopped_takes_its_trainers_up_again(folder: Path) -> None:
    program(folder, "squeue", _ALL_LIVE)
    with started("--trials", "2") as search:
        assert search.stdout is not None
        assert search.stdout.readline().startswith("trial 0: trainer 1,")
        assert search.stdout.readline().startswith("trial 1: trainer 2,")
        search.terminate()
    program(folder, "squeue", _NONE_LIVES)
    said = searched("--trials", "2")
    assert len(submitted(folder)) == 2
    assert said[-2] == "1 of 2 trials have a result"


def test_a_search_whose_trials_sbatch_refuses_ends(folder: Path) -> None:
    program(folder, "sbatch", "exit 1")
    with started() as search:
        assert search.communicate()[1] == "sbatch refused; nothing else is submitted\n"


def test_a_trial_is_not_given_up_while_slurm_cannot_say_whether_it_runs(folder: Path) -> None:
    program(folder, "sbatch", "echo 1")
    program(folder, "squeue", _FAILS_SECOND)
    said = searched("--trials", "1")
    assert said[-2] == "1 of 1 trials have a result"
