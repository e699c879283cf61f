"""web_fetch: a page or file of the public web, as text."""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from anyio import fail_after, getaddrinfo, to_thread

from nacre.agent.ports import Output, Scene
from nacre.errors import ToolError
from nacre.tools.functions import Function
from nacre.tools.tool_output import harmless, limit_output
from nacre.tools.web.page_text import readable

if TYPE_CHECKING:
    from httpx2 import URL, AsyncClient, Response

# ---- against server-side request forgery: only public hosts may be fetched from, and those that were allowed

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
        # The address, and those that it is another way of writing.
        every: list[Address] = [address]
        if isinstance(address, IPv6Address):
            every += [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
            every += address.teredo or ()
            every += [IPv4Address(int(address) & 0xFFFF_FFFF)] if address in _NAT64 else []
        if not all(one.is_global and not one.is_multicast for one in every):
            raise ToolError(
                f"{host!r} is at {address}, which is not a public address: it is not fetched "
                "unless the configuration allows it"
            )


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


def web_tool(*, allow: Iterable[str] = (), seconds: float = 30, max_bytes: int = 2_000_000) -> Function:
    """The tool that fetches, in so many seconds and bytes at most.

    `allow` has networks and hosts that may be fetched from though they are not public.
    """
    gate = Gate(tuple(allow))

    async def web_fetch(url: str, scene: Scene) -> Output:
        """Fetch a web page or a text file and give its text; pages come as Markdown with their links.

        Args:
            url: the address, http or https
        """
        import httpx2  # noqa: PLC0415 - half a second, only for those who fetch

        try:
            # Without the environment's proxies: through one, nobody could know what is connected to.
            async with httpx2.AsyncClient(trust_env=False, timeout=seconds) as client:
                at = _parse(url)
                # Every address on the way is checked, and every other host asked about.
                for _ in range(_MAX_REDIRECTS + 1):
                    # The time limit is the server's; a person who is asked may take longer.
                    with fail_after(seconds):
                        found = await _ask_server(client, at, gate, max_bytes=max_bytes)
                    if isinstance(found, Output):
                        return found
                    before, at = at, _parse(str(at.join(found)))
                    if _origin(at) != _origin(before) and (refusal := await scene.permit({"url": str(at)})):
                        raise ToolError(f"{before} redirects to {at}: {refusal}")
        except TimeoutError as error:
            raise ToolError(f"{url!r} did not answer within {seconds:g} s") from error
        raise ToolError(f"{url!r} redirects more than {_MAX_REDIRECTS} times")

    return Function(web_fetch, effect="read")


async def _ask_server(client: AsyncClient, url: URL, gate: Gate, *, max_bytes: int) -> Output | str:
    """Ask one server: what it answered, as the model is shown it, or where it sends us."""
    import httpx2  # noqa: PLC0415 - loaded by the caller

    addresses = await gate.addresses(url.host, url.port or _PORTS[url.scheme])
    failure: Exception | None = None
    for address in addresses[:_MAX_ADDRESSES]:
        try:
            async with client.stream(
                "GET",
                url.copy_with(host=address, fragment=None),
                headers={**_HEADERS, "host": url.netloc.decode("ascii")},
                # The certificate must be the host's, though its address is what is connected to.
                extensions={"sni_hostname": url.host},
            ) as response:
                return await _read_answer(response, url, gate, limit=max_bytes)
        except httpx2.ConnectError as error:
            failure = error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ToolError(f"{str(url)!r} could not be fetched: {_reason(error)}") from error
    raise ToolError(f"{url.host!r} could not be connected to: {_reason(failure)}") from failure


async def _read_answer(response: Response, url: URL, gate: Gate, *, limit: int) -> Output | str:
    # 1. Look once more, at the address that is really connected.
    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if peer:
        gate.check(ip_address(str(peer[0]).partition("%")[0]), url.host)
    if response.status_code in _REDIRECTS and "location" in response.headers:
        return str(response.headers["location"])

    # 2. The bytes, unpacked, as far as they are wanted.
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip", "deflate"}:
        raise ToolError(f"the server compressed its answer as {encoding!r}, which was not requested")
    unpacker = None if encoding in {"identity", ""} else zlib.decompressobj(wbits=47)
    data = bytearray()
    async for chunk in response.aiter_raw():
        # With a bound, so that a small answer cannot become a large one.
        try:
            data += chunk if unpacker is None else unpacker.decompress(chunk, limit + 1 - len(data))
        except zlib.error as error:
            raise ToolError(f"the server's answer cannot be decompressed: {error}") from error
        if len(data) > limit:
            break
    render = partial(_render, str(url), response, bytes(data[:limit]), is_cut=len(data) > limit)
    return await to_thread.run_sync(render, abandon_on_cancel=True)


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


def _render(url: str, response: Response, data: bytes, *, is_cut: bool) -> Output:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    heading = f"{url}\n{kind or 'no content type'}, status {response.status_code}"
    if kind and not _TEXTS.match(kind) and kind not in _PAGES:
        return Output(text=harmless(f"{heading}\n\n[{len(data):,} bytes that are not text: not shown]"))
    declared = _CHARSET.search(data[:_SNIFFED])
    charset = response.charset_encoding or (declared[1].decode("ascii", "replace") if declared else "utf-8")
    try:
        text = data.decode(charset, "replace").removeprefix("\ufeff")
    except LookupError:
        text = data.decode("utf-8", "replace")
    title = ""
    if kind in _PAGES or (not kind and text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))):
        title, text = readable(text, url=url)
    parts = [heading, *([title] if title else []), *(["[only the first part was read]"] if is_cut else [])]
    return limit_output("\n".join(parts) + f"\n\n{text or '(no text)'}", failed=response.status_code >= _FAILING)


def _reason(error: Exception | None) -> str:
    return str(error) or type(error).__name__
