"""A plugin that is missing, broken, for another Slurm or wrongly set up: ordinary jobs go on."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.labcluster import plugin
from scripts.labcluster.lab import Lab, started_lab
from scripts.labcluster.stage import REPO
from scripts.labcluster.waiting import wait_until
from tests.security.conftest import plugin_for_another_slurm
from tests.tools import program

pytestmark = [pytest.mark.slurm, pytest.mark.newest, pytest.mark.timeout(1500)]

NOBODY = "192.0.2.1:6740"  # a documentation address: nobody answers, nobody refuses
# What stands in the place of Python.
INTERPRETERS = {
    "broken": "exit 1",
    "babbling": "echo set nodes 1",
    "half": r"printf 'set\0nodes\0'",
    "slow": "exec sleep 60",
    "lavish": "head -c 2000000 /dev/zero",
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Plugins as they should not be, beside a good one, where every user can read them."""
    folder = Path(tempfile.mkdtemp(prefix="bftrainer-broken-", dir="/var/tmp"))
    folder.chmod(0o755)
    shutil.copytree(plugin.built(), folder / "good")
    good = folder / "good" / "bftrainer.so"
    (folder / "text.so").write_text("#!/bin/sh\nexit 1\n")
    (folder / "empty.so").touch()
    (folder / "header.so").write_bytes(good.read_bytes()[:32])
    (folder / "another.so").symlink_to("/lib/x86_64-linux-gnu/libc.so.6")
    plugin_for_another_slurm(folder)
    (folder / "closed").mkdir(mode=0o700)
    for name, does in INTERPRETERS.items():
        program(folder, name, does)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with started_lab(nodes=1, conf=["MaxArraySize=51"]) as running:
        yield running


@pytest.fixture
def line(request: pytest.FixtureRequest, lab: Lab, folder: Path) -> Iterator[str]:
    """What the cluster's plugstack.conf has meanwhile, with the folder of the plugins."""
    with lab.plugstack(lambda _: f"optional {request.param.format(folder=folder)}\n"):
        yield request.param


def ordinary_jobs_run(lab: Lab) -> None:
    assert lab.run("srun", "-N1", "echo", "here").stdout == "here\n"
    out = lab.home("alice") / "ordinary.out"
    lab.sbatch("-N1", f"--output={out}", script="#!/bin/sh\nsrun echo here\n")
    wait_until(lambda: out.exists() and out.read_text().endswith("here\n"))
    out.unlink()


def tagged(lab: Lab, nodes: str = "1-2", **others: Any) -> subprocess.CompletedProcess[str]:
    command = ("sbatch", "--parsable", "--bftrainer", f"-N{nodes}", "-o/dev/null")
    return lab.run(*command, input="#!/bin/sh\ntrue\n", check=False, **others)


# What plugstack.conf has, and what the user of the option reads.
GOOD = "{folder}/good/bftrainer.so"
HERE = f"{GOOD} keeper={NOBODY}"
BROKEN = ("missing.so", "text.so", "empty.so", "header.so", "another.so", "old/bftrainer.so")
LINES = {
    **{
        f"{{folder}}/{name} keeper={NOBODY}": "unrecognized option '--bftrainer'" for name in BROKEN
    },
    GOOD: "keeper=HOST:PORT is missing",
    f"{HERE} rewrite=cli_filter": "the submission was not rewritten",
}
# How the plugin reads its line, and what it runs, is ours: few of the newer Slurms see these.
PROGRAM = "/bftrainer_slurm/submission/rewrite_program.py"
ONCE = {
    f"{GOOD} keeper=nowhere": "'keeper=nowhere' is not a setting",
    f"{HERE},": f"'keeper={NOBODY},' is not a setting",
    f"{HERE},:1": f"'keeper={NOBODY},:1' is not a setting",
    f"{HERE} max_grace=soon": "'max_grace=soon' is not a setting",
    f"{HERE} max_elements=0": "'max_elements=0' is not a setting",
    f"{HERE} max_elements=2x": "'max_elements=2x' is not a setting",
    f"{HERE} announce=login1:6740": "'announce=login1:6740' is not a setting",
    f"{HERE} python=relative": "'python=relative' is not a setting",
    f"{HERE} \x1b[31m=1": "is not a setting",
    f"{HERE} python={{folder}}/closed": f"{PROGRAM} (python=) cannot be read (Permission denied)",
    f"{HERE} interpreter={{folder}}/missing": "/missing (interpreter=) cannot be run (No such file",
    f"{HERE} interpreter={{folder}}/broken": f"{PROGRAM}' gives no answer",
    f"{HERE} interpreter={{folder}}/babbling": f"{PROGRAM}' gives no answer",
    f"{HERE} interpreter={{folder}}/half": f"{PROGRAM}' gives no answer",
    f"{HERE} interpreter={{folder}}/slow": "/slow did not rewrite the submission within 10 s",
    f"{HERE} interpreter={{folder}}/lavish": f"{PROGRAM}' gives no answer",
}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *LINES.items(),
        *(pytest.param(*row, id=row[0], marks=pytest.mark.once) for row in ONCE.items()),
    ],
    indirect=["line"],
)
def test_what_is_wrong_costs_the_option_alone_and_its_user_is_told_why(
    lab: Lab, line: str, why: str
) -> None:
    ordinary_jobs_run(lab)
    refused = tagged(lab)
    assert refused.returncode != 0
    assert why in refused.stderr
    assert refused.stderr.replace("\n", "").isprintable()
    assert refused.stderr.count("\n") == 1 or "interpreter" not in line


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "nodes", "why"),
    [
        (f"{HERE} max_elements=20", "2-21", "(max_elements); write at most -N 2-20"),
        (f"{HERE} max_elements=20", "30-40", "(max_elements); write at most -N 20-20"),
        (HERE, "2-51", "(MaxArraySize); write at most -N 2-50"),
        (f"{HERE} max_elements=100", "2-51", "(MaxArraySize); write at most -N 2-50"),
    ],
    indirect=["line"],
)
def test_a_trainer_of_too_many_elements_is_refused_with_the_remedy(
    lab: Lab, line: str, nodes: str, why: str
) -> None:
    refused = tagged(lab, nodes)
    assert refused.returncode == 1
    assert why in refused.stderr


@pytest.mark.once
@pytest.mark.parametrize("line", [f"{HERE} partition=main"], indirect=True)
def test_nothing_of_a_users_environment_and_folders_reaches_the_rewriting(
    lab: Lab, line: str
) -> None:
    home = lab.home("alice")
    (home / "json.py").write_text("raise SystemExit('not this one')\n")
    hostile = {
        "PYTHONPATH": str(home),
        "PYTHONHOME": "/nowhere",
        "PYTHONSTARTUP": str(home / "json.py"),
        "LD_PRELOAD": "/nowhere.so",
        "SINFO_FORMAT": "x",
        "PATH": f"{home}:/usr/bin:/bin",
    }
    done = tagged(lab, env=hostile)
    lab.run("scancel", done.stdout.strip())
    assert "bftrainer: 1 to 2 nodes" in done.stderr


@pytest.mark.parametrize("line", [f"{HERE} partition=main"], indirect=True)
def test_a_keeper_that_does_not_answer_holds_up_no_submission(lab: Lab, line: str) -> None:
    ordinary_jobs_run(lab)
    done = tagged(lab)
    assert done.returncode == 0
    assert set(lab.squeue(int(done.stdout), "%t %r")) == {"PD JobHeldUser"}
    lab.run("scancel", done.stdout.strip(), user="root")


@pytest.mark.once
@pytest.mark.parametrize("installed", ["99.05.1", "22.04.8", ""])
def test_it_is_not_installed_for_another_slurm(
    folder: Path, tmp_path: Path, installed: str
) -> None:
    command = ("make", "-s", "-C", REPO / "slurm_plugin", f"BUILD={folder}/good", "install")
    words = (f"DESTDIR={tmp_path}", f"SLURM_INSTALLED={installed}")
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == 2
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(ours) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.once
def test_what_cannot_be_installed_as_a_whole_leaves_what_was_there(
    folder: Path, tmp_path: Path
) -> None:
    """Half a plugin would end every srun and sbatch with SIGBUS, in the loader: see SECURITY.md."""
    plugin = tmp_path / "usr" / "lib" / "bftrainer-slurm" / "bftrainer.so"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("the one before")
    command = f"ulimit -f 8; make -s -C {REPO}/slurm_plugin BUILD={folder}/good"
    command += f" DESTDIR={tmp_path} PREFIX=/usr install"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode != 0
    assert plugin.read_text() == "the one before"
