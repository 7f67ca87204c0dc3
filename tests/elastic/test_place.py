"""Who a process is, by the variables of the element and of srun."""

import sys

import pytest

from bftrainer_slurm.elastic.place import address_towards, read_identity
from bftrainer_slurm.keeper.messages import Role

ELEMENT = {"BFTRAINER_ELEMENT": "12_3", "BFTRAINER_KEEPER": "127.0.0.1:5", "SLURMD_NODENAME": "n3"}


def test_an_element_has_its_place_in_its_trainer() -> None:
    told = read_identity(ELEMENT, Role.AGENT)
    assert (told.array, told.task, told.node, told.role) == (12, 3, "n3", Role.AGENT)


@pytest.mark.parametrize("command", [["/bin/torchrun"], ["torch/distributed/run.py"], []])
def test_a_program_is_its_step_and_its_script_however_torchrun_is_called(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(argv: list[str], step: str = "0") -> str:
        monkeypatch.setattr(sys, "argv", argv)
        return read_identity(ELEMENT | {"SLURM_STEP_ID": step}, Role.AGENT).program

    of_process = program(["/home/a/train.py", "--data=a.py"])
    assert program([*command, "train.py", "--data", "a.py"]) == of_process
    assert program(["/home/a/train.py"], step="1") != of_process
    assert program(["/home/a/test.py"]) != of_process


@pytest.mark.parametrize(
    ("told", "step"),
    [({}, -1), ({"BFTRAINER_STEP": "3", "SLURM_STEP_ID": "5"}, 3), ({"SLURM_STEP_ID": "5"}, -2)],
)
def test_a_process_knows_which_srun_of_the_script_has_started_it(
    told: dict[str, str], step: int
) -> None:
    assert read_identity(ELEMENT | told, Role.AGENT).step == step


def test_an_address_is_the_one_on_the_way_there() -> None:
    assert address_towards("127.0.0.1:9") == "127.0.0.1"


def test_an_element_without_a_name_is_refused() -> None:
    with pytest.raises((KeyError, ValueError)):
        read_identity({"BFTRAINER_KEEPER": "127.0.0.1:5"}, Role.AGENT)
