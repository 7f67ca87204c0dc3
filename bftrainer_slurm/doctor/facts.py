"""The input of the checks: frozen values, and small readers of Slurm's texts. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.doctor.finding import PLUGSTACK, SCHEDULER, SLURM_CONF, Change, setting
from bftrainer_slurm.doctor.plugstack import PluginLine
from bftrainer_slurm.model import BackfillPass
from bftrainer_slurm.slurm.configuration import seconds_of

_UNSET = ("", "(null)", "none", "NONE", "N/A")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known about this host and the doctor's account.

    None means unknown. ``key`` is what is wrong with the site's key on this host, ``munge`` what is
    wrong with MUNGE, empty if nothing is. ``clock_ahead_s``
    is how far slurmctld's clock is ahead of this host's, ``state_owner`` the account that owns the
    controller's state folder.
    """

    user: str
    admin_level: str | None = None  # the user's, in Slurm's accounting
    clock_ahead_s: float | None = None
    munge: str | None = None
    key: str | None = None
    programs: tuple[str, ...] = ()  # which of bftrainer-grow and bftrainer-look start
    state_owner: str | None = None
    state_mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Plugin:
    """What is known about the SPANK plugin. None means unknown.

    ``lines`` are the lines of plugstack.conf that name it. ``loaded``: whether sbatch shows its
    option. ``file_there``: whether its file is on this host. ``package`` is the version of our
    package in the folder of ``python=``, empty if there is none. ``include`` is the pattern with
    which plugstack.conf includes the line, empty if it has the line itself. ``pyxis_after`` is the
    line of pyxis, if that is loaded after ours. ``rewriting``: why the program that rewrites
    submissions does not run here, empty if it does.
    """

    lines: tuple[PluginLine, ...] | None = None
    loaded: bool | None = None
    file_there: bool | None = None
    package: str | None = None
    include: str = ""
    pyxis_after: str = ""
    rewriting: str | None = None

    @property
    def line(self) -> PluginLine | None:
        """The first line, which counts; None if there is none."""
        return self.lines[0] if self.lines else None


@dataclass(frozen=True, slots=True)
class Asking:
    """What a trainer asks for: nodes, and GPUs of each (0: all of the node)."""

    user: str
    least: int
    most: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """The IP addresses of the keeper's hosts by name, and what is wrong with each service.

    None means unknown, an empty text that it answers. Elements on ``mute`` nodes never reported
    that they were up. ``refusals``: what the controller says of changes that Slurm refuses.
    ``trainers`` are those that it has now.
    """

    resolved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeper: str | None = None
    controller: str | None = None
    reader: str | None = None
    mute: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    trainers: tuple[Asking, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. ``values`` and ``partitions`` are what scontrol shows; ``qos`` by name.

    ``settings`` are those of bftrainer.toml, or the defaults without this file. ``nodes_shown`` is
    what scontrol shows of each node, where Slurm saves power; ``passed`` is the last backfill pass.
    """

    values: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]
    settings: Settings
    plugin: Plugin
    network: Network
    host: HostFacts
    qos: Mapping[str, Mapping[str, str]] | None = None
    nodes_shown: Mapping[str, str] = field(default_factory=dict)
    passed: BackfillPass | None = None

    def value(self, key: str) -> str:
        """Return a setting of slurm.conf, empty if there is none."""
        value = self.values.get(key, "")
        return "" if value in _UNSET else value

    def seconds(self, key: str) -> float | None:
        """Return a setting that is a time, None if it cannot be read."""
        return seconds_of(self.value(key))

    def number(self, key: str) -> int | None:
        """Return a setting that is a number, None if it cannot be read."""
        value = self.value(key)
        return int(value) if value.isdigit() else None

    def words(self, key: str) -> tuple[str, ...]:
        """Return a setting that is a list, separated by commas."""
        return tuple(word.strip() for word in self.value(key).split(",") if word.strip())

    def scheduler(self, option: str) -> str | None:
        """Return an option in SchedulerParameters, ``""`` for a flag, None if it is not set."""
        for word in self.words(SCHEDULER):
            name, _, value = word.partition("=")
            if name == option:
                return value
        return None

    @property
    def partition(self) -> Mapping[str, str] | None:
        """The trainers' partition, None if there is none."""
        return self.partitions.get(self.settings.partition)

    @property
    def nodes(self) -> int:
        """How many nodes trainers may have."""
        value = (self.partition or {}).get("TotalNodes", "")
        return int(value) if value.isdigit() else 0

    @property
    def by_qos(self) -> bool:
        """Whether the site preempts by QOS."""
        return "qos" in self.value("PreemptType")

    def option(self, name: str) -> str:
        """Return a setting of the plugin's line, empty if it is not set."""
        line = self.plugin.line
        return line.options.get(name, "") if line else ""

    def in_partition(self, key: str, value: str, partition: str = "") -> Change:
        """Return a change of a partition's line, by default of the trainers' partition."""
        name = partition or self.settings.partition
        return Change(SLURM_CONF, f"PartitionName={name} {setting(key, value)}")

    def in_line(self, key: str, value: str = "") -> Change:
        """Return a change of the plugin's line."""
        line = self.plugin.line
        path = f"{line.path} " if line else ""
        return Change(PLUGSTACK, f"{path}{setting(key, value)}")
