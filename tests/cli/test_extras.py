"""What works where the package was installed without its extras, and what the others ask for."""

from __future__ import annotations

import json
import subprocess
import sys

EXTRAS = (
    "mip",
    "numpy",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "jinja2",
    "matplotlib",
    "pyarrow",
    "torch",
    "pyslurm",
)
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


def called(*calls: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return the exit code of each call, and what it says on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(calls)], capture_output=True, check=True
    )
    return [(code, said) for code, said in json.loads(done.stdout)]


def test_commands_say_without_extras_how_they_are_called() -> None:
    assert called(*((one, "--help") for one in COMMANDS)) == [(0, "")] * len(COMMANDS)


def test_a_command_that_needs_an_extra_names_it_in_one_line() -> None:
    for (code, said), extra in zip(called(*NEED), NEED.values(), strict=True):
        assert (code, said.count("\n")) == (2, 1)
        assert said.endswith(
            f"install bftrainer-slurm[{extra}], in a clone: pip install '.[{extra}]'\n"
        )
