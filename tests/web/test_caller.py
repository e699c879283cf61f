"""Tokens and their roles: whose session a request means, and what a guest gets of each address."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import anyio
import httpx
import pytest
from starlette.routing import Route

from nacre.agent.ports import Context, Emit, Reply, Text
from nacre.config import Settings
from nacre.errors import (
    Conflict,
    ContextOverflow,
    LogDamaged,
    ModelUnavailable,
    ProviderError,
    RateLimited,
    SessionBusy,
)
from nacre.providers.scripted import Call, Scripted
from nacre.runtime.access_tokens import Role
from nacre.runtime.gateway.access import Guests, account_of
from nacre.runtime.structured_output import CALLER
from nacre.tools.functions import Function
from nacre.web.caller import FOR_GUESTS, Caller, fault_for
from nacre.web.server import application
from tests.web.conftest import TOKEN, Echo, Serve, Site, agent, tokens_of

KEY = "api:bob:mine::"


def guest(site: Site, name: str = "bob", **token: Any) -> httpx.Client:
    """A client with a guest's token."""
    secret = tokens_of(site.app).add(name, "guest", **token)
    return site.visitor({"Authorization": f"Bearer {secret}"})


def say(client: httpx.Client, text: str, **fields: Any) -> httpx.Response:
    body = {"model": "nacre", "messages": [{"role": "user", "content": text}], **fields}
    return client.post("/v1/chat/completions", json=body)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for what happens in the server; a minute is long enough on any machine."""
    until = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < until


def test_every_address_has_a_decision_about_guests(echo: Site) -> None:
    routes = application(echo.app, token=TOKEN, hosts=()).routes
    assert all(isinstance(route, Route) for route in routes)
    assert {route.path for route in routes if isinstance(route, Route)} == set(FOR_GUESTS)


@pytest.mark.parametrize(
    ("caller", "fields", "key"),
    [
        (Caller(), {"session": "desk"}, "api::desk::"),
        (Caller(), {"user": "ann"}, "api::::ann"),
        (Caller(account="bob"), {"session": "desk"}, "api:bob:desk::"),
        (Caller(account="bob"), {"session": "a:b%"}, "api:bob:a%3Ab%25::"),
        (Caller(account="@a:b"), {}, "api:@a%3Ab:::"),
    ],
)
def test_what_a_request_says_chooses_among_the_sessions_of_its_token(
    caller: Caller, fields: dict[str, str], key: str
) -> None:
    assert caller.key(**fields) == key


@pytest.mark.parametrize(
    ("key", "account"),
    [("api::desk::", ""), ("api:bob:x::", "bob"), ("api:bob:", "bob"), ("api:bob", ""), ("apix:bob:x", ""), ("k", "")],
)
def test_a_key_names_its_token(key: str, account: str) -> None:
    assert account_of(key) == account


def test_a_session_of_a_token_is_a_guests_unless_it_is_or_was_an_owners(echo: Site) -> None:
    tokens = tokens_of(echo.app)
    tokens.add("bob", "guest")
    tokens.add("desk", "owner")
    tokens.revoke("desk")
    is_guest = Guests(Settings({}, {}), is_owners=tokens.is_owners)
    keys = ("api:bob:x::", "api:gone:x::", "api:desk@ann:::", "api:@ann:::", "api:desk:x::", "api::x::", "api::::ann")
    assert [is_guest(key) for key in keys] == [True, True, True, True, False, False, False]


class Knowing(Echo):
    """A model that knows for whom it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.callers: list[str] = []

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.callers.append(CALLER.get())
        return await super().complete(context, emit=emit)


@pytest.mark.parametrize("fields", [{}, {"session_id": "desk"}], ids=["without a session", "in a session"])
def test_what_is_limited_for_each_caller_knows_for_whom_it_is(server: Serve, fields: dict[str, str]) -> None:
    model = Knowing()
    site = server(provider=model, settings={"serve": {"users_are_guests": True}})
    with guest(site) as bob:
        for client, more in ((site.client, {}), (bob, {}), (bob, {"user": "ann"}), (site.client, {"user": "ann"})):
            assert say(client, "hello", **fields, **more).status_code == 200
    assert model.callers == ["", "bob", "bob", "@ann"]


def test_a_guest_has_a_session_of_their_own(echo: Site) -> None:
    with guest(echo) as bob:
        answer = say(bob, "hello", session_id="desk")
        assert answer.headers["x-session-key"] == "api:bob:desk::"
        assert say(bob, "hello", user="ann").headers["x-session-key"] == "api:bob:::ann"
        assert [one["key"] for one in bob.get("/api/sessions").json()["items"]] == ["api:bob:::ann", "api:bob:desk::"]
    assert echo.said("api:bob:desk::") == [("user", "hello"), ("assistant", "echo: hello")]


def test_each_user_of_the_owners_token_can_be_a_guest(server: Serve) -> None:
    site = server(provider=Echo(), settings={"serve": {"users_are_guests": True}})
    keys = [
        unquote(say(site.client, "hello", **fields).headers.get("x-session-key", ""))
        for fields in ({"user": "ann"}, {"user": "ann", "session_id": "x"}, {"session_id": "x"}, {})
    ]
    assert keys == ["api:@ann:::", "api:@ann:x::", "api::x::", ""]
    assert [site.app.is_guest(key) for key in keys] == [True, True, False, False]


def test_an_empty_user_is_not_the_owner_where_users_are_guests(server: Serve) -> None:
    site = server(provider=Echo(), settings={"serve": {"users_are_guests": True}})
    bodies = [{"user": user, "session_id": "x", "model": "nacre"} for user in ("", None)]
    for path, said in (("completions", {"messages": [{"role": "user", "content": "hi"}]}), ("", {"input": "hi"})):
        url = f"/v1/chat/{path}" if path else "/v1/responses"
        answers = [site.client.post(url, json={**body, **said}) for body in bodies]
        assert [answer.status_code for answer in answers] == [400, 200]
        assert answers[0].json()["error"]["param"] == "user"
    with guest(site) as bob:
        assert say(bob, "hello", user="").status_code == 200


@pytest.mark.parametrize("target", ["cli:1", "api:eve:desk::", "api:bob:desk::"])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("GET", "/events"), ("DELETE", ""), ("POST", "/archive"), ("POST", "/stop")]
)
def test_a_guest_reaches_no_session_by_another_name(echo: Site, target: str, method: str, path: str) -> None:
    echo.sessions.add_message(target, "user", "hello")
    echo.sessions.add_alias(target, "api:bob:name::")
    with guest(echo) as bob:
        answer = bob.request(method, f"/api/sessions/api:bob:name::{path}")
    assert (answer.status_code, target in answer.text) == (404, False)
    assert [info.key for info in echo.sessions.list()] == [target]


# ---- what guests have


def test_a_guest_gets_the_tools_of_guests_with_and_without_a_session(server: Serve) -> None:
    def tool(name: str) -> Function:
        def run() -> str:
            """Do something."""
            return f"{name} ran"

        return Function(run, effect="read", name=name)

    model = Scripted([Call("private"), "done"] * 4)
    site = server(provider=model, tools={"private": tool("private")}, for_guests={"public": tool("public")})
    with guest(site) as bob:
        for client in (bob, site.client):
            assert say(client, "go", session_id="x").status_code == 200
            assert say(client, "go").status_code == 200
    assert [[spec.name for spec in one.tools] for one in model.contexts] == [["public"]] * 4 + [["private"]] * 4
    assert "there is no tool 'private'" in str(site.said("api:bob:x::"))
    assert "private ran" in str(site.said("api::x::"))


@pytest.mark.parametrize("path", ["/metrics"])
def test_what_is_about_everybody_is_not_for_guests(echo: Site, path: str) -> None:
    with guest(echo) as bob:
        assert bob.get(path).status_code == 403
        assert echo.client.get(path).status_code == 200


def test_a_guest_is_not_told_of_the_models_server(server: Serve) -> None:
    site = server(*[ProviderError("http://10.0.0.9:11434 answered 500")] * 5)
    with guest(site) as bob:
        answers = [
            say(bob, "hello", session_id="x"),
            say(bob, "hello", session_id="y", stream=True),
            bob.post(f"/say/{KEY}", data={"content": "x"}),
            bob.post(f"/say/{KEY}", data={"content": "y"}, headers={"Accept": "text/html"}),
        ]
    assert [answer.status_code for answer in answers] == [502] * 4
    assert not [answer.text for answer in answers if "10.0.0.9" in answer.text]
    assert "10.0.0.9" in say(site.client, "hello", session_id="x").text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ContextOverflow("the server at 10.0.0.9 takes 4096 tokens"), 400),
        (RateLimited("http://10.0.0.9 answered 429"), 429),
        (ModelUnavailable("http://10.0.0.9 does not answer"), 502),
        (LogDamaged("/srv/10.0.0.9/sessions/x.jsonl is damaged"), 500),
        (SessionBusy("process 7 of host 10.0.0.9 is at a turn"), 409),
        (RuntimeError("10.0.0.9"), 500),
    ],
)
def test_a_guest_learns_from_no_error_where_things_are(error: Exception, status: int) -> None:
    told, known = (fault_for(error, who) for who in (Caller(role="guest", account="bob"), Caller()))
    assert (told.status, known.status) == (status, status)
    assert "10.0.0.9" not in told.detail
    assert ("10.0.0.9" in known.detail) == (type(error) is not RuntimeError)


def test_a_guest_is_told_what_is_wrong_with_a_request() -> None:
    told = fault_for(Conflict("session 'api:bob:x::' is archived already"), Caller(role="guest", account="bob"))
    assert (told.status, told.detail) == (409, "session 'api:bob:x::' is archived already")


def test_why_the_daemon_cannot_work_is_told_to_the_owner(echo: Site) -> None:
    echo.app.trouble = "/srv/store cannot be used"
    with guest(echo) as bob, echo.visitor() as anybody:
        assert [one.get("/readyz").json()["reasons"] for one in (bob, anybody)] == [[], []]
    assert echo.client.get("/readyz").json()["reasons"] == ["/srv/store cannot be used"]


def test_a_new_session_of_the_page_is_in_the_guests_own(echo: Site) -> None:
    with guest(echo) as bob:
        assert 'action="/say/api:bob:' in bob.get("/new").text
    assert 'action="/say/web:' in echo.client.get("/new").text


def test_a_guest_does_not_choose_the_model(echo: Site) -> None:
    with guest(echo) as bob:
        assert "/model/" not in bob.get("/new").text
        assert bob.post(f"/turn/{KEY}", json={"content": "x", "model": "openai/dear"}).status_code == 403
        assert bob.post(f"/say/{KEY}", data={"content": "x"}).status_code == 303
        assert bob.post(f"/do/model/{KEY}", data={"model": "openai/dear"}).status_code == 403
        assert bob.get(f"/model/{KEY}").status_code == 403
        assert "/model/" not in bob.get(f"/s/{KEY}").text
    assert "/model/" in echo.client.get(f"/s/{KEY}").text
    assert "chosen_model" not in echo.sessions.get_meta(KEY)


def test_why_a_guest_got_no_answer_is_stored_in_the_words_that_they_were_told(server: Serve) -> None:
    site = server(ProviderError("the server at http://10.0.0.1 wants a key"))
    with guest(site) as bob:
        told = bob.post(f"/turn/{KEY}", json={"content": "hi"}).json()["detail"]
        assert f'role="alert">{told}</p>' in bob.get(f"/s/{KEY}").text
        assert "10.0.0.1" not in bob.get(f"/api/sessions/{quote(KEY)}/events?wait=no").text
    assert next(site.sessions.records(KEY, "x.failed")).data["reason"] == told


def test_a_guest_is_not_asked_whether_a_tool_may_run(server: Serve) -> None:
    def fetch() -> str:
        """Fetch something."""
        return "fetched"

    tools = {"fetch": Function(fetch, effect="run")}
    site = server(Call("fetch"), "done", for_guests=tools)
    with guest(site) as bob:
        answer = bob.post(f"/turn/{KEY}", data={"content": "go"})
        assert "event: question" not in answer.text
        assert bob.post(f"/do/answer/{KEY}", data={"id": "x", "answer": "yes"}).status_code == 403
    assert "fetched" not in str(site.said(KEY))


def test_a_guest_talks_to_one_agent_and_does_not_learn_of_others(root: Path) -> None:
    apps = {name: agent(root / name, Echo()) for name in ("main", "clerk")}
    apps["clerk"].name = "clerk"
    tokens = tokens_of(apps["main"])
    web = application(apps["main"], token=TOKEN, hosts=("x",), agents=apps, tokens=tokens)
    secret = tokens.add("bob", "guest", agent="clerk")

    async def run() -> None:
        transport = httpx.ASGITransport(app=web)
        headers = {"Authorization": f"Bearer {secret}"}
        async with (
            apps["main"].kernel,
            apps["clerk"].kernel,
            httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as bob,
        ):
            body = {"model": "nacre", "messages": [{"role": "user", "content": "hello"}], "session_id": "x"}
            for path in ("/v1/chat/completions", "/agents/clerk/v1/chat/completions"):
                assert (await bob.post(path, json=body)).status_code == 200
            for name in ("main", "nobody"):
                assert (await bob.get(f"/agents/{name}/api/sessions")).status_code == 404
            assert "clerk" not in (await bob.get("/v1/models")).text
            assert (await bob.post("/v1/chat/completions", json={**body, "model": "main"})).status_code == 404

    anyio.run(run)
    assert [apps[name].sessions.exists(KEY.replace("mine", "x")) for name in ("main", "clerk")] == [False, True]
    for app in apps.values():
        app.sessions.close()


# ---- tokens that come and go


def test_another_owners_token_reaches_everything_and_has_sessions_of_its_own(echo: Site) -> None:
    echo.sessions.add_message("cli:1", "user", "hello")
    secret = tokens_of(echo.app).add("phone", "owner")
    with echo.visitor({"Authorization": f"Bearer {secret}"}) as phone:
        assert phone.get("/api/sessions/cli:1").status_code == 200
        assert phone.get("/metrics").status_code == 200
        assert say(phone, "hello", session_id="x").headers["x-session-key"] == "api:phone:x::"


def test_a_token_that_is_revoked_opens_nothing_and_its_cookie_neither(echo: Site) -> None:
    with guest(echo) as bob, echo.visitor() as browser:
        secret = bob.headers["Authorization"].removeprefix("Bearer ")
        assert browser.post("/login", json={"token": secret}).status_code == 204
        assert [one.get("/api/sessions").status_code for one in (bob, browser)] == [200, 200]
        tokens_of(echo.app).revoke("bob")
        assert [one.get("/api/sessions").status_code for one in (bob, browser)] == [401, 401]
        with guest(echo) as again:
            # The name is the same, the cookie of the earlier token is not valid for it.
            assert [one.get("/api/sessions").status_code for one in (bob, browser, again)] == [401, 401, 200]


def test_a_cookie_is_not_valid_for_another_token(echo: Site) -> None:
    with guest(echo) as bob, guest(echo, "eve") as eve, echo.visitor() as browser:
        browser.post("/login", json={"token": bob.headers["Authorization"].removeprefix("Bearer ")})
        assert eve.get("/api/sessions").status_code == 200
        ((name, value),) = browser.cookies.items()
        for forged in (value.replace("bob", "eve"), value.replace(".bob", ""), value.replace(".bob", ".")):
            cookie = {"Cookie": f"{name}={forged}"}
            with echo.visitor(cookie) as thief:
                assert thief.get("/api/sessions").status_code == 401


def test_revoking_a_token_ends_its_streams(echo: Site) -> None:
    echo.sessions.add_message(KEY, "user", "hello")
    with guest(echo) as bob, bob.stream("GET", f"/api/sessions/{KEY}/events") as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event: msg"))
        tokens_of(echo.app).revoke("bob")
        # Otherwise a comment would come after a while, again and again.
        assert not any(line.startswith(":") for line in lines)


@pytest.mark.parametrize("role", ["guest", "owner"])
def test_revoking_a_token_stops_the_turns_that_were_begun_with_it(server: Serve, role: Role) -> None:
    class Waiting(Echo):
        async def complete(self, context: Context, *, emit: Emit) -> Reply:
            emit(Text("one moment"))
            await anyio.sleep_forever()
            raise AssertionError

    site = server(provider=Waiting())
    secret = tokens_of(site.app).add("bob", role)
    body = {"model": "nacre", "messages": [{"role": "user", "content": "hi"}], "session_id": "mine", "stream": True}
    with site.visitor({"Authorization": f"Bearer {secret}"}) as bob:
        with bob.stream("POST", "/v1/chat/completions", json=body) as stream:
            assert next(line for line in stream.iter_lines() if "one moment" in line)
        # Its client is gone, and the turn goes on.
        assert site.call(lambda: site.app.kernel.is_at_work(KEY))
        tokens_of(site.app).revoke("bob")
        wait_until(lambda: not site.call(lambda: site.app.kernel.is_at_work(KEY)))
    assert ("user", "hi") in site.said(KEY)


def test_revoking_one_token_leaves_what_others_have_open(echo: Site) -> None:
    other = KEY.replace("bob", "eve")
    echo.sessions.add_message(other, "user", "hello")
    with guest(echo) as bob, guest(echo, "eve") as eve, eve.stream("GET", f"/api/sessions/{other}/events") as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event: msg"))
        with bob.stream("GET", "/api/sessions") as _:
            tokens_of(echo.app).revoke("bob")
        echo.sessions.add_message(other, "user", "still here")
        assert next(line for line in lines if "still here" in line)
