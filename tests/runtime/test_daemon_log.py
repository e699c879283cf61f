"""The daemon's log: lines that a program can read, and in none of them a secret or what anybody said."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from nacre.errors import InvalidMessage, Refused
from nacre.runtime.daemon_log import Form, logged, secrets_in

logger = logging.getLogger("nacre.runtime.somewhere")


def written(act: Any, *, form: Form = "json", **options: Any) -> str:
    stream = io.StringIO()
    with logged(stream, form=form, **options):
        act()
    return stream.getvalue()


def line(act: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(act, **options))
    return found


def raised(error: Exception) -> None:
    try:
        fail(error)
    except Exception:
        logger.exception("it failed")


def fail(error: Exception, cause: Exception | None = None) -> None:
    raise error from cause


def test_a_line_is_a_json_object_with_what_it_is_about() -> None:
    found = line(lambda: logger.warning("a turn failed", extra={"session": "k", "pieces": 2}))
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "nacre.runtime.somewhere",
        "message": "a turn failed",
        "session": "k",
        "pieces": 2,
    }


def test_for_people_it_is_a_line_of_text() -> None:
    text = written(lambda: logger.warning("a turn failed", extra={"session": "k", "error": "no room"}), form="text")
    assert text.partition("Z ")[2] == 'warning a turn failed (session=k error="no room")\n'


@pytest.mark.parametrize("form", ["json", "text"])
def test_nothing_that_is_logged_begins_a_line_or_moves_a_cursor(form: Form) -> None:
    text = written(lambda: logger.warning("one\ntwo\x1b[2J", extra={"of": "three\nfour\x1b"}), form=form)
    assert text.count("\n") == 1
    assert "\x1b" not in text


def test_below_its_level_nothing_is_logged() -> None:
    assert written(lambda: logger.info("hello"), level="warning") == ""
    assert line(lambda: logger.debug("hello"), level="debug")["message"] == "hello"


@pytest.mark.parametrize("name", ["httpx2", "httpcore2.http11", "uvicorn.error", "asyncio"])
def test_of_others_there_are_only_warnings_whatever_they_are_set_to(name: str) -> None:
    other = logging.getLogger(name)
    before = other.level
    other.setLevel(logging.DEBUG)
    try:
        assert written(lambda: other.info("GET https://example.org/bot123:secret"), level="debug") == ""
        assert line(lambda: other.warning("it is late\n<Task with='words'>"))["message"] == "it is late"
        assert line(lambda: other.warning("%s is late", "what somebody said"))["message"] == "%s is late"
    finally:
        other.setLevel(before)


def test_of_packages_that_nobody_knows_there_is_only_where_a_message_comes_from() -> None:
    other = logging.getLogger("nacreous")
    found = line(lambda: other.warning("cannot read 'what somebody said'", extra={"of": "what somebody said"}))
    assert found["at"].startswith("test_daemon_log:")
    assert "somebody said" not in json.dumps(found).replace(found["message"], "")
    assert "is not shown" in found["message"]


def test_of_an_exception_there_is_where_it_happened_and_not_what_it_quotes() -> None:
    found = line(lambda: raised(ValueError("what somebody said")))
    assert (found["exception"], found["trace"][-1].split()[-1]) == ("ValueError", "fail")
    assert "somebody" not in json.dumps(found)
    assert "somebody" not in json.dumps(line(lambda: raised(InvalidMessage("not 'what somebody said'"))))
    error = ValueError("what somebody said")
    assert line(lambda: logger.warning("it failed", extra={"error": error, "all": [error]}))["all"] == ["ValueError"]


def test_errors_of_the_machine_speak_and_so_do_those_behind_them() -> None:
    def act() -> None:
        try:
            fail(ExceptionGroup("x", [KeyError("said"), Refused("no room")]), OSError(28, "said", "/said"))
        except ExceptionGroup:
            logger.exception("it failed")

    assert line(act)["exception"] == (
        "ExceptionGroup of KeyError, Refused: no room; from OSError: [Errno 28] No space left on device"
    )


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("the server at http://h answered 400: bad: hello", "the server at http://h answered 400: …"),
        ("it failed in the middle of its answer: hello", "it failed in the middle of its answer: …"),
        ("the server refuses the key: sk-hello", "the server refuses the key: …"),
        ("the server sent something that is not JSON: b'hello'", "the server sent something that is not JSON: …"),
        ("the server sent b'hello' where an object was expected", "the server sent: …"),
        ("the server cannot be reached", "the server cannot be reached"),
    ],
)
def test_what_a_server_says_may_be_what_it_was_told_and_is_left_out(sentence: str, kept: str) -> None:
    """Channels of other packages may log what their servers say."""
    assert line(lambda: logger.warning("a turn failed", extra={"error": sentence}))["error"] == kept


def test_secrets_that_are_known_are_not_written_wherever_they_turn_up() -> None:
    secrets = secrets_in({"OPENAI_API_KEY": "sk-0123456789", "HOME": "/home/somebody", "A_TOKEN": "sk-0123456789-more"})
    extra = {"of": ["sk-0123456789"], "by": {"x": "a sk-0123456789-more b"}, "path": Path("/home/somebody")}
    found = line(lambda: logger.warning("with %s", "sk-0123456789", extra=extra), secrets=secrets)
    assert (found["message"], found["of"], found["by"]) == ("with …", ["…"], {"x": "a … b"})
    assert found["path"] == "/home/somebody"


def test_afterwards_all_is_as_it_was() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), logging.getLogger("nacre").level)
    written(lambda: None, level="debug")
    assert (list(root.handlers), logging.getLogger("nacre").level) == before


# ---- the daemon


SAID, TOKEN, KEY, HEADER, BOT = (f"planted-{name}-0123456789" for name in ("words", "token", "key", "header", "bot"))


class Parrot(BaseHTTPRequestHandler):
    """A model's server that refuses, and repeats all that it was sent."""

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["content-length"])).decode()
        body = json.dumps({"error": {"message": f"cannot read {said} of {self.headers['authorization']}"}}).encode()
        self.send_response(400)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def parrot() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Parrot) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def talk(url: str) -> list[int]:
    """Say the words in every way there is: with the token and with wrong ones, as one should and as one should not."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}", "X-Planted": HEADER}) as client:
        bodies: list[tuple[str, Any]] = [
            ("/api/sessions/k/messages", {"content": SAID}),
            ("/api/sessions/k/messages", {"content": {"no": SAID}}),
            ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": SAID}]}),
            ("/v1/chat/completions", {"model": "m", "user": "u", "messages": [{"role": "user", "content": SAID}]}),
        ]
        found = [client.post(path, json=body).status_code for path, body in bodies]
        found.append(client.get("/api/search", params={"q": SAID}).status_code)
        found.append(client.get("/api/search", headers={"Authorization": f"Bearer {SAID}"}).status_code)
        found.append(client.post("/login", json={"token": SAID}).status_code)
        return found


def test_the_log_of_a_whole_run_holds_no_secret_and_nothing_that_was_said(home: Path) -> None:
    (home / "xdg_config_home" / "nacre").mkdir(parents=True)
    config = home / "xdg_config_home" / "nacre" / "config.toml"
    config.write_text('[channels.telegram]\naddress = "http://127.0.0.1:9"\n')
    with parrot() as url:
        model = {"NACRE_AGENT_PROVIDER": "openai", "NACRE_AGENT_MODEL": "m", "NACRE_OPENAI_BASE_URL": url}
        secrets = {"OPENAI_API_KEY": KEY, "NACRE_SERVE_TOKEN": TOKEN, "NACRE_TELEGRAM_TOKEN": BOT}
        noisy = {"HTTPX_LOG_LEVEL": "trace", "PYTHONASYNCIODEBUG": "1"}
        command = [sys.executable, "-m", "nacre.cli", "serve", "--port", "0", "--json", "--log-level", "debug"]
        with subprocess.Popen(
            command,
            env={**os.environ, **model, **secrets, **noisy},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as daemon:
            assert daemon.stdout is not None
            try:
                statuses = talk(json.loads(daemon.stdout.readline())["url"])
            finally:
                daemon.terminate()
            out, log = daemon.communicate(timeout=20)
    assert statuses == [502, 400, 502, 502, 200, 401, 401]
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"a request failed", "shutting down"} <= {line["message"] for line in lines}
    assert "answered 400" in log
    assert "planted" not in log + out


def test_the_password_of_a_database_is_a_secret() -> None:
    environ = {"NACRE_STORE_URL": "postgresql://ada:one%40two@h/db", "PGPASSWORD": "three", "PGHOST": "h"}
    assert secrets_in(environ) == ["three", "one%40two", "one@two"]


def test_the_attempts_of_the_pool_to_connect_are_not_logged() -> None:
    pool = logging.getLogger("psycopg.pool")
    assert written(lambda: pool.warning("error connecting in %r: %s", "pool-1", "refused")) == ""
    assert line(lambda: pool.error("the pool is broken"))["message"] == "the pool is broken"
