"""Who we are to a server over HTTP: OAuth by the package, with our files for its tokens.

Discovery, registration, PKCE, refresh and more scope are the package's. What it does not do: it forgets when tokens
expire and where they are refreshed once the process ends; both are kept here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from secrets import compare_digest
from typing import Self
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

import anyio
import httpx2
from anyio.abc import SocketStream
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared import auth
from pydantic import AnyUrl, BaseModel

from nacre.errors import ToolError
from nacre.tools.mcp.client_types import Config, Forgotten, LoginNeeded, Show, TokenFile
from nacre.tools.tool_output import harmless

SECONDS_FOR_A_PERSON = 600
_MAX_REQUEST = 16_384
_UNAUTHORIZED = 401
_LONG_AGO = 1.0
_PAGE = b"<!doctype html><meta charset=utf-8><title>nacre</title><p>nacre has what it needs. You can close this window."


def silent_login(config: Config, file: TokenFile) -> httpx2.Auth:
    """Use the tokens that are there, and refresh them; whatever needs a person raises LoginNeeded."""
    record = file.read()
    if record.tokens is None:
        return _Refusing(config)

    async def ask_for_login(address: str) -> None:
        now = file.read()
        if file.stamp != storage.stamp and now.tokens is not None:
            raise Forgotten("it refuses the tokens that another process got")
        scope = " ".join(parse_qs(urlsplit(address).query).get("scope", []))
        granted = str((now.tokens or {}).get("scope") or scope)
        if not set(scope.split()) <= set(granted.split()):
            file.change(wanted=scope)
        elif "refresh_token" in (now.tokens or {}) and now.expires != _LONG_AGO:
            # It was refused before its time, or has none: the package refreshes only what has expired.
            file.change(expires=_LONG_AGO)
            raise Forgotten(f"it refuses the tokens: nacre mcp login {config.name}")
        raise LoginNeeded(config.name)

    provider, storage = _provider(config, file, redirect_uri=_redirect_uri(record.client), show=ask_for_login)
    return provider


class Interactive:
    """Logging in: a page that the user is shown, and a port of this machine to which it leads back.

    Used as a context; `auth` is what a connection then uses. `is_done` says whether tokens came of it.
    """

    def __init__(self, config: Config, file: TokenFile, *, show: Show, port: int = 0) -> None:
        self._config, self._file, self._show = config, file, show
        self._port = port or config.callback_port
        self._result: auth.AuthorizationCodeResult | ToolError | None = None
        self._answered = anyio.Event()
        self._state = ""
        self._storage: _Storage | None = None

    @property
    def is_done(self) -> bool:
        return self._storage is not None and self._storage.is_written

    async def __aenter__(self) -> Self:
        record = self._file.read()
        earlier = urlsplit(_redirect_uri(record.client)).port or 0
        self._listener = None
        if not self._port and earlier:
            with suppress(OSError):  # the client was registered with this port; another one takes another client
                self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=earlier)
        if self._listener is None:
            try:
                self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
            except OSError as error:
                raise ToolError(f"port {self._port} cannot be used for the answer: {error}") from error
        port = self._listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - this is not Django
        self.auth, self._storage = _provider(
            self._config,
            self._file,
            redirect_uri=f"http://127.0.0.1:{port}/callback",
            show=self._show_login,
            wait=self._wait,
        )
        self._storage.is_new = True
        self._storage.keeps_client = port == earlier
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._listener.serve, self._handle_request)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        if self._listener is not None:
            await self._listener.aclose()

    async def _show_login(self, address: str) -> None:
        """Lead the user to the page, and ask for what was wanted when nobody was there as well."""
        self._answered, self._result = anyio.Event(), None
        self._state = parse_qs(urlsplit(address).query)["state"][0]
        wanted = self._file.read().wanted or self._config.scope
        if wanted:
            parts = urlsplit(address)
            query = dict(parse_qsl(parts.query))
            query["scope"] = " ".join(dict.fromkeys(f"{query.get('scope', '')} {wanted}".split()))
            address = urlunsplit(parts._replace(query=urlencode(query)))
        await self._show(address)

    async def _wait(self) -> auth.AuthorizationCodeResult:
        with anyio.move_on_after(SECONDS_FOR_A_PERSON):
            await self._answered.wait()
        if isinstance(self._result, auth.AuthorizationCodeResult):
            return self._result
        raise self._result or ToolError("nobody logged in: the page did not lead back here in time")

    async def _handle_request(self, stream: SocketStream) -> None:
        """Read what the browser brings back; what does not come from our page is answered with nothing."""
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.move_on_after(10):
                data = b""
                while b"\r\n\r\n" not in data and len(data) < _MAX_REQUEST:
                    data += await stream.receive()
                target = data.split(b" ", 2)[1].decode(errors="replace") if data.startswith(b"GET /") else ""
                path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
                is_ours = compare_digest(query.get("state", [""])[0].encode(), self._state.encode())
                is_answer = path == "/callback" and is_ours and bool(query.keys() & {"code", "error"})
                status = b"200 OK" if is_answer else b"404 Not Found"
                body = _PAGE if is_answer else b""
                head = b"content-type: text/html\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n"
                await stream.send(b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, head, len(body), body))
                if not is_answer:
                    return
                given = {name: values[0] for name, values in query.items()}
                if "error" in given:
                    reason = given.get("error_description") or given["error"]
                    self._result = ToolError(f"the server refused: {harmless(reason)[:300]}")
                else:
                    code, state, issuer = given["code"], given.get("state"), given.get("iss")
                    self._result = auth.AuthorizationCodeResult(code=code, state=state, iss=issuer)
                self._answered.set()


def _provider(
    config: Config,
    file: TokenFile,
    *,
    redirect_uri: str,
    show: Show,
    wait: Callable[[], Awaitable[auth.AuthorizationCodeResult]] | None = None,
) -> tuple[OAuthClientProvider, _Storage]:
    storage = _Storage(config, file)
    metadata = auth.OAuthClientMetadata(client_name="nacre", redirect_uris=[AnyUrl(redirect_uri)])
    provider = OAuthClientProvider(
        config.url,
        metadata,
        storage,
        redirect_handler=show,
        callback_handler=wait or _nobody,
        # A client whose id is an address says there who it is.
        client_metadata_url=config.client_id if config.client_id.startswith("https://") else None,
    )
    # What the package does not ask for: when the tokens expire, and where they are refreshed.
    record, context = file.read(), provider.context
    storage.context, context.token_expiry_time = context, record.expires
    if record.issuer is not None:
        context.oauth_metadata = auth.OAuthMetadata.model_validate(record.issuer)
        context.auth_server_url = str(context.oauth_metadata.issuer)
    if record.resource is not None:
        context.protected_resource_metadata = auth.ProtectedResourceMetadata.model_validate(record.resource)
    return provider, storage


class _Storage:
    """The package's storage, in a TokenFile; `is_new` begins without tokens, until it is given some."""

    context: OAuthContext

    def __init__(self, config: Config, file: TokenFile) -> None:
        self._config, self._file = config, file
        self.stamp: tuple[int, int] | None = None
        self.is_new = False
        self.keeps_client = True
        self.is_written = False

    async def get_tokens(self) -> auth.OAuthToken | None:
        found = None if self.is_new else self._file.read().tokens
        self.stamp = self._file.stamp
        return None if found is None else auth.OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: auth.OAuthToken) -> None:
        self._change(
            tokens=_dump(tokens),
            expires=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            issuer=_dump(self.context.oauth_metadata),
            resource=_dump(self.context.protected_resource_metadata),
            wanted="",
        )
        self.is_new, self.is_written = False, True

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        config = self._config
        if config.client_id and not config.client_id.startswith("https://"):
            return auth.OAuthClientInformationFull(
                client_id=config.client_id,
                client_secret=config.client_secret or None,
                token_endpoint_auth_method="client_secret_basic" if config.client_secret else "none",
            )
        found = self._file.read().client if self.keeps_client else None
        return None if found is None else auth.OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: auth.OAuthClientInformationFull) -> None:
        self.keeps_client = True
        self._change(client=_dump(client_info))

    def _change(self, **fields: object) -> None:
        self._file.change(**fields)
        self.stamp = self._file.stamp


class _Refusing(httpx2.Auth):
    """No tokens: a server that wants some is reported in our words."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            if any(name.lower() == "authorization" for name in self._config.headers):
                raise ToolError("it refuses the authorization header of the configuration")
            raise LoginNeeded(self._config.name)


async def _nobody() -> auth.AuthorizationCodeResult:
    raise ToolError("nobody can log in here")


def _redirect_uri(client: dict[str, object] | None) -> str:
    """Where the user is led back to: as the client was registered."""
    uris = (client or {}).get("redirect_uris")
    return str(uris[0]) if isinstance(uris, list) and uris else "http://127.0.0.1/callback"


def _dump(model: BaseModel | None) -> dict[str, object] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)
