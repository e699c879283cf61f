"""What the children of the process tests do; each task reports facts and leaves the judgement to its test."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from itertools import count

import nacre
from tests.crash.warm import Say, forked

KEY = "shared"


def write_with_threads(say: Say, root: str, name: str, threads: int, messages: int) -> None:
    """Several threads write one session through one store."""
    with nacre.open(root) as sessions:

        def work(thread: int) -> None:
            for number in range(messages):
                sessions.add_message(KEY, "user", f"{name}.{thread}.{number}")

        _run_all([lambda thread=thread: work(thread) for thread in range(threads)])  # type: ignore[misc]
    say(done=name)


def _run_all(bodies: list[Callable[[], None]]) -> None:
    workers = [threading.Thread(target=body) for body in bodies]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def fork_while_a_thread_writes(say: Say, root: str) -> None:
    """Fork in the midst of writing; both sides write on, and the child then lives on without a part in it."""
    sessions = nacre.open(root)
    stop, warmed_up = threading.Event(), threading.Event()
    mine: list[str] = []

    def write() -> None:
        for number in count():
            sessions.add_message(KEY, "user", f"parent.{number}")
            mine.append(f"parent.{number}")
            if number >= 20:
                warmed_up.set()
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    warmed_up.wait()
    release, held = os.pipe()
    with forked(lambda say_up: _write_then_stay(say_up, sessions, release, held)) as child:
        os.close(release)
        say(child=child.hear("wrote"))
        sessions.add_message(KEY, "user", "beside the living child")
        mine_at_least = len(mine)
        stop.set()
        writer.join()
        sessions.close()
        with nacre.open(root) as again:
            again.add_message(KEY, "user", "from a fresh handle")
        os.close(held)
        say(status=child.finish().status)
    say(parent=mine, before=mine_at_least)


def _write_then_stay(say: Say, sessions: nacre.Sessions, until: int, inherited: int) -> None:
    """The forked child: write through the inherited store, then live until the parent closes the pipe."""
    os.close(inherited)
    texts = [f"child.{number}" for number in range(5)]
    for text in texts:
        sessions.add_message(KEY, "user", text)
    say(wrote=texts)
    os.read(until, 1)


def fork_and_close_in_the_child(say: Say, root: str) -> None:
    """The child closes the store it inherited; the parent's must not notice."""
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "before")
        with forked(lambda _: sessions.close()) as child:
            say(status=child.finish().status)
        sessions.add_message(KEY, "user", "after")
    say(done=True)


def write_many_sessions_with_few_descriptors(say: Say, root: str, sessions: int, descriptors: int) -> None:
    """More sessions than the process may have files open, each written twice and read."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    with nacre.open(root) as store:
        for text in ("one", "two"):
            for number in range(sessions):
                store.add_message(f"chat:{number}", "user", f"{text} {number}")
        say(wrong=[n for n in range(sessions) if len(store.get_history(f"chat:{n}")) != 2])
        say(listed=sum(1 for _ in store.list()))


def write_under_a_file_size_limit(say: Say, root: str) -> None:
    """Real short writes and EFBIG: three refusals, then the limit is lifted in the same process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    refused = 0
    with nacre.open(root) as sessions:
        for number in count():
            text = f"{number} " + "x" * 9_000
            try:
                sessions.add_message("limited", "user", text)
                say(acknowledged=text)
            except nacre.Refused:
                refused += 1
            if refused == 3:
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sessions.add_message("limited", "user", "lifted")
    say(acknowledged="lifted")
    say(refused=refused)


def delete_while_another_writes(say: Say, root: str) -> None:
    """One process deletes the session that another is writing in a loop."""
    with forked(lambda say_up: _write_until_told(say_up, root)) as writer:
        writer.hear("tenth")
        with nacre.open(root) as sessions:
            sessions.delete(KEY)
            say(deleted=True)
        say(ended=writer.hear("ended"))


def _write_until_told(say: Say, root: str) -> None:
    """Write until the store objects, and say with what."""
    with nacre.open(root) as sessions:
        for number in range(20_000):
            try:
                sessions.add_message(KEY, "user", f"old {number}")
            except nacre.StoreError as error:
                say(ended=type(error).__name__)
                return
            if number == 10:
                say(tenth=True)
    say(ended="never")


def archive_while_another_writes(say: Say, root: str) -> None:
    """One process archives the session that another is writing in a loop."""
    going, stop = os.pipe()
    with forked(lambda say_up: _write_until_closed(say_up, root, going, stop)) as writer:
        os.close(going)
        writer.hear("tenth")
        with nacre.open(root) as sessions:
            # Before it is archived: the other may have begun the next one as soon as that is done.
            first = sessions.transcript(KEY)[-1].generation
            sessions.archive(KEY)
            while sessions.transcript(KEY)[-1].generation == first:
                pass
        os.close(stop)
        say(written=writer.hear("written"))


def _write_until_closed(say: Say, root: str, going: int, stop: int) -> None:
    os.close(stop)
    os.set_blocking(going, False)
    with nacre.open(root) as sessions:
        for number in count():
            sessions.add_message(KEY, "user", str(number))
            if number == 10:
                say(tenth=True)
            if _is_closed(going):
                say(written=number + 1)
                return


def _is_closed(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False


def read_while_another_writes(say: Say, root: str, messages: int) -> None:
    """A reader looks again and again while a writer appends groups and compacts."""
    with forked(lambda say_up: _write_groups(say_up, root, messages)) as writer, nacre.open(root) as sessions:
        seen = 0
        while seen < messages * 3:
            texts = [str(entry.message.content)[:8] for entry in sessions.transcript(KEY)]
            expected = [f"{number:06}.{part}" for number in range(messages) for part in range(3)]
            if texts != expected[: len(texts)] or len(texts) % 3 or len(texts) < seen:
                say(wrong=texts[-5:])
                return
            seen = len(texts)
        say(findings=[str(finding) for finding in sessions.verify().findings])
        say(status=writer.finish().status)


def _write_groups(say: Say, root: str, messages: int) -> None:
    with nacre.open(root) as sessions:
        for number in range(messages):
            texts = [f"{number:06}.{part}" + "z" * 4_000 for part in range(3)]
            sessions.add_messages(KEY, [nacre.Message(role="user", content=text) for text in texts])
            if number % 40 == 39:
                sessions.truncate_history(KEY, 3)
                sessions.save(KEY)
    say(done=True)
