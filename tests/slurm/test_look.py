"""What is made of bftrainer-look's lines; that it writes them is for test_gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from bftrainer_slurm.slurm import look_gateway
from bftrainer_slurm.slurm.look_gateway import LookGateway
from bftrainer_slurm.slurm.rows import LETTERS
from bftrainer_slurm.slurm.run import SlurmRunner

HELD = ["12", "12", "0-3", "PENDING", "JobHeldUser", "0", "1000", "", "", "", "", "", "1"]
HELD += ["bftrainer", "alice", "train.sh", "bftrainer:min=1,max=4", "", "", "", "", "0"]


class Printed:
    """Stands in for the program: no Slurm can be made to print some of this."""

    def __init__(self, *lines: list[str], share: bool = False) -> None:
        self.lines: Sequence[list[str]] | None = lines
        self.asked: list[str] = []
        self.gateway = LookGateway("bftrainer-look", cast(SlurmRunner, self), share=share)

    def read(self, *command: str) -> str:
        self.asked.append(command[-1])
        if self.lines is None:
            return ""
        return "1700\n" + "".join("\t".join([*fields, "\n"]) for fields in self.lines)


def test_without_a_change_the_last_answer_holds() -> None:
    printed = Printed(HELD)
    queue = printed.gateway.queue()
    printed.lines = None
    assert printed.gateway.queue() is queue
    assert printed.asked == ["0", "1700"]


def test_now_and_then_everything_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_gateway, "_ALL_S", -1.0)
    printed = Printed()
    printed.gateway.queue()
    printed.gateway.queue()
    assert printed.asked == ["0", "0"]


def test_what_is_escaped_is_read_as_it_was() -> None:
    named = [r"a\tb\nc\\n" if field == "train.sh" else field for field in HELD]
    (trainer,) = Printed(named).gateway.queue().trainers
    assert trainer.name == "a\tb\nc\\n"


@pytest.mark.parametrize("odd", [["many", *HELD[1:]], HELD[:5], [*HELD, "more"], ["?"]])
def test_a_record_that_cannot_be_read_is_left_out_and_named(odd: list[str]) -> None:
    queue = Printed(odd, HELD).gateway.queue()
    assert [trainer.array for trainer in queue.trainers] == [12]
    (why,) = queue.malformed.values()
    assert odd[0] in why


def test_whether_a_user_said_how_many_tasks_a_job_has() -> None:
    first = ["7", "7", "", "PENDING", "Resources", "9", *HELD[6:16], "", *HELD[17:22]]
    for said, known in (("yes", True), ("", False)):
        line = [*first, "0", "", "500", "1", "2", "gres:gpu:1", "OK", said]
        (job,) = Printed(line, share=True).gateway.queue().waiting
        assert job.tasks_said is known


def test_a_program_that_was_upgraded_before_the_controller_may_write_more() -> None:
    known = [*HELD, *[""] * (len(LETTERS) - len(HELD))]
    queue = Printed([*known, "what a later version says"]).gateway.queue()
    assert [trainer.array for trainer in queue.trainers] == [12]
