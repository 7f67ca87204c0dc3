"""What the plugin does inside elements, and that it leaves all other jobs alone."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.labcluster.lab import Lab
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.elements import (
    RunningElement,
    job_user,
    node_state,
    processes_with,
    start_element,
    started_in_partition,
)
from tests.slurm_plugin.fake_keeper import FakeKeeper

pytestmark = pytest.mark.slurm
# What else an element does does not rest on how Slurm tracks its processes.
tracked_either_way = pytest.mark.parametrize(
    "lab", ["cgroup", pytest.param("linuxproc", marks=pytest.mark.newest)], indirect=True
)

OURS = (
    *("PET_", "TORCH_", "SLURM_SPANK", "PYTHONPATH", "SINGULARITY_", "APPTAINER_"),
    *("BFTRAINER_ELEMENT", "BFTRAINER_GRACE", "BFTRAINER_KEEPER"),
    *("BFTRAINER_FIRST", "BFTRAINER_STEPS", "SLURM_OPEN_MODE"),
    *("BFTRAINER_JOB_SECRET", "BFTRAINER_SRUNS", "BFTRAINER_STEP", "BFTRAINER_SCRIPT"),
)
SHOW = '/usr/bin/env | /usr/bin/grep -E "^(PET_|BFTRAINER_|TORCH_DISABLE|PYTHONPATH)"'


@pytest.fixture(params=["cgroup"])
def lab(request: pytest.FixtureRequest, element_lab: Callable[[str], Lab]) -> Iterator[Lab]:
    """A cluster of two nodes for elements; afterwards none of them is left."""
    lab = element_lab(request.param)
    environment = {name: value for name, value in lab.env.items() if name != "PYTHONPATH"}
    yield replace(lab, env=environment)
    lab.run("scancel", f"--user={job_user()}", user="root")
    wait_until(lambda: node_state(lab) == "idle")


def ended(lab: Lab, script: str, *options: str) -> RunningElement:
    """An element that has run these lines of the shell, and then says so."""
    element = start_element(lab, f"#!/bin/sh\n{script}\necho end\n", *options)
    element.wait_for("end\n")
    return element


@pytest.mark.parametrize(
    ("option", "backend", "resume"),
    [
        ("--export=ALL", "bftrainer", None),
        ("--export=NONE", "bftrainer", None),
        ("--bftrainer=rendezvous=own,resume=no", "c10d", "no"),
    ],
)
def test_torchrun_finds_its_environment_in_the_script_and_in_its_steps(
    lab: Lab, keeper: FakeKeeper, plugins: Path, option: str, backend: str, resume: str | None
) -> None:
    steps = [f"/usr/bin/srun {more} /bin/sh -c '{SHOW}'" for more in ("", "--export=NONE")]
    element = ended(lab, "\necho next\n".join(["", SHOW, *steps, ""]), option)
    wanted = {
        "PET_NNODES": "1:2",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ID": f"run-{element.array}",
        "PET_MAX_RESTARTS": "1000000",
        "PET_LOCAL_ADDR": "127.0.0.1",
        "BFTRAINER_ELEMENT": element.name,
        "BFTRAINER_KEEPER": keeper.address,
        "BFTRAINER_GRACE": "0.5",
        "BFTRAINER_JOB_SECRET": keeper.secret(element.array).decode(),
        "BFTRAINER_RESUME": resume,
        "PYTHONPATH": f"{plugins}/python",
    }
    _, *parts, _ = element.text().split("next\n")
    assert len(parts) == 3
    assert "PET_NPROC_PER_NODE=8\n" in parts[0]  # the node's GPUs
    for part in parts:
        found = dict(line.split("=", 1) for line in part.splitlines())
        assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.once
def test_without_the_sites_key_an_element_ends_and_says_so_and_no_other_job_notices(
    lab: Lab,
) -> None:
    key = lab.dir / "another.key"
    with lab.plugstack(lambda line: re.sub(r"key_file=\S+", f"key_file={key}", line)):
        element = start_element(lab, "#!/bin/sh\necho end\n")
        element.wait_for("this element ends")
        done = lab.run("srun", "-N1", "echo", "ordinary")
    assert element.text().startswith(f"bftrainer: {key}: No such file or directory")
    assert "the site's key belongs on each node, and only root reads it" in element.text()
    assert (done.stdout, done.stderr) == ("ordinary\n", "")


@pytest.mark.once
def test_without_our_folder_the_log_says_what_to_install(lab: Lab) -> None:
    with lab.plugstack(lambda line: re.sub(r"python=\S+", "", line)):
        element = ended(lab, f"srun /bin/sh -c '{SHOW}'")
    assert element.lines()["PET_RDZV_BACKEND"] == "bftrainer"
    assert "PYTHONPATH" not in element.lines()
    assert "needs the package bftrainer-slurm in its Python" in element.text()


# What a script does, and what a step of it then has.
WORDS = {
    "unset PYTHONPATH": "PYTHONPATH=OURS",
    "export PYTHONPATH=": "PYTHONPATH=OURS",
    "export PYTHONPATH=/modules/a:/modules/b": "PYTHONPATH=OURS:/modules/a:/modules/b",
    "export PYTHONPATH=$PYTHONPATH:/modules/a": "PYTHONPATH=OURS:/modules/a",
    "export PYTHONPATH=/modules/a:$PYTHONPATH": "PYTHONPATH=/modules/a:OURS",
    "export PYTHONPATH=${PYTHONPATH}2": "PYTHONPATH=OURS:OURS2",  # it begins like ours
    "export PYTHONPATH=:/modules/a:": "PYTHONPATH=OURS::/modules/a:",
    "true": "SINGULARITY_BINDPATH=OURS",
    "export SINGULARITY_BINDPATH=/data": "SINGULARITY_BINDPATH=/data,OURS",
    "unset SINGULARITY_BINDPATH; export APPTAINER_BINDPATH=/data:/mnt:ro,/b":
        "APPTAINER_BINDPATH=/data:/mnt:ro,/b,OURS",
    "export SINGULARITY_BINDPATH=": "SINGULARITY_BINDPATH=OURS",
    "export PET_NPROC_PER_NODE=3": "PET_NPROC_PER_NODE=3",
}  # fmt: skip


def test_a_step_finds_our_folder_and_mounts_it_whatever_the_script_has_done(
    lab: Lab, plugins: Path
) -> None:
    def shown(wanted: str) -> str:
        return re.sub("^(SINGULARITY|APPTAINER)_|=.*", "", wanted)

    lines = (f"({done}; srun env | grep {shown(wanted)})" for done, wanted in WORDS.items())
    element = ended(lab, "\n".join(lines))
    found = element.text().replace(f"{plugins}/python", "OURS").splitlines()[:-1]
    # An srun may have to wait for the end of the one before, and says so.
    assert [line for line in found if not line.startswith("srun: ")] == [*WORDS.values()]


def test_the_first_start_of_a_trainer_is_told_so_and_no_other(lab: Lab) -> None:
    first = start_element(lab, "#!/bin/sh\necho first=$BFTRAINER_FIRST\nsleep 1000\n")
    first.wait_for("first=1")
    lab.run("scontrol", "update", f"JobId={first.array}_1", "ReqNodeList=n2", user="root")
    lab.run("scontrol", "release", f"{first.array}_1", user="root")
    first.wait_for("first=0")


def test_the_one_task_of_the_users_array_is_what_its_script_sees_and_names_its_output(
    lab: Lab,
) -> None:
    show = "/bin/sh -c \"/usr/bin/env | /usr/bin/grep -E '^(SLURM_ARRAY_|BFTRAINER_ELEMENT)'\""
    parts = [show, f"srun {show}", f"srun --export=NONE {show}"]
    script = "#!/bin/sh\n" + "\necho next\n".join(parts) + "\necho end\n"
    named = f"--output={lab.home('alice')}/%A.%a.%3a.%%a.out"
    element = start_element(lab, script, "--array=7%1", named)
    element = replace(element, output=lab.home("alice") / f"{element.array}.7.007.%a.out")
    element.wait_for("end")
    seen = [set(part.split()) for part in element.text().removesuffix("end\n").split("next\n")]
    wanted = {
        *(f"SLURM_ARRAY_JOB_ID={element.array}", f"BFTRAINER_ELEMENT={element.name}"),
        *("SLURM_ARRAY_TASK_ID=7", "SLURM_ARRAY_TASK_MIN=7", "SLURM_ARRAY_TASK_MAX=7"),
        *("SLURM_ARRAY_TASK_COUNT=1", "SLURM_ARRAY_TASK_STEP=1"),
    }
    assert seen == [wanted] * len(parts)


def test_a_steps_own_output_goes_on_at_the_next_start_and_the_scripts_says_where_it_is(
    lab: Lab,
) -> None:
    own = lab.home("alice") / "own.out"
    own.write_text("before\n")
    own.chmod(0o666)
    element = ended(lab, "srun --output=own.out echo now\nsrun --output=none true")
    assert own.read_text() == "before\nnow\n"
    assert element.text() == f"srun: bftrainer: this step writes to {own}\nend\n"


def test_slurm_tells_a_script_that_its_trainer_has_no_end(lab: Lab) -> None:
    show = "echo end$1=${SLURM_JOB_END_TIME:-none}"
    element = ended(lab, f"{show}\nsrun sh -c '{show}' sh step", "-t600")
    end, of_step = (element.lines()[name] for name in ("end", "endstep"))
    assert end == of_step
    assert end == "none" or 0 <= time.time() + 365 * 24 * 3600 - int(end) < 300


@pytest.mark.parametrize(
    ("options", "tasks"), [(("-N2-2", "--ntasks-per-node=1"), "1"), (("-N4", "-n8"), "2")]
)
def test_a_step_has_the_nodes_share_of_the_jobs_tasks(
    lab: Lab, options: tuple[str, ...], tasks: str
) -> None:
    step = "srun sh -c 'echo task$SLURM_PROCID=$SLURM_NTASKS'"
    element = ended(lab, f"echo all=$SLURM_NTASKS\n{step}", *options)
    wanted = {"all": tasks} | {f"task{task}": tasks for task in range(int(tasks))}
    assert element.lines() == wanted


def test_a_job_submitted_in_an_element_is_an_ordinary_one(lab: Lab) -> None:
    inner = lab.home("alice") / "inner.out"
    inner.unlink(missing_ok=True)
    sbatch = "sbatch --parsable --output=inner.out --wrap='env; echo end'"
    element = ended(lab, f"export PYTHONPATH=$PYTHONPATH:/modules/a\necho job=$(srun {sbatch})")
    job = int(element.lines()["job"])
    wait_until(lambda: inner.exists() and "\nend\n" in inner.read_text())
    assert lab.squeue(job, "%P %K %k") in ([], ["main N/A (null)"])
    ours = [line for line in inner.read_text().splitlines() if line.startswith(OURS)]
    assert ours == ["PYTHONPATH=/modules/a"]


@tracked_either_way
def test_an_ordinary_job_has_nothing_of_ours(lab: Lab) -> None:
    output = lab.home("alice") / "ordinary.out"
    script = "#!/bin/sh\nenv\nps --ppid $PPID -o comm=\nsrun env\necho end\n"
    lab.sbatch(f"--output={output}", "--array=0", script=script)
    wait_until(lambda: output.exists() and "\nend\n" in output.read_text())
    lines = output.read_text().splitlines()
    assert not [line for line in lines if line.startswith(OURS) or "guard" in line]


def test_the_script_has_no_file_and_no_child_that_it_does_not_know(lab: Lab) -> None:
    script = """#!/usr/bin/python3
import os
print("files", sorted(os.listdir("/proc/self/fd"), key=int)[:-1])
try:
    os.wait()
except ChildProcessError:
    print("no child")
print("end", flush=True)
"""
    element = start_element(lab, script)
    element.wait_for("end")
    assert element.text().splitlines() == ["files ['0', '1', '2']", "no child", "end"]


@pytest.mark.parametrize("reclaimed", [False, True])
def test_the_keeper_is_told_of_an_elements_life_and_of_a_reclaim_at_once(
    lab: Lab, keeper: FakeKeeper, reclaimed: bool
) -> None:
    stays = "trap '' TERM\necho end\nwhile :; do sleep 1; done"
    element = ended(lab, stays if reclaimed else "true")
    if reclaimed:
        element.requeue()
    life = ["up", "leaving", "gone"] if reclaimed else ["up", "gone"]

    def told() -> list[str]:
        """Each word once: if an answer does not come soon, the keeper is told again."""
        about = (line.split() for line in keeper.lines if f" {element.array} 0 n1" in line)
        return [*dict.fromkeys(words[0] for words in about)]

    wait_until(lambda: told() == life)


def test_an_element_of_a_finished_training_ends_well_without_its_script(
    lab: Lab, keeper: FakeKeeper
) -> None:
    keeper.finished = True
    try:
        element = start_element(lab, "#!/bin/sh\necho begun\nexit 3\n")
        wait_until(lambda: "0 COMPLETED" in lab.squeue(element.array, "%K %T"))
    finally:
        keeper.finished = False
    assert element.text() == ""


def notes() -> bytes:
    return subprocess.run(["pgrep", "-x", "bftrainer-note"], stdout=subprocess.PIPE).stdout


@tracked_either_way
@pytest.mark.parametrize("answer", ["exit", "", "while the keeper cannot be reached any more"])
def test_a_reclaimed_element_leaves_no_process_and_no_cgroup_behind(
    lab: Lab, keeper: FakeKeeper, answer: str
) -> None:
    trap = f"trap '{answer if answer == 'exit' else ''}' TERM"
    script = f"{trap}; echo job=$SLURM_JOB_ID; while :; do sleep 0.1; done"
    element = start_element(lab, f"#!/bin/bash\n{script}\n", "--bftrainer=grace=2")
    element.wait_for("job=")
    folder = f"job_{element.lines()['job']}"
    with keeper.unreachable() if "keeper" in answer else nullcontext():
        element.requeue()
        seen = {notes()}

        def is_free() -> bool:
            seen.add(notes())
            return node_state(lab) == "idle"

        wait_until(is_free)
        assert seen | {notes()} == {b""} or "keeper" not in answer
        wait_until(lambda: not list(Path("/sys/fs/cgroup").rglob(folder)))


@tracked_either_way
@pytest.mark.once
def test_an_element_has_its_cgroup_however_long_the_keepers_addresses_are(lab: Lab) -> None:
    second = "127.0.0.2:" + "0" * 225 + "1"
    with lab.plugstack(lambda line: re.sub(r"keeper=\S+", rf"\g<0>,{second}", line)):
        element = start_element(lab, "#!/bin/sh\necho job=$SLURM_JOB_ID\nsleep 1000\n")
        element.wait_for("job=")
    job = element.lines()["job"]
    folders = Path("/sys/fs/cgroup")
    found = [*folders.rglob(f"job_{job}"), *folders.rglob(f"bftrainer-*-n1-{job}")]
    assert found
    assert all(len(folder.name) <= 255 for folder in found)  # Linux allows no longer name


@tracked_either_way
def test_what_a_script_leaves_behind_ends_with_it_and_not_another_clusters_job_of_its_number(
    lab: Lab,
) -> None:
    stranger_is_there = lab.home("alice") / "stranger-is-there"
    script = f"""#!/bin/sh
( env -i setsid sleep 1234567 & )
echo job=$SLURM_JOB_ID
until [ -e {stranger_is_there} ]; do sleep 0.1; done
echo end
"""
    element = start_element(lab, script)
    element.wait_for("job=")
    other = {"SLURM_JOB_ID": element.lines()["job"], "BFTRAINER_KEEPER": "elsewhere:1"}
    with subprocess.Popen(["sleep", "1000"], env=lab.env | other, user=job_user()) as stranger:
        try:
            stranger_is_there.touch()
            element.wait_for("end")
            element.wait_until_node_is_free()
            assert not processes_with("1234567")
            assert stranger.poll() is None
        finally:
            stranger.kill()


POLITE = "trap 'sleep 1; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done"


@tracked_either_way
@pytest.mark.parametrize("script", [POLITE, f'srun bash -c "{POLITE}"'], ids=["script", "step"])
def test_who_is_polite_has_its_grace_a_step_though_its_script_has_died(
    lab: Lab, script: str
) -> None:
    element = start_element(lab, f"#!/bin/bash\n{script}\n", "--bftrainer=grace=20")
    element.wait_for("ready")
    element.requeue()
    element.wait_for("saved")
    element.wait_until_node_is_free()


@tracked_either_way
def test_a_job_without_a_record_has_the_grace_that_it_brings(lab: Lab) -> None:
    command = ("env", "BFTRAINER_GRACE=20", "sbatch")
    script = f"#!/bin/bash\n{POLITE.replace('sleep 1;', 'sleep 2;')}\n"
    with started_in_partition(lab, command, script) as output:
        wait_until(lambda: output.exists() and "ready" in output.read_text())
        lab.run("scancel", f"--user={job_user()}", user="root")
        wait_until(lambda: "saved" in output.read_text())


@tracked_either_way
def test_a_script_that_signals_its_own_group_goes_on(lab: Lab) -> None:
    script = "#!/bin/bash\ntrap '' TERM\nkill 0\nsleep 3\necho end\n"
    element = start_element(lab, script)
    element.wait_for("end")


def test_an_element_that_requeues_itself_takes_no_other_along(lab: Lab) -> None:
    """The usual recipe, in the first element by job id: that could be the array's own id."""
    folder = lab.home("alice")
    script = f"""#!/bin/sh
until [ -e {folder}/requeue-$SLURM_JOB_ID ]; do sleep 0.1; done
scontrol requeue $SLURM_JOB_ID
sleep 1000
"""
    array = lab.sbatch("--bftrainer", "-N2-2", "--output=/dev/null", script=script)
    lab.run("scontrol", "release", f"{array}_[0-1]", user="root")

    def running() -> list[int]:
        return [int(row.split()[0]) for row in lab.squeue(array, "%A %T") if "RUNNING" in row]

    wait_until(lambda: len(running()) == 2)
    first, other = sorted(running())
    (folder / f"requeue-{first}").touch()
    wait_until(lambda: first not in running())
    assert running() == [other]


@pytest.mark.once
def test_without_a_keeper_an_element_waits_and_says_so(lab: Lab, keeper: FakeKeeper) -> None:
    with keeper.away():
        element = start_element(lab, "#!/bin/sh\necho run=$PET_RDZV_ID\necho end\n")
        element.wait_for("does not answer")
    element.wait_for("end")
    assert element.text().count("does not answer") == 1
    assert element.lines()["run"] == f"run-{element.array}"


@tracked_either_way
def test_an_element_that_waits_for_the_keeper_can_be_reclaimed(
    lab: Lab, keeper: FakeKeeper
) -> None:
    with keeper.away():
        element = start_element(lab, "#!/bin/sh\necho end\n")
        element.wait_for("does not answer")
        element.requeue()
        element.wait_until_node_is_free()
    assert "end" not in element.text()
