"""Accounting for a private cluster: its MariaDB and slurmdbd, and who may use which QOS.

Ordinary jobs run in the QOS ``normal``, which preempts ``bftrainer``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.labcluster.users import give

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
    conf, data = _conf(folder), folder / "database"
    conf.touch(mode=0o600)
    conf.write_text(f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
""")
    data.mkdir()
    give(conf, user)
    give(data, user)
    made = ("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db")
    command = (*made, "--auth-root-authentication-method=normal", *_as_user(user))
    subprocess.run(command, check=True, capture_output=True)


def database_options(folder: Path) -> list[str]:
    """Return mariadbd's options; it is ready when it has made ``run/database.sock``."""
    said = dict(line.split("=", 1) for line in _conf(folder).read_text().splitlines())
    return [
        "--no-defaults",
        f"--datadir={folder}/database",
        "--bind-address=127.0.0.1",
        f"--port={said['StoragePort']}",
        f"--socket={folder}/run/database.sock",
        "--innodb-buffer-pool-size=32M",
        *_as_user(said["SlurmUser"]),
    ]


def add_everybody(ask: Callable[..., str], names: Sequence[str]) -> None:
    """Let these users run ordinary jobs and trainers; ``ask`` runs a command."""
    for words in (
        "add cluster lab",
        f"add qos {QOS} PreemptMode=requeue Priority=0",
        f"modify qos normal set Preempt={QOS} Priority=1000",
        f"add account everybody Cluster=lab QOS=normal,{QOS} DefaultQOS=normal",
        f"add user {','.join(names)} Account=everybody",
    ):
        ask("sacctmgr", "-i", *words.split())


def _conf(folder: Path) -> Path:
    return folder / "slurmdbd.conf"


def _as_user(user: str) -> list[str]:
    return [f"--user={user}"] if os.getuid() == 0 else []
