"""PgBouncer in front of a server: the pool that many installations have, in its strictest useful mode."""

from __future__ import annotations

import subprocess
from typing import Self
from urllib.parse import quote

import pytest

from tests.postgres.guard import remove
from tests.postgres.programs import HOST, find_pgbouncer, free_port, give_to_user, make_folder, start, wait_until
from tests.postgres.servers import SUPERUSER, PostgresServer, Settings

_ATTEMPTS = 5
_HAS_PREPARED_STATEMENTS = (1, 21)


class PgBouncer:
    """PgBouncer in transaction mode: each transaction of a client may run on another connection to the server.

    Prepared statements are off, as in every version before 1.21.
    """

    def __init__(
        self, server: PostgresServer, settings: Settings | None = None, *, port: int | None = None, pool_size: int = 20
    ) -> None:
        self._program, self._version = find_pgbouncer()
        self._folder = make_folder("pgbouncer")
        self._server_port = port or server.port
        self.port = free_port()
        self._settings: dict[str, str | int] = {
            "auth_type": "trust",
            "auth_file": str(self._folder / "users"),
            "pool_mode": "transaction",
            "default_pool_size": pool_size,
            "max_client_conn": 500,
            "listen_addr": HOST,
            "unix_socket_dir": "",
            **(settings or {}),
        }
        if self._version >= _HAS_PREPARED_STATEMENTS:
            self._settings.setdefault("max_prepared_statements", 0)
        self._server_password = server.password
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        return f"postgresql://{quote(user, safe='')}@{HOST}:{self.port}/{quote(database, safe='')}"

    def start(self) -> None:
        """Start it and wait until it listens; another port is tried if this one was taken meanwhile."""
        for _ in range(_ATTEMPTS):
            self._write_files()
            self._process = start([self._program, str(self._folder / "pgbouncer.ini")], self._folder)
            wait_until(lambda: self._listens() or not self._is_running(), "the start of PgBouncer", log=self.dump_log)
            if self._is_running():
                return
            if "in use" not in self.dump_log():
                pytest.fail(f"PgBouncer does not start:\n{self.dump_log()}")
            self.port = free_port()
        pytest.fail(f"PgBouncer found every port taken, {_ATTEMPTS} times:\n{self.dump_log()}")

    def close(self) -> None:
        process, self._process = self._process, None
        remove(self._folder)
        if process is not None:
            process.wait()

    def dump_log(self) -> str:
        """Everything it has logged."""
        return (self._folder / "log").read_text(errors="replace")

    def _listens(self) -> bool:
        return f"listening on {HOST}:{self.port}\n" in self.dump_log()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _write_files(self) -> None:
        settings = {**self._settings, "listen_port": self.port}
        lines = ["[databases]", f"* = host={HOST} port={self._server_port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        users = f'"{SUPERUSER}" "{self._server_password}"\n'
        for name, text in (("pgbouncer.ini", "\n".join(lines) + "\n"), ("users", users)):
            (self._folder / name).write_text(text)
            give_to_user(self._folder / name)
