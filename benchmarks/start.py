"""What `import nacre` costs a command that has just been started."""

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
_LOADED = f"import nacre, sys; print(*(name for name in {_UNWANTED!r} if name in sys.modules))"


def importing(scene: Scene) -> Iterator[Row]:
    """Start-up with the import against start-up alone, in an environment with nothing else."""
    python = _clean_environment(scene.room("clean"))
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
    declared = importlib.metadata.requires("nacre") or []
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


def _cpu(python: Path, program: str) -> float:
    """The least CPU time of several runs: what is left when the machine is busy with other things."""
    return min(_cpu_once(python, program) for _ in range(10))


def _cpu_once(python: Path, program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(python, program)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(python: Path, program: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([python, "-c", program], env=clean, capture_output=True, check=True, text=True)  # noqa: S603
    return done.stdout
