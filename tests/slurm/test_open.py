from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer_slurm.slurm import open as opening
from scripts.labcluster.lab import Lab
from scripts.labcluster.stage import REPO
from tests.tools import program

OF_ANOTHER_KIND = b"\x7fELF" + bytes(60)  # an ELF header of no processor
OPEN = """
import os, sys
from pathlib import Path
from bftrainer_slurm.slurm import open as opening
from bftrainer_slurm.slurm.gateway import GatewayError, SlurmUnavailableError
opening._BUILT_HERE = Path(os.environ["PROGRAMS"])
try:
    gateway = opening.open_gateway(sys.argv[1])
    print(gateway.name)
    if sys.argv[2:]:
        gateway.queue()
except SlurmUnavailableError:
    print("unavailable")
except GatewayError as error:
    print("no gateway:", error)
"""


def opened(*arguments: str, programs: Path | str = "", **environment: str) -> list[str]:
    """What a process prints that opens a gateway, and with "queue" looks at the queue.

    ``programs`` is where our programs are; without it there are none.
    """
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *arguments],
        cwd=REPO,
        env={**os.environ, **environment, "PROGRAMS": str(programs)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_unknown_name_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="auto, look, pyslurm, commands"):
        opening.open_gateway("rest")


ENDS = "import os\nos._exit(1)\n"
OF_ANOTHER = "raise ImportError('libslurmfull.so: no such symbol')\n"


@pytest.mark.parametrize(
    ("pyslurm", "prefer", "said"),
    [
        (ENDS, "auto", "commands"),
        (ENDS, "commands", "commands"),
        (ENDS, "pyslurm", "no gateway: pyslurm cannot be imported"),
        (OF_ANOTHER, "pyslurm", "ImportError: libslurmfull.so: no such symbol"),
        (OF_ANOTHER, "look", "no gateway: bftrainer-look is not on PATH, or does not start"),
    ],
)
def test_where_neither_pyslurm_nor_our_programs_can_be_used_slurms_commands_are(
    tmp_path: Path, pyslurm: str, prefer: str, said: str
) -> None:
    (tmp_path / "pyslurm").mkdir()
    (tmp_path / "pyslurm" / "__init__.py").write_text(pyslurm)
    for name in (opening.LOOK, opening.GROW):
        (tmp_path / name).write_bytes(OF_ANOTHER_KIND)
        (tmp_path / name).chmod(0o755)
    (line,) = opened(prefer, programs=tmp_path, PYTHONPATH=str(tmp_path))
    assert said in line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"#!/bin/sh\necho libslurm.so.38: gone >&2; exit 127\n", "libslurm.so.38: gone"),
        (b"#!/bin/sh\nexit 127\n", "it ends with exit status 127"),
        (OF_ANOTHER_KIND, "it cannot be run (Exec format error)"),
        (b"#!/bin/sh\nexec sleep 1000\n", "it does not answer within 0.2 s"),
    ],
    ids=["another Slurm", "no reason", "another processor", "it hangs"],
)
def test_a_program_that_does_not_start_is_not_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    text: bytes,
    why: str,
) -> None:
    path = tmp_path / opening.GROW
    path.write_bytes(text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(opening, "_BUILT_HERE", tmp_path / "none")
    monkeypatch.setattr(opening, "_START_S", 0.2 if b"sleep" in text else 60.0)
    assert opening.find_program(opening.GROW) is None
    assert caplog.messages == [f"{path} is not used: {why}"]
    monkeypatch.setattr(opening, "_START_S", 60.0)
    program(tmp_path, opening.GROW, "exit 0")
    assert opening.find_program(opening.GROW) == str(path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(opening, "_BUILT_HERE", tmp_path)
    assert opening.find_program(opening.GROW) == str(path)


@pytest.mark.slurm
def test_our_program_is_taken_before_all_others(programs: Path) -> None:
    assert opened("auto", programs=programs) == ["look"]
    assert opened("commands", programs=programs) == ["commands"]
    (said,) = opened("look")
    assert said.startswith("no gateway: bftrainer-look is not on PATH")


@pytest.mark.slurm
@pytest.mark.parametrize("prefer", ["look", "commands", "pyslurm"])
def test_a_slurmctld_that_does_not_answer_is_unavailable(
    lab: Lab, programs: Path, tmp_path: Path, prefer: str
) -> None:
    real = Path(lab.env["SLURM_CONF"])
    for file in real.parent.glob("*.conf"):
        (tmp_path / file.name).write_text(file.read_text())
    conf = tmp_path / "slurm.conf"
    lines = [line for line in real.read_text().splitlines() if "SlurmctldPort" not in line]
    conf.write_text("\n".join([*lines, "SlurmctldPort=1", "MessageTimeout=2", ""]))
    environment = lab.env | {"SLURM_CONF": str(conf)}
    said = opened(prefer, "queue", programs=programs, **environment)
    if said[0].startswith("no gateway"):
        pytest.skip(said[0])
    assert said == [prefer, "unavailable"]


def test_without_a_slurm_conf_the_process_lives(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "slurm.conf")
    assert opened("auto", SLURM_CONF=nowhere) == ["commands"]
    (said,) = opened("pyslurm", SLURM_CONF=nowhere)
    assert said.startswith("no gateway: pyslurm")
