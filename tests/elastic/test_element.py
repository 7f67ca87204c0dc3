import os
import signal
import subprocess
import sys
from importlib.metadata import version
from itertools import islice

import pytest

from bftrainer_slurm.elastic.element import MARKER
from bftrainer_slurm.elastic.processes import processes_with
from bftrainer_slurm.keeper.protocol import NoteKind
from scripts.labcluster.keeper import Keeper
from scripts.labcluster.waiting import wait_until

pytestmark = pytest.mark.torch
JOB_ID = f"9{os.getpid()}"


def start(keeper: Keeper, body: str, more: str = "") -> subprocess.Popen[str]:
    """Start an element as slurmstepd would, on the machine itself."""
    script = keeper.state / "submitted.sh"
    script.write_text(f"#!/bin/sh\nexec false\n{MARKER}\n{body}")
    slurm = {
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_JOB_ID": JOB_ID,
        "SLURMD_NODENAME": "n1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "bftrainer_slurm.elastic.element"]
        + ["--state", str(keeper.state), "--record", f"bftrainer:min=1,max=4{more}"]
        + [str(script), "one", "two words"],
        env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        | slurm,
        stdout=subprocess.PIPE,
        text=True,
    )


def printed(element: subprocess.Popen[str]) -> str:
    return element.communicate(timeout=120)[0]


def kinds(keeper: Keeper, count: int) -> list[NoteKind]:
    kinds = (note.note.kind for _, note in keeper.client.watch("", 0) if note)
    return list(islice(kinds, count))


def test_the_users_script_runs_with_its_arguments_and_torchruns_environment(
    keeper: Keeper,
) -> None:
    """Its Python finds our rendezvous, and nothing else of ours."""
    body = f"""#!{sys.executable}
import os, sys
from importlib.metadata import entry_points
folder = os.environ["PYTHONPATH"].split(":")[0]
(ours,) = entry_points(group="torchrun.handlers", name="bftrainer")
print(*sys.argv[1:], b"LC_CTYPE" in open("/proc/self/environ", "rb").read(), ours.value, sep="|")
print(*sorted(os.listdir(folder)))
for name in ("PET_RDZV_BACKEND", "PET_RDZV_ID", "BFTRAINER_ELEMENT", "BFTRAINER_JOB_SECRET"):
    print(os.environ[name])
"""
    assert printed(start(keeper, body)).splitlines() == [
        "one|two words|False|bftrainer_slurm.elastic.rendezvous:handler",
        f"bftrainer_slurm bftrainer_slurm-{version('bftrainer-slurm')}.dist-info",
        *("bftrainer", "12.1", "12_3", keeper.secret(12).decode()),
    ]


def test_the_first_start_of_a_trainer_is_told_so_and_no_other(keeper: Keeper) -> None:
    keeper.client.say(12, "begins")
    for first in ("1\n", "0\n"):
        assert printed(start(keeper, "#!/bin/sh\necho $BFTRAINER_FIRST")) == first


def test_an_element_of_a_finished_training_ends_well_without_its_script(keeper: Keeper) -> None:
    keeper.client.say(12, "finished")
    element = start(keeper, "#!/bin/sh\necho begun\nexit 3")
    assert (printed(element), element.returncode) == ("", 0)


def test_the_element_ends_as_its_script_does(keeper: Keeper) -> None:
    assert start(keeper, "#!/bin/sh\nexit 7\n").wait(timeout=120) == 7
    assert kinds(keeper, 2) == [NoteKind.UP, NoteKind.GONE]


def test_a_script_that_ends_on_sigterm_gets_its_grace(keeper: Keeper) -> None:
    body = "#!/bin/bash\ntrap 'sleep 0.5; echo saved; exit' TERM\necho ready\nsleep 100 & wait"
    element = start(keeper, body, ",grace=100")
    assert element.stdout is not None
    assert element.stdout.readline() == "ready\n"
    for process in processes_with(f"SLURM_JOB_ID={JOB_ID}"):
        os.kill(process, signal.SIGTERM)
    assert element.stdout.readline() == "saved\n"
    assert element.wait(timeout=120) == 128 + signal.SIGTERM
    assert kinds(keeper, 3) == [NoteKind.UP, NoteKind.LEAVING, NoteKind.GONE]


def test_a_script_that_ignores_sigterm_is_ended_after_its_grace(keeper: Keeper) -> None:
    body = "#!/bin/bash\ntrap '' TERM\nsetsid sleep 1000 &\necho ready\nwhile :; do sleep 1; done"
    element = start(keeper, body, ",grace=0.5")
    assert element.stdout is not None
    assert element.stdout.readline() == "ready\n"
    os.kill(element.pid, signal.SIGTERM)
    assert element.wait(timeout=120) == 128 + signal.SIGTERM
    wait_until(lambda: not any(processes_with(f"SLURM_JOB_ID={JOB_ID}")))


def test_an_element_waits_for_a_keeper_that_is_not_there_yet(keeper: Keeper) -> None:
    address = (keeper.state / "keeper.json").read_text()
    (keeper.state / "keeper.json").unlink()
    element = start(keeper, "#!/bin/sh\necho ran")
    (keeper.state / "keeper.json").write_text(address)
    assert printed(element) == "ran\n"
