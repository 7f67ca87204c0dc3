"""Slurm's commands are led around a host of slurmctld's that has lost its power, and back."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bftrainer_slurm.slurm import detour
from bftrainer_slurm.slurm.detour import SLOW_S, Detour

DEAD = "127.0.0.2"
HERE = "127.0.0.1"
_MORE_THAN_WAIT = 4  # connections that nobody takes


@pytest.fixture
def port() -> Iterator[int]:
    """Of a slurmctld that answers here; the dead host neither answers nor refuses."""
    with ExitStack() as stack:
        number = int(stack.enter_context(socket.create_server((HERE, 0))).getsockname()[1])
        stack.enter_context(socket.create_server((DEAD, number), backlog=0))
        for _ in range(_MORE_THAN_WAIT):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((DEAD, number))
        yield number


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where slurm.conf lies, and with it Slurm's key."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "slurm.key").write_text("key")
    return tmp_path / "etc"


def begin(folder: Path, conf: str) -> tuple[Detour, dict[str, str]]:
    (folder / "slurm.conf").write_text(conf)
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    return Detour(folder.parent / "detour", environment), environment


def hosts(*addresses: str, port: int) -> str:
    lines = [f"SlurmctldHost=c{at}({address})\n" for at, address in enumerate(addresses)]
    return f"{''.join(lines)}SlurmctldPort={port}\n"


def test_after_a_slow_request_the_first_host_is_left_out_where_it_is_silent(
    folder: Path, port: int
) -> None:
    around, environment = begin(folder, hosts(DEAD, HERE, port=port))
    around.after_request(SLOW_S)
    conf = Path(environment["SLURM_CONF"])
    assert conf.read_text() == f"Include {folder}/slurm.conf\nSlurmctldAddr={HERE}\n"
    assert (conf.parent / "slurm.key").read_text() == "key"


def test_it_is_asked_again_once_it_answers(
    folder: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    around, environment = begin(folder, hosts(DEAD, HERE, port=port))
    around.after_request(SLOW_S)
    monkeypatch.setattr(detour, "_CHECK_S", 0.0)
    around.before_request()
    assert environment["SLURM_CONF"] != str(folder / "slurm.conf")
    monkeypatch.setattr(detour, "_is_silent", lambda address: False)
    around.before_request()
    assert environment == {"SLURM_CONF": str(folder / "slurm.conf")}


@pytest.mark.parametrize(
    "addresses", [(HERE, HERE), (DEAD, DEAD), (DEAD,)], ids=["answers", "none does", "only one"]
)
def test_else_the_usual_way_is_taken(folder: Path, port: int, addresses: tuple[str, ...]) -> None:
    around, environment = begin(folder, hosts(*addresses, port=port))
    around.after_request(SLOW_S)
    assert environment == {"SLURM_CONF": str(folder / "slurm.conf")}


def test_a_site_with_one_address_for_both_hosts_needs_none(folder: Path, port: int) -> None:
    conf = f"{hosts(DEAD, HERE, port=port)}SlurmctldAddr={HERE}\n"
    around, environment = begin(folder, conf)
    around.after_request(SLOW_S)
    assert environment == {"SLURM_CONF": str(folder / "slurm.conf")}


def test_a_folder_that_cannot_be_made_is_no_way_around_and_no_failure(
    folder: Path, port: int
) -> None:
    around, environment = begin(folder, hosts(DEAD, HERE, port=port))
    (folder.parent / "detour").write_text("in the way")
    around.after_request(SLOW_S)
    assert environment == {"SLURM_CONF": str(folder / "slurm.conf")}
    (folder.parent / "detour").unlink()
    around.after_request(SLOW_S)
    assert environment == {"SLURM_CONF": str(folder.parent / "detour" / "slurm.conf")}


def test_a_quick_request_is_nobodys_fault(folder: Path, port: int) -> None:
    around, environment = begin(folder, hosts(DEAD, HERE, port=port))
    around.after_request(SLOW_S / 2)
    assert environment == {"SLURM_CONF": str(folder / "slurm.conf")}
