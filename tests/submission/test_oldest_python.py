"""A login node may have an older Python than the controller: nothing here needs a newer one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bftrainer_slurm.submission.rewrite_program import OLDEST

PACKAGE = Path(__file__).parents[2] / "bftrainer_slurm"
LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
from bftrainer_slurm.submission import plugin
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("bftrainer_slurm")), sep="\\n")
"""


def test_what_the_plugin_runs_needs_the_standard_library_of_that_python_alone() -> None:
    alone = (sys.executable, "-I", "-S", "-B", "-c", LOADED, str(PACKAGE.parent))
    loaded = subprocess.run(alone, capture_output=True, text=True, check=True).stdout.split()
    assert str(PACKAGE / "submission" / "rewrite.py") in loaded
    vermin = (Path(sys.executable).with_name("vermin"), "--no-tips", "--violations")
    target = f"--target={OLDEST[0]}.{OLDEST[1]}-"
    done = subprocess.run((*vermin, target, *loaded), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
