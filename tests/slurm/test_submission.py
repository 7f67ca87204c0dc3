from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer_slurm.elastic.element import MARKER
from bftrainer_slurm.slurm.directives import Directives, SubmissionError, read_directives
from bftrainer_slurm.slurm.submission import (
    Submission,
    compose,
    minutes_of,
    missing_folders,
    wrap_script,
)
from bftrainer_slurm.spec import parse_comment

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


def test_reads_the_directives_at_the_head() -> None:
    assert read_directives(SCRIPT).values == {
        "nodes": "2-4",
        "bftrainer": "weight=2",
        "time": "90",
        "job-name": "my job",
    }


@pytest.mark.parametrize(
    "line",
    ["-N 2-4", "-N2-4", "--nodes=2-4", "--nodes 2-4", "-QN2-4", "-A acct -N 2-4", "'-N' \"2-4\""],
)
def test_reads_every_way_to_write_a_range(line: str) -> None:
    assert read_directives(f"#!/bin/sh\n#SBATCH {line}\n").get("nodes") == "2-4"


@pytest.mark.parametrize("option", ["--bftrainer", "--bft"])
def test_a_bare_option_means_the_defaults(option: str) -> None:
    submission = composed("-N2-4", option)
    assert submission.record.spec.weight == 1
    assert option not in submission.options


def test_refuses_what_is_no_script() -> None:
    with pytest.raises(SubmissionError, match="#!/bin/bash"):
        read_directives("echo hello\n")


def test_the_rewriting_is_the_plugins() -> None:
    submission = compose("train.sh", read_directives(SCRIPT), partition="spare")
    assert submission.options == (
        "--time=90",
        "--nodes=1",
        "--ntasks=1",
        "--array=0-4",
        "--hold",
        "--partition=spare",
        "--requeue",
        "--open-mode=append",
        "--exclusive",
        "--time-min=1",
        "--comment=bftrainer:min=2,max=4,weight=2,grace=0.5,minutes=90,personal=1,"
        f"id={submission.record.id}",
    )
    assert parse_comment(submission.options[-1].removeprefix("--comment=")) == submission.record


def test_no_two_submissions_have_one_id() -> None:
    ids = {composed("-N2-4").record.id for _ in range(100)}
    assert len(ids) == 100 and None not in ids


def test_the_job_is_named_for_its_script_unless_it_has_a_name() -> None:
    assert composed("-N2-4").options[0] == "--job-name=train.sh"
    assert "--job-name=train.sh" not in composed("-N2-4", "-J", "mine").options


def test_a_named_value_beats_the_options_and_those_the_script() -> None:
    submission = compose(
        "train.sh",
        Directives({"nodes": "1-2", "partition": "a", "time": "1"}),
        ["-N", "3-4", "-p", "b"],
        nodes="5-6",
        time="7",
    )
    assert (submission.record.max_nodes, submission.partition) == (6, "b")
    assert submission.record.minutes == 7


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ([], "write -N MIN-MAX"),
        (["-N", "4"], "write -N MIN-MAX"),
        (["-N", "4-2"], "MIN is at least 1"),
        (["-N", "0-2"], "MIN is at least 1"),
        (["-N", "2-8:2"], "not a list"),
        (["-N", "2,4,8"], "not a list"),
        (["-N", "2-9999999"], "MAX is at most 1000000"),
        (["-N2-4", "--time=700-0"], "--time is more than 694 days"),
        (["-N"], "needs a value"),
        (["-N2-4", "--array=0-3"], "leave --array out"),
        (["-N2-4", "-a", "0-3"], "leave --array out"),
        (["-N2-4", "-n", "8"], "leave --ntasks out"),
        (["-N2-4", "--ntasks-per-node=2"], "write --ntasks-per-node=1"),
        (["-N2-4", "-G8"], "write --gpus-per-node"),
        (["-N2-4", "-w", "n1"], "--constraint or --exclude"),
        (["-N2-4", "--comment=mine"], "leave --comment out"),
        (["-N2-4", "--begin=now+60"], "leave --begin out"),
        (["-N2-4", "-H"], "leave --hold out"),
        (["-N2-4", "--time-min=10"], "leave --time-min out"),
        (["-N2-4", "--constraint=[red|blue]"], "features with & or |"),
        (["-N2-4", "-C", "red*2"], "features with & or |"),
        (["-N2-4", "--reservation=exam"], "leave --reservation out"),
        (["-N2-4", "-L", "matlab:1"], "leave --licenses out"),
        (["-N2-4", "--prefer=red"], "leave --prefer out"),
        *(
            (["-N2-4", f"--signal={one}"], "leave --signal out")
            for one in ("TERM", "B:TERM@3600", "SIGTERM@60", "rb:sigkill", "15", "R:9@120")
        ),
        (["-N2-4", "-t", "soon"], "is not a time limit"),
        (["-N2-4", "--bftrainer=speed=2"], "known keys: weight, grace, node_hours"),
    ],
)
def test_refuses_what_contradicts_a_trainer(options: list[str], remedy: str) -> None:
    with pytest.raises(SubmissionError, match=remedy) as refusal:
        composed(*options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("signal", ["B:USR1@120", "SIGUSR2", "10@60", "B:15000"])
def test_a_signal_that_does_not_end_an_element_is_sbatchs_to_judge(signal: str) -> None:
    assert f"--signal={signal}" in composed("-N2-4", f"--signal={signal}").options


def test_refuses_to_guess_a_partition() -> None:
    with pytest.raises(SubmissionError, match="which partition"):
        compose("train.sh", Directives({"nodes": "2-4"}))


@pytest.mark.parametrize(
    ("time", "minutes"),
    [
        ("90", 90),
        ("0:30", 1),
        ("10:00", 10),
        ("1:00:01", 61),
        ("2-3", 51 * 60),
        ("2-03:04", 51 * 60 + 4),
        ("2-03:04:05", 51 * 60 + 5),
        ("UNLIMITED", None),
        ("0", None),
    ],
)
def test_reads_a_time_limit_as_sbatch_does(time: str, minutes: int | None) -> None:
    assert minutes_of(time) == minutes


@pytest.mark.parametrize("time", ["", "x", "1:2:3:4", "-5", "1-", "1-2:3:4:5", "1.5", "\u0661"])
def test_refuses_a_time_limit_that_is_none(time: str) -> None:
    with pytest.raises(SubmissionError, match="is not a time limit"):
        minutes_of(time)


def test_a_folder_for_output_that_is_not_there_is_named(tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH --output=logs/%j.out --error=%j/x\n"
    (said,) = missing_folders(read_directives(script), [f"--chdir={tmp_path}"])
    assert said.startswith(f"--output: there is no folder {tmp_path}/logs on this host")
    (tmp_path / "logs").mkdir()
    assert missing_folders(read_directives(script), [f"--chdir={tmp_path}"]) == []


def test_wraps_the_users_script_verbatim_behind_its_other_directives() -> None:
    wrapped = wrap_script(SCRIPT, "python -m element --flag")
    head, _, own = wrapped.partition(MARKER + "\n")
    assert own == SCRIPT
    assert head.splitlines() == [
        "#!/bin/sh",
        "#SBATCH --time=90 # don't ask for more",
        '#SBATCH --job-name="my job" --gpus-per-node=1',
        'exec python -m element --flag "$0" "$@"',
    ]


def test_keeps_the_other_options_of_a_line() -> None:
    script = "#!/bin/sh\n#SBATCH -N 2-4 -o 'my log' --exclusive --gres=gpu:1 --no-requeue\n"
    assert "#SBATCH -o 'my log' --gres=gpu:1" in wrap_script(script, "true").splitlines()
