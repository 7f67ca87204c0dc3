"""Variables of ours that a user sets before sbatch and srun: to lie, or to break something."""

from __future__ import annotations

import re

import pytest

from scripts.labcluster.site import Site
from scripts.labcluster.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]

LONG = "x" * 100_000
SHOWS = "#!/bin/bash\nenv > $BFTRAINER_SHOWN.$SLURM_ARRAY_TASK_ID.new\n"
SHOWS += "mv $BFTRAINER_SHOWN.$SLURM_ARRAY_TASK_ID{.new,}\nsleep 1000\n"


def lies(array: int) -> dict[str, str]:
    """Say to be an element of somebody else's trainer, with another keeper."""
    return {
        "BFTRAINER_ELEMENT": f"{array}_0",
        "BFTRAINER_KEEPER": "127.0.0.1:1",
        "BFTRAINER_STEPS": LONG,
        "BFTRAINER_JOB_SECRET": "0" * 64,
        "BFTRAINER_FILTER_SPEC": "weight=1000",
        "BFTRAINER_FILTER_PARTITION": "main",
        "SLURM_SPANK_BFTRAINER": "2 999999 -",
        "SLURM_SPANK__SLURM_SPANK_OPTION_bftrainer_bftrainer": "\x1b[31mweight=2\n",
        "PET_RDZV_ENDPOINT": "127.0.0.1:2",
        "PET_RDZV_ID": f"{array}.1",
        "PET_NNODES": "1:9\nPATH=/tmp",
    }


def test_an_ordinary_job_is_one_whatever_its_environment_says(site: Site, victim: int) -> None:
    for command in (("srun", "-N1", "true"), ("salloc", "-N1", "-Q", "true")):
        site.run(*command, user="bob", env=lies(victim))
    out = site.folder("bob") / "out"
    options = ("--parsable", "-N1", f"--output={out}", "--wait", "--wrap", "echo done")
    job = int(site.run("sbatch", *options, user="bob", env=lies(victim)).stdout)
    assert out.read_text() == "done\n"
    listed = site.lab.run("scontrol", "show", "job", str(job), user="root").stdout
    assert "Comment=bftrainer" not in listed


def test_a_trainer_gets_the_sites_keeper_and_its_own_name(site: Site, victim: int) -> None:
    shown = site.folder("bob") / "shown"
    environment = lies(victim) | {"BFTRAINER_SHOWN": str(shown)}
    options = ("--parsable", "--bftrainer", "-N1-2", "--output=/dev/null")
    submitted = site.run("sbatch", *options, user="bob", env=environment, input=SHOWS)
    array = int(submitted.stdout)
    try:
        first = shown.with_name("shown.0")
        wait_until(first.exists)
        found = dict(line.split("=", 1) for line in first.read_text().splitlines() if "=" in line)
        assert found["BFTRAINER_ELEMENT"] == f"{array}_0"
        assert found["BFTRAINER_KEEPER"] == site.controller.keeper.address
        assert found["PET_RDZV_ID"].startswith(f"{array}.")
        assert found["PET_NNODES"] == "1:2"
        assert found["BFTRAINER_JOB_SECRET"] not in ("", lies(victim)["BFTRAINER_JOB_SECRET"])
        assert "grace=999999" not in site.lab.squeue(array, "%k")[0]
    finally:
        site.end(array)


WAITS = r"bftrainer: .* is not known yet; waiting for it\n"
WRONG = r"bftrainer: what sbatch has passed on is wrong: '{}'; .*; this element ends\n"


@pytest.mark.parametrize(
    ("passed", "said"),
    [
        pytest.param("2 1 -", WAITS, id="numbers, for a job of which the keeper knows nothing"),
        *(
            (words, WRONG.format(re.escape(words.replace("\x1b", "?"))))
            for words in ("bftrainer:min=1,max=2", "1000001 1 -", "2 1e9 -", "2 1 \x1b[31m", "2 1")
        ),
    ],
)
def test_what_a_user_hands_on_in_the_place_of_sbatch_starts_nothing(
    site: Site, victim: int, passed: str, said: str
) -> None:
    folder = site.folder("bob")
    exported, out = folder / "exported", folder / "handed-on"
    exported.write_text(f"SLURM_SPANK_BFTRAINER={passed}\0PATH={site.lab.env['PATH']}\0")
    exported.chmod(0o644)
    options = ("--array=0-0", "-N1", f"--export-file={exported}", f"--output={out}")
    wrap = ("--wrap", "echo $BFTRAINER_ELEMENT; sleep 1")
    done = site.run("sbatch", "--parsable", *options, *wrap, user="bob", check=False)
    try:
        wait_until(lambda: out.exists() and out.read_text())
        # 26.05 takes no such variable from a user: this is an ordinary job
        assert re.fullmatch(rf"\n|(?s:.*){said}", out.read_text())
        arrays = [one["array"] for one in site.controller.status()["trainers"]]
        assert int(done.stdout) not in arrays
    finally:
        site.run("scancel", done.stdout.strip(), user="bob")
