"""What we write into a job's log."""

import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.elastic.log import say


def test_a_line_says_who_speaks_whatever_is_in_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    print("before", end=" ", file=sys.stderr)
    say("n1 came \udce4")
    assert capfd.readouterr().err == "before bftrainer: n1 came \\udce4\n"


def test_a_process_without_a_log_goes_on_and_its_own_files_are_left_alone(tmp_path: Path) -> None:
    """Descriptor 2 is the first file that it opens."""
    own = tmp_path / "own"
    code = (
        "import os, sys; from bftrainer_slurm.elastic.log import say; "
        f"file = os.open({str(own)!r}, os.O_CREAT | os.O_WRONLY); assert file == 2; say('hello')"
    )
    closed = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    assert subprocess.run(closed, check=False).returncode == 0
    assert own.read_text() == ""
