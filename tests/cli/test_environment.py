"""Nothing of a user's environment changes what our commands do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scripts.labcluster.stage import REPO

PROBLEM = REPO / "examples" / "plan" / "two-trainers.json"
LOG = "JobID|NNodes|Submit|Start|End|State|NodeList\n1|2|900|900|1200|COMPLETED|n[1-2]\n"
BEGIN = (
    f"import sys; sys.path.insert(0, {str(REPO)!r}); "
    "from bftrainer_slurm.cli import main; main(prog_name='bftrainer')"
)
OF_PYTHON = """
PYTHONHOME=/nowhere PYTHONPATH=. PYTHONSTARTUP=json.py PYTHONWARNINGS=error PYTHONOPTIMIZE=2
PYTHONWARNDEFAULTENCODING=1 PYTHONHASHSEED=none PYTHONINSPECT=1 PYTHONIOENCODING=ascii
PYTHONVERBOSE=1
"""
OF_OTHERS = """
PYTHONWARNINGS=error PYTHONWARNDEFAULTENCODING=1 PYTHONUNBUFFERED=1 TZ=Junk/Zone
LC_ALL=xx_YY LANG=tr_TR.UTF-8 LC_NUMERIC=de_DE NO_COLOR=1 FORCE_COLOR=1 COLUMNS=1 LINES=1
TERM=dumb OMP_NUM_THREADS=none OPENBLAS_NUM_THREADS=none TORCH_LOGS=+all
MPLBACKEND=nowhere POSIXLY_CORRECT=1 SQUEUE_FORMAT=%i
"""


def said(command: str, folder: Path, *arguments: str | Path, variables: str = "") -> str:
    """What bftrainer prints; ``command`` is -I, as in packages, or -P."""
    done = subprocess.run(
        [sys.executable, command, "-c", BEGIN, *map(str, arguments)],
        cwd=folder,
        env=os.environ | dict(one.split("=") for one in variables.split()),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"\d+\.\d+ s", "", done.stdout + done.stderr)


def test_a_packages_commands_and_what_they_start_do_not_see_a_users_python(tmp_path: Path) -> None:
    for name in ("click", "json", "numpy", "sitecustomize", "bftrainer_slurm"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('of another Python')\n")
    for words in (["submit", "--help"], ["plan", PROBLEM]):  # a process that it starts solves this
        assert said("-I", tmp_path, *words, variables=OF_PYTHON) == said("-I", Path("/"), *words)


def test_results_are_the_same_whatever_is_set(tmp_path: Path) -> None:
    log = tmp_path / "jobs.txt"
    log.write_text(LOG)
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\naxes.facecolor: black\n")
    (tmp_path / "clean").mkdir()
    words = ("assess", log, "--from", "1000", "--to", "4600", "--no-replay", "--report", ".")
    plain = said("-P", tmp_path / "clean", *words)
    assert said("-P", tmp_path, *words, variables=OF_OTHERS) == plain
    pages = (folder / "assessment.html" for folder in (tmp_path, tmp_path / "clean"))
    assert len({page.read_text() for page in pages}) == 1


def test_a_name_that_the_locale_cannot_write_is_written_all_the_same(tmp_path: Path) -> None:
    named = PROBLEM.read_text().replace('"min_nodes"', '"name": "日本", "min_nodes"', 1)
    (tmp_path / "named").write_text(named)
    told = said("-P", tmp_path, "plan", "named", variables="PYTHONIOENCODING=latin-1")
    assert r"\u65e5\u672c" in told
