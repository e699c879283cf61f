"""Who talks while the gateway is killed: people on IRC, on Matrix and over HTTP, and the model that answers them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import httpx2

from nacre.channels.irc_lines import Line, parse
from tests.channels.test_matrix import Person
from tests.ollama_server import Answer, OllamaServer, called, done, said

TOKEN = "for the campaign"  # noqa: S105 - of a server that lives for a test
MODEL = "parrot"
_IMPATIENT = 0.1
_THINKING = 0.02
"""Seconds for a piece of an answer, so that words come in the middle of a turn, too."""
_ANSWER = re.compile(r"re:(\S+)")


def words_in(text: str) -> list[str]:
    """The words that an answer is to."""
    return _ANSWER.findall(text)


class Parrot(OllamaServer):
    """A model that says back all that was said since it last answered; asked something (`?`), it lists files first."""

    def __init__(self) -> None:
        super().__init__((), {MODEL: ("completion", "tools")})

    def answer(self, path: str, body: Mapping[str, Any]) -> Answer:
        self.requests.clear()
        self.heads.clear()
        if path != "/api/chat":
            return super().answer(path, body)
        return Answer(chunks=(_spoken(body["messages"]), done()), pause=_THINKING)


def _spoken(messages: Sequence[Mapping[str, Any]]) -> bytes:
    finals = [at for at, one in enumerate(messages) if one["role"] == "assistant" and not one.get("tool_calls")]
    new = messages[finals[-1] + 1 :] if finals else messages
    words = [str(one["content"]) for one in new if one["role"] == "user"]
    has_looked = any(one["role"] == "tool" for one in new)
    if any(word.endswith("?") for word in words) and not has_looked:
        return called("list_files", {})
    return said(" ".join(f"re:{word}" for word in words))


class Change:
    """Lets tasks wait until something that others bring about is so."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def happens(self) -> None:
        self._event.set()
        self._event = anyio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._event.wait()


# ---- IRC


class OnIrc:
    """Somebody on IRC, who is in the bot's channel to see it come and go, and talks to it alone."""

    def __init__(self, nick: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.nick, self.said, self.heard = nick, list[str](), list[str]()
        self._reader, self._writer = reader, writer
        self._bot, self._partings, self._fences, self._change = "", 0, 0, Change()

    async def listen(self) -> None:
        while data := await self._reader.readline():
            line = parse(data)
            if line is not None:
                self._take(line)
                self._change.happens()

    def _take(self, line: Line) -> None:
        match line.command:
            case "PING":
                self._write(f"PONG :{line.param(-1)}")
            case "PONG":
                self._fences += 1
            case "JOIN" if line.nick != self.nick:
                self._bot = line.nick
            case "QUIT" if line.nick == self._bot:
                self._bot, self._partings = "", self._partings + 1
            case "PRIVMSG":
                self.heard.append(line.param(-1))
            case _:
                pass

    async def talk(self, groups: Sequence[Sequence[str]]) -> None:
        """Say words, each group when the last was answered or the bot came back, and others until one is answered."""
        for group in groups:
            await self._ask(group)
        number = 0
        while not await self._ask([f"over{number}"]):
            number += 1

    async def _ask(self, group: Sequence[str]) -> bool:
        """Whether all was answered; what was said to somebody who then died may be lost."""
        await self._change.until(lambda: bool(self._bot))
        before = self._partings
        for word in group:
            self.said.append(word)
            self._write(f"PRIVMSG {self._bot} :{word}")
        await self._change.until(lambda: self._partings > before or self._has_answers(group))
        return self._has_answers(group)

    def _has_answers(self, group: Sequence[str]) -> bool:
        return set(group) <= {word for text in self.heard for word in words_in(text)}

    async def hear_all(self) -> None:
        """Wait until all has been heard that the server has for this person."""
        before = self._fences
        self._write("PING :all")
        await self._change.until(lambda: self._fences > before)

    def _write(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())


@asynccontextmanager
async def on_irc(port: int, nick: str, channel: str) -> AsyncIterator[OnIrc]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"NICK {nick}\r\nUSER {nick} 0 * :{nick}\r\nJOIN {channel}\r\n".encode())
        while b" 366 " not in await reader.readline():
            pass
        async with anyio.create_task_group() as tasks:
            person = OnIrc(nick, reader, writer)
            tasks.start_soon(person.listen)
            yield person
            tasks.cancel_scope.cancel()
    finally:
        writer.close()


# ---- Matrix


async def talk_on_matrix(person: Person, room: str, groups: Sequence[Sequence[str]]) -> None:
    """Say words, each group when the last was answered; nothing is lost, whoever dies meanwhile."""
    heard: set[str] = set()
    for group in groups:
        for word in group:
            await person.say(room, word)
        while not heard >= set(group):
            found = (await person.sync()).get("rooms", {}).get("join", {}).get(room, {})
            for event in found.get("timeline", {}).get("events", ()):
                if event["sender"] != person.user:
                    heard |= set(words_in(str(event["content"].get("body"))))


# ---- HTTP


class Place(Protocol):
    """Where the daemon listens: its life, and the port, once it is up in a later life than one that is known."""

    def __call__(self, *, after: int) -> Awaitable[tuple[int, int]]: ...


class OverHttp:
    """A client that asks again when the connection was lost, as clients do: with a key, or saying that it does."""

    def __init__(self, place: Place, client: httpx2.AsyncClient, *, has_keys: bool) -> None:
        self.heard: dict[str, str] = {}
        self._place, self._client, self._has_keys = place, client, has_keys

    async def talk(self, groups: Sequence[Sequence[str]]) -> None:
        words = [word for group in groups for word in group]
        for word in words:
            self.heard[word] = await self._ask(word)
        for word in words if self._has_keys else words[-1:]:
            assert await self._ask(word, tries=1) == self.heard[word], "asked again, it says something else"

    async def _ask(self, word: str, *, tries: int = 0) -> str:
        life = 0
        while True:
            life, port = await self._place(after=life)
            try:
                response = await (self._by_key if self._has_keys else self._by_retry)(port, word, tries)
            except httpx2.TransportError:
                tries += 1
                continue
            if response.status_code == 409 and '"locked"' in response.text:
                # The turn of a process that died lasts until its lease has expired.
                await anyio.sleep(_IMPATIENT)
                life, tries = life - 1, tries + 1
                continue
            if response.status_code == 503:
                assert "the process that was answering has ended" in response.text
                life, tries = life - 1, tries + 1
                continue
            assert response.status_code == 200, f"{word}: {response.status_code} {response.text}"
            return _text(response.json())

    async def _by_key(self, port: int, word: str, _: int) -> httpx2.Response:
        headers = {"authorization": f"Bearer {TOKEN}", "idempotency-key": word}
        url = f"http://127.0.0.1:{port}/api/sessions/rest/messages"
        return await self._client.post(url, json={"content": word}, headers=headers)

    async def _by_retry(self, port: int, word: str, tries: int) -> httpx2.Response:
        headers = {"authorization": f"Bearer {TOKEN}", "x-stainless-retry-count": str(tries)}
        body = {"model": "nacre", "session_id": "desk", "messages": [{"role": "user", "content": word}]}
        return await self._client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, headers=headers)


def _text(body: Mapping[str, Any]) -> str:
    message = body["choices"][0]["message"] if "choices" in body else body["answer"]
    return str(message["content"])
