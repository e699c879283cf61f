"""nacre serve --workers: HTTP through processes that run the turns, which end, are replaced and go with the daemon."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import nacre as library
from tests.cli.conftest import Nacre
from tests.cli.daemons import PATIENT, TOKEN, Daemon, Models, configure, daemon

HELD = {"model": "nacre", "session_id": "k", "messages": [{"role": "user", "content": "held"}]}
COMPLETIONS = "/v1/chat/completions"


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    with Models(("main",)) as made:
        configure(tmp_path, f'[memory]\nenabled = false\n[ollama]\nhost = "{made.host("main")}"')
        yield made


def workers_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(FileNotFoundError):
                if b"nacre.web.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has asked for its exit code has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def metric(running: Daemon, name: str) -> float:
    lines = running.client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))


def messages(room: Path, key: str) -> list[tuple[str, Any]]:
    with library.open(room / "store") as sessions:
        return [(message.role, message.content) for message in sessions.get_history(key)]


def test_a_completion_comes_whole_and_streamed_through_a_worker(models: Models, tmp_path: Path) -> None:
    del models
    with daemon(tmp_path, "--workers", "2") as running:
        assert len(workers_of(running.process.pid)) == 2
        body = {"model": "nacre", "session_id": "k", "messages": [{"role": "user", "content": "pearl"}]}
        whole = running.client.post(COMPLETIONS, json=body).json()
        assert whole["choices"][0]["message"]["content"] == "main heard pearl"
        assert whole["usage"] == {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        streamed = running.client.post(COMPLETIONS, json={**body, "stream": True}).text
        pieces = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
        text = "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces)
        assert (text, streamed.endswith("data: [DONE]\n\n")) == ("main heard pearl", True)
        again = running.client.post("/api/sessions/k/messages", json={"content": "oyster"}).json()
        assert again["answer"]["content"] == "main heard oyster"
        until(lambda: metric(running, "nacre_turn_seconds_count") == 3)
        assert metric(running, 'nacre_model_tokens_total{agent="main",model="gemma4:e4b",direction="in"}') == 33
        assert (metric(running, "nacre_workers"), metric(running, "nacre_worker_restarts_total")) == (2, 0)
        assert running.client.get("/readyz").json() == {"ready": True, "role": "serving", "failing": [], "reasons": []}
        # A request that is wrong is refused in the same words as without workers.
        wrong = {**body, "messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}
        refused = running.client.post(COMPLETIONS, json=wrong)
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            400,
            "there is a result of the call 'x', but no such call before it",
        )


def test_clients_see_the_same_with_workers_and_without(models: Models, tmp_path: Path) -> None:
    del models
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}

    def ask(running: Daemon, session: str) -> list[Any]:
        def complete(text: str, **more: Any) -> Any:
            headers = {"Idempotency-Key": more.pop("id")} if "id" in more else {}
            body = {"model": "nacre", "session_id": session, "messages": [{"role": "user", "content": text}], **more}
            found = running.client.post(COMPLETIONS, json=body, headers=headers)
            answer = found.json()
            return (found.status_code, answer.get("error") or [answer["choices"], answer["usage"]])

        def respond(text: str, **more: Any) -> Any:
            return running.client.post("/v1/responses", json={"model": "nacre", "input": text, **more}).json()

        first = respond("hi")
        second = respond("more", previous_response_id=first["id"])
        return [
            [(one["status"], one["output"][0]["content"], one["usage"]) for one in (first, second)],
            complete("hi", tools=[tool], id="z"),
            complete("hi", tools=[tool], id="z"),
            complete("other", tools=[tool], id="z"),
            complete("hi", response_format=form),
            complete("hi", id="y"),
            complete("hi", id="y"),
        ]

    with daemon(tmp_path) as running:
        alone = ask(running, "alone")
    with daemon(tmp_path, "--workers", "2") as running:
        assert ask(running, "with") == alone
    assert [found[0] for found in alone[1:]] == [200, 200, 409, 422, 200, 200]


def test_the_turn_of_a_worker_that_is_killed_is_an_error_that_can_be_tried_again(
    models: Models, tmp_path: Path
) -> None:
    with daemon(tmp_path, "--workers", "1") as running, ThreadPoolExecutor(1) as threads:
        asking = threads.submit(running.client.post, COMPLETIONS, json=HELD)
        models.asked("main")
        os.kill(workers_of(running.process.pid)[0], signal.SIGKILL)
        lost = asking.result(PATIENT)
        assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
        assert lost.json() == {
            "error": {
                "message": "the process that was answering has ended; send the request again",
                "type": "api_error",
                "param": None,
                "code": "worker_lost",
            }
        }
        models.call(models.voices["main"].opened.set)
        again = running.client.post(COMPLETIONS, json=HELD, headers={"x-stainless-retry-count": "1"})
        assert again.json()["choices"][0]["message"]["content"] == "main heard held"
        assert messages(tmp_path, "api::k::") == [("user", "held"), ("assistant", "main heard held")]
        assert metric(running, "nacre_worker_restarts_total") == 1
        found = running.logs("a worker is lost; it is replaced")
        assert (found["level"], found["worker"]) == ("error", 0)


def test_a_request_with_an_id_goes_to_the_next_worker_by_itself(models: Models, tmp_path: Path) -> None:
    with daemon(tmp_path, "--workers", "1") as running, ThreadPoolExecutor(2) as threads:
        headers = {"Idempotency-Key": "one"}
        asking = [
            threads.submit(running.client.post, COMPLETIONS, json=HELD, headers=headers),
            threads.submit(running.client.post, "/api/sessions/r/messages", json={"content": "held"}, headers=headers),
        ]
        until(lambda: metric(running, "nacre_turns_running") == 2)
        models.asked("main")
        until(lambda: len(models.voices["main"].chats) == 2)
        os.kill(workers_of(running.process.pid)[0], signal.SIGKILL)
        models.call(models.voices["main"].opened.set)
        answers = [one.result(PATIENT) for one in asking]
        assert [answer.status_code for answer in answers] == [200, 200]
        for key in ("api::k::", "r"):
            assert messages(tmp_path, key) == [("user", "held"), ("assistant", "main heard held")]


def test_a_worker_that_does_not_come_back_is_why_it_is_not_ready(models: Models, tmp_path: Path) -> None:
    del models
    with daemon(tmp_path, "--workers", "1") as running:
        tools = tmp_path / "store" / "home" / "tools"
        tools.mkdir(parents=True)
        (tools / "ends.py").write_text("import os\nos._exit(1)\n")
        os.kill(workers_of(running.process.pid)[0], signal.SIGKILL)
        assert running.logs("a worker could not be started; retrying")["worker"] == 0
        until(lambda: running.client.get("/readyz").status_code == 503)
        assert running.client.get("/readyz").json() == {
            "ready": False,
            "role": "serving",
            "failing": ["workers"],
            "reasons": ["worker 0 of agent 'main' is not running; it is being restarted"],
        }
        (tools / "ends.py").unlink()
        until(lambda: running.client.get("/readyz").status_code == 200)


def test_workers_end_with_a_daemon_that_is_killed_and_the_next_one_answers_once(models: Models, tmp_path: Path) -> None:
    with daemon(tmp_path, "--workers", "2") as running, ThreadPoolExecutor(1) as threads:
        asking = threads.submit(running.client.post, COMPLETIONS, json=HELD)
        models.asked("main")
        before = workers_of(running.process.pid)
        running.process.kill()
        until(lambda: all(map(is_gone, before)))
        assert asking.exception(PATIENT) is not None
    models.call(models.voices["main"].opened.set)
    with daemon(tmp_path, "--workers", "2") as running:
        again = running.client.post(COMPLETIONS, json=HELD, headers={"x-stainless-retry-count": "1"})
        assert again.json()["choices"][0]["message"]["content"] == "main heard held"
        assert messages(tmp_path, "api::k::") == [("user", "held"), ("assistant", "main heard held")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_ends_leaves_no_worker(models: Models, tmp_path: Path, number: signal.Signals) -> None:
    with daemon(tmp_path, "--workers", "2") as running, ThreadPoolExecutor(1) as threads:
        asking = threads.submit(running.client.post, COMPLETIONS, json=HELD)
        models.asked("main")
        before = workers_of(running.process.pid)
        # The turn that runs comes to its end.
        threading.Timer(0.5, lambda: models.call(models.voices["main"].opened.set)).start()
        assert running.ends(number) < 8
        assert running.process.returncode == 0
        assert [pid for pid in before if not is_gone(pid)] == []
        assert asking.result(PATIENT).json()["choices"][0]["message"]["content"] == "main heard held"


def test_a_reload_replaces_the_workers(models: Models, tmp_path: Path) -> None:
    with daemon(tmp_path, "--workers", "2") as running:
        before = workers_of(running.process.pid)
        host = models.host("main")
        configure(tmp_path, f'[memory]\nenabled = false\n[agent]\nmax_steps = 7\n[ollama]\nhost = "{host}"')
        running.process.send_signal(signal.SIGHUP)
        assert running.logs("configuration reloaded")["changed"] == "main"
        assert not {*before} & {*workers_of(running.process.pid)}
        body = {"model": "nacre", "session_id": "k", "messages": [{"role": "user", "content": "pearl"}]}
        answer = running.client.post(COMPLETIONS, json=body).json()
        assert answer["choices"][0]["message"]["content"] == "main heard pearl"


def test_a_worker_says_in_the_log_which_one_it_is_and_no_secret(models: Models, tmp_path: Path) -> None:
    del models
    tools = tmp_path / "store" / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "loud.py").write_text(
        "import logging, os\n"
        "logging.getLogger('nacre.loud').warning('here', extra={'said': os.environ['NACRE_SERVE_TOKEN']})\n"
    )
    with daemon(tmp_path, "--workers", "1") as running:
        lines = [running.logs("here") for _ in range(2)]
        assert sorted(line.get("worker", -1) for line in lines) == [-1, 0]
        assert [line["said"] for line in lines] == ["…", "…"]
        assert TOKEN not in str(lines)
        command = Path(f"/proc/{workers_of(running.process.pid)[0]}/cmdline").read_text()
        assert TOKEN not in command


def test_the_setting_gives_workers_too(models: Models, tmp_path: Path) -> None:
    host = models.host("main")
    configure(tmp_path, f'[memory]\nenabled = false\n[serve]\nworkers = 2\n[ollama]\nhost = "{host}"')
    with daemon(tmp_path) as running:
        assert len(workers_of(running.process.pid)) == 2
    with daemon(tmp_path, "--workers", "0") as running:
        assert workers_of(running.process.pid) == []


@pytest.mark.parametrize("value", ["-1", "x", "65", "1.5", "", "99999999999999999999", "²", "9" * 5000])
def test_a_number_of_workers_that_cannot_be_is_refused(nacre: Nacre, value: str) -> None:
    found = nacre("serve", f"--workers={value}")
    assert found.code == 2
    assert f"--workers is a whole number from 0 to 64, not {value!r}" in found.err


@pytest.mark.parametrize("value", ["-1", "65"])
def test_a_setting_that_cannot_be_is_refused(nacre: Nacre, value: str) -> None:
    found = nacre("config", "set", "serve.workers", value)
    assert found.code != 0
    assert "a whole number from 0 to 64" in found.err


def test_the_unit_has_the_workers(nacre: Nacre) -> None:
    assert "--workers 2" in nacre("serve", "--unit", "--workers", "2").out
    assert "--workers" not in nacre("serve", "--unit").out


def test_a_check_says_how_many_there_would_be(nacre: Nacre) -> None:
    found = nacre("serve", "--check", "--port", "0", "--workers", "3", "--json")
    checks = {check["name"]: check["detail"] for check in found.json["checks"]}
    assert checks["workers"] == "3 processes for the turns"
    none = nacre("serve", "--check", "--port", "0", "--json")
    assert "workers" not in {check["name"] for check in none.json["checks"]}
