"""A way around the first of slurmctld's hosts while it is silent, for Slurm's commands.

Each command tries the hosts in slurm.conf's order, and waits TCPTimeout (2 s) for one without
power: a look and a few changes would take half a minute. While the first host is silent, the
commands get a slurm.conf that names the next one as SlurmctldAddr.
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

SLOW_S = 1.0  # a request that took so long may have waited for a host
_CHECK_S = 2.0
_CONNECT_S = 0.3
_USUAL = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))  # or configless
_HOST = re.compile(r"^\s*SlurmctldHost\s*=\s*([^\s(#]+)(?:\(([^)\s]+)\))?", re.M | re.I)
_PORT = re.compile(r"^\s*SlurmctldPort\s*=\s*(\d+)", re.M | re.I)
_ADDRESS = re.compile(r"^\s*SlurmctldAddr\s*=", re.M | re.I)


@dataclass
class Detour:
    """``folder`` is for the other slurm.conf, ``environment`` is for the commands."""

    folder: Path
    environment: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    _usual: str | None = None  # SLURM_CONF before
    _silent: tuple[str, int] | None = None  # the host that is avoided now
    _checked_s: float = float("-inf")

    def took(self, seconds: float) -> None:
        """Call after a request: if it was slow, check whether the first host is silent.

        It raises nothing: the request has its result, whether there is a way around or not.
        """
        if self._silent is None and seconds >= SLOW_S:
            try:
                self._begin()
            except OSError as error:
                logger.error("no way around slurmctld's first host: %s", error)

    def mind(self) -> None:
        """Call before a request: go back to the first host if it answers again."""
        if self._silent is None or time.monotonic() - self._checked_s < _CHECK_S:
            return
        self._checked_s = time.monotonic()
        if not _is_silent(self._silent):
            self._end()

    def _begin(self) -> None:
        conf = _conf(self.environment)
        addresses = [] if conf is None else _hosts(conf.read_text(errors="replace"))
        self._checked_s = time.monotonic()
        if conf is None or len(addresses) < 2 or not _is_silent(addresses[0]):
            return
        other = next((one for one in addresses[1:] if not _is_silent(one)), None)
        if other is None:
            return
        _lay_out(self.folder, conf, other[0])
        self._usual, self._silent = self.environment.get("SLURM_CONF"), addresses[0]
        self.environment["SLURM_CONF"] = str(self.folder / "slurm.conf")
        logger.warning("slurmctld's host %s is silent: asking %s", addresses[0][0], other[0])

    def _end(self) -> None:
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
    """Return the addresses of slurmctld's hosts; none if the site has one address for all."""
    if _ADDRESS.search(conf):
        return []
    port = _PORT.search(conf)
    number = int(port[1]) if port else 6817
    return [(address or name, number) for name, address in _HOST.findall(conf)]


def _is_silent(address: tuple[str, int]) -> bool:
    """Whether a host neither takes a connection nor refuses it; a refusal costs no time."""
    try:
        socket.create_connection(address, _CONNECT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return False


def _lay_out(folder: Path, conf: Path, address: str) -> None:
    """Write the other slurm.conf, with links to all files beside the usual one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in conf.parent.iterdir():
        if file.name != conf.name:
            (folder / file.name).symlink_to(file)
    (folder / "slurm.conf").write_text(f"Include {conf}\nSlurmctldAddr={address}\n")
