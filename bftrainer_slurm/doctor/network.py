"""The keeper and the controller: an address that nodes can use, and an answer there."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from bftrainer_slurm.doctor.facts import Answer, Facts
from bftrainer_slurm.doctor.finding import OURS, Change, Finding, consider, must, ok, shell, unknown

_RESTD = 6820  # slurmrestd's usual port, which slurm.conf does not name
_UNSET = "127.0.0.1:0"


def check(facts: Facts) -> Iterator[Finding]:
    """Look at the addresses, and whether something answers."""
    listen, said = facts.settings.listen, facts.option("keeper")
    line = facts.plugin.line
    if listen == _UNSET:
        why = "It is where the nodes reach the keeper, and where users' commands look for it."
        yield must("listen", "not set", why, Change(OURS, "listen", '"HOST:6740"'))
    if line is not None and not said:
        why = "The plugin refuses --bftrainer without it."
        change = facts.in_line("keeper", "HOST:6740")
        yield must("keeper=", "not set in the plugin's line", why, change)
    elif said and listen not in (_UNSET, said):
        why = "Elements look for the keeper in the wrong place."
        change = facts.in_line("keeper", listen)
        yield must("keeper=", f"{said}, and bftrainer.toml says {listen}", why, change)
    address = listen if listen != _UNSET else said
    for one in filter(None, address.split(",")):
        yield _reached_by_nodes(one, facts)
        yield _port(one, facts)
    yield _answers("keeper", facts.network.keeper, facts)
    yield _answers("controller", facts.network.controller, facts)
    yield _answers("reader", facts.network.reader, facts)


def _another(facts: Facts) -> Change:
    """Say where to write another address: if the plugin's line has it, it counts for all."""
    if facts.plugin.line is None:
        return Change(OURS, "listen", '"HOST:6740"')
    return facts.in_line("keeper", "HOST:6740")


def _reached_by_nodes(address: str, facts: Facts) -> Finding:
    host, title = address.rpartition(":")[0], "keeper's address"
    found = facts.network.resolved.get(host, ())
    if not found:
        why = "Nodes have to reach it by this name; check DNS or /etc/hosts."
        return must(title, f"{host} is not known here", why)
    inside = [one for one in found if ipaddress.ip_address(one).is_loopback]
    if inside:
        why = "Nodes would look for it on themselves. A name must mean the same address everywhere."
        found_here = host if host == inside[0] else f"{host} is {inside[0]} here"
        return must(title, f"{found_here}, a loopback address", why, _another(facts))
    return ok(title, f"{address} ({', '.join(found)})")


def _port(address: str, facts: Facts) -> Finding:
    said = address.rpartition(":")[2]
    port = int(said) if said.isdigit() else 0
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
        return must("keeper's port", f"{port} is the port of {taken[port]}", why, _another(facts))
    if port == 0:
        why = "A port that changes cannot be written into the plugin's line or a firewall's rules."
        return must("keeper's port", "any", why, Change(OURS, "listen", '"HOST:6740"'))
    return ok("keeper's port", str(port))


def _answers(who: str, answer: Answer | None, facts: Facts) -> Finding:
    if answer is None:
        return unknown(f"{who} answers", "no address to ask", "Set it first, as said above.")
    if answer.trouble is None:
        return ok(f"{who} answers", "yes, from this host")
    start = shell(f"systemctl start bftrainer-{who}")
    if who == "reader":
        why = "The page, metrics and 'bftrainer history' come from it; trainers do without."
        return consider("reader answers", answer.trouble, why, start)
    if facts.plugin.loaded:
        why = "Trainers are held until it does; journalctl -u bftrainer-" + who + " says more."
        return must(f"{who} answers", answer.trouble, why, start)
    return consider(f"{who} answers", answer.trouble, "Start it when all else is well.", start)
