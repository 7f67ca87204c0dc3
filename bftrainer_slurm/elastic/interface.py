"""By which network interface a training's processes reach each other. Standard library only."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import MutableMapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

# For torch's gloo and TensorPipe, which take the address of the host's own name. NCCL does not: it
# looks for a fast interface by itself.
_VARIABLES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR, linux/sockios.h
_IPV6 = Path("/proc/net/if_inet6")


def choose_interface(environment: MutableMapping[str, str], address: str) -> None:
    """Let torch use the interface that has this host's ``address``, unless it finds one itself.

    It finds it by the host's own name, which on many nodes is 127.0.1.1 (Debian's default), or has
    no address. One that others can reach stays, as it may be a faster network's, and so does what
    the user has set.
    """
    missing = [name for name in _VARIABLES if name not in environment]
    if not missing or own_name_is_of_use():
        return
    interface = interface_of(address)
    if interface is not None:
        environment.update(dict.fromkeys(missing, interface))


def own_name_is_of_use() -> bool:
    """Whether others can reach the address that gloo finds by this host's own name.

    Like gloo, this takes the first address of the name that is this host's.
    """
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, _, _, _, place in found:
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(place)
            return not ip_address(str(place[0]).partition("%")[0]).is_loopback
    return False


def interface_of(address: str) -> str | None:
    """Return the name of this host's interface with an address, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                asked = struct.pack("256s", name.encode())
                answer = fcntl.ioctl(asking, _ADDRESS_OF_INTERFACE, asked)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    with suppress(OSError):  # without IPv6
        for line in _IPV6.read_text().splitlines():
            number, *_, name = line.split()
            if str(IPv6Address(int(number, 16))) == address.partition("%")[0]:
                return name
    return None
