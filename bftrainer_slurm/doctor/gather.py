"""Asks Slurm, the keeper and this host for the facts that the checks need. Changes nothing."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bftrainer_slurm.controller.settings import SITE_STATE, Settings
from bftrainer_slurm.doctor.facts import Asking, Facts, HostFacts, Network, Plugin
from bftrainer_slurm.doctor.finding import PLUGSTACK
from bftrainer_slurm.doctor.limits import OF_JOBS, OF_RESOURCES
from bftrainer_slurm.doctor.plugstack import (
    PluginLine,
    included,
    our_lines,
    pyxis_after_ours,
    read_lines,
)
from bftrainer_slurm.keeper.client import KeeperClient, KeeperError
from bftrainer_slurm.keeper.credentials import CredentialError, read_secret
from bftrainer_slurm.keeper.munge import Munge
from bftrainer_slurm.reader.sentences import down
from bftrainer_slurm.slurm.configuration import (
    last_pass,
    partitions_of,
    power_saving_nodes,
    values_in,
)
from bftrainer_slurm.slurm.gateway import GatewayError
from bftrainer_slurm.slurm.open import GROW, LOOK, find_program
from bftrainer_slurm.slurm.run import SlurmRunner

_NOW = re.compile(r"^Configuration data as of (\d+)$", re.MULTILINE)
_METADATA = re.compile(r"bftrainer_slurm-(.+)\.dist-info")


def gather(runner: SlurmRunner, settings: Settings) -> Facts:
    """Return the facts.

    Raises:
        GatewayError: slurmctld does not answer.
    """
    # scontrol exits with 1 if slurmctld answers, but then limits the pings (rl_enable).
    began_s = time.time()
    output = runner.read("scontrol", "show", "config", accepted_status=1)
    match = _NOW.search(output)
    ahead_s = clock_ahead_s(float(match[1]), began_s, time.time()) if match else None
    values = values_in(output)
    plugin = _plugin(runner, values)
    return Facts(
        values,
        partitions_of(runner),
        settings,
        plugin,
        _network(settings, plugin),
        _host_facts(runner, values, settings, ahead_s),
        _qos(runner, values),
        power_saving_nodes(runner, values),
        last_pass(runner),
    )


def clock_ahead_s(shown_s: float, began_s: float, ended_s: float) -> float:
    """Return how far another clock is ahead of this host's, in seconds; behind if negative.

    It showed ``shown_s`` between ``began_s`` and ``ended_s`` here; 0.0 if it may be right.
    """
    return shown_s - min(max(shown_s, began_s), ended_s)


def _slurm_conf(values: Mapping[str, str]) -> Path | None:
    """Return where slurm.conf is, None if it cannot be read here."""
    for place in (os.environ.get("SLURM_CONF"), values.get("SLURM_CONF"), "/etc/slurm/slurm.conf"):
        if place and os.access(place, os.R_OK):
            return Path(place)
    return None


def _plugstack(values: Mapping[str, str]) -> list[tuple[Path, str]] | None:
    """Return the lines of plugstack.conf and of what it includes, each with its file.

    None if they cannot be read here. Slurm works without this file, which is beside slurm.conf.
    """
    conf = _slurm_conf(values)
    places = [Path(values.get("PlugStackConfig", ""))]
    if conf is not None:
        places.append(conf.parent / PLUGSTACK)
    first = next((place for place in places if place.is_file()), None)
    if first is None:
        return None if conf is None else []
    try:
        return list(read_lines(first))
    except OSError:
        return None


def _plugin(runner: SlurmRunner, values: Mapping[str, str]) -> Plugin:
    loaded, plugstack = _is_loaded(runner), _plugstack(values)
    if plugstack is None:
        return Plugin(loaded=loaded)
    ordered = [line for _, line in plugstack]
    lines = our_lines(ordered)
    if not lines:
        return Plugin(lines, loaded)
    there, package = _file_exists(lines[0], values), _package_version(lines[0])
    own = [line for path, line in plugstack if path == plugstack[0][0]]
    include, pyxis = _include_of_ours(own), pyxis_after_ours(ordered)
    rewriting = _rewriting(lines[0]) if loaded else None
    return Plugin(lines, loaded, there, package, include, pyxis, rewriting)


def _rewriting(line: PluginLine) -> str | None:
    """Run the program that rewrites submissions without one; return what is wrong with it."""
    if "python" not in line.options:
        return None  # it is where this plugin's own installation put it
    interpreter = line.options.get("interpreter", "/usr/bin/python3")
    program = f"{line.options['python']}/bftrainer_slurm/submission/rewrite_program.py"
    command = (interpreter, "-I", "-S", "-B", program)
    try:
        done = subprocess.run(command, input=b"", capture_output=True, timeout=10, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{interpreter}: {getattr(error, 'strerror', None) or 'no answer within 10 s'}"
    verb, _, answer = done.stdout.decode("utf-8", "replace").partition("\0\0")
    if verb != "refuse":
        return f"'{shlex.join(command)}' gives no answer"
    return answer.partition("\0")[0] if "needs Python" in answer else ""


def _include_of_ours(own: list[str]) -> str:
    """Return plugstack.conf's include that has our line, empty if its ``own`` lines have it."""
    return "" if our_lines(own) else next(filter(None, map(included, own)), "")


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
    mute, refusals = _texts(status.get("mute_nodes")), _texts(about.get("refusals"))
    trainers = tuple(_trainers(status.get("trainers")))
    return Network(resolved, "", str(trouble or ""), reader, mute, refusals, trainers)


def _trainers(value: object) -> Iterator[Asking]:
    for one in value if isinstance(value, list) else ():
        if one["state"] not in ("finished", "given up", "cancelled"):
            numbers = (one.get(name) or 0 for name in ("min_nodes", "max_nodes", "gpus"))
            yield Asking(one["user"], *numbers)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


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
    return HostFacts(user, level, ahead_s, munge, _key(settings), programs, owner, mode)


def _key(settings: Settings) -> str | None:
    """Return what is wrong with the site's key here; None: only another account could say."""
    try:
        read_secret(Path(settings.key_file))
    except CredentialError as error:
        hidden = isinstance(error.__cause__, PermissionError)
        return None if hidden else str(error)
    return ""


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
    keys = ("Preempt", "PreemptMode", "PreemptExemptTime", *OF_JOBS, *OF_RESOURCES)
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
