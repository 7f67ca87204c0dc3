from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.elastic.element import MARKER
from bftrainer_slurm.slurm.gateway import GatewayError, RefusedError
from bftrainer_slurm.slurm.submission import Submission, compose, job_id, submit, wrap_script
from bftrainer_slurm.spec import parse_comment
from bftrainer_slurm.submission.directives import (
    SubmissionError,
    kept_directives,
    minutes_of,
    read_directives,
    read_environment,
    read_options,
)
from bftrainer_slurm.submission.output_folders import missing_folders
from tests.slurm.conftest import runner

SCRIPT = """#!/bin/bash
#SBATCH -N 2-4 --bftrainer=weight=2
#SBATCH --time=90 # don't ask for more
#SBATCH --job-name="my job" --gpus-per-node=1

# a remark
srun torchrun train.py
#SBATCH --array=1
"""


def composed(*options: str, script: str = "#!/bin/sh\n") -> Submission:
    return compose("train.sh", read_directives(script), options, partition="spare")


def test_reads_a_range_behind_another_option_and_in_quotes() -> None:
    for line in ("-A acct -N 2-4", "'-N' \"2-4\""):
        assert read_directives(f"#!/bin/sh\n#SBATCH {line}\n").get("nodes") == "2-4"


def test_what_only_the_script_needs_to_know_is_passed_on() -> None:
    plain, asked = composed("-N2-4"), composed("-N2-4", "--bftrainer=rendezvous=own,resume=no")
    assert (asked.own_rendezvous, asked.no_resume) == (True, True)
    assert (plain.own_rendezvous, plain.no_resume) == (False, False)
    assert "resume" not in " ".join(asked.options)


def test_refuses_what_is_no_script() -> None:
    with pytest.raises(SubmissionError, match="#!/bin/bash"):
        read_directives("echo hello\n")


def test_the_rewriting_is_the_plugins() -> None:
    submission = compose("train.sh", read_directives(SCRIPT), partition="spare")
    assert submission.options == (
        "--job-name=my job",
        "--nodes=1",
        "--array=0-4",
        "--hold",
        "--partition=spare",
        "--requeue",
        "--open-mode=append",
        "--exclusive=exclusive",
        "--time-min=1",
        "--comment=bftrainer:min=2,max=4,weight=2,grace=0.5,minutes=90,personal=1,"
        f"id={submission.record.id}",
        "--ntasks=1",
    )
    comment = read_options(submission.options)["comment"]
    assert parse_comment(comment) == submission.record


def test_no_two_submissions_have_one_id() -> None:
    ids = {composed("-N2-4").record.id for _ in range(100)}
    assert len(ids) == 100 and None not in ids


def test_the_one_task_of_an_array_or_each_of_several_is_a_trainer() -> None:
    assert composed("-N2", "--array=3").record.task == 3
    assert compose("x", {}, ["-N2", "--array=3-4"], partition="spare", task=4).record.task == 4


def test_the_job_is_named_for_its_script_unless_it_has_a_name() -> None:
    assert read_options(composed("-N2-4").options)["job-name"] == "train.sh"
    assert read_options(composed("-N2-4", "-J", "mine").options)["job-name"] == "mine"


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["-N", "some"], "-N some is not a range; write -N MIN-MAX"),
        (["-N", "2-9999999"], "MAX is at most 1000000"),
        (["-N"], "needs a value"),
        (["-N2-4", "-n", "many"], "--ntasks=many is not a number of tasks"),
        (["-N2", "-Ga100:4,h100:3"], "--gpus=a100:4,h100:3 does not divide by 2 nodes"),
        (["-N2", "-Ga100"], "--gpus=a100 is not a number of GPUs"),
        (["-N2-4", "-w", "n[1"], "--nodelist: 'n.1' is not a list of nodes; write it as n"),
        (["-N2-4", "-w", "./nodes.txt"], "--nodelist: './nodes.txt' is not a list of nodes"),
        (["-N2-4", "-w", "n[1-99999999]"], "--nodelist: its list of nodes must name"),
        (["-N2-4", "-F", "nodes.txt"], "instead of --nodefile"),
        (["-N2-4", "-w", ",".join(f"a{n}" for n in range(400))], "too long for the trainer's"),
        (["-N2-4", "--bftrainer=batch=once"], "submit by sbatch --bftrainer"),
    ],
)
def test_refuses_what_contradicts_a_trainer(options: list[str], remedy: str) -> None:
    with pytest.raises(SubmissionError, match=remedy) as refusal:
        composed(*options)
    assert "\n" not in str(refusal.value)


PER_NODE = ("ntasks", "ntasks-per-node", "gpus", "gpus-per-node")


@pytest.mark.parametrize(
    ("script", "options", "wanted"),
    [
        ("--ntasks=8", "-N1-4", {"ntasks": "8", "ntasks-per-node": "8"}),
        ("--nodes=2-2 -n 8", "-N1-4", {"ntasks": "4", "ntasks-per-node": "4"}),
        ("-N2 -n2 --ntasks-per-node=4", "", {"ntasks": "2", "ntasks-per-node": "2"}),
        ("-N2 -G a100:8,h100:2", "-N1-3", {"ntasks": "1", "gpus-per-node": "a100:4,h100:1"}),
        ("-N2 -G8 --gpus-per-node=2", "", {"ntasks": "1", "gpus-per-node": "2"}),
        ("-N2 --ntasks-per-gpu=1 --gres=gpu:a100:4,disk:1", "", {"ntasks": "4"}),
        ("-N2 -G8 --ntasks-per-gpu=2", "", {"ntasks": "8", "gpus-per-node": "4"}),
    ],
)
def test_a_node_gets_its_share_of_what_the_whole_job_asks_for(
    script: str, options: str, wanted: dict[str, str]
) -> None:
    text = f"#!/bin/sh\n#SBATCH {script}\n"
    kept = read_directives("#!/bin/sh\n" + "\n".join(kept_directives(text)))
    asked = kept | read_options(composed(*options.split(), script=text).options)
    assert {name: asked[name] for name in PER_NODE if name in asked} == wanted


@pytest.mark.parametrize(
    ("script", "asked", "partition", "only"),
    [
        ("", "spare", "spare", ()),
        ("-p gpu", None, "gpu", ()),
        ("-p gpu", "spare", "spare", ("gpu",)),
        ("-p gpu,long", "spare", "spare", ("gpu", "long")),
        ("-p gpu,spare", "spare", "spare", ()),
    ],
)
def test_a_partition_that_is_not_the_trainers_is_the_one_of_whose_nodes_it_may_have_any(
    script: str, asked: str | None, partition: str, only: tuple[str, ...]
) -> None:
    directives = read_directives(f"#!/bin/sh\n#SBATCH -N4 {script}\n")
    submission = compose("x", directives, partition=asked)
    assert (submission.partition, submission.record.partitions) == (partition, only)
    assert f"--partition={partition}" in submission.options
    if only:
        several = "s" if len(only) > 1 else ""
        assert submission.notes == (f"1 to 4 nodes of partition{several} {','.join(only)}",)


LEFT_OUT = ("--wait", "--prefer=red", "--reservation=exam", "--signal=B:USR1@60", "--time-min=9")


@pytest.mark.parametrize("option", [*LEFT_OUT, "-W"])
def test_an_option_of_which_a_trainer_needs_nothing_is_left_out_with_the_reason(
    option: str,
) -> None:
    submission = composed("-N4", option)
    name = option.partition("=")[0].replace("-W", "--wait")
    assert submission.notes[1].startswith(f"{name} is left out: ")
    assert option not in submission.options


def test_what_slurm_does_for_an_element_too_is_kept() -> None:
    kept = ("--begin=now+60", "--dependency=afterok:7", "--gpus-per-task=1")
    assert {*kept} <= {*composed("-N4", *kept).options}


@pytest.mark.parametrize(
    ("options", "named", "counts"),
    [
        ([], {}, ("gpu", 7, 4)),
        (["-t8", "-phpc"], {}, ("hpc", 8, 4)),
        (["-t8", "-N2-3"], {"time": "6", "nodes": "5-6"}, ("gpu", 6, 6)),
    ],
)
def test_a_named_value_beats_the_options_these_the_environment_and_that_the_script(
    options: list[str], named: dict[str, str], counts: tuple[str, int, int]
) -> None:
    given = {"SBATCH_PARTITION": "gpu", "SBATCH_TIMELIMIT": "7", "SBATCH_RESERVATION": "exam"}
    environment = read_environment({**given, "A": "b"})
    script = read_directives("#!/bin/sh\n#SBATCH -N4 -p long -t 9\n")
    submission = compose("x", script, options, environment=environment, **named)
    record = submission.record
    assert (submission.partition, record.minutes, record.max_nodes) == counts
    assert submission.notes[-1].startswith("--reservation is left out")
    assert "--reservation=exam" not in submission.options


TIMES = {"90": 90, "0:30": 1, "10:00": 10, "1:00:01": 61, "2-3": 51 * 60, "2-03:04": 51 * 60 + 4}
TIMES |= {"2-03:04:05": 51 * 60 + 5}


@pytest.mark.parametrize(("time", "minutes"), [*TIMES.items(), ("UNLIMITED", None), ("0", None)])
def test_reads_a_time_limit_as_sbatch_does(time: str, minutes: int | None) -> None:
    assert minutes_of(time) == minutes


@pytest.mark.parametrize("time", ["", "x", "1:2:3:4", "-5", "1-", "1-2:3:4:5", "1.5", "\u0661"])
def test_refuses_a_time_limit_that_is_none(time: str) -> None:
    with pytest.raises(SubmissionError, match="is not a time limit"):
        minutes_of(time)


def test_a_folder_for_output_that_is_not_there_is_named(tmp_path: Path) -> None:
    given = {"output": "logs/%j.out", "error": "%j/x", "chdir": str(tmp_path)}
    (said,) = missing_folders(given)
    assert said.startswith(f"--output: there is no folder {tmp_path}/logs on this host")
    (said,) = missing_folders({"error": "/nowhere/at/all/x"})
    assert said.startswith("--error: there is no folder /nowhere/at/all on this host")
    (tmp_path / "logs").mkdir()
    assert missing_folders(given) == []


def test_wraps_the_users_script_verbatim_behind_its_other_directives() -> None:
    more = "#SBATCH -o 'my log' --exclusive --gres=gpu:1 --no-requeue\n"
    script = SCRIPT.replace("\n# a remark", f"{more}# a remark")
    wrapped = wrap_script(script, "python -m element --flag")
    head, _, own = wrapped.partition(MARKER + "\n")
    assert own == script
    assert head.splitlines() == [
        "#!/bin/sh",
        "#SBATCH --time=90 # don't ask for more",
        '#SBATCH --job-name="my job" --gpus-per-node=1',
        "#SBATCH -o 'my log' --gres=gpu:1",
        'exec python -m element --flag "$0" "$@"',
    ]


@pytest.mark.parametrize(
    "printed",
    [
        "12\n",
        "12;lab\n",
        "Submitted batch job 12\n",
        "Submitted batch job 12 on cluster 7\n12\n",
        "Sun Jul  7 03:08:22 2019 [INFO4] [pid=5818] auks: cred added\n12\n",
        "  Welcome to Lonestar 5\n\n--> Verifying valid submit host (login1)...OK\n12;lab\n",
        "12\nSee https://status.example.org for maintenance.\n",
    ],
)
def test_a_job_id_is_found_among_what_a_sites_sbatch_prints(printed: str) -> None:
    assert job_id(printed) == 12


def test_more_nodes_than_an_array_can_have_are_refused_with_the_remedy(tmp_path: Path) -> None:
    slurm = runner(tmp_path, scontrol="echo MaxArraySize = 11; echo MaxJobCount = 10000")
    with pytest.raises(RefusedError, match=r"MaxArraySize.*write at most -N 2-10"):
        submit(slurm, composed("-N2-11"), "")


def test_an_sbatch_that_prints_no_job_id_leaves_open_whether_it_has_submitted() -> None:
    with pytest.raises(GatewayError, match="without a job id: if 'squeue --me' shows the job"):
        job_id("job n12 is queued\n")
