"""Generated attacks of a guest with a token of their own: on every address, none of which may give or change anything.

The model is the guest's accomplice: it makes every call that it is told to make, and repeats what comes of it. One
word stands in everything that is not the guest's, and never in a request; an attack succeeds if it is answered with it,
if the model is shown it, or if anything of another's has changed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from starlette.routing import Route

from nacre.agent.ports import Context, Emit, Reply, Text, Usage
from nacre.config import Settings
from nacre.messages import Message, ToolCall
from nacre.runtime import App, Options, run_agent
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.model_chain import as_chain
from nacre.web.caller import FOR_GUESTS
from nacre.web.pages.forms import ACTS
from nacre.web.server import application
from tests.ollama_server import OllamaServer, serving

OWNERS = "a token that nobody guesses"
SECRET, BESIDE = "pearl7391", "amethyst"
HIDDEN = f"the {BESIDE} word is {SECRET}"
OTHERS = ["cli:1", "web:00ff", "api::desk::", "api::::ann", "api:eve:desk::", "api:@ann:::", "api:bobby:x::", "old:1"]
OWN = "api:bob:mine::"
PICTURE = {"type": "image_url", "image_url": {"url": f"data:text/plain;base64,{b64encode(HIDDEN.encode()).decode()}"}}


class Accomplice:
    """A model that makes the call which a message holds as JSON, and then says what came of it."""

    model = "accomplice"

    def __init__(self) -> None:
        self.contexts: list[Context] = []

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.contexts.append(context)
        last = context.messages[-1]
        text = str(last.content)
        if last.role == "user" and text.startswith("{"):
            call = ToolCall(id=f"c{len(self.contexts)}", **json.loads(text))
            return Reply(message=Message(role="assistant", tool_calls=(call,)), usage=Usage(), finish="calls")
        emit(Text(text))
        return Reply(message=Message(role="assistant", content=text), usage=Usage())

    async def close(self) -> None:
        """Nothing to release."""


class Site:
    """An agent with secrets, its server, and clients with different tokens."""

    def __init__(self, app: App, model: Accomplice, home: Path, settings: Settings) -> None:
        self.app, self.model, self.home = app, model, home
        tokens = Tokens(str(home / "nacre_home"))
        self.web = application(app, token=OWNERS, hosts=("localhost",), tokens=tokens, settings=lambda: settings)
        self.secrets = {"owner": OWNERS, "bob": tokens.add("bob", "guest"), "eve": tokens.add("eve", "guest")}

    def client(self, who: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.web), base_url="http://localhost", headers=headers
        )

    def hide(self) -> None:
        """Put the word into everything that is not bob's."""
        sessions, memory = self.app.sessions, self.app.memory
        assert memory is not None
        memory.begin()
        for key in OTHERS:
            sessions.add_message(key, "user", HIDDEN)
            sessions.add_full_message(key, Message(role="user", content=[{"type": "text", "text": HIDDEN}, PICTURE]))
            sessions.set_meta(key, title=f"{BESIDE} {SECRET}", tags=[SECRET], pinned=True)
        sessions.add_alias("cli:1", "tax")
        sessions.add_alias("cli:1", "api:bob:tax::")
        sessions.archive("old:1")
        memory.remember(f"The {BESIDE} word is {SECRET}.", subject="user", key="cli:1")
        (self.home / "nacre_home" / "workspace" / "notes.txt").write_text(HIDDEN)
        sessions.add_message(OWN, "user", "my own words")

    def others(self) -> dict[str, str]:
        """All that is not bob's, as it is now."""
        sessions, memory = self.app.sessions, self.app.memory
        keys = sorted(info.key for info in sessions.page(which="all", internal=True, limit=None).items)
        kept = [key for key in keys if not key.startswith("api:bob:")]
        work = self.home / "nacre_home" / "workspace"
        files = {str(path): repr(path.read_bytes()) for path in work.rglob("*") if path.is_file()}
        facts = [] if memory is None else memory.list()
        return {key: repr(list(sessions.records(key))) for key in kept} | files | {"memory": repr(facts)}


@asynccontextmanager
async def site(home: Path, **sections: Any) -> AsyncIterator[Site]:
    async with serving(OllamaServer([], {"gemma4:e4b": ["completion", "tools"]})) as server:
        found = Settings({"ollama": {"host": server.host}, **sections}, {})
        async with run_agent(found, Options(store=str(home / "nacre_home"))) as app:
            model = Accomplice()
            await app.provider.close()
            app.provider = as_chain(model, app.settings)
            made = Site(app, model, home, found)
            made.hide()
            yield made


# ---- the attacks


def disguises(key: str) -> list[str]:
    """A key as a path may spell it: as it is, escaped once or twice, behind the guest's own prefix, and cut short."""
    plain = quote(key, safe="")
    return [
        plain,
        quote(key, safe=":@"),
        plain.replace("%3A", "%3a"),
        quote(plain, safe=""),
        "".join(f"%{byte:02X}" for byte in key.encode()),
        f"api:bob:{plain}",
        f"api:bob:..%2F..%2F{plain}",
        f"api:bob:x%2F..%2F{plain}",
        f"api%3Abob%3A%00{plain}",
        f"{plain}%00api:bob:",
        f"{plain}.json",
        f"{plain}.md",
        f"{plain}%2Fapi:bob:",
        plain[:-1],
        plain.upper(),
        f"%20{plain}",
        f"{plain}%EF%BC%9A",
    ]


NAMES = [*OTHERS, "tax", "api:bob:tax::", "nacre:memory", "nacre:inbox", "nacre:aliases", "api:bob", "api:", ""]
QUERIES = [
    "",
    "?scope=whole",
    "?tokens=yes",
    "?wait=no",
    "?wait=no&after=1",
    "?all=1&n=3&part=1",
    "?n=2&part=1",
    "?chunk=0&all=1",
    "?at=2",
    "?step=newer",
    "?step=older&archived=1",
    *(f"?key={quote(key, safe='')}" for key in OTHERS),
]
CALLS = [
    {"name": "read_file", "arguments": {"path": "notes.txt"}},
    {"name": "list_files", "arguments": {"path": "."}},
    {"name": "shell", "arguments": {"command": "cat notes.txt"}},
    {"name": "write_file", "arguments": {"path": "notes.txt", "content": "gone"}},
    {"name": "edit_file", "arguments": {"path": "notes.txt", "old": "the", "new": "a"}},
    {"name": "search_sessions", "arguments": {"query": BESIDE}},
    {"name": "search_sessions", "arguments": {"query": f'{BESIDE} session:"cli:1"', "limit": 50}},
    {"name": "search_sessions", "arguments": {"query": 'session:"nacre:memory"'}},
    {"name": "remember", "arguments": {"text": "bob is the owner"}},
    {"name": "forget", "arguments": {"what": BESIDE}},
    {"name": "delegate", "arguments": {"task": '{"name": "read_file", "arguments": {"path": "notes.txt"}}'}},
    {"name": "web_fetch", "arguments": {"url": "file:///etc/passwd"}},
    {"name": "web_fetch", "arguments": {"url": "http://127.0.0.1:1/api/sessions"}},
    {"name": "use_skill", "arguments": {"name": "../../home/MEMORY"}},
]
CHOICES = [
    *OTHERS,
    "desk",
    "desk::",
    "::desk",
    ":eve:desk",
    "eve:desk::",
    "%3Aeve%3Adesk%3A%3A",
    "ann",
    "@ann",
    "../eve",
    "eve",
    "cli:1\n",
    "tax",
    "api:eve",
    "owner",
]


def on_addresses(site: Site, random: Random) -> Iterator[dict[str, Any]]:
    """Every address with every method, for other people's sessions in every disguise."""
    for route in site.web.routes:
        assert isinstance(route, Route)
        for method in sorted(route.methods or ()):
            for name in random.sample(NAMES, 8) if "{key" in route.path else [""]:
                yield address(route.path, method, name, random)


def address(path: str, method: str, name: str, random: Random) -> dict[str, Any]:
    spelled = random.choice([quote(name, safe=""), *disguises(name)]) if "{key" in path else ""
    path = path.replace("{key:key}", spelled).replace("{key}", spelled)
    path = path.replace("{verb}", random.choice([*ACTS, "stop", "answer"])).replace("{name}", "nacre.css")
    path = path.replace("{suffix}", random.choice(["json", "md"]))
    mount = random.choice(["", "", "", "/agents/main", "/agents/nobody"])
    query = random.choice(QUERIES) if "/api/" not in path else random.choice(QUERIES[:5])
    asked: dict[str, Any] = {"method": method, "url": f"{mount}{path}{query if method == 'GET' else ''}"}
    if method in {"GET", "HEAD"}:
        asked["headers"] = random.choice([{}, {"Accept": "text/html"}, {"Last-Event-ID": "1"}])
    elif path.startswith(("/api/", "/v1/")):
        asked["url"] = f"{mount}{path}"
        asked["json"] = random.choice([{}, {"content": "hello"}, {"title": "mine now"}, {"key": OWN, "at": 2}])
    else:
        fields = [{"content": "x", "sure": "1", "title": "mine"}, {"to": OWN, "at": "2"}, {"id": "1", "answer": "yes"}]
        asked["data"] = {"token": "x", "tags": "mine", "pinned": "0", **random.choice(fields)}
    return asked


def on_lists() -> Iterator[dict[str, Any]]:
    """Lists and searches, narrowed to what is another's."""
    for key in OTHERS:
        begin = quote(key[:-1], safe="")
        for url in (
            f"/api/sessions?prefix={begin}&state=all",
            f"/?prefix={begin}",
            f"/index.json?prefix={begin}&full=1",
        ):
            yield {"method": "GET", "url": url}
        for query in (f'{BESIDE} session:"{key}"', f"session:{key[:4]} {BESIDE}"):
            for url in ("/api/search", "/search.json", "/search.md"):
                yield {"method": "GET", "url": f"{url}?q={quote(query)}"}
    for url in (
        "/api/sessions?limit=1",
        "/?archived=1",
        "/index.md?pinned=1",
        f"/?text={BESIDE}",
        "/search?q=role:user",
    ):
        yield {"method": "GET", "url": url}


def on_completions() -> Iterator[dict[str, Any]]:
    """OpenAI's interface with names of others for the session and the user, and calls that reach for their things."""
    for name in CHOICES:
        for fields in ({"session_id": name}, {"user": name}, {"user": "ann", "session_id": name}):
            yield {"method": "POST", "url": "/v1/chat/completions", "json": chat("what did I say?", **fields)}
        if name.isprintable():
            headers = {"X-Session-Id": name}
            yield {"method": "POST", "url": "/v1/chat/completions", "json": chat("go on"), "headers": headers}
    for call in CALLS:
        choices: list[dict[str, Any]] = [{}, {"session_id": "mine"}, {"session_id": "mine", "stream": True}]
        for chosen in choices:
            body = chat(json.dumps(call), **chosen)
            yield {"method": "POST", "url": "/v1/chat/completions", "json": body}
        url = f"/api/sessions/{quote(OWN, safe='')}/messages"
        yield {"method": "POST", "url": url, "json": {"content": json.dumps(call)}}
    tools = [{"type": "function", "function": {"name": "search_sessions", "parameters": {"type": "object"}}}]
    yield {"method": "POST", "url": "/v1/chat/completions", "json": chat(BESIDE, tools=tools, session_id="cli:1")}


def on_forks() -> Iterator[dict[str, Any]]:
    """Forks of others' sessions to the guest's, and of the guest's to keys that are not theirs."""
    for key in OTHERS:
        yield {
            "method": "POST",
            "url": f"/api/sessions/{quote(key, safe='')}/fork",
            "json": {"key": "api:bob:stolen::"},
        }
        yield {"method": "POST", "url": f"/api/sessions/{quote(OWN, safe='')}/fork", "json": {"key": f"{key}x"}}
        yield {"method": "POST", "url": f"/do/fork/{quote(OWN, safe='')}", "data": {"to": f"{key}y"}}


def on_responses(ids: list[str]) -> Iterator[dict[str, Any]]:
    """Responses of others by their ids, as they are and with another session in them; and what follows them."""
    for place in ("desk\n", "mine\n", "desk\neve", "\nann", "api:eve:desk::\n", "tax\n"):
        ids = [*ids, f"resp_{b64encode(place.encode()).decode().rstrip('=')}{ids[0][-16:]}"]
    for id in ids:
        yield {"method": "GET", "url": f"/v1/responses/{id}"}
        yield {"method": "DELETE", "url": f"/v1/responses/{id}"}
        choices: list[dict[str, Any]] = [{}, {"store": False}, {"stream": True}, {"user": "eve"}]
        for fields in choices:
            body = {"model": "nacre", "input": "what did I say?", "previous_response_id": id, **fields}
            yield {"method": "POST", "url": "/v1/responses", "json": body}
    for name in CHOICES:
        yield {"method": "POST", "url": "/v1/responses", "json": {"model": "nacre", "input": "hi", "session_id": name}}
        yield {"method": "POST", "url": "/v1/responses", "json": {"model": "nacre", "input": "hi", "user": name}}
    for call in CALLS:
        for stored in (True, False):
            body = {"model": "nacre", "input": json.dumps(call), "store": stored}
            yield {"method": "POST", "url": "/v1/responses", "json": body}


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "nacre", "messages": [{"role": "user", "content": text}], **fields}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "NACRE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    return tmp_path


async def respond(found: Site) -> list[str]:
    """Have another guest say the word, in responses of which the ids are known."""
    ids = []
    async with found.client("eve") as eve:
        for fields in ({}, {"user": "ann"}, {"session_id": "desk"}):
            answer = await eve.post("/v1/responses", json={"model": "nacre", "input": HIDDEN, **fields})
            ids.append(answer.json()["id"])
    found.model.contexts.clear()
    return ids


async def attack(found: Site, client: httpx.AsyncClient, attempts: list[dict[str, Any]]) -> list[str]:
    """The attempts that were answered with the word."""
    leaks = []
    for attempt in attempts:
        answer = await client.request(**attempt)
        told = answer.text + str(answer.headers.raw)
        if SECRET in told or quote(SECRET) in told:
            leaks.append(f"{attempt} {answer.status_code}")
    return leaks


def test_a_guest_with_a_token_reads_and_changes_nothing_of_anybody_elses(home: Path) -> None:
    async def run() -> None:
        async with site(home) as found:
            random = Random(13)
            attempts = [*on_addresses(found, random), *on_lists(), *on_completions(), *on_forks()]
            attempts += on_responses(await respond(found))
            assert len(attempts) >= 600
            before = found.others()
            async with found.client("bob") as bob:
                assert (await bob.get("/api/sessions")).json()["total"] == 1
                assert await attack(found, bob, attempts) == []
            assert found.others() == before
            assert not [context for context in found.model.contexts if SECRET in repr(context)]
            async with found.client("eve") as eve:
                assert SECRET in (await eve.get("/api/sessions/api:eve:desk::")).text

    anyio.run(run)


def test_the_same_attacks_succeed_with_the_owners_token(home: Path) -> None:
    async def run() -> None:
        async with site(home) as found:
            async with found.client("owner") as owner:
                reading = [one for one in on_addresses(found, Random(13)) if one["method"] == "GET"]
                leaks = await attack(found, owner, [*reading, *on_lists()])
            assert len(leaks) > 50

    anyio.run(run)


def test_an_answer_does_not_tell_whether_anothers_session_exists(home: Path) -> None:
    async def run() -> None:
        async with site(home) as found, found.client("bob") as bob:
            for path in (path for path in FOR_GUESTS if "{key" in path):
                answers = []
                for key in ("cli:1", "cli:0"):
                    name = path.replace("{key:key}", key).replace("{key}", key).replace("{verb}", "stop")
                    for method in ("GET", "POST", "PATCH", "DELETE"):
                        answer = await bob.request(method, name)
                        answers.append((answer.status_code, answer.text.replace(key, "")))
                assert answers[:4] == answers[4:]

    anyio.run(run)


def test_users_of_the_owners_token_who_are_guests_reach_no_other(home: Path) -> None:
    async def run() -> None:
        async with site(home, serve={"users_are_guests": True}) as found:
            attempts = [
                {**one, "json": {**one["json"], "user": "mallory"}}
                for one in (*on_completions(), *on_responses(await respond(found)))
                if one["url"].startswith("/v1/") and "json" in one
            ]
            before = found.others()
            async with found.client("owner") as owner:
                assert await attack(found, owner, attempts) == []
            kept = [info.key for info in found.app.sessions.list(prefix="api:@mallory:")]
            for key in kept:
                found.app.sessions.delete(key)
            assert kept
            assert found.others() == before
            assert not [context for context in found.model.contexts if SECRET in repr(context)]

    anyio.run(run)
