"""Real PostgreSQL servers for tests, on loopback: they are stopped, killed, restarted and replicated."""

from __future__ import annotations

import csv
import functools
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pytest

from tests.postgres.guard import kill_processes, remove
from tests.postgres.programs import (
    HOST,
    PATIENT,
    find_postgres,
    free_port,
    give_to_user,
    make_folder,
    run,
    start,
    wait_until,
)

Settings = Mapping[str, str | int]

SUPERUSER = "postgres"
_ATTEMPTS = 20
_SMALL: Settings = {
    "max_connections": 200,
    "shared_buffers": "16MB",
    "max_wal_size": "256MB",
    "huge_pages": "off",
    # Kept in the data directory: a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}
_NO_STANDBY: Settings = {"synchronous_standby_names": "", "synchronous_commit": "on"}
_FAST: Settings = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresServer:
    """A PostgreSQL server with data of its own, which starts at `with` and is removed after it.

    It is durable as PostgreSQL is by default. One that is `fast` writes to disk when it likes, for tests that never
    kill it. With a password, clients log in by SCRAM; without one, everybody on loopback is let in.
    """

    def __init__(
        self, settings: Settings | None = None, *, fast: bool = False, password: str = "", name: str = "server"
    ) -> None:
        self.bin = find_postgres()
        self.folder = make_folder(name)
        self.data = self.folder / "data"
        self.port = free_port()
        self.password = password
        self.settings = {**_SMALL, **(_FAST if fast else {}), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._has_been_up = False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "postgres", user: str = SUPERUSER, *, port: int | None = None) -> str:
        """The address for clients; with a port, through what listens there (a `Proxy`)."""
        secret = f":{quote(self.password, safe='')}" if self.password and user == SUPERUSER else ""
        return f"postgresql://{quote(user, safe='')}{secret}@{HOST}:{port or self.port}/{quote(database, safe='')}"

    # ---- up and down

    def start(self) -> None:
        """Start the server and wait until it accepts connections; it keeps its port and its data."""
        if not self.data.exists():
            self._create_data()
        for _ in range(_ATTEMPTS):
            self._write_settings()
            said_before = len(self.dump_log())
            self._process = start([str(self.bin / "postgres"), "-D", str(self.data)], self.folder)
            wait_until(lambda: self.is_up() or not self._is_running(), "the start of PostgreSQL", log=self.dump_log)
            if self._is_running():
                self._has_been_up = True
                return
            if "could not bind" not in self.dump_log()[said_before:]:
                pytest.fail(f"PostgreSQL does not start:\n{self.dump_log()}")
            # Another program was quicker. Clients know the port of a server that was up before.
            if not self._has_been_up:
                self.port = free_port()
        pytest.fail(f"PostgreSQL found its port taken, {_ATTEMPTS} times:\n{self.dump_log()}")

    def stop(self) -> None:
        """Stop it as an administrator does: connections are closed, and what was committed is written."""
        process, self._process = self._process, None
        if process is None:
            return
        # "Fast shutdown".
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENT)
        except subprocess.TimeoutExpired:
            kill_processes(self.data)
            process.wait()
            pytest.fail(f"PostgreSQL did not stop:\n{self.dump_log()}")

    def kill(self) -> None:
        """Kill the server and all of its processes at once: a crash, after which `start` has to recover."""
        process, self._process = self._process, None
        kill_processes(self.data)
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove its data."""
        process, self._process = self._process, None
        remove(self.folder)
        if process is not None:
            process.kill()
            process.wait()

    def is_up(self) -> bool:
        """Whether it accepts connections, by what the server itself writes into its data directory."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        is_ours = self._process is not None and lines[:1] == [str(self._process.pid)]
        return is_ours and self._is_running() and len(lines) > 7 and lines[7].strip() == "ready"

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # ---- its content

    def query(self, statement: str, *, database: str = "postgres") -> list[list[str]]:
        """The rows of a statement as text. It goes through psql, so it does not depend on the driver that is tested."""
        command = [str(self.bin / "psql"), "-X", "-q", "-t", "--csv", "-v", "ON_ERROR_STOP=1", "-c", statement]
        return list(csv.reader(run([*command, self.url(database)], self.folder).splitlines()))

    def create_database(self, name: str, *, icu_locale: str = "") -> str:
        """Create an empty database and return its address; with a locale as "en-US", text is not ordered by bytes."""
        quoted = name.replace('"', '""')
        order = f" LOCALE_PROVIDER icu ICU_LOCALE '{icu_locale}'" if icu_locale else ""
        self.query(f'CREATE DATABASE "{quoted}" TEMPLATE template0{order}')
        return self.url(name)

    def configure(self, settings: Settings) -> None:
        """Change settings; a server that is up uses them at once, unless they need a restart."""
        self.settings.update(settings)
        self._write_settings()
        if not self.is_up():
            return
        assert self._process is not None
        [[before]] = self.query("SELECT pg_conf_load_time()")
        self._process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: self.query("SELECT pg_conf_load_time()") != [[before]], "the reload of settings", log=self.dump_log
        )

    def dump_log(self) -> str:
        """Everything the server has logged."""
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _create_data(self) -> None:
        run(["cp", "-a", str(_template(self.bin, self.password)), str(self.data)], self.folder)
        way = "scram-sha-256" if self.password else "trust"
        lines = [f"host {databases} all {HOST}/32 {way}\n" for databases in ("all", "replication")]
        (self.data / "pg_hba.conf").write_text("".join(lines))

    def _write_settings(self) -> None:
        address: Settings = {"listen_addresses": HOST, "port": self.port, "unix_socket_directories": ""}
        lines = [f"{name} = '{str(value).replace(chr(39), chr(39) * 2)}'\n" for name, value in self.settings.items()]
        lines += [f"{name} = '{value}'\n" for name, value in address.items()]
        (self.data / "postgresql.conf").write_text("".join(lines))


class Standby(PostgresServer):
    """A copy of a server that follows it; the server waits for it before it says that a transaction is committed.

    A server waits for one standby, the last that was started; when `with` ends, it no longer waits for any.
    """

    def __init__(self, primary: PostgresServer, *, name: str = "standby") -> None:
        super().__init__({**primary.settings, **_NO_STANDBY}, password=primary.password, name=name)
        self.name = name
        self.primary = primary
        self._before = {name: primary.settings.get(name, value) for name, value in _NO_STANDBY.items()}

    def start(self) -> None:
        super().start()
        if self.primary.is_up() and self.is_standby():
            self._wait_for("streaming")
            self.primary.configure({"synchronous_standby_names": self.name, "synchronous_commit": "remote_apply"})
            self._wait_for("sync")
            # Whether commits wait is decided by the checkpointer, which has read the settings when it has done this.
            self.primary.query("CHECKPOINT")

    def promote(self) -> None:
        """Make it a server that can be written to; the old primary is not asked, and may be down."""
        self.query(f"SELECT pg_promote(true, {PATIENT:.0f})")
        wait_until(lambda: not self.is_standby(), "the promotion of the standby", log=self.dump_log)

    def is_standby(self) -> bool:
        return self.query("SELECT pg_is_in_recovery()") == [["t"]]

    def close(self) -> None:
        super().close()
        if self.primary.data.exists():
            self.primary.configure(self._before)

    def _create_data(self) -> None:
        address = f"{self.primary.url()}?application_name={self.name}"
        options = ["--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync"]
        run([str(self.bin / "pg_basebackup"), "-d", address, "-D", str(self.data), *options], self.folder)

    def _wait_for(self, state: str) -> None:
        statement = "SELECT application_name, state, sync_state FROM pg_stat_replication"
        wait_until(
            lambda: any(row[0] == self.name and state in row for row in self.primary.query(statement)),
            f"a standby that is in state {state!r}",
            log=self.dump_log,
        )


@functools.cache
def _template(programs: Path, password: str) -> Path:
    """An empty data directory to copy, which is several times as fast as to create one."""
    folder = make_folder("template")
    secret = folder / "password"
    secret.write_text(password or "none")
    give_to_user(secret)
    options = ["--no-sync", "--username", SUPERUSER, "--pwfile", str(secret), "--auth=scram-sha-256"]
    options += ["--locale=C.UTF-8", "--encoding=UTF8"]
    run([str(programs / "initdb"), "-D", str(folder / "data"), *options], folder)
    return folder / "data"
