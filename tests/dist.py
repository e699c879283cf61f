"""Builds the wheel and the sdist, checks what is in them, and tries both in empty environments: `make dist`.

`python -m tests.dist` builds into dist/ what is in the tree. Each of the two is installed with the lowest and with the
newest version of every dependency; then a store is written and reopened, the commands run, every module is imported
whose dependencies are there, and `nacre chat` asks a model that answers from a script.

Some extras are tried with the wheel alone, each in an environment of its own: something is appended through what the
extra is for, and read back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.version import Version

import nacre
from nacre.cli.failures import EXTRAS as OPTIONAL
from tests.lowest import constraints
from tests.postgres.servers import PostgresServer

ROOT = Path(__file__).parents[1]
EXTRAS = ("agent", "serve", "acp", "otel")
"""The extras that are tried, each next to those before it."""
ALONE = ("mcp", "postgres", "openai-agents", "langgraph")
"""The extras that are tried each in an environment of its own.

The adapters of other frameworks are tried by `make adapters`, from the tree.
"""
ANSWER = "Nothing acknowledged is lost."

MODULES = {extra: {module for module, of in OPTIONAL.items() if of == extra} for extra in set(OPTIONAL.values())}
MODULES["mcp"] |= {"mcp_types", "pydantic"}  # what the client package brings
"""What a module may lack where an extra is not installed; for adapters it is what mypy does not find either."""
_JUNK = {"__pycache__", ".venv", ".git", ".hypothesis", "build", "dist", "node_modules"}
_JUNK_ENDS = (".pyc", ".pyo", ".so", ".orig", ".rej", ".swp", ".log", ".sqlite", "~", "_cache")
_NEEDED = ("LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", "src/nacre/py.typed", "tests/dist.py")

STORE = f"""
import sys, nacre
with nacre.open(sys.argv[1]) as sessions:
    for number in range(100):
        sessions.add_message("tried", "user", f"message {{number}}", id=str(number))
with nacre.open(sys.argv[1]) as sessions:
    texts = [message.content for message in sessions.get_history("tried")]
    assert texts == [f"message {{number}}" for number in range(100)], texts
assert nacre.__version__ == {nacre.__version__!r}, nacre.__version__
assert nacre.__file__.startswith(sys.prefix), nacre.__file__
"""
USES = {
    "mcp": """
import os, sys, anyio
from mcp import Client, StdioServerParameters, stdio_client
async def main():
    command = os.path.join(sys.prefix, "bin", "nacre")
    words = ["mcp", "serve", "--write", "used"]
    async with Client(stdio_client(StdioServerParameters(command=command, args=words, env=dict(os.environ)))) as client:
        await client.call_tool("append_message", {"key": "used", "text": "hello"})
        read = await client.call_tool("read_session", {"key": "used"})
        assert [one["text"] for one in read.structured_content["messages"]] == ["hello"], read
anyio.run(main)
""",
    "postgres": """
import sys, nacre
for is_new in (True, False):
    with nacre.open(sys.argv[2]) as sessions:
        if is_new:
            sessions.add_message("used", "user", "hello")
        assert [message.content for message in sessions.get_history("used")] == ["hello"]
""",
    "openai-agents": """
import asyncio, sys, nacre
from nacre.integrations.openai_agents import NacreSession
async def main():
    item = {"role": "user", "content": "hello"}
    for is_new in (True, False):
        with nacre.open(sys.argv[1]) as sessions:
            session = NacreSession("used", sessions)
            if is_new:
                await session.add_items([item])
            assert await session.get_items() == [item]
asyncio.run(main())
""",
    "langgraph": """
import sys, nacre
from langgraph.checkpoint.base import empty_checkpoint
from nacre.integrations.langgraph import NacreSaver
config = {"configurable": {"thread_id": "used", "checkpoint_ns": ""}}
for is_new in (True, False):
    with nacre.open(sys.argv[1]) as sessions:
        saver = NacreSaver(sessions)
        if is_new:
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"], checkpoint["channel_versions"] = {"said": "hello"}, {"said": 1}
            saver.put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {"said": 1})
        assert saver.get_tuple(config).checkpoint["channel_values"] == {"said": "hello"}
""",
}
"""What is done with an extra that is tried alone; it is given a folder for a store, and the address of a database."""
VERSIONS = """
import json
from importlib.metadata import distributions
print(json.dumps([(one.metadata["Name"].lower().replace("_", "-"), one.version) for one in distributions()]))
"""
IMPORTS = """
import importlib, pkgutil, nacre
found, missing = 0, {}
for module in pkgutil.walk_packages(nacre.__path__, "nacre.", onerror=lambda _: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
        found += 1
    except ImportError as error:
        missing[module.name] = error.name or ""
import json
print(json.dumps([found, missing]))
"""


class Broken(Exception):
    """What was built is not as it should be."""


# ---- building


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of the tree; earlier ones in the folder are removed."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("nacre_sessions-*"):
        old.unlink()
    wheel = Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))
    return wheel, Path(next(SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def wheel_problems(names: Iterable[str], package: Iterable[str]) -> list[str]:
    """What is wrong with the files of a wheel, given those that the package has in the tree."""
    packed, ours = set(names), {f"nacre/{name}" for name in package}
    info = {name for name in packed if name.split("/")[0].endswith(".dist-info")}
    wanted = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    missing = [name for name in wanted if not any(one.endswith(f".dist-info/{name}") for one in info)]
    return [
        *(f"the wheel lacks {name}" for name in sorted(ours - packed)),
        *(f"the wheel has {name}, which is not in the package" for name in sorted(packed - ours - info)),
        *(f"the wheel lacks {name} among its data" for name in missing),
    ]


def sdist_problems(names: Iterable[str], tracked: Iterable[str]) -> list[str]:
    """What is wrong with the files of an sdist, given those that git has; none if there is no git."""
    packed, known = set(names), set(tracked)
    wrong = [f"the sdist lacks {name}" for name in _NEEDED if name not in packed]
    for name in sorted(packed):
        parts = PurePosixPath(name).parts
        if _JUNK & {*parts} or any(part.endswith(_JUNK_ENDS) for part in parts):
            wrong.append(f"the sdist has {name}, which nobody wrote")
        elif known and name not in known and name != "PKG-INFO":
            wrong.append(f"the sdist has {name}, which is not committed")
    return wrong


def check(wheel: Path, sdist: Path) -> None:
    """Check the contents of both, and that the sdist gives the same wheel; raises Broken."""
    package = ROOT / "src" / "nacre"
    ours = [path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()]
    packed = contents(wheel)
    wrong = wheel_problems(packed, (name for name in ours if "__pycache__" not in name))
    with tarfile.open(sdist) as archive:
        names = [PurePosixPath(member.name) for member in archive.getmembers() if not member.isdir()]
    if len({name.parts[0] for name in names}) != 1:
        wrong.append("the sdist has more than one folder")
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    wrong += sdist_problems(("/".join(name.parts[1:]) for name in names), git.stdout.splitlines())
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        [tree] = Path(folder).iterdir()
        again = Path(next(WheelBuilder(str(tree)).build(directory=folder, versions=["standard"])))
        if contents(again) != packed or again.name != wheel.name:
            wrong.append("the wheel that the sdist gives is another one")
    if wrong:
        raise Broken("\n".join(wrong))


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# ---- trying


def try_package(package: Path, pins: Sequence[str], *, room: Path) -> list[str]:
    """Install a wheel or an sdist in an empty environment and use it; returns what was done, raises Broken.

    `pins` are the versions that must be installed, as `name==version`; of all else it is the newest.
    """
    python, nacre_command = make_environment(room)
    home = {"HOME": str(room / "user"), "NACRE_HOME": str(room / "store")}
    done = []
    for at, extra in enumerate(("", *EXTRAS)):
        wanted = f"{package}[{extra}]" if extra else str(package)
        install(wanted, pins, room=room)
        run([str(python), "-W", "error", "-c", STORE, home["NACRE_HOME"]], home)
        expect(run([nacre_command, "--version"], home), nacre.__version__)
        expect(run([nacre_command, "sessions", "list"], home), "tried")
        count, left_out = try_imports(python, EXTRAS[:at], home)
        done.append(f"{extra or 'alone'}: {count} modules imported, {left_out} need other extras")
    check_versions(python, pins)
    with answering_server() as url:
        chat = {
            **home,
            "NACRE_AGENT_PROVIDER": "openai",
            "NACRE_AGENT_MODEL": "scripted",
            "NACRE_OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
        }
        expect(run([nacre_command, "chat", "-p", "What is lost?"], chat), ANSWER)
    expect(run([nacre_command, "sessions", "search", "acknowledged"], home), "acknowledged")
    return done


def try_alone(wheel: Path, extra: str, pins: Sequence[str], *, room: Path, database: str) -> str:
    """Install a wheel with one extra and use it; returns what was done, raises Broken."""
    python, nacre_command = make_environment(room)
    home = {"HOME": str(room / "user"), "NACRE_HOME": str(room / "store")}
    install(f"{wheel}[{extra}]", pins, room=room)
    check_versions(python, pins)
    run([str(python), "-W", "error", "-c", STORE, home["NACRE_HOME"]], home)
    if extra == "postgres":
        run([nacre_command, "store", "init", database], home)
    run([str(python), "-c", USES[extra], home["NACRE_HOME"], database], home)
    # The extra `mcp` has all of `agent`.
    count, left_out = try_imports(python, ["agent", extra] if extra == "mcp" else [extra], home)
    return f"{extra}: {count} modules imported, {left_out} need other extras; appended and read"


def make_environment(room: Path) -> tuple[Path, str]:
    """An empty environment and a home directory; its Python and its `nacre`."""
    (room / "user").mkdir(parents=True)
    run([sys.executable, "-m", "venv", "--without-pip", str(room / "venv")])
    return room / "venv" / "bin" / "python", str(room / "venv" / "bin" / "nacre")


def install(wanted: str, pins: Sequence[str], *, room: Path) -> None:
    limits = room / "pins.txt"
    limits.write_text("\n".join(pins))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "10", "--timeout", "60"]
    run([*pip, "--python", str(room / "venv" / "bin" / "python"), "install", "--constraint", str(limits), wanted])


def check_versions(python: Path, pins: Sequence[str]) -> None:
    """Raise Broken if another version than a pinned one is installed."""
    versions = {name: Version(version) for name, version in json.loads(run([str(python), "-c", VERSIONS], {}))}
    for name, _, version in (pin.partition("==") for pin in pins):
        if versions.get(name, Version(version)) != Version(version):
            raise Broken(f"{name} {versions[name]} was installed instead of {version}")


def try_imports(python: Path, extras: Sequence[str], home: Mapping[str, str]) -> tuple[int, int]:
    """Import every module; raises Broken if one lacks what is in an extra that is installed, or in none."""
    count, missing = json.loads(run([str(python), "-c", IMPORTS], home).splitlines()[-1])
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    allowed = {name.partition(".")[0] for override in overrides for name in override["module"]} - {"nacre"}
    allowed = allowed.union(*(names for extra, names in MODULES.items() if extra not in extras))
    wrong = [
        f"{module} needs {name or 'something'}, which no other extra has"
        for module, name in missing.items()
        if name.partition(".")[0] not in allowed
    ]
    if wrong:
        raise Broken("\n".join(wrong))
    return count, len(missing)


def run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """What a command printed; raises Broken if it fails. With `environ` it has no other variables but PATH."""
    env = None if environ is None else {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environ}
    with tempfile.TemporaryDirectory() as folder:  # not in the tree, whose modules would be found first
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        words = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Broken(f"{' '.join(command)[:200]} ended with {done.returncode}:\n{words}")
    return done.stdout


def expect(output: str, text: str) -> None:
    if text not in output:
        raise Broken(f"{text!r} is not in what was printed: {output[:500]!r}")


@contextmanager
def answering_server() -> Iterator[str]:
    """The URL of a server on loopback that answers every request for a chat with the same words."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send("application/json", json.dumps({"object": "list", "data": [{"id": "scripted"}]}))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            choices = [{"index": 0, "delta": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}]
            piece = {"id": "1", "object": "chat.completion.chunk", "model": "scripted", "choices": choices}
            self._send("text/event-stream", f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n")

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dist", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="where the two are written")
    folder = parser.parse_args().folder
    say = sys.stdout.write
    try:
        wheel, sdist = build(folder)
        check(wheel, sdist)
        say(f"built {wheel.name} and {sdist.name}: their contents are right, and the sdist gives the same wheel\n")
        with tempfile.TemporaryDirectory() as temporary, PostgresServer(fast=True) as server:
            for package in (wheel, sdist):
                for name, pins in (("lowest", constraints(EXTRAS)), ("newest", [])):
                    room = Path(temporary) / f"{package.suffix[1:]}-{name}"
                    done = try_package(package.resolve(), pins, room=room)
                    say(f"{package.name}, {name} dependencies: {'; '.join(done)}; store, commands and chat work\n")
            for extra in ALONE:
                for name, pins in (("lowest", constraints([extra], with_own=False)), ("newest", [])):
                    room = Path(temporary) / f"{extra}-{name}"
                    address = f"{server.url()}?schema={name}"
                    said = try_alone(wheel.resolve(), extra, pins, room=room, database=address)
                    say(f"{wheel.name}, {name} dependencies: {said}\n")
    except Broken as error:
        say(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
