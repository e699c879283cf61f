"""A word in hundreds of conversations, through every door and with every fault: no log, metric or error page has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from anyio.abc import TaskStatus

from tests.channels.irc_peers import person
from tests.channels.servers import ngircd, scripted
from tests.runtime.canary import CANARY, LAST, OWN, SMALL, TOOLS, WAYS, Model, matrix, model, telegram

TOKEN = "a-token-that-is-long-enough-for-all"  # noqa: S105 - it opens nothing but this test
PATIENT = 240.0
NICKS = ("ann", "bea")

CONFIG = """
[agent]
max_history_messages = 6
max_context_tokens = 20000

[channels]

[channels.irc]
host = "127.0.0.1"
port = {irc}
tls = false
allow = ["ann", "bea"]
owners = ["ann", "bea"]
per_minute = 100000

[channels.telegram]
address = "{telegram}"
allow = ["7"]
per_minute = 100000

[channels.matrix]
homeserver = "{matrix}"
allow = ["@ann:h"]
per_minute = 100000

[schedule.often]
every = "10s"
text = "say:refuse {canary}"

[approvals]
burst = "allow"
lose = "allow"
wrap = "allow"
shell = "allow"
web_fetch = "allow"
delegate = "allow"
remember = "allow"
small_explode = "allow"
small_die = "allow"

[mcp.small]
command = "{python}"
args = ["{small}"]
"""


class Watched:
    """A daemon, all that it prints, and the pages that it answers errors with."""

    def __init__(self, log: Path, client: httpx.AsyncClient) -> None:
        self.log, self.client = log, client
        self.statuses: list[int] = []
        self.pages: list[str] = []

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        response = await self.client.request(method, path, **more)
        self.statuses.append(response.status_code)
        if response.status_code >= 400 and not _is_of_model(response):
            self.pages.append(f"{method} {path.replace(CANARY, '')} {response.status_code}: {response.text}")
        return response

    async def metrics(self) -> str:
        return (await self.client.get("/metrics")).text


def _is_of_model(response: httpx.Response) -> bool:
    """Whether an error has what a model's server said, which is told to who asked it, and only there."""
    if "text/html" in response.headers.get("content-type", ""):
        return response.request.url.path.startswith("/say/") and response.status_code in {429, 502}
    return any(f'"code":"{code}"' in response.text for code in ("provider", "rate_limited", "context_length_exceeded"))


@asynccontextmanager
async def watched(room: Path, config: str, url: str) -> AsyncIterator[Watched]:
    (room / "config" / "nacre").mkdir(parents=True)
    (room / "config" / "nacre" / "config.toml").write_text(config)
    for folder in ("home", "store/home/tools"):
        (room / folder).mkdir(parents=True)
    (room / "store" / "home" / "tools" / "own.py").write_text(OWN)
    places = {"NACRE_HOME": "store", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "HOME": "home"}
    variables = {
        **{name: text for name, text in os.environ.items() if not name.startswith("NACRE_")},
        **{name: str(room / folder) for name, folder in places.items()},
        "NACRE_AGENT_PROVIDER": "openai",
        "NACRE_AGENT_MODEL": "m",
        "NACRE_OPENAI_BASE_URL": url,
        "NACRE_SERVE_TOKEN": TOKEN,
        "NACRE_TELEGRAM_TOKEN": "1234:telegram",
        "NACRE_MATRIX_TOKEN": "matrix-token",
        "PYTHONASYNCIODEBUG": "1",
        "HTTPX_LOG_LEVEL": "trace",
    }
    command = [sys.executable, "-m", "nacre.cli", "serve", "--port", "0", "--json", "--log-level", "debug"]
    with (room / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it takes a moment, and nobody waits
            command, env=variables, cwd=room, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        line = await anyio.to_thread.run_sync(process.stdout.readline)
        assert "url" in line, line + (room / "log").read_text()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=json.loads(line)["url"], headers=headers, timeout=PATIENT) as client:
            yield Watched(room / "log", client)
        process.terminate()
        await anyio.to_thread.run_sync(process.wait)
    finally:
        process.kill()
        process.communicate()


async def over_irc(port: int, nick: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Say everything, and stay for the answers."""
    async with person(nick, port) as somebody:
        await somebody.meets("nacre")
        for way in WAYS:
            somebody.say("nacre", f"{CANARY} say:{way} {CANARY}")
        task_status.started()
        await anyio.sleep_forever()


async def over_http(watch: Watched, way: str) -> None:
    said, number = f"{CANARY} say:{way} {CANARY}", (*WAYS, LAST).index(way)
    messages = [{"role": "user", "content": said}]
    for stream in (False, True):
        body = {"model": "m", "messages": messages, "stream": stream, "user": f"u-{number}"}
        await watch.ask("POST", "/v1/chat/completions", json=body)
        await watch.ask("POST", "/v1/responses", json={"model": "m", "input": said, "stream": stream})
    await watch.ask("POST", f"/api/sessions/k-{number}/messages", json={"content": said})
    await watch.ask("POST", "/api/sessions/shared/messages", json={"content": said})
    # The page, without its script and with it.
    await watch.ask("POST", f"/say/web:form-{number}", data={"content": said}, headers={"accept": "text/html"})
    files = [{"name": f"{CANARY}.txt", "type": "text/plain", "data": b64encode(CANARY.encode()).decode()}]
    await watch.ask("POST", f"/turn/web:script-{number}", json={"content": said, "id": str(number), "files": files})


async def make_errors(watch: Watched) -> None:
    """Requests that cannot be answered, with the word wherever a request has room for one."""
    html, form = {"accept": "text/html"}, {"content-type": "application/x-www-form-urlencoded"}
    for path in (f"/{CANARY}", f"/api/{CANARY}", f"/sessions/{CANARY}", f"/api/sessions/none/records?after={CANARY}"):
        await watch.ask("GET", path)
        await watch.ask("GET", path, headers=html)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/api/sessions/k/messages"):
        await watch.ask("POST", path, content=f'{{"{CANARY}": ')
        await watch.ask("POST", path, json={"messages": CANARY, "content": {"x": CANARY}, "input": {"y": CANARY}})
        await watch.ask("POST", path, json={"model": "none", "messages": [{"role": CANARY, "content": CANARY}]})
        await watch.ask("POST", path, json={"x": CANARY}, headers={"authorization": f"Bearer {CANARY}"})
        await watch.ask("POST", path, content=CANARY, headers={"content-type": CANARY})
        await watch.ask("DELETE", path)
    await watch.ask("POST", "/login", content=f"token={CANARY}", headers=html | form)
    for path in ("/say/web:x", "/turn/web:x", "/do/rename/web:x", "/do/fork/web:x", "/do/answer/web:x"):
        await watch.ask("POST", path, data={"content": "", "to": CANARY, "tags": CANARY, "id": CANARY}, headers=html)
        await watch.ask("POST", path, json={"content": [CANARY], "files": [{"name": CANARY}]}, headers=html)
    await watch.ask("POST", "/new", content=f"text={CANARY}&csrf={CANARY}", headers=html | form)
    await watch.ask("GET", "/api/search", params={"q": f'"{CANARY} AND ('})
    await watch.ask("GET", "/search", params={"q": f'"{CANARY} AND ('}, headers=html)


async def until_quiet(watch: Watched, accepted: int) -> None:
    """Wait until every message of the channels was accepted and has come to its end."""
    with anyio.fail_after(PATIENT):
        while True:
            metrics = await watch.metrics()
            counts = {
                line.split('"')[1]: float(line.split()[-1])
                for line in metrics.splitlines()
                if line.startswith("nacre_messages_accepted_total")
            }
            ours = sum(counts.get(channel, 0) for channel in ("irc", "matrix", "telegram"))
            if ours >= accepted and counts.get("schedule") and "nacre_inbox_open 0" in metrics:
                return
            await anyio.sleep(0.2)


def test_a_word_of_a_conversation_is_in_no_log_no_metric_and_no_error_page(tmp_path: Path) -> None:
    small = tmp_path / "small.py"
    small.write_text(SMALL)
    words = [f"{CANARY} say:{way} {CANARY}" for way in WAYS]

    async def run(port: int, url: str) -> tuple[Watched, str]:
        async with scripted(telegram(words)) as telegrams, scripted(matrix(words)) as matrixes:
            config = CONFIG.format(
                irc=port,
                telegram=telegrams.address,
                matrix=matrixes.address,
                canary=CANARY,
                python=sys.executable,
                small=small,
            )
            async with watched(tmp_path, config, url) as watch:
                async with anyio.create_task_group() as people:
                    for nick in NICKS:
                        await people.start(over_irc, port, nick)
                    async with anyio.create_task_group() as tasks:
                        for way in WAYS:
                            tasks.start_soon(over_http, watch, way)
                    await make_errors(watch)
                    await until_quiet(watch, (2 + len(NICKS)) * len(WAYS))
                    await over_http(watch, LAST)
                    metrics = await watch.metrics()
                    people.cancel_scope.cancel()
                return watch, metrics

    with model() as url, ngircd(tmp_path).running() as server:
        watch, metrics = anyio.run(run, server.port, url)
    log = watch.log.read_text()
    events = {json.loads(line)["message"] for line in log.splitlines()}
    conversations = (2 + len(NICKS)) * len(WAYS) + 8 * len(WAYS)
    assert conversations >= 200
    # That nothing is found means little unless what should go wrong did.
    assert {"a turn failed", "a request failed", "an answer could not be sent; retrying"} <= events
    assert {"could not summarise this session; all of it is kept", "memory skipped a turn for now"} <= events
    assert Model.results >= set(TOOLS)
    assert {400, 401, 404, 405, 502} <= set(watch.statuses)
    assert [line for line in log.splitlines() if CANARY in line] == []
    assert CANARY not in metrics
    assert [page for page in watch.pages if CANARY in page] == []
