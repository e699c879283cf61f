"""What a command that has just been started costs: `import nacre`, and the command line itself."""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, shown
from benchmarks.scene import Scene

_UNWANTED = ("asyncio", "ssl", "sqlite3")
_COMMAND = "import sys; from nacre.cli import main; sys.exit(main())"
_SCAN = "import os, sys; [entry.stat() for entry in os.scandir(f'{sys.argv[1]}/sessions')]"
_LOADED = f"import nacre, sys; print(*(name for name in {_UNWANTED!r} if name in sys.modules))"


def importing(scene: Scene) -> Iterator[Row]:
    """Start-up with the import against start-up alone, in an environment with nothing else."""
    python = _environment(scene)
    runs = max(10, scene.sizes.runs)
    with measure.awake():
        samples = measure.interleave(
            {"pass": lambda: _run(python, "pass"), "nacre": lambda: _run(python, "import nacre")},
            rounds=runs,
            warm=2,
        )
    bare, ours = min(samples["pass"]), min(samples["nacre"])
    cpu = _cpu(python, "import nacre") / _cpu(python, "pass")
    yield at_most(
        f"import nacre against python -c pass, best of {runs}, clean venv, bytecode present",
        ours / bare,
        5,
        absolute=f"{micros(bare)}, {micros(ours)}; by CPU time {shown(cpu)}",
    )
    loaded = _run(python, _LOADED).strip()
    yield Row(
        what=f"of {', '.join(_UNWANTED)}, loaded by import nacre",
        measured=loaded or "none",
        bar="none",
        met=not loaded,
    )


def command_line(scene: Scene) -> Iterator[Row]:
    """`nacre --help`, and a list of many sessions from an index that is up to date, against the bare interpreter."""
    python, store, cache = _environment(scene), str(scene.listed), scene.room("command-cache")
    listing = ("sessions", "list", "--store", store)
    runs = max(10, scene.sizes.runs)

    def run(*words: str) -> str:
        return _run(python, _COMMAND, *words, XDG_CACHE_HOME=str(cache))

    run(*listing)
    with measure.awake():
        samples = measure.interleave(
            {
                "pass": lambda: _run(python, "pass"),
                "help": lambda: run("--help"),
                "list": lambda: run(*listing),
                "scandir": lambda: _run(python, _SCAN, store),
            },
            rounds=runs,
            warm=2,
        )
    bare, floor = min(samples["pass"]), min(samples["scandir"])
    scanned = f"scandir + stat alone {shown(floor / bare)}"
    for name, what, bar, more in (
        ("help", "nacre --help", 5, ""),
        ("list", f"nacre sessions list, {scene.sizes.listed:,} sessions, warm index,", 15, f"; {scanned}"),
    ):
        took = min(samples[name])
        words = ("--help",) if name == "help" else listing
        cpu = _cpu(python, _COMMAND, *words, XDG_CACHE_HOME=str(cache)) / _cpu(python, "pass")
        absolute = f"{micros(bare)}, {micros(took)}; by CPU time {shown(cpu)}{more}"
        yield at_most(f"{what} against python -c pass, best of {runs}", took / bare, bar, absolute=absolute)


def _environment(scene: Scene) -> Path:
    """The clean environment of a run, made once."""
    python = scene.root / "clean" / "bin" / "python"
    return python if python.exists() else _clean_environment(scene.room("clean"))


def _clean_environment(room: Path) -> Path:
    """An environment with the package and what it requires, copied, and nothing else."""
    venv.create(room, with_pip=False, symlinks=True)
    site = next(room.glob("lib/python*/site-packages"))
    shutil.copytree(Path(nacre.__file__).parent, site / "nacre", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _requirements():
        _copy_distribution(name, site)
    compileall.compile_dir(site, quiet=1)
    return room / "bin" / "python"


def _requirements() -> list[str]:
    """The distributions that the package itself requires, extras left out."""
    declared = importlib.metadata.requires("nacre-sessions") or []
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in declared if "extra ==" not in line]


def _copy_distribution(name: str, site: Path) -> None:
    """Copy what is installed under that name; nothing, if this Python does not need it."""
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(file.locate()), target)


def _cpu(python: Path, program: str, *words: str, **variables: str) -> float:
    """The least CPU time of several runs: what is left when the machine is busy with other things."""
    return min(_cpu_once(python, program, *words, **variables) for _ in range(10))


def _cpu_once(python: Path, program: str, *words: str, **variables: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(python, program, *words, **variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(python: Path, program: str, *words: str, **variables: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NACRE"))}
    command = [str(python), "-c", program, *words]
    done = subprocess.run(command, env=clean | variables, capture_output=True, check=True, text=True)  # noqa: S603
    return done.stdout
