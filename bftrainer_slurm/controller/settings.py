"""What an admin (or a user in personal mode) may set: each with its meaning, unit and range.

How the file is read is ``settings_file``; the example that is made of this ``settings_example``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any

from bftrainer_slurm.keeper.credentials import JOB, MUNGE, Means
from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address, parse_addresses
from bftrainer_slurm.planner.objectives import ObjectiveError, find
from bftrainer_slurm.slurm.open import CHOICES as GATEWAYS

METRICS = "127.0.0.1:6741"
_DAY_S = 86_400.0


class SettingsError(ValueError):
    """A setting that is not known or not possible; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting means and may be: ``least`` to ``most`` of its unit, or as ``check`` says.

    ``check`` raises ValueError. ``kept``: a running controller keeps the value it began with.
    """

    about: str
    unit: str = ""
    least: float = 0.0
    most: float = 0.0
    check: Callable[[Any], object] | None = None
    kept: bool = False


def rules() -> dict[str, tuple[object, Rule]]:
    """Return the default and the rule of each setting, in the order of the example file."""
    return {one.name: (one.default, _rule(one)) for one in fields(Settings)}


def _rule(one: Field[Any]) -> Rule:
    rule: Rule = one.metadata["rule"]
    return rule


def _number(default: float, unit: str, least: float, most: float, about: str) -> Any:
    return field(default=default, metadata={"rule": Rule(about, unit, least, most)})


def _kept_number(default: float, unit: str, least: float, most: float, about: str) -> Any:
    return field(default=default, metadata={"rule": Rule(about, unit, least, most, kept=True)})


def _other(
    default: object, about: str, check: Callable[[Any], object] | None = None, kept: bool = True
) -> Any:
    return field(default=default, metadata={"rule": Rule(about, check=check, kept=kept)})


def _addresses(text: str) -> None:
    try:
        parse_addresses(text)
    except ProtocolError as error:
        raise ValueError(str(error)) from error


def _metrics(text: str) -> None:
    try:
        if text not in ("", "off"):
            parse_address(text)
    except ProtocolError as error:
        raise ValueError(f"{error}, and not 'off'") from error


def _path(text: str) -> None:
    if text and not PurePath(text).is_absolute():
        raise ValueError(f"'{text[:80]}' is no absolute path")


def _gateway(text: str) -> None:
    if text not in GATEWAYS:
        raise ValueError(f"must be one of: {', '.join(GATEWAYS)}")


def _objective(text: str) -> None:
    try:
        find(text)
    except ObjectiveError as error:
        raise ValueError(str(error)) from error


def _name(text: str) -> None:
    if not text or not text.isprintable() or any(char in " ,;=\"'" for char in text):
        raise ValueError(f"'{text[:80]}' is no name")


def _names(texts: tuple[str, ...]) -> None:
    for text in texts:
        _name(text)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controller works. Times in seconds.

    At rest slurmctld gets an RPC each ``queue_interval_s`` (two through squeue), two each
    ``nodes_interval_s`` and one each ``reservations_interval_s``: the defaults make 7 a minute.
    """

    # Addresses and names: the keeper's service reads them too.
    listen: str = _other(
        "127.0.0.1:0",
        "Where the keeper listens: HOST:PORT, HOST by a name that the nodes reach it by. With "
        "'shared' those of all hosts for it, with commas between. Not set: keeper= of the plugin's "
        "line in plugstack.conf.",
        _addresses,
    )
    shared: str = _other(
        "", "A folder that all hosts for the controller see; empty: there is one host.", _path
    )
    munge_socket: str = _other("", "Where munged listens, if not where it usually does.", _path)
    key_file: str = _other("", "Without MUNGE: the key that root on the nodes has too.", _path)
    metrics: str = _other(
        "",
        "Where Prometheus asks: HOST:PORT, or 'off'. Empty: "
        f"{METRICS} for a site's controller, else nowhere.",
        _metrics,
    )
    partition: str = _other("bftrainer", "The preemptible partition of the trainers.", _name)
    gateway: str = _other(
        "auto", f"How the queue and the nodes are read: {', '.join(GATEWAYS)}.", _gateway
    )
    operator: bool = _other(
        True, "Whether its account may lengthen the time limit of a running element.", kept=False
    )
    # Ordinary jobs come first.
    min_hole_s: float = _number(
        60.0, "seconds", 0, _DAY_S, "A node that is expected to be needed sooner is left alone."
    )
    min_idle_s: float = _number(
        0.0, "seconds", 0, _DAY_S, "A node that ordinary jobs left more lately is left alone."
    )
    reserve_nodes: int = _number(
        0,
        "nodes",
        0,
        100_000,
        "Kept idle: trainers grow onto others, and give up what is missing.",
    )
    delay_worth: float = _number(
        0.0,
        "node-seconds",
        0,
        1_000_000,
        "What a second of an ordinary job's delay is worth: above 0 as many nodes are kept idle as "
        "that pays for, by the jobs of the last day; at least reserve_nodes.",
    )
    slow_end_s: float = _number(
        2.0,
        "seconds",
        0.1,
        3600,
        "A node whose elements take longer to end, after their grace, is bad.",
    )
    bad_node_s: float = _number(
        900.0, "seconds", 1, 7 * _DAY_S, "For so long a node that is bad, or may be, is left alone."
    )
    job_table_share: float = _number(
        0.25,
        "of MaxJobCount",
        0.001,
        1,
        "What all trainers together may hold of slurmctld's job table; each element is a job.",
    )
    # How often slurmctld is asked, and told.
    queue_interval_s: float = _number(
        15.0, "seconds", 0.1, 3600, "How often the queue is read; more seldom where that is slow."
    )
    nodes_interval_s: float = _number(
        60.0, "seconds", 0.1, 3600, "How often the nodes are read, besides."
    )
    reservations_interval_s: float = _number(
        60.0, "seconds", 0.1, 3600, "How often the reservations are read."
    )
    commands_per_s: float = _kept_number(
        1.5,
        "RPCs a second",
        0.01,
        1000,
        "Changes that slurmctld is asked for, after a burst of 20.",
    )
    # The plan.
    objective: str = _other(
        "speedup", "What plans maximise: docs/objectives.md.", _objective, False
    )
    forward_time_s: float = _number(
        120.0,
        "seconds",
        0.1,
        _DAY_S,
        "How far ahead a plan weighs gain against the cost of rescaling.",
    )
    adapt_forward_time: bool = _other(
        True,
        "Whether that follows the holes seen lately; false where this file sets forward_time_s.",
        kept=False,
    )
    hardware: tuple[str, ...] = _other(
        (),
        "Features of nodes that tell kinds of hardware apart: a trainer's nodes are of one kind.",
        _names,
        False,
    )
    plan_limit_s: float = _kept_number(
        5.0, "seconds", 0.1, 600, "A plan that takes longer is cut short: the greedy one is taken."
    )
    # Elements.
    start_timeout_s: float = _number(
        90.0,
        "seconds",
        1,
        3600,
        "What was let go and has not started is held again; or after three backfill passes.",
    )
    relaunch_after_s: float = _number(
        2.0, "seconds", 0, 3600, "From an element's end to its next start."
    )
    limit_margin_s: float = _number(
        30.0, "seconds", 1, 3600, "An element this near its time limit is dealt with."
    )
    max_failures: int = _number(
        5,
        "failures",
        1,
        1000,
        "Without progress, before a trainer is given up that has only one node to try.",
    )

    @property
    def means(self) -> Means:
        """How members prove to a site's keeper whose they are."""
        if self.key_file:
            return Means(JOB, key_file=Path(self.key_file))
        return Means(MUNGE, self.munge_socket or None)
