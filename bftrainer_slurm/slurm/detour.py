"""Lets Slurm's commands avoid the first of slurmctld's hosts while that host is silent.

Each command tries the hosts in slurm.conf's order, and waits TCPTimeout (2 s) for a host without
power: a look and a few changes would take half a minute. While the first host is silent, the
commands get a slurm.conf that names the next host as SlurmctldAddr.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)

SLOW_S = 1.0  # a request that took longer may have waited for a silent host
_CHECK_S = 2.0
_CONNECT_S = 0.3
_USUAL = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))  # or configless
_HOST = re.compile(r"^\s*SlurmctldHost\s*=\s*([^\s(#]+)(?:\(([^)\s]+)\))?", re.M | re.I)
_PORT = re.compile(r"^\s*SlurmctldPort\s*=\s*(\d+)", re.M | re.I)
_ADDRESS = re.compile(r"^\s*SlurmctldAddr\s*=", re.M | re.I)


@dataclass
class Detour:
    """Switches SLURM_CONF in ``environment`` to a slurm.conf in ``folder``, and back."""

    folder: Path
    environment: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    _usual: str | None = None  # SLURM_CONF before
    _silent: tuple[str, int] | None = None  # the host that is avoided now
    _checked_s: float = float("-inf")

    def after_request(self, seconds: float) -> None:
        """Call after a request with its duration: if it was slow, check the first host.

        Raises nothing: the request has its result already.
        """
        if self._silent is None and seconds >= SLOW_S:
            try:
                self._switch()
            except OSError as error:
                logger.error("cannot avoid slurmctld's first host: %s", error)

    def before_request(self) -> None:
        """Call before a request: switch back to the first host if it answers again."""
        if self._silent is None or time.monotonic() - self._checked_s < _CHECK_S:
            return
        self._checked_s = time.monotonic()
        if not _is_silent(self._silent):
            self._switch_back()

    def _switch(self) -> None:
        conf = _conf(self.environment)
        addresses = [] if conf is None else _hosts(conf.read_text(errors="replace"))
        self._checked_s = time.monotonic()
        if conf is None or len(addresses) < 2 or not _is_silent(addresses[0]):
            return
        other = next((one for one in addresses[1:] if not _is_silent(one)), None)
        if other is None:
            return
        _write_conf(self.folder, conf, other[0])
        self._usual, self._silent = self.environment.get("SLURM_CONF"), addresses[0]
        self.environment["SLURM_CONF"] = str(self.folder / "slurm.conf")
        logger.warning("slurmctld's host %s is silent: asking %s", addresses[0][0], other[0])

    def _switch_back(self) -> None:
        logger.info("slurmctld's first host answers again")
        self._silent = None
        if self._usual is None:
            del self.environment["SLURM_CONF"]
        else:
            self.environment["SLURM_CONF"] = self._usual


def _conf(environment: MutableMapping[str, str]) -> Path | None:
    given = environment.get("SLURM_CONF")
    places = (Path(given),) if given else _USUAL
    return next((place for place in places if place.is_file()), None)


def _hosts(conf: str) -> list[tuple[str, int]]:
    """Return the addresses of slurmctld's hosts; empty if SlurmctldAddr stands for all of them."""
    if _ADDRESS.search(conf):
        return []
    port = _PORT.search(conf)
    number = int(port[1]) if port else 6817
    return [(address or name, number) for name, address in _HOST.findall(conf)]


def _is_silent(address: tuple[str, int]) -> bool:
    """Return whether a host neither takes nor refuses a connection; a refusal costs no time."""
    try:
        socket.create_connection(address, _CONNECT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return False


def _write_conf(folder: Path, conf: Path, address: str) -> None:
    """Write a slurm.conf with this address, and links to all files beside the usual slurm.conf."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in conf.parent.iterdir():
        if file.name != conf.name:
            (folder / file.name).symlink_to(file)
    (folder / "slurm.conf").write_text(f"Include {conf}\nSlurmctldAddr={address}\n")
