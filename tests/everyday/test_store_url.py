"""The command and the daemon on a store in PostgreSQL, as processes of their own; the agent's other things stay local.

No output of any command has the password of the database.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre as library
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from tests.cli.daemons import daemon
from tests.everyday.conftest import Done, Person
from tests.everyday.terminal import Screen
from tests.postgres.servers import PostgresServer

SECRET = "word-of-the-pass/@?"  # noqa: S105 - it opens a server of the test
SHOWN = "word-of-the-pa"
"""What every form of it has, that with a mistake too."""


@pytest.fixture
def ada(person: Person, database: str) -> Person:
    """Somebody whose sessions are in a database that is ready."""
    init(parse(database))
    person.env["NACRE_STORE_URL"] = database
    return person


@pytest.fixture(scope="module")
def locked() -> Iterator[PostgresServer]:
    """A server that asks for a password."""
    with PostgresServer(fast=True, password=SECRET, name="locked") as server:
        init(parse(server.url()))
        yield server


# ---- everyday


def test_a_conversation_is_stored_in_the_database_and_all_else_here(ada: Person, database: str) -> None:
    here = ada.folder("work")
    key = ada.ask("hello world", at=here)["session"]
    assert ada.ask("-c", "and more", at=here)["session"] == key
    with library.open(database) as sessions:
        said = [stored.message.content for stored in sessions.transcript(key)]
        assert sessions.get_meta(key)["cwd"] == str(here)
    assert said == ["hello world", "You said: hello world", "and more", "You said: and more"]
    assert not (ada.store / "sessions").exists()
    assert (ada.store / "home").is_dir()


def test_every_verb_works_on_a_database(ada: Person, tmp_path: Path) -> None:
    here = ada.folder("work")
    key = ada.ask("the boat is blue", at=here)["session"]
    export = tmp_path / "out.jsonl"
    for line in (
        f"tag {key} travel",
        f"rename {key} 'The boat'",
        f"pin {key}",
        "list --tag travel",
        "list --all --json",
        "show @1",
        f"tail {key}",
        "search boat",
        f"fork {key} copy",
        "archive copy",
        "list --archived",
        "unarchive copy",
        "rm copy",
        "trash",
        "restore copy",
        f"export {key} --format jsonl -o {export}",
        f"redact {key} 3 --yes",
        f"unpin {key}",
        "verify --deep",
        f"repair {key}",
        "quarantine",
        "stats",
        "du",
        "compact --all",
        "gc",
        "retain --archive-after 90d",
        "rm copy --permanent --yes",
        "trash empty --yes",
    ):
        done = ada.nacre("sessions", *shlex.split(line))
        assert done.code == 0, (line, done)
        assert str(ada.store) not in done.out + done.err, (line, done)
    assert len(export.read_text().splitlines()) > 3
    assert "[erased]" in ada.nacre("sessions", "show", key).out


def test_what_only_files_have_is_refused_with_what_to_do(ada: Person, tmp_path: Path) -> None:
    backup = ada.nacre("sessions", "backup", str(tmp_path / "copy"))
    assert (backup.code, "pg_dump" in backup.err, "nacre sessions copy" in backup.err) == (2, True, True)
    migrate = ada.nacre("sessions", "migrate", str(tmp_path))
    assert (migrate.code, "nacre sessions copy" in migrate.err) == (2, True)
    other = tmp_path / "a~1.jsonl"
    other.write_text("{}")
    shown = ada.nacre("sessions", "show", str(other))
    assert (shown.code, "is not in the store at postgresql://" in shown.err) == (3, True)


def test_rows_of_the_last_list_are_those_of_this_database(ada: Person) -> None:
    key = ada.ask("hello", at=ada.folder("work"))["session"]
    assert ada.nacre("sessions", "list").code == 0
    assert ada.nacre("sessions", "show", "@1", "--json").json["key"] == key
    elsewhere = ada.nacre("sessions", "show", "@1", NACRE_STORE_URL="")
    assert elsewhere.code == 3, elsewhere


def test_memory_is_stored_with_its_pages_here(ada: Person) -> None:
    assert ada.nacre("memory", "add", "Ada likes tea").code == 0
    assert "Ada likes tea" in ada.nacre("memory", "search", "tea").out
    assert "Ada likes tea" in (ada.store / "home" / "MEMORY.md").read_text()


def test_how_to_resume_names_the_database_only_if_it_was_named(ada: Person, database: str) -> None:
    here = ada.folder("work")
    with Screen(ada, "chat", "--trust", columns=200, at=here) as screen:
        screen.say("hello")
        screen.until("You said: hello")
        screen.leave()
        screen.until("Resume with: nacre chat -r chat-")
    with Screen(ada, "chat", "--trust", "--store", database, columns=200, at=here, NACRE_STORE_URL="") as screen:
        screen.say("hello")
        screen.until("You said: hello")
        screen.leave()
        screen.until(f"Resume with: nacre chat --store '{database}' -r chat-")


# ---- a database that is not there


@pytest.mark.parametrize(
    "words", [("chat", "hello"), ("serve", "--port", "0"), ("sessions", "list"), ("memory", "list")]
)
def test_a_database_that_cannot_be_reached_is_one_clear_line(person: Person, words: tuple[str, ...]) -> None:
    done = person.nacre(*words, NACRE_STORE_URL="postgresql://ada:secret@127.0.0.1:1/db")
    assert (done.code, done.out) == (1, ""), done
    (line,) = [line for line in done.err.splitlines() if not line.startswith("{")]
    assert line.startswith("nacre: the database at postgresql://ada@127.0.0.1:1/db cannot be used: ")
    # Nothing stands in for it.
    assert not (person.home / ".local/state/nacre/standby").exists()


def test_a_missing_package_is_one_clear_line_with_the_command(person: Person) -> None:
    code = "import sys; sys.modules['psycopg'] = None; from nacre.cli import main; sys.exit(main(sys.argv[1:]))"
    for words in (("sessions", "list"), ("chat", "hello"), ("store", "init")):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            check=False,
            capture_output=True,
            text=True,
            env={**person.env, "NACRE_STORE_URL": "postgresql://127.0.0.1:1/db"},
        )
        first, *rest = done.stderr.splitlines()
        assert (done.returncode, len(rest)) == (2, 1), done
        assert first == 'nacre: sessions in PostgreSQL need: pip install "nacre-sessions[postgres]"'


def test_an_error_is_json_if_that_was_asked_for(person: Person) -> None:
    done = person.nacre("sessions", "list", "--json", NACRE_STORE_URL="postgresql://127.0.0.1:1/db")
    assert (done.code, done.json["error"]["type"]) == (1, "failed")


def test_a_conversation_outlives_a_database_that_goes_away_and_comes_back(person: Person) -> None:
    with PostgresServer() as server:
        init(parse(server.url()))
        person.env["NACRE_STORE_URL"] = server.url()
        with Screen(person, "chat", "--trust", columns=200, rows=60, at=person.folder("work")) as screen:
            screen.say("one")
            screen.until("You said: one")
            # The turn is over, and given back.
            screen.until_gone("Ctrl-C stops it")
            server.stop()
            screen.say("two")
            screen.until("cannot be reached, nothing was stored")
            server.start()
            screen.say("three")
            screen.until("You said: three")
            assert "Traceback" not in screen.scrollback + screen.text
            assert "error connecting" not in screen.scrollback + screen.text


# ---- passwords


def outputs(person: Person, server: PostgresServer) -> Iterator[tuple[str, Done]]:
    """What commands print that reach the server with a password in their environment, and that fail to."""
    good, bad = server.url(), server.url(port=1)
    wrong = good.replace("pass", "path")
    person.config('[agents.clerk]\nmodel = "gemma4:e4b"\n')
    for line in (
        "store",
        "store upgrade --json",
        "sessions search hello",
        "sessions backup /tmp/nowhere",
        "config show",
        "config show --json",
        "config get store.url",
        "config get store.url --json",
        "config check",
        "serve --check",
        "serve --unit",
        "--agent clerk sessions list",
        "__complete -- sessions show ''",
    ):
        yield line, person.nacre(*shlex.split(line), NACRE_STORE_URL=good)
    for line in ("store init", "sessions list", "sessions list --json -v", "doctor", "doctor --json", "chat hello"):
        for url in (good, bad, wrong):
            yield line, person.nacre(*shlex.split(line), NACRE_STORE_URL=url)
    for line in ("sessions list -vv", "chat -vv hello", "doctor -vv"):
        yield line, person.nacre(*shlex.split(line), NACRE_STORE_URL=wrong)
    for line in (f"--store {good} sessions list", f"store init {good}", f"config set store.url {good}"):
        yield line, person.nacre(*shlex.split(line))


def test_no_output_has_the_password(person: Person, locked: PostgresServer) -> None:
    codes = []
    for line, done in outputs(person, locked):
        said = done.out + done.err
        assert SHOWN not in said, (line, done)
        codes.append(done.code)
    # Some of each kind.
    assert {0, 1, 2} <= set(codes)


def test_the_daemon_and_its_workers_do_not_show_it(tmp_path: Path, locked: PostgresServer) -> None:
    with daemon(tmp_path, "--workers", "1", NACRE_STORE_URL=locked.url()) as found:
        for path in ("/", "/readyz", "/metrics", "/api/sessions"):
            answer = found.client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert SHOWN not in answer.text, path
        processes = subprocess.run(["/bin/ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
        assert SHOWN not in processes
        found.process.terminate()
        out, log = found.process.communicate(timeout=60)
        assert SHOWN not in out + log


@pytest.mark.parametrize("way", ["PGPASSWORD", "pgpass", "service"])
def test_a_password_may_come_from_elsewhere(person: Person, locked: PostgresServer, way: str) -> None:
    url = locked.url().replace(f":{locked.url().split(':')[2].split('@')[0]}@", "@")
    if way == "PGPASSWORD":
        person.env["PGPASSWORD"] = SECRET
    elif way == "pgpass":
        file = person.home / ".pgpass"
        file.write_text(f"127.0.0.1:{locked.port}:*:postgres:{SECRET}\n")
        file.chmod(0o600)
    else:
        url = "postgresql:///?service=ours"
        service = f"[ours]\nhost=127.0.0.1\nport={locked.port}\nuser=postgres\ndbname=postgres\npassword={SECRET}\n"
        (person.home / ".pg_service.conf").write_text(service)
    person.config(f'[store]\nurl = "{url}"\n')
    done = person.nacre("sessions", "list")
    assert done.code == 0, done
    assert person.nacre("store", "init", url).code == 0
    wrong = person.nacre("sessions", "list", PGPASSWORD="wrong")
    assert (wrong.code, SHOWN in wrong.out + wrong.err) == (1 if way == "PGPASSWORD" else wrong.code, False)
