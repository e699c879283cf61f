"""The tools that users bring: from installed packages, and from files in a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from stat import S_IWOTH
from traceback import extract_tb
from types import ModuleType
from typing import Any

from msgspec import Struct

from nacre.agent.ports import Spec, Tool
from nacre.tools.functions import Function

GROUP = "nacre.tools"


class Problem(Struct, frozen=True, kw_only=True):
    """A tool that could not be had: where it was looked for, and why not."""

    where: str
    reason: str


class Loaded(Struct, frozen=True, kw_only=True):
    """The tools that were found, and what went wrong with others."""

    tools: tuple[Tool, ...]
    problems: tuple[Problem, ...]


def load(folder: Path | None = None, *, taken: Collection[str] = ()) -> Loaded:
    """Load the tools of installed packages (entry points `nacre.tools`) and of `*.py` in a folder.

    One that is broken, or has a name that is `taken` or came before, is a problem; the others go on.
    A file runs as part of this program, unconfined: the folder must not be one that tools can write to.
    """
    tools: dict[str, Tool] = {}
    problems: list[Problem] = []
    for where, read in _sources(folder):
        try:
            found = read()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anybody's code: it must not stop the others
            problems.append(Problem(where=where, reason=_reason(error, where)))
            continue
        for tool in found:
            name = tool.spec.name
            if name in taken or name in tools:
                problems.append(Problem(where=where, reason=f"there is a tool {name!r} already: rename this one"))
            else:
                tools[name] = tool
    return Loaded(tools=tuple(tools.values()), problems=tuple(problems))


def _sources(folder: Path | None) -> Iterator[tuple[str, Callable[[], list[Tool]]]]:
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist is not None else "?"
        yield f"{point.name} of {package} ({point.value})", lambda point=point: _as_tools(point.load())  # type: ignore[misc] # bound now
    if folder is None or not folder.is_dir():
        return
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith(("_", ".")):
            yield str(path), lambda path=path: _tools_of(_import(path))  # type: ignore[misc] # bound now


def _import(path: Path) -> ModuleType:
    if path.stat().st_mode & S_IWOTH:
        raise PermissionError(f"everyone can write to it, so it is not loaded: chmod o-w {path}")
    name = f"nacre_tools_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it cannot be read as Python")
    module = module_from_spec(spec)
    # There while it runs: what it defines looks its annotations up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _tools_of(module: ModuleType) -> list[Tool]:
    """What a file says its tools are: those made by `tool`, else every public function that it defines."""
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    made = [value for value in values if _is_tool(value)]
    own = [value for value in values if isfunction(value) and value.__module__ == module.__name__]
    found = list(_as_tools(made or own))
    if not found:
        raise ValueError("it has no tools: write a function with types and a docstring")
    return found


def _as_tools(value: Any) -> list[Tool]:
    """A tool, a function, or several of them, as tools."""
    if _is_tool(value):
        return [value]
    if isfunction(value):
        return [Function(value)]
    if isinstance(value, list | tuple):
        return [tool for item in value for tool in _as_tools(item)]
    raise TypeError(f"{value!r} is not a tool: give a function, a tool, or a list of them")


def _is_tool(value: Any) -> bool:
    return not isinstance(value, type) and isinstance(getattr(value, "spec", None), Spec)


def _reason(error: BaseException, where: str) -> str:
    """What went wrong, and in which line if it was in the file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == where]
    at = f"line {lines[-1]}: " if lines else ""
    kind = "" if type(error) in {ValueError, TypeError, PermissionError} else f"{type(error).__name__}: "
    return f"{at}{kind}{error}"
