"""Cutting a slurmd off where all nodes share the host's network: nobody reaches its port any more.

Needs root and nft.
"""

from __future__ import annotations

import os
import shutil
import subprocess


class FirewallError(Exception):
    """A port cannot be cut off or mended; the message says what to do, or has nft's words."""


def cut(port: str) -> None:
    """Drop what is sent to this TCP port.

    Raises:
        FirewallError: there is no nft, or it may not do it.
    """
    chain = f"chain input {{ type filter hook input priority 0; tcp dport {port} drop; }}"
    _run("-f", "-", rules=f"{_table(port)} {{\n{chain}\n}}\n")


def mend(port: str) -> None:
    """Let it through again, if it was cut off.

    Raises:
        FirewallError: nft may not do it.
    """
    nft = _nft()
    if nft is None:
        return
    listed = subprocess.run([nft, "list", *_table(port).split()], capture_output=True)
    if listed.returncode == 0:
        _run("delete", *_table(port).split())


def _run(*words: str, rules: str | None = None) -> None:
    nft = _nft()
    if nft is None or os.getuid() != 0:
        raise FirewallError("cutting a node off needs root and nft: apt-get install nftables")
    done = subprocess.run([nft, *words], input=rules, capture_output=True, text=True)
    if done.returncode != 0:
        raise FirewallError(f"nft: {done.stderr.strip()}")


def _nft() -> str | None:
    return shutil.which("nft", path="/usr/sbin:/sbin")


def _table(port: str) -> str:
    return f"table inet bftrainer_lab_{port}"
