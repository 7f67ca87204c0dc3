"""Nothing of a user's environment changes what our commands do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planner.test_plan_command import MOVES, document, trainer, written

REPO = Path(__file__).parent.parent.parent
LOG = "JobID|NNodes|Submit|Start|End|State|NodeList\n1|2|900|900|1200|COMPLETED|n[1-2]\n"
BEGIN = "from bftrainer_slurm.cli import main; main(prog_name='bftrainer')"


@pytest.fixture
def python(tmp_path: Path) -> dict[str, str]:
    """Variables of a user's other Python, with modules that are not for ours."""
    for name in ("click", "json", "numpy", "sitecustomize", "bftrainer_slurm"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of another Python')\n")
    return {
        "PYTHONHOME": "/nowhere",
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "json.py"),
        "PYTHONWARNINGS": "error",
        "PYTHONWARNDEFAULTENCODING": "1",
        "PYTHONOPTIMIZE": "2",
        "PYTHONHASHSEED": "none",
        "PYTHONINSPECT": "1",
        "PYTHONIOENCODING": "ascii",
        "PYTHONVERBOSE": "1",
    }


def said(command: str, folder: Path, *arguments: str | Path, **variables: str) -> str:
    """What bftrainer prints; ``command`` is -I, as in packages, or -P."""
    begin = f"import sys; sys.path.insert(0, {str(REPO)!r}); {BEGIN}"
    done = subprocess.run(
        [sys.executable, command, "-c", begin, *map(str, arguments)],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"\d+\.\d+ s", "", done.stdout + done.stderr)


def test_a_packages_commands_and_what_they_start_do_not_see_a_users_python(
    tmp_path: Path, python: dict[str, str]
) -> None:
    problem = written(tmp_path, MOVES)  # solved in a process that it starts
    for words in (["submit", "--help"], ["plan", problem]):
        assert said("-I", tmp_path, *words, **python) == said("-I", Path("/"), *words)


def report(folder: Path, log: Path, **variables: str) -> tuple[str, str]:
    """What an assessment prints and writes."""
    folder.mkdir(exist_ok=True)
    words = ("assess", log, "--from", "1000", "--to", "4600", "--no-replay", "--report", folder)
    shown = said("-P", folder, *words, **variables)
    return shown.replace(str(folder), ""), (folder / "assessment.html").read_text()


def test_results_are_the_same_whatever_is_set(tmp_path: Path) -> None:
    log = tmp_path / "jobs.txt"
    log.write_text(LOG)
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\naxes.facecolor: black\n")
    words = """
        PYTHONWARNINGS=error PYTHONWARNDEFAULTENCODING=1 PYTHONUNBUFFERED=1 TZ=Junk/Zone
        LC_ALL=xx_YY LANG=tr_TR.UTF-8 LC_NUMERIC=de_DE NO_COLOR=1 FORCE_COLOR=1 COLUMNS=1 LINES=1
        TERM=dumb OMP_NUM_THREADS=none OPENBLAS_NUM_THREADS=none TORCH_LOGS=+all
        MPLBACKEND=nowhere POSIXLY_CORRECT=1 SQUEUE_FORMAT=%i
    """
    variables = dict(one.split("=") for one in words.split())
    assert report(tmp_path, log, **variables) == report(tmp_path / "clean", log)


def test_a_name_that_the_locale_cannot_write_is_written_all_the_same(tmp_path: Path) -> None:
    problem = written(tmp_path, document(trainer(name="日本")))
    assert r"\u65e5\u672c" in said("-P", tmp_path, "plan", problem, PYTHONIOENCODING="latin-1")
