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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import Scene

_UNWANTED = ("asyncio", "ssl", "sqlite3")
_COMMAND = "import sys; from nacre.cli import main; sys.exit(main())"
_SCAN = "import os, sys; [entry.stat() for entry in os.scandir(f'{sys.argv[1]}/sessions')]"
_LOAD = "import nacre; nacre.open"
_OPEN = "import sys, nacre; nacre.open(sys.argv[1]).close()"
_LOADED = f"import nacre, sys; nacre.open; print(*(name for name in {_UNWANTED!r} if name in sys.modules))"


def importing(scene: Scene) -> Iterator[Row]:
    """Start-up with the import against start-up alone, in an environment with nothing else."""
    python = _environment(scene)
    runs = max(10, scene.sizes.runs)
    store = str(scene.room("opened"))
    programs = {"pass": "pass", "import": "import nacre", "open": _LOAD, "store": _OPEN}
    actions = {name: partial(_run, python, program, store) for name, program in programs.items()}
    with measure.awake():
        wall = measure.interleave(actions, rounds=runs, warm=2)
        cpu = measure.interleave(actions, rounds=runs, clock=_children_cpu)

    def against_pass(samples: Mapping[str, Sequence[float]], name: str) -> tuple[float, str]:
        bare, ours = min(samples["pass"]), min(samples[name])
        return ours / bare, f"{micros(bare)}, {micros(ours)}"

    how = f"against python -c pass, best of {runs}, clean venv, bytecode present"
    ratio, absolute = against_pass(cpu, "open")
    absolute += f"; by wall time {shown(against_pass(wall, 'open')[0])}"
    yield at_most(f"CPU of import nacre; nacre.open {how}", ratio, 5, absolute=absolute)
    for name, what in (("store", "CPU of opening and closing a store"), ("import", "CPU of import nacre alone")):
        ratio, absolute = against_pass(cpu, name)
        absolute += f"; by wall time {shown(against_pass(wall, name)[0])}"
        yield plain(f"{what} {how}", shown(ratio), absolute=absolute)
    loaded = _run(python, _LOADED).strip()
    yield Row(
        what=f"of {', '.join(_UNWANTED)}, loaded by import nacre; nacre.open",
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
    return measure.timed(lambda: _run(python, program, *words, **variables), _children_cpu)


def _children_cpu() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(python: Path, program: str, *words: str, **variables: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NACRE"))}
    command = [str(python), "-c", program, *words]
    done = subprocess.run(command, env=clean | variables, capture_output=True, check=True, text=True)  # noqa: S603
    return done.stdout
