"""What an admin (or a user in personal mode) sets: a TOML file, checked, with defaults."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from bftrainer_slurm.keeper.protocol import ProtocolError, parse_address
from bftrainer_slurm.planner.objectives import ObjectiveError, find
from bftrainer_slurm.slurm.open import CHOICES as GATEWAYS

_WORDS: dict[type, str] = {tuple: "list"}
METRICS = "127.0.0.1:6741"
_MAY_BE_ZERO = ("min_idle_s", "relaunch_after_s", "reserve_nodes", "delay_worth")


class SettingsError(ValueError):
    """A setting that is not known or not possible; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controller works. Times in seconds.

    At rest slurmctld gets an RPC each ``queue_interval_s`` (two through squeue), two each
    ``nodes_interval_s`` and one each ``reservations_interval_s``: the defaults make 7 a minute.
    """

    partition: str = "bftrainer"
    # The keeper's HOST:PORT, HOST as the nodes reach it; with ``shared`` those of all hosts for it.
    listen: str = "127.0.0.1:0"
    shared: str = ""  # a folder that all hosts for the controller see; empty: there is one host
    # Where Prometheus asks: HOST:PORT, "off", or empty: METRICS in site mode, else nowhere.
    metrics: str = ""
    munge_socket: str = ""  # where munged listens, if not where it usually does (site mode)
    key_file: str = ""  # without MUNGE: the key that root on the nodes has too (site mode)
    gateway: str = "auto"  # one of GATEWAYS
    operator: bool = True  # may lengthen the time limit of a running element
    objective: str = "speedup"  # see docs/objectives.md
    forward_time_s: float = 120.0
    adapt_forward_time: bool = True  # to the holes seen lately; false where the file sets a time
    queue_interval_s: float = 15.0
    nodes_interval_s: float = 60.0
    reservations_interval_s: float = 60.0
    # Features of nodes that tell kinds of hardware apart: a trainer's nodes are of one kind.
    hardware: tuple[str, ...] = ()
    plan_limit_s: float = 5.0  # then the greedy plan is taken
    start_timeout_s: float = 90.0  # of what was let go, or three backfill passes; then it is held
    relaunch_after_s: float = 2.0  # from an element's end to its next start
    min_hole_s: float = 60.0  # a node that is needed sooner is left alone
    min_idle_s: float = 0.0  # and one that ordinary jobs left more lately
    reserve_nodes: int = 0  # kept idle: trainers grow onto others, and give up what is missing
    # Node-seconds that a second of an ordinary job's delay is worth: above 0 as many nodes are kept
    # idle as that pays for, by the jobs of the last day (state.arrivals); at least reserve_nodes.
    delay_worth: float = 0.0
    limit_margin_s: float = 30.0  # an element this near its time limit is dealt with
    # Failures without progress before a trainer is given up that has only one node to try.
    max_failures: int = 5
    slow_end_s: float = 2.0  # after its grace; a node whose elements take longer to end is bad
    bad_node_s: float = 900.0  # for so long a node that is bad, or may be, is left alone
    job_table_share: float = 0.25  # of MaxJobCount, each element a job: what all trainers may hold
    commands_per_s: float = 1.5  # RPCs that change something, after a burst of 20


def read_settings(path: Path | None, **overrides: object) -> Settings:
    """Read a TOML file (None: the defaults); ``overrides`` that are not None win.

    Raises:
        SettingsError: in one line, naming the file and the key.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path}: {error}") from error
    source = str(path)
    known = {field.name: type(field.default) for field in fields(Settings)}
    for key, value in values.items():
        if key not in known:
            raise SettingsError(f"{source}: unknown key '{key}'; known keys: {', '.join(known)}")
        values[key] = _checked(source, key, value, known[key])
    if values.get("gateway", "auto") not in GATEWAYS:
        raise SettingsError(f"{source}: gateway must be one of: {', '.join(GATEWAYS)}")
    if isinstance(values.get("objective"), str):
        try:
            find(values["objective"])
        except ObjectiveError as error:
            raise SettingsError(f"{source}: objective: {error}") from error
    if values.get("metrics", "") not in ("", "off"):
        try:
            parse_address(values["metrics"])
        except ProtocolError as error:
            raise SettingsError(f"{source}: metrics: {error}, and not 'off'") from error
    if values.get("job_table_share", 0.0) > 1:
        raise SettingsError(f"{source}: job_table_share must be 1 or less")
    if "forward_time_s" in values:
        values.setdefault("adapt_forward_time", False)
    given = {key: value for key, value in overrides.items() if value is not None}
    return replace(Settings(), **(values | given))


def _checked(source: str, key: str, value: object, wanted: type) -> object:
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if wanted is tuple and isinstance(value, list):
        if not all(isinstance(one, str) for one in value):
            raise SettingsError(f"{source}: {key} must be a list of texts")
        return tuple(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise SettingsError(f"{source}: {key} must be a {_WORDS.get(wanted, wanted.__name__)}")
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < 1e6:
        if value == 0 and key in _MAY_BE_ZERO:
            return value
        raise SettingsError(f"{source}: {key} must be above 0 and below a million")
    return value
