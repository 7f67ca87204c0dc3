from __future__ import annotations

from bftrainer_slurm.keeper.messages import Identity, Role
from bftrainer_slurm.keeper.programs import Programs


def of(program: int, task: int = 1) -> Identity:
    return Identity(7, task, f"n{task}", Role.AGENT, program=f"{program:04x}")


def test_the_newest_of_very_many_trainings_are_known_to_have_ended() -> None:
    programs = Programs()
    for number in range(250):
        programs.end(of(number))
    assert of(249).program in programs and of(150).program in programs
    assert len(programs) == 100


def test_who_has_been_through_with_a_training_begins_it_again() -> None:
    programs = Programs()
    programs.end(of(1))
    programs.leave(of(1, task=2))
    programs.join(of(1, task=3))
    assert of(1).program in programs
    programs.join(of(1, task=2))
    assert of(1).program not in programs
