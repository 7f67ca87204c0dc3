"""Accounting for a private cluster: its MariaDB and slurmdbd, and who may use which QOS.

Ordinary jobs run in the QOS ``normal``, which preempts ``bftrainer``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

QOS = "bftrainer"
PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr")


def settings(folder: Path, dbd_port: int) -> list[str]:
    """Return the lines of slurm.conf, beside which slurmdbd.conf lies in ``folder``."""
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={dbd_port}",
        "AccountingStorageEnforce=associations,limits,qos",
        f"AccountingStoragePass={folder}/munge/socket",
        "PreemptType=preempt/qos",
        "PriorityType=priority/multifactor",  # so that a QOS can mean something
    ]


def lay_out(folder: Path, user: str, dbd_port: int, database_port: int) -> None:
    """Write slurmdbd.conf, and make an empty database.

    Raises:
        subprocess.CalledProcessError: the database cannot be made.
    """
    lines = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(dbd_port),
        "SlurmUser": user,
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": str(database_port),
        "StorageUser": "root",  # of this database alone
        "LogFile": f"{folder}/log/slurmdbd.log",
        "PidFile": f"{folder}/run/slurmdbd.pid",
    }
    conf = _conf(folder)
    conf.touch(mode=0o600)
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    data = folder / "database"
    data.mkdir()
    if os.getuid() == 0:
        shutil.chown(conf, user)
        shutil.chown(data, user)
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"]
        + ["--auth-root-authentication-method=normal", *_as_user(user)],
        check=True,
        capture_output=True,
    )


def is_laid_out(folder: Path) -> bool:
    """Return whether this cluster has accounting."""
    return _conf(folder).exists()


def database_socket(folder: Path) -> Path:
    """Return the socket that is there once the database runs."""
    return folder / "run" / "database.sock"


def database_command(program: str, folder: Path) -> list[str]:
    """Return how the database is started."""
    said = dict(line.split("=", 1) for line in _conf(folder).read_text().splitlines())
    return [
        *(program, "--no-defaults", f"--datadir={folder}/database", "--bind-address=127.0.0.1"),
        *(f"--port={said['StoragePort']}", f"--socket={database_socket(folder)}"),
        *("--innodb-buffer-pool-size=32M", *_as_user(said["SlurmUser"])),
    ]


def add_everybody(ask: Callable[..., str], names: Sequence[str]) -> None:
    """Let these users run ordinary jobs and trainers; ``ask`` runs a command."""

    def add(*words: str) -> None:
        ask("sacctmgr", "-i", *words)

    add("add", "cluster", "lab")
    add("add", "qos", QOS, "PreemptMode=requeue", "Priority=0")
    add("modify", "qos", "normal", "set", f"Preempt={QOS}", "Priority=1000")
    add("add", "account", "everybody", "Cluster=lab", f"QOS=normal,{QOS}", "DefaultQOS=normal")
    add("add", "user", ",".join(names), "Account=everybody")


def _conf(folder: Path) -> Path:
    return folder / "slurmdbd.conf"


def _as_user(user: str) -> list[str]:
    return [f"--user={user}"] if os.getuid() == 0 else []
