"""The shapes in which models wrap a call: names and arguments under many names, and markup that is not JSON."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nacre.agent.ports import Spec
from nacre.providers.text_tools import lenient_json
from nacre.providers.text_tools.lenient_json import Source
from nacre.providers.wire import json_text

_NAMES = ("name", "tool_name", "function_name", "tool", "function", "action", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "args", "params", "action_input", "tool_input", "input", "kwargs")
_LISTS = ("tool_calls", "function_calls", "calls", "tool_uses")
_WRAPPERS = ("tool_call", "function_call", "call", "function", "tool")
_IGNORED = frozenset(("id", "type", "index", "call_id", "tool_call_id", "thought", "reasoning"))
_MAX_WRAPPERS = 4

DSML = r"(?:[\uff5c|]DSML[\uff5c|])?"
"""What DeepSeek's newer models put into each of their tags."""
NAMESPACE = r"\]<\]minimax\[>\["
"""What MiniMax M3 puts before each of its tags."""
CALL_PARTS = (
    r"\[ARGS\]",  # Mistral
    r"\[CALL_ID\][\w-]{1,64}\[ARGS\]",  # Mistral Small 3.2
    r"<[\uff5c|]tool[\u2581_]sep[\uff5c|]>",  # DeepSeek V3.1
    r"```(?:json)?\s*+(?=\{)",  # DeepSeek R1 and V3
    r"<\|tool_call_argument_begin\|>",  # Kimi
    r"(?:<\|channel\|>\s*+\w+\s*+)?(?:(?:<\|constrain\|>)?\s*+json\s*+)?<\|message\|>",  # gpt-oss
    r"</name>\s*+<(?:arguments|parameters|input)>",  # a tag each for name and arguments
)
"""What stands between the name of a call and its arguments, by family."""
SEPARATOR = rf"(?:{'|'.join(CALL_PARTS)})"

_NAME = re.compile(
    r"""["']?\b(?:name|tool|tool_name|function|function_name|action)["']?\s*[:=]\s*["']?([\w.:-]{1,64})"""
    rf"""|call:([\w.-]{{1,64}})|\A\s*(?:<name>\s*)?([\w.-]{{1,64}})(?::\d{{1,4}})?\s*(?:<arg_key>|{SEPARATOR}|\(?\{{)"""
)
_FUNCTION = re.compile(rf"""<{DSML}(?:function=|function\s+name=|invoke\s+name=)["']?([^"'>\s]{{1,64}})["']?\s*>\s*""")
# Of each parameter the name, and a second group where it is said to be text; the line breaks around a value only set it
# apart from its tags.
_PARAMETER = re.compile(
    rf"""\s*<{DSML}param(?:eter)?(?:=|\s+name=)["']?([^"'>]{{1,64}}?)["']?"""
    r"""(?:\s+string=["'](?:(true)|false)["'])?\s*>\n?"""
)
_PARAMETER_END = re.compile(
    rf"\n?</{DSML}param(?:eter)?>(?=\s*(?:<{DSML}param|</{DSML}function|</{DSML}invoke|</tool_call|\Z))"
)
_PARAMETER_LOST = re.compile(rf"\n?\n(?=<{DSML}param(?:eter)?[=\s]|</{DSML}function>|</{DSML}invoke>)")
_FUNCTION_END = re.compile(rf"\s*</{DSML}(?:function|invoke)>")
_PAIR = re.compile(r"\s*<arg_key>([^<]{1,200})</arg_key>\s*<arg_value>")
_PAIR_END = re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>|\Z))")
# Kimi numbers its calls: functions.read_file:0.
_NAMED = re.compile(
    rf"\s*+(?:<name>\s*+)?(?:call:)?([\w.:-]{{1,64}}?)(?::\d{{1,4}})?\s*+(?:{SEPARATOR}\s*+)?\(?\s*+(?=\{{|<arg_key>)"
)
_ANOTHER = re.compile(rf"\s*(?=<{DSML}function|<{DSML}invoke|call:|{NAMESPACE}<invoke|<\|open\|>call)")
_SPACED_CALL = re.compile(rf"\s*{NAMESPACE}<invoke\s+name=\"([^\">]{{1,64}})\">")
_SPACED_END = re.compile(rf"{NAMESPACE}</invoke>")
_SPACED_TAG = re.compile(rf"\s*{NAMESPACE}<(/?)([\w.-]{{1,64}})>")
_K3_CALL = re.compile(r"""\s*<\|open\|>call\s+tool="([^"]{1,64})"[^<]{0,80}<\|sep\|>""")
_K3_ARGUMENT = re.compile(
    r"""\s*<\|open\|>argument\s+key="([^"]{1,200})"(?:\s+type="(?:(string)|\w+)")?[^<]{0,80}<\|sep\|>"""
)
_K3_ARGUMENT_END = re.compile(r"<\|close\|>argument<\|sep\|>")
_K3_END = re.compile(r"\s*<\|close\|>call<\|sep\|>")
_MAX_PYTHON = 50_000
_MAX_PYTHON_DEPTH = 50
_REPEATED_SIGNS = re.compile(r"[-+~]{20}|(?:not\s+){20}|(?:lambda\s*:\s*){20}")


class ParsedCall(Struct, frozen=True, kw_only=True):
    """A call as it was found; arguments that are not a readable object are kept as text."""

    name: str
    arguments: dict[str, Any] | str


_Parsed = tuple[ParsedCall | None, int]
"""A call, None if there is none, and where it ends, or how far it was read."""


def calls_of(value: Any, tools: Mapping[str, Spec], *, trusted: bool, depth: int = 0) -> list[ParsedCall] | None:
    """The calls that a JSON value means; None if it means none.

    Where it is not `trusted`, nothing else says that this is a call: then it must name one of the tools and
    say its arguments, for any object may have a name.
    """
    if depth > _MAX_WRAPPERS or not isinstance(value, list | dict):
        return None
    # Several in a list, each of which must be one.
    if isinstance(value, list):
        calls: list[ParsedCall] = []
        for item in value:
            inner = calls_of(item, tools, trusted=trusted, depth=depth + 1)
            if inner is None:
                return None
            calls += inner
        return calls or None
    # One or several inside another object.
    for wrapper in (*_LISTS, *_WRAPPERS):
        if isinstance(value.get(wrapper), list if wrapper in _LISTS else dict):
            inner = calls_of(value[wrapper], tools, trusted=trusted, depth=depth + 1)
            if inner is not None:
                return inner
    # One that is the object itself.
    call = _call_of(value, tools, strict=not trusted)
    is_call = call is not None and (trusted or call.name in tools or call.name.rpartition(".")[2] in tools)
    return [call] if call is not None and is_call else None


def _call_of(value: dict[str, Any], tools: Mapping[str, Spec], *, strict: bool) -> ParsedCall | None:
    name_key = next((key for key in _NAMES if isinstance(value.get(key), str) and value[key].strip()), None)
    if name_key is None:
        # `{"read_file": {"path": "a"}}`
        name, arguments = next(iter(value.items())) if len(value) == 1 and not strict else ("", None)
        is_call = name in tools and isinstance(arguments, dict)
        return ParsedCall(name=name, arguments=arguments or {}) if is_call else None
    given_key = next((key for key in _ARGUMENTS if key in value), None)
    if given_key is not None:
        given = value[given_key]
    elif strict:
        return None
    else:
        given = {key: item for key, item in value.items() if key != name_key and key not in _IGNORED}
    # A tool's own description, repeated by the model, is no call of it.
    if isinstance(given, dict) and "description" in value and ("properties" in given or not given):
        return None
    return ParsedCall(name=value[name_key].strip(), arguments=arguments_of(given))


def arguments_of(value: Any) -> dict[str, Any] | str:
    """Arguments as an object, also where they are JSON in a string; else as text."""
    if not isinstance(value, str):
        return value if isinstance(value, dict) else {} if value is None else json_text(value)
    text = value.strip()
    found = _strict_value(text) if value else {}
    if not isinstance(found, dict):
        reader = lenient_json.Reader(text, 0)
        try:
            found = reader.value()
        except lenient_json.NotJson:
            return value
        found = found if reader.at == len(text) and not reader.unclosed else None
    return found if isinstance(found, dict) else value


def _strict_value(text: str) -> Any:
    try:
        value, end = Source(text).read_strict(0)
    except lenient_json.NotJson:
        return None
    return value if end == len(text) else None


def name_in(text: str) -> str:
    """The name that a broken call seems to have; "" if none."""
    found = _FUNCTION.search(text[:4096]) or _NAME.search(text[:4096])
    return next(filter(None, found.groups())) if found else ""


def read_markup(
    source: Source, at: int, bound: int | None, tools: Mapping[str, Spec], *, whole: bool
) -> tuple[list[ParsedCall] | None, int]:
    """Read calls that are not one JSON object; `whole` says that the text was not stopped before its end.

    Gives None, and how far it was, where they cannot be read or are not complete.
    """
    text = source.text
    calls: list[ParsedCall] = []
    while True:
        call: ParsedCall | None = None
        end = at
        if mark := _FUNCTION.match(text, at):
            call, end = _read_function(source, mark, tools, whole=whole)
        elif mark := _SPACED_CALL.match(text, at):
            call, end = _read_spaced(text, mark, tools)
        elif mark := _K3_CALL.match(text, at):
            # Kimi K3's arguments say their types.
            arguments, end = _read_parameters(text, mark, tools, _K3_ARGUMENT, _K3_ARGUMENT_END)
            ending = _K3_END.match(text, end)
            if arguments is not None and ending is not None:
                call, end = ParsedCall(name=mark[1], arguments=arguments), ending.end()
        elif (mark := _NAMED.match(text, at)) and text.startswith("<arg_key>", mark.end()):
            # GLM has a tag for each key, and one for each value.
            arguments, end = _read_parameters(text, mark, tools, _PAIR, _PAIR_END)
            call = ParsedCall(name=mark[1], arguments=arguments) if whole and arguments is not None else None
        elif mark:
            call, end = _read_named_object(source, mark, bound)
        if call is None:
            return calls or None, at if calls else end
        calls.append(call)
        at = end
        following = _ANOTHER.match(text, at)
        if following is None or (bound is not None and following.end() >= bound):
            return calls, at
        at = following.end()


def _read_named_object(source: Source, named: re.Match[str], bound: int | None) -> _Parsed:
    """Read `name{…}`, as gemma (`call:name{…}`), Mistral (`name[ARGS]{…}`) and others write it."""
    try:
        value, end = source.read_strict(named.end())
    except lenient_json.NotJson:
        reader = lenient_json.Reader(source.text, named.end(), bound)
        try:
            value = reader.value()
        except lenient_json.NotJson as error:
            return None, error.at
        if reader.guessed or (reader.unclosed and bound is None):
            return None, reader.at
        end = reader.at
    end += source.text.startswith(")", end)
    return (ParsedCall(name=named[1], arguments=value), end) if isinstance(value, dict) else (None, end)


def _read_function(source: Source, function: re.Match[str], tools: Mapping[str, Spec], *, whole: bool) -> _Parsed:
    """Read `<function=name>`, with JSON or with a tag per parameter inside."""
    text = source.text
    if text.startswith("{", function.end()):
        call, at = _read_named_object(source, function, None)
        ending = _FUNCTION_END.match(text, at)
        return call, ending.end() if call is not None and ending else at
    arguments, at = _read_parameters(text, function, tools, _PARAMETER, _PARAMETER_END, _PARAMETER_LOST)
    ending = _FUNCTION_END.match(text, at)
    if arguments is None or (ending is None and not (whole and arguments)):
        return None, at
    return ParsedCall(name=function[1], arguments=arguments), ending.end() if ending else at


def _read_parameters(
    text: str, call: re.Match[str], tools: Mapping[str, Spec], opening: re.Pattern[str], *endings: re.Pattern[str]
) -> tuple[dict[str, Any] | None, int]:
    """Read the parameters of a call, each between tags of its own, and where they end; None if one is not closed."""
    tool = tools.get(call[1])
    properties = tool.parameters.get("properties") if tool else None
    schemas = properties if isinstance(properties, dict) else {}
    arguments: dict[str, Any] = {}
    at = call.end()
    while (parameter := opening.match(text, at)) is not None:
        closed = (pattern.search(text, parameter.end()) for pattern in endings)
        ending = next(filter(None, closed), None)
        if ending is None:
            return None, len(text)
        name, value = parameter[1].strip(), text[parameter.end() : ending.start()]
        is_text = parameter.lastindex == 2  # noqa: PLR2004 - the group that says so
        arguments[name] = value if is_text else _typed(value, schemas.get(name))
        at = ending.end()
    return arguments, at


def _read_spaced(text: str, call: re.Match[str], tools: Mapping[str, Spec]) -> _Parsed:
    """Read MiniMax M3's tags, which are named like the parameters and may be nested."""
    ending = _SPACED_END.search(text, call.end())
    if ending is None:
        return None, len(text)
    tool = tools.get(call[1])
    root: dict[str, Any] = {"schema": tool.parameters if tool else {}, "inner": [], "name": ""}
    path, at = [root], call.end()
    while (tag := _SPACED_TAG.search(text, at, ending.start())) is not None:
        if tag[1]:
            if len(path) == 1 or path[-1]["name"] != tag[2]:
                return None, tag.end()
            # A list of items, an object, or what stands in it.
            ended = path.pop()
            inner, value = ended["inner"], _typed(text[at : tag.start()], ended["schema"])
            if inner:
                is_list = all(name == "item" for name, _ in inner)
                value = [item for _, item in inner] if is_list else dict(inner)
            path[-1]["inner"].append((tag[2], value))
        elif len(path) > lenient_json.MAX_DEPTH:
            return None, tag.end()
        else:
            path.append({"schema": _inside(path[-1]["schema"], tag[2]), "inner": [], "name": tag[2]})
        at = tag.end()
    return (ParsedCall(name=call[1], arguments=dict(root["inner"])), ending.end()) if len(path) == 1 else (None, at)


def _inside(schema: Any, name: str) -> Any:
    """The schema of a property, or of the items of an array; of the first choice that has it."""
    if not isinstance(schema, dict):
        return None
    for one in (schema, *(choice for choice in _choices(schema) if isinstance(choice, dict))):
        properties = one.get("properties")
        if isinstance(properties, dict) and name in properties:
            return properties[name]
        if name == "item" and "items" in one:
            return one["items"]
    return None


def read_python(text: str) -> list[ParsedCall] | None:
    """Read calls that are written as Python, `name(path="a")` or several in a list; None if the text is none.

    It is parsed and never run. Arguments have names and are literals.
    """
    text = text.strip()
    # Python's parser might not come back from brackets that are nested too deep.
    depth = deepest = 0
    for bracket in re.findall(r"[(\[{)\]}]", text[:_MAX_PYTHON]):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    if len(text) > _MAX_PYTHON or deepest > _MAX_PYTHON_DEPTH or _REPEATED_SIGNS.search(text):
        return None
    try:
        body = ast.parse(text, mode="eval").body
        calls = [_python_call(node) for node in (body.elts if isinstance(body, ast.List | ast.Tuple) else [body])]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return calls or None


def _python_call(node: ast.expr) -> ParsedCall:
    """One call; Gemma puts its calls into `print`. Raises TypeError or ValueError if it is something else."""
    if not isinstance(node, ast.Call):
        raise TypeError("not a call")
    if ast.unparse(node.func) == "print" and len(node.args) == 1 and not node.keywords:
        return _python_call(node.args[0])
    names = [keyword.arg for keyword in node.keywords]
    if node.args or None in names or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError("arguments without names")
    values = (ast.literal_eval(_Literals().visit(keyword.value)) for keyword in node.keywords)
    return ParsedCall(name=ast.unparse(node.func), arguments=dict(zip(map(str, names), values, strict=True)))


class _Literals(ast.NodeTransformer):
    """Takes JSON's words for Python's: models mix them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words = {"true": True, "false": False, "null": None}
        return ast.Constant(words[node.id]) if node.id in words else node


def _typed(value: str, schema: Any) -> Any:
    """A parameter in the type that the tool's schema wants of it; text where it does not say."""
    kinds = _kinds(schema)
    text = value.strip()
    if "null" in kinds and text == "null":
        return None
    if not kinds or "string" in kinds:
        return value
    read = _strict_value(text.lower() if "boolean" in kinds else text)
    return value if read is None else read


def _kinds(schema: Any) -> frozenset[str]:
    """The types that a schema lets through, by their names; none if it does not say, as a foreign one may not."""
    if not isinstance(schema, dict):
        return frozenset()
    named = schema.get("type")
    own = [kind for kind in (named if isinstance(named, list) else [named]) if isinstance(kind, str)]
    return frozenset(own).union(*map(_kinds, _choices(schema)))


def _choices(schema: dict[str, Any]) -> list[Any]:
    lists = (schema.get(key) for key in ("anyOf", "oneOf"))
    return [choice for choices in lists if isinstance(choices, list) for choice in choices]
