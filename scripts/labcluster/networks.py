"""Networks for the nodes of a private cluster: a namespace each, joined by a switch in another one.

Only running processes keep them: when the last one in a namespace has ended, however it ended, the
kernel takes its links away, and with the switch's the host's own end. Needs root and iproute2.
"""

from __future__ import annotations

import json
import random
import subprocess
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, ip_network
from pathlib import Path

from scripts.labcluster import LabError

PROGRAMS = ("ip",)
INTERFACE = "eth0"  # of every node
MOST_NODES = 250
# Keeps a namespace: whatever is to run in it enters by this process.
HOLDER = ("unshare", "--net", "sleep", "infinity")

_RANGE = IPv4Network("198.18.0.0/15")  # for tests between networks (RFC 2544): nobody's own
_TRIES = 20


class NetworkError(LabError):
    """A network cannot be made or changed; the message has ip's words."""


def is_apart(holder: int) -> bool:
    """Return whether this process has its namespace already."""
    return Path(f"/proc/{holder}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()


def make_switch(holder: int) -> IPv4Network:
    """Make the switch in its namespace and plug the host in; return the subnet, a free one.

    Raises:
        NetworkError: ip does not do it, or no subnet is free.
    """
    taken = _routes()
    every = list(_RANGE.subnets(new_prefix=24))
    free = [one for one in every if not any(one.overlaps(other) for other in taken)]
    for subnet in random.sample(free, min(_TRIES, len(free))):
        _, second, third, _ = subnet.network_address.packed
        # Named for the subnet: of two clusters that choose it at once only one gets the name.
        link = f"bftlab-{second}-{third}"
        try:
            _ip(f"link add {link} type veth peer name uplink netns {holder}")
        except NetworkError as error:
            if "File exists" in str(error):
                continue
            raise
        _ip(f"address add {host_of(subnet)}/24 dev {link}", f"link set {link} up")
        _ip(
            "link add switch type bridge forward_delay 0",
            "link set switch up",
            "link set uplink master switch up",
            holder=holder,
        )
        return subnet
    raise NetworkError(f"no subnet of {_RANGE} is free")


def plug_in(switch: int, holder: int, name: str, address: IPv4Address) -> None:
    """Join a node's namespace to the switch by a link ``name``. Raises NetworkError as above."""
    _ip(
        f"link add {name} type veth peer name {INTERFACE} netns {holder}",
        f"link set {name} master switch up",
        holder=switch,
    )
    _ip(
        "link set lo up",
        f"address add {address}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
        holder=holder,
    )


def unplug(switch: int, name: str) -> None:
    """Take a node's link away, if it is there; the kernel does so in its own time."""
    with suppress(NetworkError):
        _ip(f"link delete {name}", holder=switch)


def set_link(switch: int, name: str, up: bool) -> None:
    """Cut a node's link at the switch, or mend it. Raises NetworkError: ip does not do it."""
    _ip(f"link set {name} {'up' if up else 'down'}", holder=switch)


def host_of(subnet: IPv4Network) -> IPv4Address:
    """Return where nodes reach the host."""
    return subnet.network_address + 1


def node_of(subnet: IPv4Network, number: int) -> IPv4Address:
    """Return the address of node n``number``."""
    return subnet.network_address + 1 + number


def _routes() -> list[IPv4Network]:
    done = subprocess.run(
        ["ip", "-json", "-4", "route", "show", "table", "all"], capture_output=True, text=True
    )
    found = [str(route["dst"]) for route in json.loads(done.stdout or "[]")]
    return [IPv4Network(ip_network(dst)) for dst in found if dst != "default"]


def _ip(*lines: str, holder: int | None = None) -> None:
    within = () if holder is None else ("nsenter", f"--net=/proc/{holder}/ns/net")
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        [*within, "ip", "-batch", "-"], input=text, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise NetworkError(f"ip: {done.stderr.strip()}")
