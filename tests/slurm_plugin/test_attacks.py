"""Whatever an element does to stay: an ordinary job has its node within the grace and 2 s.

Each row of the table is a script of an element. An ordinary job is submitted that needs its node,
so that Slurm preempts the element, under proctrack/cgroup and under proctrack/linuxproc. Slurm's
own means are out of reach: its KillWait is five minutes. A second table has whatever else a user
starts in the trainers' partition.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any

import pytest

from scripts.labcluster.lab import Lab
from scripts.labcluster.users import as_user
from scripts.labcluster.waiting import wait_until
from tests.slurm_plugin.elements import (
    node_state,
    start_element,
    started_in_partition,
)

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.load,
    pytest.mark.skipif(os.getuid() != 0, reason="needs users who are not Slurm's"),
]

GRACE_S = 0.5
# From sbatch to the ordinary job's first line: Slurm needs two passes of its scheduler, which it
# makes each second or so, to preempt and then to start. A slow machine (packaging/machine) says
# more.
BOUND_S = GRACE_S + float(os.environ.get("BFTRAINER_MARGIN_S", "2"))

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.5; done"
FIND_GUARD = """guard=$(ps --ppid $PPID -o pid=,comm= | sed -n 's/ bftrainer-guard$//p')
[ -n "$guard" ] || exit 1
"""
NEVER_THERE = "perl -MPOSIX -e 'while (1) { exit if fork; POSIX::setsid }' &"
PRIVATE = """perl -e 'syscall(157, 4, 0, 0, 0, 0); $SIG{TERM} = "IGNORE"; $| = 1;
print "ready\\n"; sleep 1 while 1'"""  # prctl(PR_SET_DUMPABLE, 0)
# It looks dead: /proc shows the first thread's state, and who it is cannot be told any more.
HEADLESS = """/usr/bin/python3 -c "import ctypes, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
threading.Thread(target=time.sleep, args=[600]).start()
ctypes.CDLL(None).syscall(60, 0)" """  # the end of this thread alone
# An srun says which partition its step is in, whatever its environment says. This one lies.
FORGED_SRUN = r"""forged_srun() {
    slurm=$(ldd "$(type -p srun)" | sed -n 's/.* => \(.*libslurmfull[^ ]*\) .*/\1/p')
    mkdir -p forged
    sed 's/SLURM_JOB_PARTITION/SLURM_JOB_PARTITIOM/g' "$slurm" > "forged/${slurm##*/}"
    LD_LIBRARY_PATH=$PWD/forged SLURM_JOB_PARTITION=main exec srun "$@"
}
"""
# PTRACE_ATTACH; the shell's own tracer keeps what it has.
TRACER = (
    """perl -e '$SIG{TERM} = "IGNORE"; syscall(101, 16, $_ + 0, 0, 0) for @ARGV; sleep 1 while 1'"""
)
BOMB = """perl -e '$SIG{TERM} = $SIG{CHLD} = "IGNORE"; fork for 1 .. 10; sleep 1;
$| = 1; print "ready\\n"; while (1) { sleep 1; exit if fork }' & wait; sleep 1000"""


def named(name: str) -> str:
    """Return a command whose process forks for ever and shows another's name and command line."""
    return f"""perl -e '$0 = "{name}"; $SIG{{TERM}} = $SIG{{CHLD}} = "IGNORE"; while (1) {{
if (!fork) {{ select undef, undef, undef, 0.005; exit }} select undef, undef, undef, 0.002 }}' &"""


ATTACKS = {
    "polite": "trap exit TERM; echo ready; while :; do sleep 0.1; done",
    "no srun": "echo ready; sleep 1000",
    "TERM ignored": STUBBORN,
    "TERM ignored by a step": f'srun bash -c "{STUBBORN}"',
    "TERM ignored by a step in the background": f'srun bash -c "{STUBBORN}" & wait',
    "TERM ignored by a child in a session of its own": f'setsid bash -c "{STUBBORN}" & wait',
    "TERM ignored by a daemon": f'( setsid bash -c "{STUBBORN}" & )\nsleep 1000',
    "TERM ignored by a daemon of a step":
        f'srun bash -c "(setsid bash -c \\"{STUBBORN}\\" &) ; sleep 1000"',
    "TERM ignored by all of them":
        f'( setsid bash -c "{STUBBORN}" & )\nsrun bash -c "{STUBBORN}" &\n{STUBBORN}',
    "a daemon without an environment": f'( env -i setsid bash -c "{STUBBORN}" & )\nsleep 1000',
    "a daemon that may not be looked into": f"( setsid {PRIVATE} & )\nsleep 1000",
    "a daemon whose first thread has ended": f"( setsid {HEADLESS} & )\nsleep 1000",
    "a process that forks and ends": f"{NEVER_THERE}\n{STUBBORN}",
    "a fork bomb of 1,000": BOMB,
    # Not while it launches: Slurm then waits a minute for the step, and signals nothing before.
    "a stopped srun":
        'srun -v bash -c "trap : TERM; while :; do sleep 1; done" 2> said &\n'
        'until grep -q "tasks started" said; do sleep 0.1; done; kill -STOP $!; echo ready; wait',
    "a TERM flood at the guard": f"{FIND_GUARD}while :; do kill -TERM $guard; done & {STUBBORN}",
    "the guard killed": f"{FIND_GUARD}while sleep 0.01; do kill -KILL $guard; done & {STUBBORN}",
    "the guard stopped": f"{FIND_GUARD}while sleep 0.01; do kill -STOP $guard; done & {STUBBORN}",
    "the guard traced": f"{FIND_GUARD}{TRACER} $guard & sleep 1; {STUBBORN}",
    "stopped by its own user through Slurm":
        f"( sleep 1; scancel --signal=STOP $SLURM_JOB_ID ) & {STUBBORN}",
    "named srun": f"for i in 1 2 3; do {named('srun')} done; {STUBBORN}",
    "named srun, beside a step":
        f'srun bash -c "{STUBBORN}" & for i in 1 2 3; do {named("srun")} done; wait; sleep 1000',
    "named slurmstepd": f"{named('slurmstepd')} {STUBBORN}",
    "named as our guard": f"{named('bftrainer-guard')} {STUBBORN}",
    "a giant environment": "ulimit -s unlimited; for i in {1..40}; do"
        f" export A$i=$(head -c 120000 /dev/zero | tr '\\0' x); done\n"
        f'setsid bash -c "{STUBBORN}"',
    "TERM ignored by a step that denies what it is in":
        f"""{FORGED_SRUN}
for name in ${{!SLURM_SPANK*}} ${{!BFTRAINER*}}; do unset $name; done
forged_srun bash -c "{STUBBORN}" & wait; sleep 1000""",
    "a namespace of users and processes":
        f'unshare --user --pid --fork --map-root-user --mount-proc bash -c "{STUBBORN}"',
}  # fmt: skip

# Where Slurm keeps processes in cgroups these are alike: whatever a process does, calls itself or
# shows of itself, it is in its job's. "TERM ignored by all of them" stands for them there.
ALIKE_IN_CGROUPS = {
    *(name for name in ATTACKS if name.startswith(("TERM ignored", "a daemon", "named"))),
} - {"TERM ignored by all of them", "named as our guard"}
# Each change must pass those without cgroups, where all depends on us.
NIGHTLY = {"cgroup": pytest.mark.nightly, "linuxproc": ()}


def rows(table: dict[str, tuple[object, ...]], in_cgroups: Collection[str]) -> list[Any]:
    """Return the table's rows for each way; in cgroups those of these names."""
    return [
        pytest.param(tracked, *row, id=f"{tracked}-{name}", marks=NIGHTLY[tracked])
        for tracked in NIGHTLY
        for name, row in table.items()
        if tracked != "cgroup" or name in in_cgroups
    ]


ROWS = rows(
    {name: (script,) for name, script in ATTACKS.items()}, ATTACKS.keys() - ALIKE_IN_CGROUPS
)

# What their users start in the trainers' partition without us: a command, and its script.
SBATCH = ("sbatch", "--requeue")
OTHERS = {
    "a plain job": (SBATCH, STUBBORN),
    "a daemon of a plain job": (SBATCH, f'( setsid bash -c "{STUBBORN}" & )\nsleep 1000'),
    "a plain job that denies its partition":
        (("env", "SLURM_JOB_PARTITION=main", "SLURM_JOB_QOS=other", *SBATCH), STUBBORN),
    "a plain job that asks for more than the site allows":
        (("env", "BFTRAINER_GRACE=600", *SBATCH), STUBBORN),
    "a step of a plain job": (SBATCH, f'srun bash -c "{STUBBORN}"'),
    "a step of a plain job that denies its partition":
        (SBATCH, f'{FORGED_SRUN} forged_srun bash -c "{STUBBORN}" & wait; sleep 1000'),
    "an array with a record of its own": (
        (*SBATCH, "--array=0", "--comment=bftrainer:min=1,max=1,weight=1,grace=0.5"), STUBBORN
    ),
    "srun": (("srun",), STUBBORN),
    "a step in an allocation": (("salloc", "srun"), STUBBORN),
    "a stopped step in an allocation":
        (("salloc", "srun"), f"( sleep 1; kill -STOP $$ ) & {STUBBORN}"),
}  # fmt: skip


# How processes are kept together does not change who is guarded: in cgroups one of each launcher.
IN_CGROUPS_TOO = ("a plain job", "srun", "a step in an allocation")
ROWS_OF_OTHERS = rows(OTHERS, IN_CGROUPS_TOO)


@pytest.fixture(scope="module")
def attacked_lab(make_element_lab: Callable[..., Lab]) -> Callable[[str], Lab]:
    """Returns the cluster that keeps track of processes in one of the two ways."""
    return cache(lambda tracked: make_element_lab(nodes=1, linuxproc=tracked == "linuxproc"))


@pytest.fixture(params=[pytest.param("cgroup", marks=NIGHTLY["cgroup"]), "linuxproc"])
def lab(request: pytest.FixtureRequest, attacked_lab: Callable[[str], Lab]) -> Iterator[Lab]:
    attacked = attacked_lab(request.param)
    wait_until(lambda: node_state(attacked) == "idle")
    with attacked.plugstack(lambda line: f"{line.rstrip()} max_grace={GRACE_S}\n"):
        yield attacked
    for user in ("alice", "bob"):
        attacked.run("scancel", f"--user={user}", user="root")


def assert_the_node_comes_back(lab: Lab) -> None:
    """An ordinary job needs the element's node, and finds nothing of the element on it."""
    output = lab.home("bob") / "ordinary.out"
    output.unlink(missing_ok=True)
    left = "ps -u alice -o stat=,comm=,args= | grep -v ^Z"
    script = f"#!/bin/sh\ndate +started=%s.%N\n{left}\necho end\n"
    begun_s = time.time()
    lab.sbatch("-N1", "--exclusive", f"--output={output}", user="bob", script=script)
    wait_until(lambda: output.exists() and output.read_text().endswith("end\n"))
    first, *others = output.read_text().splitlines()
    assert others == ["end"]
    elapsed_s = float(first.removeprefix("started=")) - begun_s
    print(f"{elapsed_s:.2f} s")
    wait_until(lambda: node_state(lab) == "idle")
    assert elapsed_s < BOUND_S


@pytest.mark.parametrize(("lab", "script"), ROWS, indirect=["lab"])
def test_an_ordinary_job_has_the_elements_node_in_time(lab: Lab, script: str) -> None:
    element = start_element(lab, f"#!/bin/bash\n{script}\n", f"--bftrainer=grace={GRACE_S}")
    element.wait_for("ready")
    assert_the_node_comes_back(lab)
    assert element.is_queued()


@pytest.mark.parametrize(("lab", "command", "script"), ROWS_OF_OTHERS, indirect=["lab"])
def test_an_ordinary_job_has_the_node_of_whatever_is_in_the_trainers_partition_in_time(
    lab: Lab, command: tuple[str, ...], script: str
) -> None:
    with started_in_partition(lab, command, f"#!/bin/bash\n{script}\n") as output:
        wait_until(lambda: output.exists() and "ready" in output.read_text())
        assert_the_node_comes_back(lab)


def test_a_step_from_elsewhere_that_denies_its_partition_does_not_outlive_its_script(
    lab: Lab,
) -> None:
    wait_for_step = "echo job=$SLURM_JOB_ID; until [ -e up ]; do sleep 0.05; done; rm up"
    script = f"#!/bin/bash\n{wait_for_step}; echo ready\n"
    with started_in_partition(lab, SBATCH, script) as output:
        wait_until(lambda: output.exists() and "job=" in output.read_text())
        job = output.read_text().splitlines()[0].removeprefix("job=")
        step = f'forged_srun --jobid={job} bash -c "env > step.env; touch up; {STUBBORN}"'
        with subprocess.Popen(
            [*as_user("alice"), "bash", "-c", FORGED_SRUN + step],
            cwd=lab.home("alice"),
            env=lab.env | {"HOME": str(lab.home("alice"))},
            stdout=subprocess.DEVNULL,
        ) as srun:
            try:
                wait_until(lambda: "ready" in output.read_text())
                seen = (lab.home("alice") / "step.env").read_text()
                assert "SLURM_JOB_PARTITION=main\n" in seen
                assert_the_node_comes_back(lab)
            finally:
                srun.kill()


def test_an_ordinary_job_has_the_node_of_an_element_whose_slurmstepds_were_killed(lab: Lab) -> None:
    daemon = f'( setsid bash -c "{STUBBORN}" & )'
    script = (
        f'#!/bin/bash\necho job=$SLURM_JOB_ID\nsrun bash -c "{STUBBORN}" &\n{daemon}\nsleep 1000\n'
    )
    element = start_element(lab, script, f"--bftrainer=grace={GRACE_S}")
    wait_until(lambda: element.text().count("ready") == 2)
    # Guards are forks of them with another name.
    listed = subprocess.run(("ps", "-C", "slurmstepd", "-o", "pid=,args="), stdout=subprocess.PIPE)
    job = element.lines()["job"]
    slurmstepds = re.findall(rf"(\d+) slurmstepd: \[{job}\.", listed.stdout.decode())
    assert len(slurmstepds) == 2  # of the script and of its step
    for slurmstepd in slurmstepds:
        os.kill(int(slurmstepd), signal.SIGKILL)
    assert_the_node_comes_back(lab)
    assert element.is_queued()
