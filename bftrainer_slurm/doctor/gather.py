"""Asks Slurm, the keeper and this host for the facts that the checks need. Changes nothing."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import shutil
import socket
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bftrainer_slurm.controller.settings import SITE_STATE, Settings
from bftrainer_slurm.doctor.facts import ConfigFile, Facts, HostFacts, Network, Plugin
from bftrainer_slurm.doctor.finding import CGROUP_CONF, OURS, PLUGSTACK, SLURM_CONF
from bftrainer_slurm.doctor.plugstack import (
    PluginLine,
    included,
    our_lines,
    pyxis_after_ours,
    read_lines,
)
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError, Munge
from bftrainer_slurm.reader.sentences import down
from bftrainer_slurm.slurm.configuration import partitions_of, values_in
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.open import GROW, LOOK, find_program
from bftrainer_slurm.slurm.run import SlurmRunner

_NOW = re.compile(r"^Configuration data as of (\d+)$", re.MULTILINE)
_METADATA = re.compile(r"bftrainer_slurm-(.+)\.dist-info")


def gather(
    runner: SlurmRunner, settings: Settings, config: Path | None = None
) -> tuple[Facts, Mapping[str, Sequence[ConfigFile]]]:
    """Return the facts, and the files with settings by their kind.

    ``config`` is the file with our settings, None if there is none yet.

    Raises:
        GatewayError: slurmctld does not answer.
    """
    # scontrol exits with 1 if slurmctld answers, but then limits the pings (rl_enable).
    began_s = time.time()
    output = runner.read("scontrol", "show", "config", accepted_status=1)
    match = _NOW.search(output)
    ahead_s = clock_ahead_s(float(match[1]), began_s, time.time()) if match else None
    values = values_in(output)
    conf = _slurm_conf(values)
    plugstack = _plugstack(values, conf)
    plugin = _plugin(runner, values, plugstack)
    files = {
        SLURM_CONF: [] if conf is None else [conf],
        CGROUP_CONF: [] if conf is None else [_file(conf.path.parent / CGROUP_CONF)],
        PLUGSTACK: plugstack or [],
        OURS: [] if conf is None else [_file(config or conf.path.parent / OURS)],
    }
    facts = Facts(
        values,
        partitions_of(runner),
        settings,
        plugin,
        _network(settings, plugin),
        _host_facts(runner, values, settings, ahead_s),
        _qos(runner, values),
    )
    return facts, files


def clock_ahead_s(shown_s: float, began_s: float, ended_s: float) -> float:
    """Return how far another clock is ahead of this host's, in seconds; behind if negative.

    It showed ``shown_s`` between ``began_s`` and ``ended_s`` here; 0.0 if it may be right.
    """
    return shown_s - min(max(shown_s, began_s), ended_s)


def _file(path: Path) -> ConfigFile:
    try:
        return ConfigFile(path, path.read_text(errors="replace"))
    except OSError:
        return ConfigFile(path)


def _slurm_conf(values: Mapping[str, str]) -> ConfigFile | None:
    for place in (os.environ.get("SLURM_CONF"), values.get("SLURM_CONF"), "/etc/slurm/slurm.conf"):
        with contextlib.suppress(OSError):
            if place:
                return ConfigFile(Path(place), Path(place).read_text(errors="replace"))
    return None


def _plugstack(values: Mapping[str, str], conf: ConfigFile | None) -> list[ConfigFile] | None:
    """Return plugstack.conf and what it includes, None if it cannot be read here."""
    places = [Path(values.get("PlugStackConfig", ""))]
    if conf is not None:
        places.append(conf.path.parent / PLUGSTACK)
    first = next((place for place in places if place.is_file()), None)
    if first is None:
        # Slurm works without this file; it would be beside slurm.conf.
        return [ConfigFile(places[-1])] if conf is not None else None
    try:
        paths = dict.fromkeys([first, *(path for path, _ in read_lines(first))])
    except OSError:
        return None
    return [_file(path) for path in paths]


def _plugin(
    runner: SlurmRunner, values: Mapping[str, str], plugstack: Sequence[ConfigFile] | None
) -> Plugin:
    if plugstack is None:
        return Plugin(loaded=_is_loaded(runner))
    file = plugstack[0]
    ordered = [line for _, line in read_lines(file.path)] if file.text else []
    lines = our_lines(ordered)
    if not lines:
        return Plugin(lines, _is_loaded(runner))
    there, package = _file_exists(lines[0], values), _package_version(lines[0])
    late = pyxis_after_ours(ordered)
    return Plugin(lines, _is_loaded(runner), there, package, _include_of_ours(plugstack), late)


def _include_of_ours(plugstack: Sequence[ConfigFile]) -> str:
    """Return plugstack.conf's include that has our line, empty if the file itself has it."""
    text = plugstack[0].text
    patterns = filter(None, map(included, text.splitlines()))
    return "" if our_lines(text.splitlines()) else next(patterns, "")


def _is_loaded(runner: SlurmRunner) -> bool | None:
    if shutil.which("sbatch") is None:
        return None
    try:
        return "--bftrainer" in runner.read("sbatch", "--help")
    except GatewayError:
        return False


def _file_exists(line: PluginLine, values: Mapping[str, str]) -> bool:
    path = Path(line.path)
    folders = [] if path.is_absolute() else values.get("PluginDir", "").split(":")
    return (
        path.is_file() if path.is_absolute() else any((Path(f) / path).is_file() for f in folders)
    )


def _package_version(line: PluginLine) -> str | None:
    folder = line.options.get("python")
    if not folder:
        return None
    try:
        place = zipfile.Path(folder) if zipfile.is_zipfile(folder) else Path(folder)
        names = [one.name for one in place.iterdir()]
    except (OSError, zipfile.BadZipFile):
        return ""
    found = [match[1] for name in names if (match := _METADATA.fullmatch(name))]
    return found[0] if found and "bftrainer_slurm" in names else ""


def _network(settings: Settings, plugin: Plugin) -> Network:
    keeper = plugin.line.options.get("keeper", "") if plugin.line else ""
    address = keeper if settings.listen == Settings().listen else settings.listen
    if not address:
        return Network()
    resolved = {}
    for one in address.split(","):
        host = one.rpartition(":")[0]
        with contextlib.suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            resolved[host] = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    try:
        age_s, status = KeeperClient(address).status()
    except (KeeperError, ValueError) as error:
        none = "the keeper does not answer"
        return Network(resolved, str(error), none, none)
    reader = _reader(address)
    if status is None:
        return Network(resolved, "", "it has not spoken to the keeper yet", reader)
    controller = status.get("controller")
    about = controller if isinstance(controller, dict) else {}
    trouble = down({"controller": about}, age_s) or about.get("error")
    mute = status.get("mute_nodes")
    nodes = tuple(map(str, mute)) if isinstance(mute, list) else ()
    return Network(resolved, "", str(trouble or ""), reader, nodes)


def _reader(address: str) -> str:
    """Ask the keeper for the history of no trainer; the keeper asks the reader."""
    try:
        return str(KeeperClient(address).history("0", 0.0).get("error") or "")
    except (KeeperError, ValueError) as error:
        return str(error)


def _host_facts(
    runner: SlurmRunner, values: Mapping[str, str], settings: Settings, ahead_s: float | None
) -> HostFacts:
    owner, mode = None, 0o755
    with contextlib.suppress(OSError, KeyError):
        status = SITE_STATE.stat()
        owner, mode = pwd.getpwuid(status.st_uid).pw_name, status.st_mode
    user = getpass.getuser()
    programs = tuple(name for name in (GROW, LOOK) if find_program(name))
    munge = _munge(values, settings)
    level = _admin_level(runner, values, user)
    return HostFacts(user, level, ahead_s, munge, programs, owner, mode)


def _munge(values: Mapping[str, str], settings: Settings) -> str | None:
    if values.get("AuthType") != "auth/munge":
        return None
    info = dict(word.partition("=")[::2] for word in values.get("AuthInfo", "").split(","))
    try:
        Munge(settings.munge_socket or info.get("socket") or None).encode("")
    except CredentialError as error:
        return str(error)
    return ""


def _admin_level(runner: SlurmRunner, values: Mapping[str, str], user: str) -> str | None:
    rows = _accounting(runner, values, "user", user, "format=adminlevel")
    return rows[0][0] if rows else None


def _qos(runner: SlurmRunner, values: Mapping[str, str]) -> dict[str, dict[str, str]] | None:
    keys = ("Preempt", "PreemptMode", "PreemptExemptTime", "GrpSubmit")
    rows = _accounting(runner, values, "qos", f"format=name,{','.join(keys)}".lower())
    if rows is None:
        return None
    return {row[0]: dict(zip(keys, row[1:], strict=True)) for row in rows}


def _accounting(
    runner: SlurmRunner, values: Mapping[str, str], *words: str
) -> list[list[str]] | None:
    """Ask slurmdbd for a table; return None if there is none."""
    if "slurmdbd" not in values.get("AccountingStorageType", ""):
        return None
    try:
        output = runner.read("sacctmgr", "--noheader", "--parsable2", "show", *words)
    except GatewayError:
        return None
    return [line.split("|") for line in output.splitlines()]
