"""A small true store, and copies of it with one planted fault each, for the tests of the conformance suite."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class Lines:
    """A true store: a line of JSON per message, flushed under a lock; a torn tail is removed by the next append."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, session: str) -> Path:
        return self.path / f"{session}.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def entries(self, session: str) -> list[dict[str, str]]:
        if not self.file(session).exists():
            return []
        whole, _, _ = self.file(session).read_bytes().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]

    def repair(self, session: str) -> None:
        with self.file(session).open("ab+") as file:
            file.seek(0)
            whole, newline, _ = file.read().rpartition(b"\n")
            file.truncate(len(whole + newline))

    def is_known(self, session: str, id: str) -> bool:
        return any(entry["id"] == id for entry in self.entries(session))

    def write(self, session: str, entry: dict[str, str]) -> None:
        with self.file(session).open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")
            os.fsync(file.fileno())

    def append(self, session: str, text: str, id: str) -> None:
        with self.locked():
            self.repair(session)
            if not self.is_known(session, id):
                self.write(session, {"id": id, "text": text})

    def read(self, session: str) -> list[str]:
        return [entry["text"] for entry in self.entries(session)]

    def close(self) -> None:
        pass


class IsAwaited(Lines):
    """A store whose methods are awaited, which the suite cannot call."""

    async def append(self, session: str, text: str, id: str) -> None:  # type: ignore[override]
        super().append(session, text, id)

    async def read(self, session: str) -> list[str]:  # type: ignore[override]
        return super().read(session)

    async def close(self) -> None:  # type: ignore[override]
        super().close()


class AppendIsAwaited(Lines):
    async def append(self, session: str, text: str, id: str) -> None:  # type: ignore[override]
        super().append(session, text, id)


async def open_awaited(path: Path) -> Lines:
    return Lines(path)


class IsAwaitedInside:
    """As the documentation shows it."""

    def __init__(self, path: Path) -> None:
        self.runner, self.store = asyncio.Runner(), IsAwaited(path)

    def append(self, session: str, text: str, id: str) -> None:
        self.runner.run(self.store.append(session, text, id))

    def read(self, session: str) -> list[str]:
        return self.runner.run(self.store.read(session))

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()


class CannotAppend:
    def __init__(self, path: Path) -> None:
        pass

    def read(self, session: str) -> list[str]:
        return []

    def close(self) -> None:
        pass


class WithoutIds(Lines):
    not_applicable = {"idempotent-retry": "it takes no ids"}  # noqa: RUF012 - as a user would write it

    def is_known(self, session: str, id: str) -> bool:
        return False


class NamesEveryCheck(Lines):
    not_applicable = dict.fromkeys(
        ("reopen", "crash-inside", "crash-while-writing", "two-processes", "idempotent-retry", "torn-tail"), "no"
    )


class NamesNoCheck(Lines):
    not_applicable = {"idempotent_retry": "it takes no ids"}  # noqa: RUF012 - as above


class ListsChecks(Lines):
    not_applicable = ["idempotent-retry"]  # noqa: RUF012 - as above


class LocksByALink(Lines):
    """While it is open, a link names the host and the process, and leads nowhere."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.link = path / f"{os.getpid()}.lock"
        self.link.symlink_to(f"host:{os.getpid()}")

    def close(self) -> None:
        self.link.unlink()


class HasASocket(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        os.chdir(path)  # the path of a socket must be short
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(f"{os.getpid()}.socket")


class HasAFifo(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with suppress(FileExistsError):
            os.mkfifo(path / "fifo")


class RemembersItsPath(Lines):
    """Goes on where it was made, not where it is opened."""

    def __init__(self, path: Path) -> None:
        with suppress(FileExistsError):
            (path / "place").symlink_to(path.absolute())
        super().__init__((path / "place").readlink())


class HasAHelper(Lines):
    """Forks: the other process has all that this one has open, and lives while it is alone in the directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if os.fork() == 0:
            try:
                self.help()
            finally:
                os._exit(0)

    def help(self) -> None:
        for _ in range(3_000):
            time.sleep(0.1)
            if not self.path.exists():
                break


class HasAHelperThatGetsAway(HasAHelper):
    """Its helper is in a session of its own, so that it is not killed with it."""

    def help(self) -> None:
        os.setsid()
        super().help()


class HasAHelperThatCanBeHeard(HasAHelper):
    """It and its helper have a pipe open that is made by the test."""

    def __init__(self, path: Path) -> None:
        self.alive = (path / "alive").open("wb", buffering=0)
        super().__init__(path)


class ReadsTheInput(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        assert subprocess.run(["cat"], capture_output=True, check=True).stdout == b""


class WritesLater(Lines):
    """Acknowledges first, and writes in a thread."""

    def append(self, session: str, text: str, id: str) -> None:
        def work() -> None:
            time.sleep(0.02)
            Lines.append(self, session, text, id)

        self.last = threading.Thread(target=work)
        self.last.start()

    def close(self) -> None:
        self.last.join()


class FlushesAtClose(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.files: dict[str, Any] = {}

    def write(self, session: str, entry: dict[str, str]) -> None:
        file = self.files.setdefault(session, self.file(session).open("ab"))
        file.write(json.dumps(entry).encode() + b"\n")

    def read(self, session: str) -> list[str]:
        self.close()
        return super().read(session)

    def close(self) -> None:
        for file in self.files.values():
            file.flush()


class RewritesInPlace(Lines):
    def write(self, session: str, entry: dict[str, str]) -> None:
        text = "".join(json.dumps(one) + "\n" for one in [*self.entries(session), entry])
        with self.file(session).open("w") as file:
            file.write(text)


class DoublesAtOpen(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for file in path.glob("*.jsonl"):
            entries = self.entries(file.stem)
            self.write(file.stem, {**entries[-1], "id": "doubled"})


class DropsTheLastAtOpen(Lines):
    """Takes a last line for torn that is whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for file in path.glob("*.jsonl"):
            file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


class SortsWhatItReads(Lines):
    def read(self, session: str) -> list[str]:
        return sorted(super().read(session))


class NewestFirst(Lines):
    def read(self, session: str) -> list[str]:
        return super().read(session)[::-1]


class StripsTexts(Lines):
    def read(self, session: str) -> list[str]:
        return [" ".join(text.split()) for text in super().read(session)]


class MixesSessions(Lines):
    def file(self, session: str) -> Path:
        return super().file("all")


class DropsRepeatedTexts(Lines):
    def is_known(self, session: str, id: str) -> bool:
        return any(entry["id"] in {id, self.text(entry)} for entry in self.entries(session))

    @staticmethod
    def text(entry: dict[str, str]) -> str:
        return entry["text"]

    def append(self, session: str, text: str, id: str) -> None:
        if text not in self.read(session):
            super().append(session, text, id)


class IgnoresIds(Lines):
    def is_known(self, session: str, id: str) -> bool:
        return False


class ForgetsIdsAtClose(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.ids: set[str] = set()

    def is_known(self, session: str, id: str) -> bool:
        known = id in self.ids
        self.ids.add(id)
        return known


class LooksBeforeItLocks(Lines):
    """Two processes that look for one id at the same time both write it."""

    def append(self, session: str, text: str, id: str) -> None:
        if not self.is_known(session, id):
            time.sleep(0.002)
            with self.locked():
                self.repair(session)
                self.write(session, {"id": id, "text": text})


class ReadsOnce(Lines):
    """What a process has read is not read again; its own messages are added."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.known: dict[str, list[str]] = {}

    def append(self, session: str, text: str, id: str) -> None:
        super().append(session, text, id)
        if session in self.known:
            self.known[session].append(text)

    def read(self, session: str) -> list[str]:
        return self.known.setdefault(session, super().read(session))


class ReadsAgainWhenItWrites(ReadsOnce):
    def append(self, session: str, text: str, id: str) -> None:
        Lines.append(self, session, text, id)
        self.known.pop(session, None)


class RecoversOneSession(Lines):
    """Marks where it writes; what finds the mark of a dead process keeps that session only."""

    def append(self, session: str, text: str, id: str) -> None:
        with self.locked():
            mark = self.path / "mark"
            if mark.is_symlink():
                self.keep_only(str(mark.readlink()))
                mark.unlink()
            mark.symlink_to(session)
            self.repair(session)
            if not self.is_known(session, id):
                self.write(session, {"id": id, "text": text})
            mark.unlink()

    def keep_only(self, session: str) -> None:
        for file in self.path.glob("*.jsonl"):
            if file != self.file(session):
                file.write_bytes(b"")


class RepairsOneSession(RecoversOneSession):
    """A torn line costs all other sessions."""

    def append(self, session: str, text: str, id: str) -> None:
        Lines.append(self, session, text, id)

    def repair(self, session: str) -> None:
        if self.file(session).exists() and not self.file(session).read_bytes().endswith(b"\n"):
            self.keep_only(session)
        super().repair(session)


class GivesEntries(Lines):
    def read(self, session: str) -> Any:
        return self.entries(session)


class GivesOneText(Lines):
    def read(self, session: str) -> Any:
        return "".join(super().read(session))


class GivesNothing(Lines):
    def read(self, session: str) -> Any:
        return None


class SaysWhatCannotBeShown(Lines):
    def append(self, session: str, text: str, id: str) -> None:
        raise ValueError("not \udcff")


class WritesFromACache(Lines):
    """Reads once, and writes what it has in memory over what another process wrote."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.cache: dict[str, list[dict[str, str]]] = {}

    def write(self, session: str, entry: dict[str, str]) -> None:
        known = self.cache.setdefault(session, self.entries(session))
        known.append(entry)
        other = self.file(session).with_suffix(".new")
        other.write_text("".join(json.dumps(one) + "\n" for one in known))
        other.replace(self.file(session))

    def read(self, session: str) -> list[str]:
        self.cache.setdefault(session, self.entries(session))
        return super().read(session)


class ReadsChangesWrites(WritesFromACache):
    """Reads before every write, but takes no lock."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def write(self, session: str, entry: dict[str, str]) -> None:
        self.cache[session] = self.entries(session)
        time.sleep(0.002)
        entries = [*self.cache[session], entry]
        other = self.path / f"{os.getpid()}.new"
        other.write_text("".join(json.dumps(one) + "\n" for one in entries))
        other.replace(self.file(session))


class RefusesOnceAndLoses(ReadsChangesWrites):
    """Refuses the first append of those at once; what follows is written without a lock."""

    def append(self, session: str, text: str, id: str) -> None:
        if text.endswith("at once 0"):
            raise ValueError("not now")
        super().append(session, text, id)


class RefusesTheSecondProcess(Lines):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lock = (path / "owner").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


class SwallowsTheNext(Lines):
    """Writes the next line right after a torn one, and skips the line that this makes."""

    def repair(self, session: str) -> None:
        pass

    def entries(self, session: str) -> list[dict[str, str]]:
        found = []
        for line in self.file(session).read_bytes().splitlines() if self.file(session).exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


class CannotReadATornLine(SwallowsTheNext):
    def entries(self, session: str) -> list[dict[str, str]]:
        lines = self.file(session).read_bytes().splitlines() if self.file(session).exists() else ()
        return [json.loads(line) for line in lines]


class BeginsAgainWhenTorn(CannotReadATornLine):
    def entries(self, session: str) -> list[dict[str, str]]:
        try:
            return super().entries(session)
        except ValueError:
            self.file(session).write_bytes(b"")
            return []


class GivesHalfAMessage(Lines):
    """Its lines are plain texts, so that half of one is a text too."""

    def repair(self, session: str) -> None:
        if self.file(session).exists() and not self.file(session).read_bytes().endswith(b"\n"):
            with self.file(session).open("a") as file:
                file.write("\n")

    def entries(self, session: str) -> list[dict[str, str]]:
        lines = self.file(session).read_text(errors="replace").splitlines() if self.file(session).exists() else ()
        return [{"id": line, "text": line} for line in lines]

    def write(self, session: str, entry: dict[str, str]) -> None:
        with self.file(session).open("a") as file:
            file.write(entry["text"] + "\n")


class ReadOnlyWhenTorn(Lines):
    def repair(self, session: str) -> None:
        if self.file(session).exists() and not self.file(session).read_bytes().endswith(b"\n"):
            raise RuntimeError("the file is damaged")


class Hangs(Lines):
    def append(self, session: str, text: str, id: str) -> None:
        time.sleep(600)


class EndsItsProcess(Lines):
    def append(self, session: str, text: str, id: str) -> None:
        os._exit(3)


# Each fault, the check that must find it, and what the check says.
PLANTED = [
    (WritesLater, "crash-while-writing", "lost"),
    (FlushesAtClose, "crash-while-writing", "lost"),
    (FlushesAtClose, "crash-inside", "lost"),
    (RewritesInPlace, "crash-inside", "lost"),
    (DropsTheLastAtOpen, "crash-inside", "lost"),
    (DoublesAtOpen, "crash-while-writing", "more than once"),
    (RecoversOneSession, "crash-inside", "in another session"),
    (RecoversOneSession, "crash-while-writing", "in another session"),
    (SortsWhatItReads, "crash-while-writing", "another order"),
    (DoublesAtOpen, "reopen", "more than once"),
    (DropsTheLastAtOpen, "reopen", "lost"),
    (NewestFirst, "reopen", "another order"),
    (GivesEntries, "reopen", "read must return texts, not dict"),
    (GivesOneText, "reopen", "read must return a list of texts, not str"),
    (GivesNothing, "reopen", "read must return a list of texts, not NoneType"),
    (StripsTexts, "reopen", "lost"),
    (MixesSessions, "reopen", "nobody wrote"),
    (DropsRepeatedTexts, "reopen", "lost"),
    (DropsRepeatedTexts, "idempotent-retry", "lost"),
    (IgnoresIds, "idempotent-retry", "more than once"),
    (ForgetsIdsAtClose, "idempotent-retry", "more than once"),
    (LooksBeforeItLocks, "idempotent-retry", "at the same time, "),
    (ReadsOnce, "two-processes", "does not read what a new process reads"),
    (ReadsAgainWhenItWrites, "two-processes", "does not read what a new process reads"),
    (WritesFromACache, "two-processes", "of process two, 5 of 5 acknowledged messages are lost"),
    (ReadsChangesWrites, "two-processes", "lost"),
    (RefusesOnceAndLoses, "two-processes", "lost"),
    (RefusesTheSecondProcess, "two-processes", "BlockingIOError"),
    (RepairsOneSession, "torn-tail", "in another session"),
    (SwallowsTheNext, "torn-tail", "lost"),
    (CannotReadATornLine, "torn-tail", "cannot be read"),
    (BeginsAgainWhenTorn, "torn-tail", "lost"),
    (GivesHalfAMessage, "torn-tail", "nobody wrote"),
    (ReadOnlyWhenTorn, "torn-tail", "nothing can be appended"),
    (Hangs, "reopen", "no answer within"),
    (EndsItsProcess, "reopen", "ended with status 3"),
]
