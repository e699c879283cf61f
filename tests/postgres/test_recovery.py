"""Backups as docs/postgres.md describes them: to a moment, as a dump; every line is still what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nacre
from tests.postgres.opened import create, said
from tests.postgres.programs import run, wait_until
from tests.postgres.servers import PostgresServer


class _Restored(PostgresServer):
    """A server whose data is a base backup, and that replays archived WAL up to a moment."""

    def __init__(self, source: PostgresServer, archive: Path, *, until: str) -> None:
        recovery = {
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_time": until,
            "recovery_target_action": "promote",
        }
        super().__init__(recovery, name="restored")
        self._source = source

    def _create_data(self) -> None:
        run(["cp", "-a", str(self._source.folder / "backup"), str(self.data)], self.folder)
        (self.data / "recovery.signal").touch()


@pytest.fixture
def archiving() -> Iterator[tuple[PostgresServer, Path]]:
    """A server that archives its WAL, and where."""
    server = PostgresServer()
    archive = server.folder / "archive"
    run(["mkdir", str(archive)], server.folder)
    server.settings.update({"archive_mode": "on", "archive_command": f"cp %p {archive}/%f"})
    with server:
        yield server, archive


def test_a_store_is_restored_to_a_moment(archiving: tuple[PostgresServer, Path]) -> None:
    server, archive = archiving
    url = create(server.url())
    with nacre.open(url) as sessions:
        sessions.add_message("k", "user", "before the backup")
        backup = [str(server.bin / "pg_basebackup"), "-d", server.url(), "-D", str(server.folder / "backup")]
        run([*backup, "--checkpoint=fast", "--no-sync"], server.folder)
        sessions.add_message("k", "user", "after the backup" * 5000)
        [[moment]] = server.query("SELECT clock_timestamp()")
        sessions.add_message("k", "user", "the accident")
        sessions.delete("k")
    server.query("SELECT pg_switch_wal()")
    server.stop()
    with _Restored(server, archive, until=moment) as restored:
        question = "SELECT pg_is_in_recovery()"
        wait_until(lambda: restored.query(question) == [["f"]], "the end of the recovery", log=restored.dump_log)
        with nacre.open(restored.url()) as sessions:
            assert said(sessions, "k") == ["before the backup", "after the backup" * 5000]
            assert sessions.verify().ok
            assert sessions.add_message("k", "user", "and on") == 4


def test_a_dump_is_a_store(server: PostgresServer) -> None:
    with nacre.open(create(server.url())) as sessions:
        sessions.add_message("k", "user", "hello \0 \\ ünï")
        sessions.add_message("k", "user", "long" * 50_000)
        sessions.fork("k", "fork")
        sessions.archive("k")
    dump = run([str(server.bin / "pg_dump"), "--schema=nacre", server.url()], server.folder)
    other = server.create_database("other")
    (server.folder / "dump.sql").write_text(dump)
    run([str(server.bin / "psql"), "-X", "-q", "-f", str(server.folder / "dump.sql"), other], server.folder)
    with nacre.open(other) as sessions:
        assert said(sessions, "fork") == ["hello \0 \\ ünï", "long" * 50_000] == said(sessions, "k")
        assert sessions.verify().ok
