"""Starting single elements on a cluster, as the controller would."""

from __future__ import annotations

import itertools
import os
import pwd
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.labcluster.lab import Lab
from scripts.labcluster.users import as_user
from scripts.labcluster.waiting import wait_until

_numbers = itertools.count()


@dataclass(frozen=True)
class RunningElement:
    """Element 0 of a trainer, released on n1; ``output`` is where its script writes."""

    lab: Lab
    array: int
    output: Path

    @property
    def name(self) -> str:
        return f"{self.array}_0"

    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def lines(self) -> dict[str, str]:
        """Return the NAME=VALUE lines of the output."""
        return dict(line.split("=", 1) for line in self.text().splitlines() if "=" in line)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text())

    def state(self) -> str:
        tasks = dict(line.split() for line in self.lab.squeue(self.array, "%K %T"))
        return tasks["0"]

    def is_queued(self) -> bool:
        """Whether it is in the queue again, without a node.

        If it was stopped by a signal, and its node said so late, Slurm shows STOPPED even then.
        """
        tasks = {
            task: rest for task, *rest in map(str.split, self.lab.squeue(self.array, "%K %T %N"))
        }
        return tasks["0"] in (["PENDING"], ["STOPPED"])

    def requeue(self) -> None:
        """Do to it what a reclaim does: SIGTERM, and back to the queue."""
        self.lab.run("scontrol", "requeuehold", self.name, user="root")

    def wait_until_node_is_free(self) -> None:
        wait_until(lambda: node_state(self.lab) == "idle")


def node_state(lab: Lab) -> str:
    return lab.run("sinfo", "-h", "-n", "n1", "-p", "main", "-o", "%t", user="root").stdout.strip()


def start_element(lab: Lab, script: str, *options: str, part: Sequence[str] = ()) -> RunningElement:
    """Start an element on n1; ``part`` of the node, if it is not to have all of it."""
    output = lab.home("alice") / f"element-{next(_numbers)}.out"
    array = lab.sbatch("--bftrainer", "-N1-2", f"--output={output}", *options, script=script)
    element = f"{array}_0"
    lab.run("scontrol", "update", f"JobId={element}", "ReqNodeList=n1", *part, user="root")
    lab.run("scontrol", "release", element, user="root")
    return RunningElement(lab, array, output)


@contextmanager
def started_in_partition(lab: Lab, command: Sequence[str], script: str) -> Iterator[Path]:
    """Have alice start a script in the trainers' partition without us, on n1; yield its output.

    ``command`` is of sbatch, srun, or salloc and srun.
    """
    home = lab.home("alice")
    number = next(_numbers)
    output, path = home / f"other-{number}.out", home / f"other-{number}.sh"
    path.write_text(script)
    path.chmod(0o755)
    first = next(at for at, word in enumerate(command) if word in ("sbatch", "salloc", "srun"))
    where = ("--partition=bftrainer", "--exclusive", "--nodelist=n1")
    words = [*command[: first + 1], *where, *command[first + 1 :], f"--output={output}", str(path)]
    with subprocess.Popen(
        [*as_user("alice"), *words],
        cwd=home,
        env=lab.env | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as started:
        try:
            yield output
        finally:
            lab.run("scancel", "--user=alice", user="root")
            started.wait(timeout=120)


def job_user() -> str:
    """Who the elements' processes belong to: a cluster without root has but one user."""
    return "alice" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name


def processes_with(mark: str) -> str:
    """Return the ids of the elements' processes with this text on their command line."""
    words = ("pgrep", "-u", job_user(), "-f", mark)
    return subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout
