"""A tool is a typed Python function with a docstring; its schema comes from its signature."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from stat import S_IWOTH
from traceback import extract_tb
from typing import Annotated, Any, get_type_hints, overload

import msgspec
from anyio import to_thread
from msgspec import NODEFAULT, Meta, Struct, ValidationError

from nacre.agent.ports import Effect, Output, Scene, Spec, Tool
from nacre.errors import NacreError, ToolError
from nacre.tools.tool_output import limit_output

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFERENCE = "#/$defs/"
_NOT_BY_NAME = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
# The parts of a docstring.
_SECTION = re.compile(
    r"(args|arguments|parameters|params|returns?|yields?|raises|examples?|notes?)\s*:\s*$", re.IGNORECASE
)
_UNDERLINE = re.compile(r"^\s*[-=]{3,}\s*$")
_FIELD = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_OTHER_FIELD = re.compile(r":(?:returns?|rtype|raises|type|yields?)\b[^:]*:")
_ENTRY = re.compile(r"[`*]{0,2}(\w+)[`*]{0,2}\s*(?:\([^)]*\))?\s*(?::|–|--| - )\s*(.*)")


class Function:
    """A function as a tool; it can still be called as what it is.

    Raises TypeError if it cannot be described to a model: no docstring, a parameter without a type,
    or of a type that JSON cannot represent.
    """

    def __init__(self, function: Callable[..., Any], *, effect: Effect = "run", name: str = "") -> None:
        self._function = function
        self.effect: Effect = effect
        self._scene = ""
        name = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(name):
            raise TypeError(f"{name!r} cannot name a tool: use up to 64 letters, digits, _ and -")
        parameters = inspect.signature(function).parameters
        description, about = _parse_docstring(function.__doc__ or "", parameters)
        if not description:
            raise TypeError(f"tool {name!r} has no docstring: the model needs it as the description")
        try:
            hints = get_type_hints(function, include_extras=True)
        except Exception as error:  # annotations are code, so anything may come of evaluating them
            raise TypeError(f"the annotations of tool {name!r} cannot be read: {error}") from error

        # The parameters that a model gives are fields of a struct; one may be for the scene.
        fields: list[tuple[str, Any, Any]] = []
        for key, parameter in parameters.items():
            if parameter.kind in _NOT_BY_NAME:
                by_name = "a model passes arguments by name: name each of them"
                raise TypeError(f"tool {name!r} takes {parameter}, but {by_name}")
            if key not in hints:
                raise TypeError(f"parameter {key!r} of tool {name!r} has no type: annotate it")
            if hints[key] is Scene:
                self._scene = key
                continue
            default = NODEFAULT if parameter.default is inspect.Parameter.empty else parameter.default
            if isinstance(default, list | dict | set):
                default = msgspec.field(default_factory=default.copy)
            described = Annotated[hints[key], Meta(description=about[key])] if about.get(key) else hints[key]
            fields.append((key, described, default))
        self._fields = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self.spec = Spec(name=name, description=description, parameters=_make_schema(self._fields, name))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        """Check and convert the arguments, and call the function, in a worker thread unless it is async.

        A cancelled call does not wait for the thread: what it still does is not known to anybody.
        Raises ToolError, whatever the function raised.
        """
        named = self._convert(arguments)
        if self._scene:
            named[self._scene] = scene
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**named)
            else:
                value = await to_thread.run_sync(partial(self._function, **named), abandon_on_cancel=True)
            if isinstance(value, Output):
                return value
            if not isinstance(value, str):
                # What it returned, as the model sees it.
                try:
                    value = "done" if value is None else msgspec.json.encode(value).decode()
                except (TypeError, ValueError):
                    value = str(value)
            return limit_output(value)
        except ToolError:
            raise
        except NacreError as error:
            raise ToolError(str(error)) from error
        except Exception as error:  # a tool is anybody's code: what it raises is what the model is given
            raise ToolError(f"{type(error).__name__}: {error}") from error

    def _convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function wants them; raises ToolError with what is wrong and what it takes.

        Numbers and lists that came as text are understood, and null means nothing given.
        """
        name, schema = self.spec.name, self.spec.parameters
        properties = schema["properties"]
        optional = set(properties) - set(schema.get("required", ()))
        given: dict[str, Any] = {}
        for field, value in arguments.items():
            found, kind = value, properties.get(field, {})
            if isinstance(value, str) and value.lstrip().startswith(("[", "{")) and not _takes(kind, "string"):
                with suppress(msgspec.DecodeError, RecursionError):
                    found = msgspec.json.decode(value)
            if found is not None or field not in optional or _takes(kind, "null"):
                given[field] = found
        try:
            value = msgspec.convert(given, type=self._fields, strict=False)
        except ValidationError as error:
            what = str(error).replace(" - at `$.", " - at `")
            takes = [
                f"{field} ({_kind_in_words(one)}{'' if field in schema['required'] else ', optional'})"
                for field, one in properties.items()
            ]
            usage = f"{name} takes {', '.join(takes) or 'no arguments'}."
            raise ToolError(f"{name} was not run: {what}. {usage}") from error
        return {field: getattr(value, field) for field in self._fields.__struct_fields__}


@overload
def tool(function: Callable[..., Any], /) -> Function: ...


@overload
def tool(*, effect: Effect = ..., name: str = ...) -> Callable[[Callable[..., Any]], Function]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, effect: Effect = "run", name: str = ""
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Make a function a tool: `@tool` or `@tool(effect="read")`.

    Without an effect it counts as running a program, so that a person is asked before it runs.
    """
    if function is not None:
        return Function(function, effect=effect, name=name)
    return lambda given: Function(given, effect=effect, name=name)


def _parse_docstring(docstring: str, parameters: Collection[str]) -> tuple[str, dict[str, str]]:
    """What the function does, and what each parameter is.

    Known are Google's `Args:` section, `:param name: …` and plain lines of the form `name: …`;
    what a function returns and raises is left out.
    """
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    into: list[str] | None = summary
    depth = -1
    for line in inspect.cleandoc(docstring).splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        parameter = _FIELD.match(text) or _ENTRY.match(text)
        if parameter and parameter[1] in parameters:
            into, depth = found.setdefault(parameter[1], [parameter[2]]), indent
        elif _SECTION.match(text) or _OTHER_FIELD.match(text) or _UNDERLINE.match(line):
            into = None
        elif into is summary:
            summary.append(line)
        elif into is not None and text and indent > depth:
            into.append(text)
        else:
            into = None
    return "\n".join(summary).strip(), {name: " ".join(lines).strip() for name, lines in found.items()}


def _make_schema(fields: type[Struct], name: str) -> dict[str, Any]:
    try:
        (_, definitions) = msgspec.json.schema_components([fields], ref_template=_REFERENCE + "{name}")
    except TypeError as error:
        raise TypeError(f"tool {name!r} has a parameter that JSON cannot represent: {error}") from error

    def inline(value: Any, within: tuple[str, ...]) -> Any:
        """A schema with what it refers to written out, since some servers do not follow references."""
        if isinstance(value, list):
            return [inline(item, within) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            target = value["$ref"].removeprefix(_REFERENCE)
            if target in within:
                raise TypeError(f"tool {name!r} has a parameter of type {target}, which contains itself: use `dict`")
            rest = {key: item for key, item in value.items() if key != "$ref"}
            return {**inline(definitions[target], (*within, target)), **rest}
        found: dict[str, Any] = {}
        for key, item in value.items():
            if key == "title" or (key == "additionalProperties" and item is False):
                continue  # a model need not know the name of a type, nor that nothing more is taken
            if key == "properties":
                # Every key below is a parameter's own, even if it is called `title`.
                found[key] = {field: inline(schema, within) for field, schema in item.items()}
            else:
                found[key] = item if key in {"default", "enum"} else inline(item, within)
        is_choice_of_texts = "type" not in found and all(isinstance(one, str) for one in found.get("enum", [None]))
        return {"type": "string", **found} if is_choice_of_texts else found

    found: dict[str, Any] = inline(definitions.pop(fields.__name__), ())
    return {"type": "object", "properties": found["properties"], "required": found["required"]}


def _takes(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether a schema accepts a kind of value."""
    if "anyOf" in schema:
        return any(_takes(one, kind) for one in schema["anyOf"])
    if "enum" in schema:
        return kind == ("null" if None in schema["enum"] else "string")
    return bool(schema.get("type", kind) == kind)


def _kind_in_words(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind_in_words(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(one) for one in schema["enum"])
    return str(schema.get("type", "anything"))


# ---- the tools that users bring


GROUP = "nacre.tools"


def load_tools(folder: Path | None = None, *, taken: Collection[str] = ()) -> tuple[list[Tool], list[tuple[str, str]]]:
    """Load the tools of installed packages (entry points `nacre.tools`) and of `*.py` in a folder.

    One that is broken, or has a name that is `taken` or came before, is a problem: where it was looked for, and why
    it is not there. The others go on.
    A file runs as part of this program, unconfined: the folder must not be one that tools can write to.
    """
    # 1. Where tools may be, and how they are read.
    sources: list[tuple[str, Callable[[], list[Tool]]]] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist is not None else "?"
        where = f"{point.name} of {package} ({point.value})"
        sources.append((where, lambda point=point: _as_tools(point.load())))  # type: ignore[misc] # bound now
    if folder is not None and folder.is_dir():
        paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith(("_", ".")))
        sources += [(str(path), partial(_import_tools, path)) for path in paths]

    # 2. The tools of each, or what went wrong, and in which line if it was in the file.
    tools: dict[str, Tool] = {}
    problems: list[tuple[str, str]] = []
    for where, read in sources:
        try:
            found = read()
        except SyntaxError as error:
            problems.append((where, f"line {error.lineno}: {error.msg}"))
            continue
        except (Exception, SystemExit) as error:  # noqa: BLE001 - anybody's code: it must not stop the others
            lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == where]
            at = f"line {lines[-1]}: " if lines else ""
            kind = "" if type(error) in {ValueError, TypeError, PermissionError} else f"{type(error).__name__}: "
            problems.append((where, f"{at}{kind}{error}"))
            continue
        for tool in found:
            name = tool.spec.name
            if name in taken or name in tools:
                problems.append((where, f"there is a tool {name!r} already: rename this one"))
            else:
                tools[name] = tool
    return list(tools.values()), problems


def _import_tools(path: Path) -> list[Tool]:
    """What a file says its tools are: those made by `tool`, else every public function that it defines."""
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
    values = [value for key, value in vars(module).items() if not key.startswith("_")]
    made = [value for value in values if _is_tool(value)]
    own = [value for value in values if isfunction(value) and value.__module__ == name]
    found = _as_tools(made or own)
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
