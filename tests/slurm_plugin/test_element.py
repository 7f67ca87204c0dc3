"""What the plugin does inside elements, and that it leaves all other jobs alone."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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


def environment_in(
    element: RunningElement, keeper: FakeKeeper, plugins: Path, backend: str = "bftrainer"
) -> None:
    element.wait_for("end")
    wanted = {
        "PET_NNODES": "1:2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ID": f"run-{element.array}",
        "PET_MAX_RESTARTS": "1000000",
        "PET_LOCAL_ADDR": "127.0.0.1",
        "BFTRAINER_ELEMENT": element.name,
        "BFTRAINER_KEEPER": keeper.address,
        "BFTRAINER_GRACE": "0.5",
        "BFTRAINER_JOB_SECRET": keeper.secret(element.array).decode(),
        "PYTHONPATH": f"{plugins}/python",
    }
    found = element.lines()
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("command", ["env", "srun"], ids=["script", "step"])
@pytest.mark.parametrize("export", ["--export=ALL", "--export=NONE"])
def test_torchrun_finds_its_environment(
    lab: Lab, keeper: FakeKeeper, plugins: Path, command: str, export: str
) -> None:
    script = f"#!/bin/sh\n/usr/bin/{command} /bin/sh -c '{SHOW}'\necho end\n"
    environment_in(start_element(lab, script, export), keeper, plugins)


@pytest.mark.once
@pytest.mark.parametrize("command", ["env", "srun --export=NONE"], ids=["script", "step"])
def test_who_asks_for_it_keeps_torchruns_own_rendezvous_and_is_not_resumed(
    lab: Lab, keeper: FakeKeeper, plugins: Path, command: str
) -> None:
    script = f"#!/bin/sh\n{command} /bin/sh -c '{SHOW}'\necho end\n"
    element = start_element(lab, script, "--bftrainer=rendezvous=own,resume=no")
    environment_in(element, keeper, plugins, backend="c10d")
    assert element.lines()["BFTRAINER_RESUME"] == "no"


@pytest.mark.once
@pytest.mark.parametrize(
    ("mode", "why"),
    [(None, "No such file or directory"), (0o644, "others than its owner can open it; run chmod")],
    ids=["missing", "open"],
)
def test_without_the_sites_key_an_element_ends_and_says_so_and_no_other_job_notices(
    lab: Lab, mode: int | None, why: str
) -> None:
    plugstack, key = lab.dir / "plugstack.conf", lab.dir / "another.key"
    line = plugstack.read_text()
    if mode is not None:
        key.write_text("0" * 64)
        key.chmod(mode)
    plugstack.write_text(re.sub(r"key_file=\S+", f"key_file={key}", line))
    try:
        element = start_element(lab, "#!/bin/sh\necho end\n")
        element.wait_for("this element ends")
        done = lab.run("srun", "-N1", "echo", "ordinary")
    finally:
        plugstack.write_text(line)
        key.unlink(missing_ok=True)
    assert element.text().startswith(f"bftrainer: {key}: {why}")
    assert "the site's key belongs on each node, and only root reads it" in element.text()
    assert (done.stdout, done.stderr) == ("ordinary\n", "")


@pytest.mark.once
def test_with_another_key_than_the_keepers_an_element_waits_and_says_so(
    lab: Lab, keeper: FakeKeeper
) -> None:
    own, keeper.key = keeper.key, b"the key of another site"
    try:
        element = start_element(lab, "#!/bin/sh\necho end\n")
        element.wait_for("is not the keeper, or has another key; waiting for it")
    finally:
        keeper.key = own
    element.wait_for("end\n")
    assert element.text().count("waiting for it") == 1


@pytest.mark.once
def test_without_our_folder_the_log_says_what_to_install(lab: Lab) -> None:
    plugstack = lab.dir / "plugstack.conf"
    line = plugstack.read_text()
    plugstack.write_text(" ".join(word for word in line.split() if "python=" not in word) + "\n")
    try:
        element = start_element(lab, f"#!/bin/sh\nsrun /bin/sh -c '{SHOW}'\necho end\n")
        element.wait_for("end")
    finally:
        plugstack.write_text(line)
    assert element.lines()["PET_RDZV_BACKEND"] == "bftrainer"
    assert "PYTHONPATH" not in element.lines()
    assert "needs the package bftrainer-slurm in its Python" in element.text()


def words_of(table: dict[str, tuple[str, str]], repeated: str) -> list[Any]:
    """Return the rows of a table. What becomes of words is ours: newer Slurms get one row."""
    return [
        pytest.param(*row, id=name, marks=() if name == repeated else pytest.mark.once)
        for name, row in table.items()
    ]


PATHS = {
    "none": ("unset PYTHONPATH", "OURS"),
    "empty": ("export PYTHONPATH=", "OURS"),
    "another": ("export PYTHONPATH=/modules/a:/modules/b", "OURS:/modules/a:/modules/b"),
    "ours first": ("export PYTHONPATH=$PYTHONPATH:/modules/a", "OURS:/modules/a"),
    "ours last": ("export PYTHONPATH=/modules/a:$PYTHONPATH", "/modules/a:OURS"),
    "one that begins like ours": ("export PYTHONPATH=${PYTHONPATH}2", "OURS:OURS2"),
    "with the working folder": ("export PYTHONPATH=:/modules/a:", "OURS::/modules/a:"),
}


@pytest.mark.parametrize(("command", "wanted"), words_of(PATHS, repeated="none"))
def test_a_step_finds_our_folder_whatever_the_script_has_done(
    lab: Lab, plugins: Path, command: str, wanted: str
) -> None:
    element = start_element(lab, f"#!/bin/sh\n{command}\nsrun env | grep PYTHONPATH\necho end\n")
    element.wait_for("end")
    assert element.lines()["PYTHONPATH"] == wanted.replace("OURS", f"{plugins}/python")


@pytest.mark.once
def test_a_script_that_hides_our_folder_is_told_so(lab: Lab) -> None:
    element = start_element(lab, "#!/bin/sh\nPYTHONPATH=src /usr/bin/env\necho end\n")
    element.wait_for("end")
    assert element.text().startswith("bftrainer: line 2 sets PYTHONPATH anew")


BINDS = {
    "none": ("true", "SINGULARITY_BINDPATH=OURS"),
    "theirs": ("export SINGULARITY_BINDPATH=/data", "SINGULARITY_BINDPATH=/data,OURS"),
    "apptainer's": (
        "unset SINGULARITY_BINDPATH; export APPTAINER_BINDPATH=/data:/mnt:ro,/b",
        "APPTAINER_BINDPATH=/data:/mnt:ro,/b,OURS",
    ),
    "emptied": ("export SINGULARITY_BINDPATH=", "SINGULARITY_BINDPATH=OURS"),
}


@pytest.mark.parametrize(("command", "wanted"), words_of(BINDS, repeated="theirs"))
def test_our_folder_is_mounted_into_a_steps_containers_behind_the_users(
    lab: Lab, plugins: Path, command: str, wanted: str
) -> None:
    script = f"#!/bin/sh\n{command}\nsrun env | grep BIND\necho end\n"
    element = start_element(lab, script)
    element.wait_for("end")
    assert element.text().splitlines()[:-1] == [wanted.replace("OURS", f"{plugins}/python")]


def test_the_first_start_of_a_trainer_is_told_so_and_no_other(lab: Lab) -> None:
    first = start_element(lab, "#!/bin/sh\necho first=$BFTRAINER_FIRST\nsleep 1000\n")
    first.wait_for("first=1")
    lab.run("scontrol", "update", f"JobId={first.array}_1", "ReqNodeList=n2", user="root")
    lab.run("scontrol", "release", f"{first.array}_1", user="root")
    first.wait_for("first=0")


def test_what_the_script_sets_reaches_its_steps(lab: Lab) -> None:
    script = "#!/bin/sh\nexport PET_NPROC_PER_NODE=3\nsrun env | grep PET_NPROC\necho end\n"
    element = start_element(lab, script)
    element.wait_for("end")
    assert element.lines()["PET_NPROC_PER_NODE"] == "3"


def test_the_one_task_of_the_users_array_is_what_its_script_sees(lab: Lab) -> None:
    show = "/bin/sh -c \"/usr/bin/env | /usr/bin/grep -E '^(SLURM_ARRAY_|BFTRAINER_ELEMENT)'\""
    parts = [show, f"srun {show}", f"srun --export=NONE {show}"]
    script = "#!/bin/sh\n" + "\necho next\n".join(parts) + "\necho end\n"
    element = start_element(lab, script, "--array=7%1")
    element.wait_for("end")
    seen = [set(part.split()) for part in element.text().removesuffix("end\n").split("next\n")]
    wanted = {
        *(f"SLURM_ARRAY_JOB_ID={element.array}", f"BFTRAINER_ELEMENT={element.name}"),
        *("SLURM_ARRAY_TASK_ID=7", "SLURM_ARRAY_TASK_MIN=7", "SLURM_ARRAY_TASK_MAX=7"),
        *("SLURM_ARRAY_TASK_COUNT=1", "SLURM_ARRAY_TASK_STEP=1"),
    }
    assert seen == [wanted] * len(parts)


def test_the_users_task_names_the_output_of_all_elements(lab: Lab) -> None:
    named = str(lab.home("alice") / "%A.%a.%3a.%%a.out")
    element = start_element(lab, "#!/bin/sh\necho end\n", "--array=7-7", f"--output={named}")
    output = lab.home("alice") / f"{element.array}.7.007.%a.out"
    wait_until(lambda: output.exists() and "end" in output.read_text())


def test_a_steps_own_output_goes_on_at_the_next_start_and_the_scripts_says_where_it_is(
    lab: Lab,
) -> None:
    own = lab.home("alice") / "own.out"
    own.write_text("before\n")
    own.chmod(0o666)
    script = "#!/bin/sh\nsrun --output=own.out echo now\nsrun --output=none true\necho end\n"
    element = start_element(lab, script)
    element.wait_for("end")
    assert own.read_text() == "before\nnow\n"
    assert element.text() == f"srun: bftrainer: this step writes to {own}\nend\n"


def test_slurm_tells_a_script_that_its_trainer_has_no_end(lab: Lab) -> None:
    show = "echo end$1=${SLURM_JOB_END_TIME:-none}"
    script = f"#!/bin/sh\n{show}\nsrun sh -c '{show}' sh step\necho end\n"
    element = start_element(lab, script, "-t600")
    element.wait_for("end\n")
    end, of_step = (element.lines()[name] for name in ("end", "endstep"))
    assert end == of_step
    assert end == "none" or 0 <= time.time() + 365 * 24 * 3600 - int(end) < 300


def test_a_step_is_one_task_however_the_job_was_submitted(lab: Lab) -> None:
    script = "#!/bin/sh\nsrun sh -c 'echo task=$SLURM_PROCID of=$SLURM_NTASKS'\necho end\n"
    element = start_element(lab, script, "-N2-2", "--ntasks-per-node=1")
    element.wait_for("end")
    assert element.text().splitlines() == ["task=0 of=1", "end"]


def test_a_step_has_the_nodes_share_of_the_jobs_tasks(lab: Lab) -> None:
    script = "#!/bin/sh\necho all=$SLURM_NTASKS\n"
    script += "srun sh -c 'echo task$SLURM_PROCID=$SLURM_NTASKS'\necho end\n"
    element = start_element(lab, script, "-N4", "-n8")
    element.wait_for("end")
    shown = element.lines()
    assert [shown.get(name) for name in ("all", "task0", "task1")] == ["2"] * 3


def test_a_job_submitted_in_an_element_is_an_ordinary_one(lab: Lab) -> None:
    inner = lab.home("alice") / "inner.out"
    inner.unlink(missing_ok=True)
    script = (
        "#!/bin/sh\nexport PYTHONPATH=$PYTHONPATH:/modules/a\n"
        "echo job=$(srun sbatch --parsable --output=inner.out --wrap='env; echo end')\necho end\n"
    )
    element = start_element(lab, script)
    element.wait_for("end")
    job = int(element.lines()["job"])
    wait_until(lambda: inner.exists() and "\nend\n" in inner.read_text())
    assert lab.squeue(job, "%P %K %k") in ([], ["main N/A (null)"])
    ours = [line for line in inner.read_text().splitlines() if line.startswith(OURS)]
    assert ours == ["PYTHONPATH=/modules/a"]


def test_srun_cannot_be_tagged_inside_an_element_either(lab: Lab) -> None:
    element = start_element(lab, "#!/bin/sh\nsrun --bftrainer true\necho code=$?\necho end\n")
    element.wait_for("end")
    assert "write sbatch --bftrainer -N MIN-MAX" in element.text()
    assert element.lines()["code"] != "0"


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


def test_the_keeper_is_told_of_an_elements_life(lab: Lab, keeper: FakeKeeper) -> None:
    element = start_element(lab, "#!/bin/sh\necho end\n")
    life = [f"up {element.array} 0 n1", f"gone {element.array} 0 n1"]

    def told() -> list[str]:
        """Each word once: if an answer does not come soon, the keeper is told again."""
        return [*dict.fromkeys(line for line in keeper.lines() if f" {element.array} " in line)]

    wait_until(lambda: told() == life)


def test_the_keeper_is_told_of_a_reclaim_at_once(lab: Lab, keeper: FakeKeeper) -> None:
    element = start_element(lab, "#!/bin/bash\ntrap '' TERM\necho end\nwhile :; do sleep 1; done\n")
    element.wait_for("end")
    element.requeue()
    wait_until(lambda: f"leaving {element.array} 0 n1" in keeper.lines())
    wait_until(lambda: f"gone {element.array} 0 n1" in keeper.lines())


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


def processes_named(name: str) -> list[str]:
    comms = (path for path in Path("/proc").glob("[0-9]*/comm"))
    return [path.parent.name for path in comms if readable(path).strip() == name]


def readable(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it has ended meanwhile


@tracked_either_way
def test_a_keeper_that_cannot_be_reached_any_more_costs_no_process_and_no_cgroup(
    lab: Lab, keeper: FakeKeeper
) -> None:
    script = "trap '' TERM; echo job=$SLURM_JOB_ID; while :; do sleep 0.1; done"
    element = start_element(lab, f"#!/bin/bash\n{script}\n", "--bftrainer=grace=2")
    element.wait_for("job=")
    folder = f"job_{element.lines()['job']}"
    with keeper.unreachable():
        element.requeue()
        seen: list[str] = []

        def is_free() -> bool:
            seen.extend(processes_named("bftrainer-note"))
            return node_state(lab) == "idle"

        wait_until(is_free)
        assert not seen + processes_named("bftrainer-note")
        wait_until(lambda: not list(Path("/sys/fs/cgroup").rglob(folder)))


@tracked_either_way
@pytest.mark.once
def test_an_element_has_its_cgroup_however_long_the_keepers_addresses_are(lab: Lab) -> None:
    plugstack = lab.dir / "plugstack.conf"
    line = plugstack.read_text()
    second = "127.0.0.2:" + "0" * 225 + "1"
    plugstack.write_text(re.sub(r"keeper=\S+", rf"\g<0>,{second}", line))
    try:
        element = start_element(lab, "#!/bin/sh\necho job=$SLURM_JOB_ID\nsleep 1000\n")
        element.wait_for("job=")
    finally:
        plugstack.write_text(line)
    job = element.lines()["job"]
    folders = Path("/sys/fs/cgroup")
    found = [*folders.rglob(f"job_{job}"), *folders.rglob(f"bftrainer-*-n1-{job}")]
    assert found
    assert all(len(folder.name) <= 255 for folder in found)  # Linux allows no longer name


@tracked_either_way
def test_what_a_script_leaves_behind_ends_with_it(lab: Lab) -> None:
    script = "#!/bin/sh\n( env -i setsid sleep 1234567 & )\necho end\n"
    element = start_element(lab, script)
    element.wait_for("end")
    element.wait_until_node_is_free()
    assert not processes_with("1234567")


@tracked_either_way
@pytest.mark.once
def test_another_clusters_job_of_the_same_number_is_left_alone(lab: Lab) -> None:
    stranger_is_there = lab.home("alice") / "stranger-is-there"
    wait = f"until [ -e {stranger_is_there} ]; do sleep 0.1; done"
    element = start_element(lab, f"#!/bin/sh\necho job=$SLURM_JOB_ID\n{wait}\necho end\n")
    element.wait_for("job=")
    other = {"SLURM_JOB_ID": element.lines()["job"], "BFTRAINER_KEEPER": "elsewhere:1"}
    with subprocess.Popen(["sleep", "1000"], env=lab.env | other, user=job_user()) as stranger:
        try:
            stranger_is_there.touch()
            element.wait_for("end")
            element.wait_until_node_is_free()
            assert stranger.poll() is None
        finally:
            stranger.kill()


@tracked_either_way
def test_a_polite_script_has_its_grace(lab: Lab) -> None:
    script = "trap 'sleep 1; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done"
    element = start_element(lab, f"#!/bin/bash\n{script}\n", "--bftrainer=grace=20")
    element.wait_for("ready")
    element.requeue()
    element.wait_for("saved")
    element.wait_until_node_is_free()


@tracked_either_way
def test_a_job_without_a_record_has_the_grace_that_it_brings(lab: Lab) -> None:
    script = "trap 'sleep 2; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done"
    command = ("env", "BFTRAINER_GRACE=20", "sbatch")
    with started_in_partition(lab, command, f"#!/bin/bash\n{script}\n") as output:
        wait_until(lambda: output.exists() and "ready" in output.read_text())
        lab.run("scancel", f"--user={job_user()}", user="root")
        wait_until(lambda: "saved" in output.read_text())


@tracked_either_way
def test_a_step_has_its_grace_though_the_script_has_died(lab: Lab) -> None:
    step = "trap 'sleep 1; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done"
    element = start_element(lab, f'#!/bin/bash\nsrun bash -c "{step}"\n', "--bftrainer=grace=20")
    element.wait_for("ready")
    element.requeue()
    element.wait_for("saved")
    element.wait_until_node_is_free()


@tracked_either_way
@pytest.mark.parametrize("answer", ["exit", ""])
def test_a_reclaimed_element_leaves_no_cgroup_behind(lab: Lab, answer: str) -> None:
    stubborn = f"trap '{answer}' TERM; echo job=$SLURM_JOB_ID; while :; do sleep 0.1; done"
    element = start_element(lab, f"#!/bin/bash\n{stubborn}\n", "--bftrainer=grace=2")
    element.wait_for("job=")
    folder = f"job_{element.lines()['job']}"
    element.requeue()
    element.wait_until_node_is_free()
    wait_until(lambda: not list(Path("/sys/fs/cgroup").rglob(folder)))


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
    keeper.__exit__(None, None, None)
    try:
        element = start_element(lab, "#!/bin/sh\necho run=$PET_RDZV_ID\necho end\n")
        element.wait_for("does not answer")
    finally:
        keeper.__enter__()
    element.wait_for("end")
    assert element.text().count("does not answer") == 1
    assert element.lines()["run"] == f"run-{element.array}"


@tracked_either_way
def test_an_element_that_waits_for_the_keeper_can_be_reclaimed(
    lab: Lab, keeper: FakeKeeper
) -> None:
    keeper.__exit__(None, None, None)
    try:
        element = start_element(lab, "#!/bin/sh\necho end\n")
        element.wait_for("does not answer")
        element.requeue()
        element.wait_until_node_is_free()
    finally:
        keeper.__enter__()
    assert "end" not in element.text()
