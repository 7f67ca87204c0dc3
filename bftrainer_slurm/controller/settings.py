"""All settings of an admin (or a user in personal mode), with meaning, unit and range.

``settings_file`` reads the file, and writes an example file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any

from bftrainer_slurm.keeper.credentials import Means
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address, parse_addresses
from bftrainer_slurm.planner.objectives import find
from bftrainer_slurm.slurm.gateway import CHOICES as GATEWAYS

METRICS = "127.0.0.1:6741"
SITE_STATE = Path("/var/lib/bftrainer")
_DAY_S = 86_400.0


class SettingsError(ValueError):
    """A setting is unknown or its value impossible; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Range:
    """A check for numbers: from ``least`` to ``most`` of a unit."""

    least: float
    most: float
    unit: str

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:,.10g} {self.unit}"

    def __call__(self, value: float) -> None:
        """Raise ValueError for a value outside the range."""
        if not self.least <= value <= self.most:
            raise ValueError(f"must be from {self}")


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning and the limits of a setting."""

    about: str  # the meaning, for the example file
    check: Callable[[Any], object] | None = None  # raises ValueError for a wrong value


def rules() -> dict[str, tuple[object, Rule]]:
    """Return the default and the rule of each setting, in the order of the example file."""
    return {one.name: (one.default, one.metadata["rule"]) for one in fields(Settings)}


_A_DAY = Range(0, _DAY_S, "seconds")
_OFTEN = Range(0.1, 3600, "seconds")


def _setting(default: object, about: str, check: Callable[[Any], object] | None = None) -> Any:
    """Declare a setting; without a check, every value of its default's type is allowed."""
    return field(default=default, metadata={"rule": Rule(about, check)})


def _metrics(text: str) -> None:
    try:
        if text not in ("", "off"):
            parse_address(text)
    except ProtocolError as error:
        raise ValueError(f"{error}, and not 'off'") from error


def _path(text: str) -> None:
    if text and not PurePath(text).is_absolute():
        raise ValueError(f"'{text[:80]}' is not an absolute path")


def _gateway(text: str) -> None:
    if text not in GATEWAYS:
        raise ValueError(f"must be one of: {', '.join(GATEWAYS)}")


def _name(text: str) -> None:
    if not text or not text.isprintable() or any(char in " ,;=\"'" for char in text):
        raise ValueError(f"'{text[:80]}' is not a name")


def _name_or_none(text: str) -> None:
    if text:
        _name(text)


def _names(texts: tuple[str, ...]) -> None:
    for text in texts:
        _name(text)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controller works. Times are in seconds.

    If nothing happens, slurmctld gets one RPC every ``queue_interval_s`` (two through squeue), and
    three more at every fourth time: 7 a minute by default.
    """

    # Addresses and names: the keeper's service reads them too.
    listen: str = _setting(
        "127.0.0.1:0",
        "Where the keeper listens: HOST:PORT. Nodes must be able to reach it by HOST. With "
        "'shared', give the addresses of all hosts, separated by commas. If it is not set: "
        "keeper= in the plugin's line of plugstack.conf.",
        parse_addresses,
    )
    shared: str = _setting(
        "",
        "Where slurmctld has two hosts: a folder that both see, in place of --state. Keeper, "
        "controller and reader run on both hosts, and work where slurmctld is in charge.",
        _path,
    )
    key_file: str = _setting(
        "/etc/bftrainer/bftrainer.key",
        "The file with the site's key, which only root on the nodes and the controller's account "
        "can read. If it is not set: key_file= in the plugin's line.",
        _path,
    )
    munge_socket: str = _setting(
        "",
        "The socket of munged, if it is not the usual one: 'bftrainer status' proves with MUNGE "
        "who asks.",
        _path,
    )
    metrics: str = _setting(
        "",
        f"Where the reader serves metrics and the page: HOST:PORT, or 'off'. Empty: {METRICS}.",
        _metrics,
    )
    partition: str = _setting("bftrainer", "The preemptible partition of the trainers.", _name)
    qos: str = _setting(
        "",
        "The QOS of the trainers, if they have one. If it is not set: qos= in the plugin's line.",
        _name_or_none,
    )
    gateway: str = _setting(
        "auto", f"How the queue and the nodes are read: {', '.join(GATEWAYS)}.", _gateway
    )
    share: bool = _setting(
        False,
        "Whether trainers that ask for GPUs get parts of nodes that they share with other jobs. "
        "If it is not set: share= in the plugin's line. Slurm must confine GPUs, cores and memory: "
        "'bftrainer doctor' checks this.",
    )
    operator: bool = _setting(
        True, "Whether the controller's account may lengthen the time limit of a running element."
    )
    # Ordinary jobs come first.
    min_hole_s: float = _setting(
        60.0,
        "Trainers do not use a node that ordinary jobs are expected to need sooner than this.",
        _A_DAY,
    )
    min_idle_s: float = _setting(
        0.0, "How long a node stays without trainers after an ordinary job has left it.", _A_DAY
    )
    reserve: int = _setting(
        0,
        "How many nodes stay idle for ordinary jobs; of nodes that jobs share, how many GPUs. If "
        "fewer are free, trainers give some up.",
        Range(0, 1_000_000, "nodes or GPUs"),
    )
    wake_nodes: bool = _setting(
        False,
        "Whether trainers may wake nodes that Slurm has switched off to save power, and keep them "
        "awake; then keep_awake_s does not matter.",
    )
    keep_awake_s: float = _setting(
        0.0,
        "Where Slurm switches idle nodes off: how long trainers may use a node beyond SuspendTime "
        "after its last ordinary job. Slurm counts SuspendTime anew when they leave.",
        Range(0, 365 * _DAY_S, "seconds"),
    )
    bad_node_s: float = _setting(
        900.0,
        "How long trainers avoid a node that is bad or may be bad.",
        Range(1, 7 * _DAY_S, "seconds"),
    )
    # How many requests slurmctld gets.
    queue_interval_s: float = _setting(
        15.0,
        "How often the queue is read; less often if slurmctld is slow. Nodes and reservations are "
        "read at every fourth time.",
        _OFTEN,
    )
    # The plan.
    objective: str = _setting(
        "speedup",
        "What plans maximise: speedup, throughput, goodput or efficiency, each with +finish, "
        "+fairness or both, as in speedup+fairness (docs/internals/objectives.md).",
        find,
    )
    deadline_share: float = _setting(
        1.0,
        "The share of the nodes that trainers have which may go to trainers with a deadline (by=) "
        "before others.",
        Range(0, 1, "of the nodes"),
    )
    cross_switch: float = _setting(
        1.0,
        "How fast a training is on nodes under more than one switch or block, beside one switch "
        "alone; plans count with it where Slurm has a topology (tree or block).",
        Range(0, 1, "times as fast"),
    )
    forward_time_s: float = _setting(
        0.0,
        "How far ahead a plan weighs gain against the cost of rescaling. 0: it follows the holes "
        "seen lately.",
        _A_DAY,
    )
    hardware: tuple[str, ...] = _setting(
        (),
        "Node features that name kinds of hardware: all nodes of a trainer are of one kind.",
        _names,
    )
    # Elements.
    max_failures: int = _setting(
        5,
        "After this many failures without progress, a trainer with only one node to try is given "
        "up.",
        Range(1, 1000, "failures"),
    )

    @property
    def folder(self) -> Path | None:
        """The state folder that two hosts share, if there are two."""
        return Path(self.shared) if self.shared else None

    @property
    def page(self) -> str | None:
        """Where the site's reader serves metrics and the page; None: nowhere."""
        chosen = self.metrics or METRICS
        return None if chosen == "off" else chosen

    @property
    def means(self) -> Means:
        """What the proofs of a site's keeper are made of."""
        return Means(Path(self.key_file), self.munge_socket or None)
