"""The JSON schema of a function's parameters, and its arguments made to fit them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct, ValidationError

from nacre.agent.ports import Scene
from nacre.errors import ToolError

_REFERENCE = "#/$defs/"
_FIXED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class Parameters(Struct, frozen=True, kw_only=True):
    """What a function takes from a model, and which parameter is for the scene, if any."""

    fields: type[Struct]
    schema: dict[str, Any]
    scene: str = ""


def names_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters."""
    return list(inspect.signature(function).parameters)


def parameters_of(function: Callable[..., Any], about: Mapping[str, str], *, name: str) -> Parameters:
    """Read a function's signature; raises TypeError if a model could not call it."""
    hints = _hints(function, name)
    fields: list[tuple[str, Any, Any]] = []
    scene = ""
    for parameter in inspect.signature(function).parameters.values():
        kind = _kind(parameter, hints, name)
        if kind is Scene:
            scene = parameter.name
            continue
        described = Annotated[kind, Meta(description=about[parameter.name])] if about.get(parameter.name) else kind
        fields.append((parameter.name, described, _default(parameter)))
    struct = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return Parameters(fields=struct, schema=_schema(struct, name), scene=scene)


def converted(parameters: Parameters, arguments: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """The arguments as the function wants them; raises ToolError with what is wrong and what it takes.

    Numbers and lists that came as text are understood, and null means nothing given.
    """
    properties = parameters.schema["properties"]
    given = {field: _unwrapped(value, properties.get(field, {})) for field, value in arguments.items()}
    optional = set(properties) - set(parameters.schema.get("required", ()))
    given = {
        field: value
        for field, value in given.items()
        if value is not None or field not in optional or _takes(properties[field], "null")
    }
    try:
        value = msgspec.convert(given, type=parameters.fields, strict=False)
    except ValidationError as error:
        what = str(error).replace(" - at `$.", " - at `")
        raise ToolError(f"{name} was not run: {what}. {name} takes {_summary(parameters.schema)}.") from error
    return {field: getattr(value, field) for field in parameters.fields.__struct_fields__}


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # annotations are code, so anything may come of evaluating them
        raise TypeError(f"the annotations of tool {name!r} cannot be read: {error}") from error


def _kind(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> Any:
    if parameter.kind in _FIXED:
        raise TypeError(f"tool {name!r} takes {parameter}, but a model passes arguments by name: name each of them")
    if parameter.name not in hints:
        raise TypeError(f"parameter {parameter.name!r} of tool {name!r} has no type: annotate it")
    return hints[parameter.name]


def _default(parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return NODEFAULT
    if isinstance(parameter.default, list | dict | set):
        return msgspec.field(default_factory=lambda: type(parameter.default)(parameter.default))
    return parameter.default


def _schema(struct: type[Struct], name: str) -> dict[str, Any]:
    try:
        (_, definitions) = msgspec.json.schema_components([struct], ref_template=_REFERENCE + "{name}")
    except TypeError as error:
        raise TypeError(f"tool {name!r} has a parameter that JSON cannot represent: {error}") from error
    found: dict[str, Any] = _inlined(definitions.pop(struct.__name__), definitions, (), name)
    return {"type": "object", "properties": found["properties"], "required": found["required"]}


def _inlined(value: Any, definitions: Mapping[str, Any], within: tuple[str, ...], name: str) -> Any:
    """A schema with what it refers to written out, since some servers do not follow references."""
    if isinstance(value, list):
        return [_inlined(item, definitions, within, name) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        target = value["$ref"].removeprefix(_REFERENCE)
        if target in within:
            raise TypeError(f"tool {name!r} has a parameter of type {target}, which contains itself: use `dict`")
        return {**_inlined(definitions[target], definitions, (*within, target), name), **_rest(value)}
    found = {
        key: _part(key, item, definitions, within, name) for key, item in value.items() if not _is_noise(key, item)
    }
    return {"type": "string", **found} if _is_choice_of_texts(found) else found


def _part(key: str, value: Any, definitions: Mapping[str, Any], within: tuple[str, ...], name: str) -> Any:
    """Below `properties` every key is a parameter's own, even if it is called `title`."""
    if key == "properties":
        return {field: _inlined(schema, definitions, within, name) for field, schema in value.items()}
    return value if key in {"default", "enum"} else _inlined(value, definitions, within, name)


def _is_noise(key: str, value: Any) -> bool:
    """What a model need not know: the name of a type, and that nothing more is taken."""
    return key == "title" or (key == "additionalProperties" and value is False)


def _is_choice_of_texts(schema: Mapping[str, Any]) -> bool:
    return "type" not in schema and "enum" in schema and all(isinstance(one, str) for one in schema["enum"])


def _rest(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "$ref"}


def _unwrapped(value: Any, schema: Mapping[str, Any]) -> Any:
    """A list or an object that a model wrote as text."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")) or _takes(schema, "string"):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


def _takes(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether a schema lets a kind of value through."""
    if "anyOf" in schema:
        return any(_takes(one, kind) for one in schema["anyOf"])
    if "enum" in schema:
        return kind == ("null" if None in schema["enum"] else "string")
    return bool(schema.get("type", kind) == kind)


def _summary(schema: Mapping[str, Any]) -> str:
    if not schema["properties"]:
        return "no arguments"
    needed = schema["required"]
    parts = [
        f"{field} ({_said(one)}{'' if field in needed else ', optional'})"
        for field, one in schema["properties"].items()
    ]
    return ", ".join(parts)


def _said(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_said(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(one) for one in schema["enum"])
    return str(schema.get("type", "anything"))
