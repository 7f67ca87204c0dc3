"""Where a process is, by the variables of torchrun, srun and the element."""

import sys
from dataclasses import replace

import pytest

from bftrainer_slurm.elastic.place import (
    FixedRank,
    address_towards,
    first_node,
    fixed_rank,
    own_address,
    read_identity,
)
from bftrainer_slurm.keeper.messages import Identity, Role

ELEMENT = {"BFTRAINER_ELEMENT": "12_3", "BFTRAINER_KEEPER": "127.0.0.1:5", "SLURMD_NODENAME": "n3"}
SRUN = {
    "SLURM_JOB_ID": "100",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-09,12],login",
}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}


def test_an_ordinary_script_is_alone() -> None:
    assert fixed_rank({}) == FixedRank(0, 1, ("127.0.0.1", 0))


def test_torchrun_says_rank_and_world() -> None:
    assert fixed_rank(TORCHRUN | SRUN) == FixedRank(1, 2, ("n1", 29500))


def test_srun_says_rank_and_world_and_all_tasks_come_to_one_port() -> None:
    place = fixed_rank(SRUN)
    assert place == FixedRank(3, 4, ("gpu07", 23102))
    assert fixed_rank(SRUN | {"SLURM_PROCID": "0"}).master == place.master


def test_a_batch_script_without_srun_is_alone() -> None:
    assert fixed_rank({"SLURM_JOB_ID": "100", "SLURM_PROCID": "0"}).world == 1


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [("n1", "n1"), ("n[3-5,8],login", "n3"), ("a-b01,c", "a-b01"), ("r[1-2]i0,x", "r1i0")],
)
def test_first_node(nodelist: str, first: str) -> None:
    assert first_node(nodelist) == first


def test_a_process_of_torchrun_in_an_element_says_its_local_rank() -> None:
    variables = ELEMENT | {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "PET_LOCAL_ADDR": "10.0.0.3"}
    told = replace(read_identity(variables, Role.WORKER), program="")
    assert told == Identity(12, 3, "n3", Role.WORKER, 1, 2)
    assert own_address(variables) == "10.0.0.3"


@pytest.mark.parametrize("command", [["/bin/torchrun"], ["torch/distributed/run.py"], []])
def test_torchrun_and_its_processes_name_the_same_program(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(argv: list[str], step: str = "0") -> str:
        monkeypatch.setattr(sys, "argv", argv)
        return read_identity(ELEMENT | {"SLURM_STEP_ID": step}, Role.WORKER).program

    of_process = program(["/home/a/train.py", "--data=a.py"])
    assert program([*command, "train.py", "--data", "a.py"]) == of_process
    assert program(["/home/a/train.py"], step="1") != of_process
    assert program(["/home/a/test.py"]) != of_process


def test_a_task_of_srun_in_an_element_says_its_place_on_the_node() -> None:
    found = read_identity(ELEMENT | SRUN, Role.WORKER)
    assert (found.local_rank, found.local_world) == (1, 4)


def test_a_process_in_a_batch_script_is_the_only_one() -> None:
    alone = ELEMENT | {"SLURM_LOCALID": "0"}
    found = read_identity(alone, Role.WORKER)
    assert (found.local_rank, found.local_world, own_address(alone)) == (0, 1, "127.0.0.1")


def test_an_address_is_the_one_on_the_way_there() -> None:
    assert address_towards("127.0.0.1:9") == "127.0.0.1"


def test_an_element_without_a_name_is_refused() -> None:
    with pytest.raises((KeyError, ValueError)):
        read_identity({"BFTRAINER_KEEPER": "127.0.0.1:5"}, Role.WORKER)
