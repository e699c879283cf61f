"""Who is asking, and what that reaches: the token decides, never what a request says of its sender.

A handler asks `agent(request)` for the agent, whose `sessions` are those that the caller may reach, and
`check_key(request, key)` for a key that it was given. One that takes OpenAI's `user` or our `session_id` asks
`session_for`, which says who is asking and which session is meant. Turns begin with `begin`. Every route has a line
in `FOR_GUESTS`; one without is the owner's alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from nacre.agent.ports import Emit
from nacre.channels.channel import InboundMessage, key_of
from nacre.errors import ContextOverflow, ProviderError, SessionBusy
from nacre.runtime import App
from nacre.runtime.access_tokens import Role, Token
from nacre.runtime.gateway.access import API
from nacre.runtime.gateway.gateway import BROKEN, SILENT
from nacre.runtime.structured_output import CALLER
from nacre.web.http_errors import Fault, fault_of
from nacre.web.running_turns import Revocations, Running, Turns

T = TypeVar("T")

ForGuests = Literal["public", "own", "no"]
FOR_GUESTS: Mapping[str, ForGuests] = {
    "/login": "public",
    "/logout": "own",
    "/openapi.json": "public",
    "/healthz": "public",
    "/readyz": "public",
    "/metrics": "no",
    "/static/{name}": "public",
    "/v1/models": "own",
    "/v1/models/{id:path}": "own",
    "/v1/chat/completions": "own",
    "/v1/responses": "own",
    "/v1/responses/{id}": "own",
    "/v1/embeddings": "own",
    "/api/sessions": "own",
    "/api/search": "own",
    "/api/sessions/{key}": "own",
    "/api/sessions/{key}/events": "own",
    "/api/sessions/{key}/messages": "own",
    "/api/sessions/{key}/messages/{n}": "no",
    "/api/sessions/{key}/stop": "own",
    "/api/sessions/{key}/fork": "own",
    "/api/sessions/{key}/archive": "own",
    "/api/sessions/{key}/unarchive": "own",
    "/": "own",
    "/index.{suffix}": "own",
    "/search": "own",
    "/search.{suffix}": "own",
    "/new": "own",
    "/side": "own",
    "/model/{key:key}": "no",
    "/s/{key:key}": "own",
    "/part/{key:key}": "own",
    "/use/{key:key}": "own",
    "/blob/{key:key}": "own",
    "/beside/{key:key}": "own",
    "/say/{key:key}": "own",
    "/turn/{key:key}": "own",
    "/do/{verb}/{key:key}": "own",
}
"""What a guest has of each address: what everybody has (public), their own sessions (own), or nothing (no)."""
_NOT_THEIRS = "only the owner of this agent may ask for this"
_TOO_LONG = "this conversation is too long for the model; start another session"
_LOCKED = "a turn is running in this session; wait until it ends, or stop it"


class Caller(Struct, frozen=True, kw_only=True):
    """Who sends a request.

    `token` is the name of the token, empty for NACRE_SERVE_TOKEN, and `digest` which one it is of those that had
    the name. `account` is what the keys of the caller's sessions have for it: the token, and for a user of an
    owner's token who is a guest both. A guest reaches these sessions of one agent.
    """

    role: Role = "owner"
    token: str = ""
    digest: str = ""
    account: str = ""
    agent: str = ""

    @classmethod
    def of(cls, token: Token) -> Caller:
        agent = token.agent if token.role == "guest" else ""
        return cls(role=token.role, token=token.name, digest=token.digest, account=token.name, agent=agent)

    @property
    def is_guest(self) -> bool:
        return self.role == "guest"

    @property
    def prefix(self) -> str:
        """How the keys of a guest's sessions begin."""
        return self.key().removesuffix("::")

    def key(self, *, session: str = "", user: str = "") -> str:
        """The key of one of the caller's sessions; what they say only chooses among these."""
        return key_of(InboundMessage(channel=API, account=self.account, chat=session, sender=user, id="", text=""))


NOBODY = Caller(role="guest", account="@")
"""A caller that has shown no token: no session is theirs."""


def caller_of(scope: Scope) -> Caller:
    """Who sends a request, by the token or the cookie that came with it."""
    found: Caller = scope["state"].get("caller", NOBODY)
    return found


def caller(request: Request) -> Caller:
    return caller_of(request.scope)


def check_user(request: Request, user: str | None) -> None:
    """Raise Fault for an empty `user` where users are guests: a person the front end does not know is not the owner."""
    are_guests = not caller(request).is_guest and request.app.state.settings().flag("serve.users_are_guests")
    if user == "" and are_guests:
        reason = "user must not be empty: each user is a guest (serve.users_are_guests); leave it out for the owner"
        raise Fault("usage", reason, param="user")


def session_for(request: Request, *, session: str = "", user: str = "") -> tuple[Caller, str]:
    """Who is asking for a session by its id or by OpenAI's `user`, and the key of that session; "" if neither is given.

    Both choose only among the sessions of the token. With `serve.users_are_guests` each user of an owner's token is
    a guest with sessions of their own, and is who asks.
    """
    who, app = caller(request), _whole(request)
    if user and not who.is_guest and request.app.state.settings().flag("serve.users_are_guests"):
        who = replace(who, role="guest", account=f"{who.token}@{user}", agent=app.name)
        CALLER.set(who.account)
        key = who.key(session=session)
    else:
        # A session and a user of the same name are two.
        key = who.key(session=session, user="" if session else user) if session or user else ""
    if key:
        _check(app, who, key)
    return who, key


def agent(request: Request, who: Caller | None = None) -> App:
    """The agent that a request is for, with the sessions that the caller reaches, or somebody else who asks.

    Raises Fault once it ends, since another may take its place.
    """
    who, app = who or caller(request), _whole(request)
    return app.for_guest(who.prefix) if who.is_guest else app


def check_key(request: Request, key: str) -> str:
    """The key of a session that the caller may reach; raises Fault for any other, in the same words, there or not."""
    _check(_whole(request), caller(request), key)
    return key


def begin(
    request: Request,
    work: Callable[[Emit], Awaitable[T]],
    *,
    key: str,
    who: Caller | None = None,
    is_watched: bool = True,
) -> Running[T]:
    """Begin a turn in a session, or without one (""); it is stopped if the caller's token is revoked.

    What happens in it is not emitted unless it is watched: then it is not sent from a worker, and a turn of a worker
    that ends can go to the next one.
    """
    who = who or caller(request)
    turns: Turns = request.app.state.turns
    revocations: Revocations = request.app.state.revocations
    kernel = _whole(request).kernel

    async def work_for_guest(emit: Emit) -> T:
        try:
            return await work(emit)
        except Exception as error:
            if not _detail_for_guest(error):
                raise
            raise fault_for(error, who) from error

    running = turns.start(work_for_guest if who.is_guest else work, is_watched=is_watched)

    def end() -> None:
        if key:
            kernel.stop(key)
        running.leave(stop=True)

    if who.token and running.task is not None:
        forget = revocations.add(who.token, who.digest, end)
        running.task.add_done_callback(lambda _: forget())
    return running


def fault_for(error: BaseException, who: Caller) -> Fault:
    """The problem that a caller gets for an error; guests learn nothing of the model's server, nor of the disk."""
    fault = fault_of(error)
    detail = _detail_for_guest(error) if who.is_guest else ""
    return Fault(fault.kind, detail, headers=fault.headers) if detail else fault


def _detail_for_guest(error: BaseException) -> str:
    """What a guest reads in place of what is wrong; "" if they may know it."""
    match error:
        case Fault():
            return ""
        case ContextOverflow():
            return _TOO_LONG
        case ProviderError():
            return SILENT
        case SessionBusy():
            return _LOCKED
        case _:
            return BROKEN if fault_of(error).status >= 500 else ""  # noqa: PLR2004 - the server's own failures


def guard_routes(routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """The same routes; those that are not for guests refuse them."""
    return [
        Route(route.path, partial(_refuse_guests, route.endpoint), methods=sorted(route.methods or ()))
        if isinstance(route, Route) and FOR_GUESTS.get(route.path, "no") == "no"
        else route
        for route in routes
    ]


async def _refuse_guests(handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    if caller(request).is_guest:
        raise Fault("forbidden", _NOT_THEIRS)
    return await handler(request)


def _whole(request: Request) -> App:
    found: App = request.app.state.agent
    if found.is_ending:
        raise Fault(
            "busy", f"the agent {found.name} is not running now; try again in a moment", headers={"retry-after": "1"}
        )
    return found


def _check(app: App, who: Caller, key: str) -> None:
    if not who.is_guest:
        return
    # The key may be another name of a session that is somebody else's, unless it has a session itself.
    is_own = key.startswith(who.prefix)
    if not is_own or not (app.known_session(key) or app.sessions.resolve(key).startswith(who.prefix)):
        raise Fault("not_found", f"there is no session {key!r:.200}; the keys of yours begin with {who.prefix!r}")
