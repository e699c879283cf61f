"""What a command meets in a sandbox, and what is left of it: the same for every kind, and mostly for none."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from nacre.errors import ToolError
from nacre.sandbox.policy import SYSTEM
from nacre.sandbox.process_tree import CGROUPS
from nacre.sandbox.sandboxes import Sandboxed
from tests.readable import is_readable
from tests.sandbox.places import CONFINED, ran, sandbox, usable

KINDS = [*CONFINED, "off"]
every_kind = pytest.mark.parametrize("kind", KINDS)
confined = pytest.mark.parametrize("kind", CONFINED)


@every_kind
def test_the_status_is_that_of_the_command(kind: str, tmp_path: Path) -> None:
    assert ran(kind, tmp_path, "sh", "-c", "exit 7").status == 7


@every_kind
def test_a_signal_is_a_negative_status(kind: str, tmp_path: Path) -> None:
    assert ran(kind, tmp_path, "sh", "-c", "kill -TERM $$").status == -signal.SIGTERM


@every_kind
def test_output_and_errors_come_in_their_order(kind: str, tmp_path: Path) -> None:
    assert ran(kind, tmp_path, "sh", "-c", "echo 1; echo 2 >&2; echo 3").output == b"1\n2\n3\n"


@every_kind
def test_words_arrive_as_they_are(kind: str, tmp_path: Path) -> None:
    words = ["", "a b", "'", '"$HOME"', "two\nlines", "\\", "ü😀", "-n", "\udcff", "x" * 100_000]
    finished = ran(kind, tmp_path, "printf", "%s|", *words, max_bytes=1 << 20)
    assert finished.output == b"".join(os.fsencode(word) + b"|" for word in words)


@every_kind
def test_the_command_works_in_the_workspace(kind: str, tmp_path: Path) -> None:
    assert ran(kind, tmp_path, "sh", "-c", "pwd; echo done >file").output.decode() == f"{tmp_path}\n"
    assert (tmp_path / "file").read_text() == "done\n"


@every_kind
def test_stdin_is_empty(kind: str, tmp_path: Path) -> None:
    assert ran(kind, tmp_path, "cat").status == 0


@every_kind
def test_the_environment_is_clean(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_TEST_TOKEN", "secret")
    monkeypatch.setenv("TZ", "UTC")
    output = ran(kind, tmp_path, "env").output.decode()
    assert "secret" not in output
    assert {"HOME", "PATH", "TZ"} <= {line.partition("=")[0] for line in output.splitlines()}


def test_a_store_among_the_programs_is_hidden(tmp_path: Path) -> None:
    opt, room = tmp_path / "opt", tmp_path / "room"
    (opt / "store").mkdir(parents=True)
    (opt / "store" / "diary").write_text("very private")
    room.mkdir()
    places = (*SYSTEM, str(opt))
    look = f"cat {opt}/store/diary; ls {opt}"
    found = ran("bwrap", room, "sh", "-c", look, hidden=[str(opt / "store")], system=places).output
    assert (b"private" in found, b"Permission denied" in found, b"store" in found) == (False, True, True)


@every_kind
def test_output_is_bounded_and_the_command_goes_on(kind: str, tmp_path: Path) -> None:
    finished = ran(kind, tmp_path, "sh", "-c", "head -c 3000000 /dev/zero; echo end >file", max_bytes=1000)
    assert (finished.status, finished.output, finished.cut) == (0, bytes(1000), True)
    assert (tmp_path / "file").exists()


@every_kind
def test_output_that_just_fits_is_not_cut(kind: str, tmp_path: Path) -> None:
    finished = ran(kind, tmp_path, "printf", "12345", max_bytes=5)
    assert (finished.output, finished.cut) == (b"12345", False)


@every_kind
def test_endless_output_ends_with_the_time(kind: str, tmp_path: Path) -> None:
    finished = ran(kind, tmp_path, "yes", timeout=0.3, max_bytes=10)
    assert (finished.timed_out, finished.output, finished.cut) == (True, b"y\n" * 5, True)


@every_kind
def test_what_was_printed_before_the_time_was_up_is_kept(kind: str, tmp_path: Path) -> None:
    finished = ran(kind, tmp_path, "sh", "-c", "echo begun; sleep 1000", timeout=1)
    assert (finished.timed_out, finished.output) == (True, b"begun\n")


@confined
def test_a_program_that_does_not_exist_is_a_failed_command(kind: str, tmp_path: Path) -> None:
    finished = ran(kind, tmp_path, "no-such-program")
    assert finished.status == 127
    assert b"no-such-program" in finished.output


def test_a_program_that_does_not_exist_is_an_error_without_a_sandbox(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no-such-program"):
        ran("off", tmp_path, "no-such-program")


@every_kind
@pytest.mark.parametrize("command", [[], ["echo", "a\0b"]])
def test_an_impossible_command_is_refused(kind: str, command: list[str], tmp_path: Path) -> None:
    with pytest.raises(ToolError):
        ran(kind, tmp_path, *command)


LEAVER = """
import fcntl, os, signal, sys
begin, end = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        lock = open("lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(1, b"locked")
        os.write(end, b"x")
        os.closerange(0, 3)
        signal.pause()
    os._exit(0)
os.read(begin, 1)
if sys.argv[1] == "wait":
    signal.pause()
"""


def left_behind(workspace: Path) -> bool:
    """Whether a process of LEAVER's lives."""
    with (workspace / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():  # noqa: ASYNC110 - another process makes it so
            await anyio.sleep(0.01)


@every_kind
def test_nothing_is_left_when_the_command_ends(kind: str, tmp_path: Path) -> None:
    assert ran(kind, tmp_path, "/usr/bin/python3", "-c", LEAVER, "go").output == b"locked"
    assert not left_behind(tmp_path)


@every_kind
def test_nothing_is_left_when_the_time_is_up(kind: str, tmp_path: Path) -> None:
    finished = ran(kind, tmp_path, "/usr/bin/python3", "-c", LEAVER, "wait", timeout=1.5)
    assert (finished.timed_out, finished.output) == (True, b"locked")
    assert not left_behind(tmp_path)


@every_kind
def test_nothing_is_left_when_the_caller_is_cancelled(kind: str, tmp_path: Path) -> None:
    usable(kind)

    async def main() -> None:
        box = await sandbox(kind, tmp_path)
        async with anyio.create_task_group() as group:
            command = ["/usr/bin/python3", "-c", LEAVER, "wait"]
            group.start_soon(lambda: box.run(command, timeout=100, max_bytes=100))
            await until(lambda: (tmp_path / "lock").exists() and left_behind(tmp_path))
            group.cancel_scope.cancel()

    anyio.run(main)
    assert not left_behind(tmp_path)


AGENT = """
import anyio, sys
from nacre.sandbox import find
async def main():
    found = await find(sys.argv[2], kind=sys.argv[1])
    await found.sandbox.run(["/usr/bin/python3", "-c", sys.argv[3], "wait"], timeout=100, max_bytes=100)
anyio.run(main)
"""


@confined
def test_nothing_is_left_when_the_agent_is_killed(kind: str, tmp_path: Path) -> None:
    usable(kind)
    (tmp_path / "tmp").mkdir()  # it cannot clean up
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    agent = subprocess.Popen([sys.executable, "-c", AGENT, kind, str(tmp_path), LEAVER], env=environment)

    async def main() -> None:
        await until(lambda: (tmp_path / "lock").exists() and left_behind(tmp_path))
        agent.kill()
        agent.wait()
        await until(lambda: not left_behind(tmp_path))

    anyio.run(main)


@confined
def test_many_commands_at_once_do_not_meet(kind: str, tmp_path: Path) -> None:
    usable(kind)
    seen: set[bytes] = set()

    async def main() -> None:
        box = await sandbox(kind, tmp_path)

        async def one(number: int) -> None:
            command = ["sh", "-c", f"echo {number} >>/tmp/mine; cat /tmp/mine"]
            seen.add((await box.run(command, timeout=20, max_bytes=100)).output)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, number)

    anyio.run(main)
    assert seen == {f"{number}\n".encode() for number in range(8)}


@confined
def test_a_sandbox_may_be_used_from_one_loop_after_another(kind: str, tmp_path: Path) -> None:
    usable(kind)
    box = anyio.run(sandbox, kind, tmp_path)

    async def main() -> bytes:
        await box.run(["true"], timeout=20, max_bytes=100)
        await anyio.sleep(0.05)  # time for the next one to be made ready
        return (await box.run(["echo", "here"], timeout=20, max_bytes=100)).output

    assert [anyio.run(main), anyio.run(main)] == [b"here\n"] * 2


@confined
def test_nobody_waits_while_a_sandbox_is_taken_down(kind: str, tmp_path: Path) -> None:
    usable(kind)
    threads: list[int] = []
    is_over = threading.Event()

    def note(event: str, args: tuple[object, ...]) -> None:
        if event == "shutil.rmtree" and not is_over.is_set() and "nacre-sandbox-" in str(args[0]):
            threads.append(threading.get_ident())

    async def main() -> None:
        hidden = tmp_path / "hidden"
        hidden.write_text("old")
        box = await sandbox(kind, tmp_path, hidden=[str(hidden)])
        assert isinstance(box, Sandboxed)
        sys.addaudithook(note)  # it stays, and notes nothing any more
        for number in range(3):
            await box.run(["true"], timeout=20, max_bytes=100)
            # The one that is made ready is for other files by then, and is taken down unused.
            box.prepare()
            (tmp_path / "new").write_text(f"{number}")
            (tmp_path / "new").replace(hidden)
        await asyncio.get_running_loop().shutdown_default_executor()
        is_over.set()  # the one that is ready for the next command goes with the box

    anyio.run(main)
    assert threads
    assert threading.get_ident() not in threads


@confined
def test_one_made_ready_for_other_files_is_not_used(kind: str, tmp_path: Path) -> None:
    usable(kind)
    hidden = tmp_path / "hidden"
    hidden.write_text("old")

    async def main() -> bytes:
        box = await sandbox(kind, tmp_path, hidden=[str(hidden)])
        assert isinstance(box, Sandboxed)
        box.prepare()
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").replace(hidden)
        return (await box.run(["sh", "-c", "cat hidden"], timeout=20, max_bytes=100)).output

    assert b"new" not in anyio.run(main)


@confined
def test_what_is_frozen_can_be_read_and_not_written(kind: str, tmp_path: Path) -> None:
    (tmp_path / "frozen").mkdir()
    for name in ("file", "frozen/file", "free"):
        (tmp_path / name).write_text("as it was\n")
    script = "cat file frozen/file; echo new >file; echo new >frozen/file; touch frozen/more; echo new >free"
    frozen = [str(tmp_path / name) for name in ("file", "frozen", "missing")]
    assert ran(kind, tmp_path, "sh", "-c", script, frozen=frozen).output.startswith(b"as it was\nas it was\n")
    assert [(tmp_path / name).read_text() for name in ("file", "frozen/file")] == ["as it was\n"] * 2
    assert (tmp_path / "free").read_text() == "new\n"
    assert [path.name for path in (tmp_path / "frozen").iterdir()] == ["file"]


@confined
def test_a_frozen_file_that_was_replaced_is_frozen_again(kind: str, tmp_path: Path) -> None:
    usable(kind)
    frozen = tmp_path / "frozen"
    frozen.write_text("old")

    async def main() -> bytes:
        box = await sandbox(kind, tmp_path, frozen=[str(frozen)])
        assert isinstance(box, Sandboxed)
        box.prepare()
        (tmp_path / "new").write_text("new")
        (tmp_path / "new").replace(frozen)
        return (await box.run(["sh", "-c", "cat frozen; echo forged >frozen"], timeout=20, max_bytes=100)).output

    assert anyio.run(main).startswith(b"new")
    assert frozen.read_text() == "new"


@confined
def test_what_is_hidden_in_something_frozen_stays_hidden(kind: str, tmp_path: Path) -> None:
    (tmp_path / "frozen" / "hidden").mkdir(parents=True)
    (tmp_path / "frozen" / "hidden" / "file").write_text("SECRET")
    frozen, hidden = [str(tmp_path / "frozen")], [str(tmp_path / "frozen" / "hidden")]
    finished = ran(kind, tmp_path, "cat", "frozen/hidden/file", frozen=frozen, hidden=hidden)
    assert (finished.status != 0, b"SECRET" in finished.output) == (True, False)


@confined
def test_the_scratch_folder_goes_whatever_was_put_in_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    script = 'mkdir -p "$TMPDIR/a/b" && touch /tmp/a/b/c && chmod 0 /tmp/a/b /tmp/a && test -w /dev/shm'
    (tmp_path / "room").mkdir()
    finished = ran(kind, tmp_path / "room", "sh", "-c", script)
    assert (finished.status, finished.output) == (0, b"")
    assert list(scratch.iterdir()) == []


@confined
def test_programs_inside_may_talk_to_each_other(kind: str, tmp_path: Path) -> None:
    script = (
        "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_connection(a.getsockname()); print('met')"
    )
    assert ran(kind, tmp_path, "/usr/bin/python3", "-c", script).output == b"met\n"


@every_kind
def test_the_network_is_there_if_allowed(kind: str, tmp_path: Path) -> None:
    lines = ran(kind, tmp_path, "cat", "/proc/net/dev", network=True).output.splitlines()
    assert len(lines) == len(Path("/proc/net/dev").read_bytes().splitlines())


@confined
@pytest.mark.parametrize("network", [True, False])
def test_there_are_no_unix_sockets(kind: str, network: bool, tmp_path: Path) -> None:
    script = "import socket; socket.socket(socket.AF_UNIX)"
    assert b"PermissionError" in ran(kind, tmp_path, "/usr/bin/python3", "-c", script, network=network).output


@confined
def test_pairs_of_sockets_work(kind: str, tmp_path: Path) -> None:
    pair = "import asyncio, socket; a, b = socket.socketpair(); a.send(b'met'); print(b.recv(3).decode());"
    assert ran(kind, tmp_path, "/usr/bin/python3", "-c", f"{pair} asyncio.run(asyncio.sleep(0))").output == b"met\n"


@confined
def test_more_folders_can_be_made_readable(kind: str, tmp_path: Path) -> None:
    room, more = tmp_path / "room", tmp_path / "more"
    for folder in (room, more):
        folder.mkdir()
    (more / "file").write_text("readable")
    script = f"cat {more}/file; touch {more}/file"
    finished = ran(kind, room, "sh", "-c", script, readable=[str(more)])
    assert finished.output.startswith(b"readable")
    assert finished.status != 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root's processes need control groups")
def test_no_control_group_is_left(tmp_path: Path) -> None:
    ran("bwrap", tmp_path, "true")
    gc.collect()
    assert [path for place in CGROUPS for path in Path(place).glob(f"nacre-{os.getpid()}-*")] == []


def ends(output: int) -> bool:
    while is_readable(output, 5):
        if not os.read(output, 4096):
            return True
    return False


@confined
def test_one_that_is_never_used_ends_however_early(kind: str, tmp_path: Path) -> None:
    usable(kind)
    box = anyio.run(sandbox, kind, tmp_path)
    assert isinstance(box, Sandboxed)
    for milliseconds in range(0, 40, 2):
        box.prepare()
        time.sleep(milliseconds / 1000)  # to meet it at every stage of its start
        assert box._ready is not None
        output = os.dup(box._ready.output)  # ends when the last process that prints to it does
        box.close()
        assert ends(output)
        os.close(output)


@confined
def test_one_that_is_never_used_ends_where_a_thousand_files_are_open(kind: str, tmp_path: Path) -> None:
    usable(kind)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2000:
        pytest.skip("so many files cannot be opened here")
    box = anyio.run(sandbox, kind, tmp_path)
    assert isinstance(box, Sandboxed)
    with ExitStack() as stack:
        for _ in range(1100):
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        box.prepare()
        assert box._ready is not None
        output = os.dup(box._ready.output)
        box.close()
        assert ends(output)
        os.close(output)
