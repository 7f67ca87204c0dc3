"""Networks for the nodes of a private cluster: each node has a namespace, a switch has another one.

Only running processes keep them. When the last process in a namespace has ended, however it ended,
the kernel removes the namespace's links; with the switch's, the host's end goes, too. Needs root
and iproute2.
"""

from __future__ import annotations

import json
import random
import subprocess
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network

from scripts.labcluster import LabError

PROGRAMS = ("ip",)
INTERFACE = "eth0"  # of every node
MOST_NODES = 250
# This process keeps a namespace, and others enter it by its process id.
HOLDER = ("unshare", "--net", "sleep", "infinity")

_RANGE = IPv4Network("198.18.0.0/15")  # for tests between networks (RFC 2544): no real host has one
_TRIES = 20


class NetworkError(LabError):
    """A network cannot be made or changed; the message has ip's error."""


def make_switch(holder: int) -> IPv4Network:
    """Make the switch in its namespace, connect the host, and return the free subnet it uses.

    Raises:
        NetworkError: ip fails, or no subnet is free.
    """
    command = ["ip", "-json", "-4", "route", "show", "table", "all"]
    routes = json.loads(subprocess.run(command, capture_output=True, text=True).stdout or "[]")
    taken = [IPv4Network(one["dst"]) for one in routes if one["dst"] != "default"]
    every = list(_RANGE.subnets(new_prefix=24))
    free = [one for one in every if not any(one.overlaps(other) for other in taken)]
    for subnet in random.sample(free, min(_TRIES, len(free))):
        _, second, third, _ = subnet.network_address.packed
        # Named after the subnet: if two clusters choose it at once, only one gets the name.
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
    """Connect a node's namespace to the switch by a link ``name``. Raises NetworkError as above."""
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
    """Remove a node's link, if it is there; the kernel alone would do it later."""
    with suppress(NetworkError):
        _ip(f"link delete {name}", holder=switch)


def set_link(switch: int, name: str, up: bool) -> None:
    """Cut a node's link at the switch, or restore it. Raises NetworkError: ip fails."""
    _ip(f"link set {name} {'up' if up else 'down'}", holder=switch)


def host_of(subnet: IPv4Network) -> IPv4Address:
    """Return the address at which nodes reach the host."""
    return subnet.network_address + 1


def node_of(subnet: IPv4Network, number: int) -> IPv4Address:
    """Return the address of node n``number``."""
    return subnet.network_address + 1 + number


def _ip(*lines: str, holder: int | None = None) -> None:
    within = () if holder is None else ("nsenter", f"--net=/proc/{holder}/ns/net")
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        [*within, "ip", "-batch", "-"], input=text, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise NetworkError(f"ip: {done.stderr.strip()}")
