"""Against server-side request forgery: only public hosts may be fetched from, and those that were allowed."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from anyio import getaddrinfo

from nacre.errors import ToolError

Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")


class Gate:
    """Decides which addresses may be connected to; `allow` has networks (`127.0.0.0/8`) and names of hosts."""

    def __init__(self, allow: Collection[str] = ()) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        for item in allow:
            with suppress(ValueError):  # it is the name of a host
                self._networks.append(ip_network(item, strict=False))
        self._hosts = frozenset(item.lower() for item in allow)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where a host may be reached; raises ToolError if any of its addresses is not for tools.

        One that is private among others that are public is a sign of somebody who tries.
        """
        try:
            rows = await getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"the host {host!r} cannot be resolved: {error}") from error
        unique = dict.fromkeys(ip_address(str(row[4][0]).partition("%")[0]) for row in rows)
        found = sorted(unique, key=lambda address: address.version)
        for address in found:
            self.check(address, host)
        return [str(address) for address in found]

    def check(self, address: Address, host: str) -> None:
        """Raise ToolError if an address is not public and was not allowed."""
        if host.lower() in self._hosts or any(address in network for network in self._networks):
            return
        if not all(one.is_global and not one.is_multicast for one in (address, *_within(address))):
            raise ToolError(
                f"{host!r} is at {address}, which is not a public address: it is not fetched "
                "unless the configuration allows it"
            )


def _within(address: Address) -> list[Address]:
    """The addresses that this one is another way of writing."""
    if isinstance(address, IPv4Address):
        return []
    found: list[Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    found += address.teredo or ()
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return found
