"""What works where the package was installed without its extras, and what the others ask for."""

from __future__ import annotations

import json
import subprocess
import sys

EXTRAS = ("mip", "numpy", "prometheus_client", "starlette", "uvicorn")
EXTRAS += ("jinja2", "matplotlib", "pyarrow", "torch", "pyslurm")
WITHOUT = f"""
import json, sys
sys.modules.update(dict.fromkeys({EXTRAS}))  # an import of these fails, as if they were not there
from click.testing import CliRunner
from bftrainer_slurm.cli import main
done = [CliRunner().invoke(main, words) for words in json.loads(sys.argv[1])]
print(json.dumps([(one.exit_code, one.stderr) for one in done]))
"""
COMMANDS = ("submit", "status", "show", "history", "explain", "logs", "doctor")
COMMANDS += ("plan", "controller", "keeper", "reader")
NEED = {
    ("plan", "/dev/null"): "controller",
    ("controller",): "controller",
    ("reader",): "controller",
    ("assess", "--help"): "replay",
    ("replay", "--help"): "replay",
}


def test_without_extras_commands_say_how_they_are_called_and_which_one_they_need() -> None:
    calls = [*((one, "--help") for one in COMMANDS), *NEED]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(calls)], capture_output=True, check=True
    )
    told = [tuple(one) for one in json.loads(done.stdout)]
    extra = "bftrainer-slurm[{0}], in a clone: pip install '.[{0}]'\n"
    assert told[: len(COMMANDS)] == [(0, "")] * len(COMMANDS)
    for (code, said), name in zip(told[len(COMMANDS) :], NEED.values(), strict=True):
        assert (code, said.count("\n")) == (2, 1)
        assert said.endswith(f"install {extra.format(name)}")
