"""Checks the keeper's address, and that keeper, controller and reader answer."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from bftrainer_slurm.controller.settings import Settings
from bftrainer_slurm.doctor.facts import Facts
from bftrainer_slurm.doctor.finding import Change, Finding, consider, must, ok, ours, shell, unknown

_RESTD = 6820  # slurmrestd's usual port, which slurm.conf does not name
_UNSET = Settings().listen


def check(facts: Facts) -> Iterator[Finding]:
    """Check the addresses and the services."""
    listen, value = facts.settings.listen, facts.option("keeper")
    line = facts.plugin.line
    if listen == _UNSET:
        why = "The nodes and users' commands reach the keeper at this address."
        yield must("listen", "not set", why, ours("listen", '"HOST:6740"'))
    if line is not None and not value:
        why = "The plugin refuses --bftrainer without it."
        change = facts.in_line("keeper", "HOST:6740")
        yield must("keeper=", "not set in the plugin's line", why, change)
    elif value and listen not in (_UNSET, value):
        why = "Elements look for the keeper in the wrong place."
        change = facts.in_line("keeper", listen)
        yield must("keeper=", f"{value}, and bftrainer.toml says {listen}", why, change)
    address = listen if listen != _UNSET else value
    for one in filter(None, address.split(",")):
        yield _reachable_address(one, facts)
        yield _port(one, facts)
    yield _answer_finding("keeper", facts.network.keeper, facts)
    yield _answer_finding("controller", facts.network.controller, facts)
    yield _answer_finding("reader", facts.network.reader, facts)
    for one in facts.network.refusals:
        yield must("changes of jobs", one, "Trainers whose changes Slurm refuses stay held.")


def _new_address(facts: Facts) -> Change:
    """Return where to write another address: the plugin's line counts for all, if there is one."""
    if facts.plugin.line is None:
        return ours("listen", '"HOST:6740"')
    return facts.in_line("keeper", "HOST:6740")


def _reachable_address(address: str, facts: Facts) -> Finding:
    host, title = address.rpartition(":")[0], "keeper's address"
    found = facts.network.resolved.get(host, ())
    if not found:
        why = "Nodes must reach the keeper by this name; check DNS or /etc/hosts."
        return must(title, f"{host} is not known here", why)
    inside = [one for one in found if ipaddress.ip_address(one).is_loopback]
    if inside:
        why = "Each node would look for the keeper on itself. A name must mean the same everywhere."
        found_here = host if host == inside[0] else f"{host} is {inside[0]} here"
        return must(title, f"{found_here}, a loopback address", why, _new_address(facts))
    return ok(title, f"{address} ({', '.join(found)})")


def _port(address: str, facts: Facts) -> Finding:
    value = address.rpartition(":")[2]
    port = int(value) if value.isdigit() else 0
    if port == 0:
        why = "A port that changes cannot be written into the plugin's line or a firewall's rules."
        return must("keeper's port", "any", why, ours("listen", '"HOST:6740"'))
    taken = {_RESTD: "slurmrestd"}
    for key, daemon in (
        ("AccountingStoragePort", "slurmdbd"),
        ("SlurmdPort", "slurmd"),
        ("SlurmctldPort", "slurmctld"),
    ):
        first, _, last = facts.value(key).partition("-")
        if first.isdigit() and (last or first).isdigit():
            taken |= dict.fromkeys(range(int(first), int(last or first) + 1), daemon)
    if port in taken:
        why = "IANA has assigned no port from 6717 to 6766."
        return must(
            "keeper's port", f"{port} is the port of {taken[port]}", why, _new_address(facts)
        )
    return ok("keeper's port", str(port))


def _answer_finding(who: str, trouble: str | None, facts: Facts) -> Finding:
    if trouble is None:
        return unknown(f"{who} answers", "no address to ask", "Set it first, as said above.")
    if not trouble:
        return ok(f"{who} answers", "yes, from this host")
    start = shell(f"systemctl start bftrainer-{who}")
    if who == "reader":
        why = "The page, metrics and 'bftrainer history' need it; trainers work without it."
        return consider("reader answers", trouble, why, start)
    if facts.plugin.loaded:
        why = f"Trainers stay held until it answers; see journalctl -u bftrainer-{who}."
        return must(f"{who} answers", trouble, why, start)
    return consider(f"{who} answers", trouble, "Start it when all else is well.", start)
