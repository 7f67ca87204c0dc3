"""Which network interface torch is given where the host's own name is of no use to others."""

from __future__ import annotations

import socket

import pytest

from bftrainer_slurm.elastic import interface
from bftrainer_slurm.elastic.interface import choose_interface, interface_of, own_name_is_of_use


def named(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Give this host's own name these addresses."""

    def found(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if not addresses:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize(
    "addresses",
    [(), ("127.0.1.1",), ("203.0.113.7",), ("203.0.113.7", "127.0.0.1")],
    ids=["unknown", "loopback", "another host's", "another host's, then loopback"],
)
def test_where_the_own_name_is_of_no_use_the_way_to_the_keeper_is_taken(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    named(monkeypatch, *addresses)
    environment: dict[str, str] = {}
    choose_interface(environment, "127.0.0.1")
    assert environment == {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}


def test_a_name_that_others_can_reach_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "own_name_is_of_use", lambda: True)
    environment: dict[str, str] = {}
    choose_interface(environment, "127.0.0.1")
    assert environment == {}


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch)
    environment = {"GLOO_SOCKET_IFNAME": "ib0"}
    choose_interface(environment, "127.0.0.1")
    assert environment == {"GLOO_SOCKET_IFNAME": "ib0", "TP_SOCKET_IFNAME": "lo"}


def test_nothing_is_set_where_no_interface_has_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch)
    environment: dict[str, str] = {}
    choose_interface(environment, "203.0.113.7")
    assert environment == {}


def test_an_address_of_this_host_is_of_use_to_others_unless_it_is_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, "0.0.0.0")  # any host can bind to it
    assert own_name_is_of_use()
    named(monkeypatch, "127.0.1.1")
    assert not own_name_is_of_use()


def test_an_interface_is_found_by_its_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
