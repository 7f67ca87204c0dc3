"""Who a process is, by the variables of element and srun; by which interface it is reached."""

from __future__ import annotations

import socket
import sys

import pytest

from bftrainer_slurm.elastic.interface import choose_interface
from bftrainer_slurm.elastic.place import address_towards, read_identity
from bftrainer_slurm.keeper.messages import Role

ELEMENT = {"BFTRAINER_ELEMENT": "12_3", "BFTRAINER_KEEPER": "127.0.0.1:5", "SLURMD_NODENAME": "n3"}


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
def test_a_process_knows_its_place_in_its_trainer_and_which_srun_of_the_script_has_started_it(
    told: dict[str, str], step: int
) -> None:
    found = read_identity(ELEMENT | told, Role.AGENT)
    place = (found.array, found.task, found.node, found.role, found.step)
    assert place == (12, 3, "n3", Role.AGENT, step)


def test_an_address_is_the_one_on_the_way_there() -> None:
    assert address_towards("127.0.0.1:9") == "127.0.0.1"


def test_an_element_without_a_name_is_refused() -> None:
    with pytest.raises((KeyError, ValueError)):
        read_identity({"BFTRAINER_KEEPER": "127.0.0.1:5"}, Role.AGENT)


def named(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Give this host's own name these addresses."""

    def found(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


OF_USE = ("0.0.0.0",)  # any host can bind to it
BOTH = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
OWN = {"GLOO_SOCKET_IFNAME": "ib0"}


@pytest.mark.parametrize(
    ("addresses", "own", "address", "found"),
    [
        ((), {}, "127.0.0.1", BOTH),
        (("127.0.1.1",), {}, "127.0.0.1", BOTH),
        (("203.0.113.7",), {}, "127.0.0.1", BOTH),
        (("203.0.113.7", "127.0.0.1"), {}, "127.0.0.1", BOTH),
        (OF_USE, {}, "127.0.0.1", {}),
        ((), OWN, "127.0.0.1", BOTH | OWN),
        ((), {}, "203.0.113.7", {}),
    ],
    ids=[
        *("its name is unknown", "loopback", "another host's", "another host's, then loopback"),
        *("of use to others", "the user has set one", "no interface has the address"),
    ],
)
def test_the_way_to_the_keeper_is_taken_where_the_hosts_own_name_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch,
    addresses: tuple[str, ...],
    own: dict[str, str],
    address: str,
    found: dict[str, str],
) -> None:
    named(monkeypatch, *addresses)
    environment = dict(own)
    choose_interface(environment, address)
    assert environment == found
