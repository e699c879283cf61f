"""web_fetch: a page or file of the public web, as text."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from anyio import fail_after, to_thread
from msgspec import Struct

from nacre.agent.ports import Output, Scene
from nacre.errors import ToolError
from nacre.tools.functions import Function
from nacre.tools.tool_output import bounded, harmless
from nacre.tools.web.page_text import readable

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Response


import socket
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from anyio import getaddrinfo

# ---- which hosts may be fetched from


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


# ---- the tool


_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_FAILING = 400
_PORTS = {"http": 80, "https": 443}
_HEADERS = {"accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5", "accept-encoding": "gzip"}
_TEXTS = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|toml|javascript|x-ndjson|sql)\b|image/svg\+xml")
_PAGES = ("text/html", "application/xhtml+xml")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
_SNIFFED = 2048


class Limits(Struct, frozen=True, kw_only=True):
    """How long a fetch may take, in seconds, and how many bytes it may bring."""

    seconds: float = 30
    bytes: int = 2_000_000


class Fetched(Struct, frozen=True, kw_only=True):
    """What a server answered."""

    url: str
    status: int
    type: str
    charset: str
    data: bytes
    is_cut: bool


class Web:
    """The tool that fetches; `allow` has networks and hosts that may be fetched from though they are not public."""

    def __init__(self, *, allow: Iterable[str] = (), limits: Limits | None = None) -> None:
        self._gate = Gate(tuple(allow))
        self._limits = limits or Limits()

    async def web_fetch(self, url: str, scene: Scene) -> Output:
        """Fetch a web page or a text file and give its text; pages come as Markdown with their links.

        Args:
            url: the address, http or https
        """
        try:
            return await self._fetch(url, scene)
        except TimeoutError as error:
            raise ToolError(f"{url!r} did not answer within {self._limits.seconds:g} s") from error

    async def _fetch(self, url: str, scene: Scene) -> Output:
        """Fetch, and follow redirects; every address on the way is checked, and every other host asked about."""
        import httpx2  # noqa: PLC0415 - half a second, only for those who fetch

        # Without the environment's proxies: through one, nobody could know what is connected to.
        async with httpx2.AsyncClient(trust_env=False, timeout=self._limits.seconds) as client:
            at = _parse(url)
            for _ in range(_MAX_REDIRECTS + 1):
                # The time limit is the server's; a person who is asked may take longer.
                with fail_after(self._limits.seconds):
                    found = await self._ask_server(client, at)
                    if isinstance(found, Fetched):
                        return await to_thread.run_sync(_render, found, abandon_on_cancel=True)
                before, at = at, _parse(str(at.join(found)))
                if _origin(at) != _origin(before):
                    refusal = await scene.permit({"url": str(at)})
                    if refusal:
                        raise ToolError(f"{before} redirects to {at}: {refusal}")
        raise ToolError(f"{url!r} redirects more than {_MAX_REDIRECTS} times")

    async def _ask_server(self, client: AsyncClient, url: URL) -> Fetched | str:
        """Ask one server: what it answered, or where it sends us."""
        import httpx2  # noqa: PLC0415 - loaded by the caller

        addresses = await self._gate.addresses(url.host, url.port or _PORTS[url.scheme])
        failure: Exception | None = None
        for address in addresses[:_MAX_ADDRESSES]:
            request = client.build_request(
                "GET",
                url.copy_with(host=address, fragment=None),
                headers={**_HEADERS, "host": url.netloc.decode("ascii")},
                # The certificate must be the host's, though its address is what is connected to.
                extensions={"sni_hostname": url.host},
            )
            try:
                response = await client.send(request, stream=True)
                try:
                    return await self._read_answer(response, url)
                finally:
                    await response.aclose()
            except httpx2.ConnectError as error:
                failure = error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise ToolError(f"{str(url)!r} could not be fetched: {_reason(error)}") from error
        raise ToolError(f"{url.host!r} could not be connected to: {_reason(failure)}") from failure

    async def _read_answer(self, response: Response, url: URL) -> Fetched | str:
        # Look once more, at the address that is really connected.
        stream = response.extensions.get("network_stream")
        peer = stream.get_extra_info("server_addr") if stream is not None else None
        if peer:
            self._gate.check(ip_address(str(peer[0]).partition("%")[0]), url.host)
        if response.status_code in _REDIRECTS and "location" in response.headers:
            return str(response.headers["location"])
        data, is_cut = await _body(response, self._limits.bytes)
        kind, _, _ = response.headers.get("content-type", "").partition(";")
        return Fetched(
            url=str(url),
            status=response.status_code,
            type=kind.strip().lower(),
            charset=response.charset_encoding or "",
            data=data,
            is_cut=is_cut,
        )


def web_tool(*, allow: Iterable[str] = (), limits: Limits | None = None) -> Function:
    """The tool that fetches from the web."""
    return Function(Web(allow=allow, limits=limits).web_fetch, effect="read")


def _origin(url: URL) -> tuple[str, int | None]:
    """The host and an unusual port: what rules are about."""
    return url.host, None if url.port == _PORTS[url.scheme] else url.port


def _parse(url: str) -> URL:
    import httpx2  # noqa: PLC0415 - the same

    try:
        found = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, ValueError) as error:
        raise ToolError(f"{url!r} is not an address: {error}") from error
    if found.scheme not in _PORTS or not found.host:
        raise ToolError(f"{url!r} cannot be fetched: give an address that begins with http:// or https://")
    if found.userinfo:
        raise ToolError("an address with a password is not fetched: remove the password")
    return found


async def _body(response: Response, limit: int) -> tuple[bytes, bool]:
    """The bytes of an answer, unpacked, as far as they are wanted."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip", "deflate"}:
        raise ToolError(f"the server compressed its answer as {encoding!r}, which was not requested")
    unpacker = None if encoding in {"identity", ""} else zlib.decompressobj(wbits=47)
    found = bytearray()
    async for chunk in response.aiter_raw():
        # With a bound, so that a small answer cannot become a large one.
        try:
            found += chunk if unpacker is None else unpacker.decompress(chunk, limit + 1 - len(found))
        except zlib.error as error:
            raise ToolError(f"the server's answer cannot be decompressed: {error}") from error
        if len(found) > limit:
            return bytes(found[:limit]), True
    return bytes(found), False


def _render(found: Fetched) -> Output:
    heading = f"{found.url}\n{found.type or 'no content type'}, status {found.status}"
    if found.type and not _TEXTS.match(found.type) and found.type not in _PAGES:
        return Output(text=harmless(f"{heading}\n\n[{len(found.data):,} bytes that are not text: not shown]"))
    declared = _CHARSET.search(found.data[:_SNIFFED])
    charset = found.charset or (declared[1].decode("ascii", "replace") if declared else "utf-8")
    try:
        text = found.data.decode(charset, "replace").removeprefix("\ufeff")
    except LookupError:
        text = found.data.decode("utf-8", "replace")
    title = ""
    if found.type in _PAGES or (not found.type and text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))):
        title, text = readable(text, url=found.url)
    parts = [heading, *([title] if title else []), *(["[only the first part was read]"] if found.is_cut else [])]
    return bounded("\n".join(parts) + f"\n\n{text or '(no text)'}", failed=found.status >= _FAILING)


def _reason(error: Exception | None) -> str:
    return str(error) or type(error).__name__
