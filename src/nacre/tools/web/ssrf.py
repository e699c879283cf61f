"""Which hosts may be fetched from: public ones, and those that were allowed."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from anyio import getaddrinfo

from nacre.errors import ToolError

Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")


class Gate:
    """Decides which addresses may be connected to; `allow` has networks (`127.0.0.0/8`) and names of hosts."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._networks = [network for item in allow if (network := _network(item)) is not None]
        self._hosts = frozenset(item.lower() for item in allow)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where a host may be reached; raises ToolError if any of its addresses is not for tools.

        One that is private beside others that are public is a sign of somebody who tries.
        """
        found = await _resolved(host, port)
        for address in found:
            self.check(address, host)
        return [str(address) for address in found]

    def check(self, address: Address, host: str) -> None:
        """Raise ToolError if an address is not public and was not allowed."""
        if host.lower() in self._hosts or any(address in network for network in self._networks):
            return
        if not all(_is_public(one) for one in (address, *_within(address))):
            raise ToolError(
                f"{host!r} is at {address}, which is not a public address: it is not fetched "
                "unless the configuration allows it"
            )


async def _resolved(host: str, port: int) -> list[Address]:
    try:
        rows = await getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"the host {host!r} cannot be resolved: {error}") from error
    found = dict.fromkeys(ip_address(str(row[4][0]).partition("%")[0]) for row in rows)
    return sorted(found, key=lambda address: address.version)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast


def _within(address: Address) -> list[Address]:
    """The addresses that this one is another way of writing."""
    if isinstance(address, IPv4Address):
        return []
    found: list[Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    found += address.teredo or ()
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return found


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
