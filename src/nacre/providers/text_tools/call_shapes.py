"""The shapes in which models wrap a call: names and arguments under many names, and markup that is not JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from nacre.agent.ports import Spec
from nacre.providers.text_tools import lenient_json
from nacre.providers.text_tools.lenient_json import Source

_NAMES = ("name", "tool_name", "function_name", "tool", "function", "action", "recipient_name")
_ARGUMENTS = ("arguments", "parameters", "args", "params", "action_input", "tool_input", "input", "kwargs")
_LISTS = ("tool_calls", "function_calls", "calls", "tool_uses")
_WRAPPERS = ("tool_call", "function_call", "call", "function", "tool")
_BESIDE = frozenset(("id", "type", "index", "call_id", "tool_call_id", "thought", "reasoning"))
_DEEPEST_WRAP = 4

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
_PARAMETER = re.compile(
    rf"""<{DSML}param(?:eter)?(?:=|\s+name=)["']?([^"'>]{{1,64}}?)["']?(?:\s+string=["'](true|false)["'])?\s*>"""
)
_PARAMETER_END = re.compile(
    rf"</{DSML}param(?:eter)?>(?=\s*(?:<{DSML}param|</{DSML}function|</{DSML}invoke|</tool_call|\Z))"
)
_PARAMETER_LOST = re.compile(rf"\n(?=<{DSML}param(?:eter)?[=\s]|</{DSML}function>|</{DSML}invoke>)")
_FUNCTION_END = re.compile(rf"\s*</{DSML}(?:function|invoke)>")
_PAIR = re.compile(r"\s*<arg_key>([^<]{1,200})</arg_key>\s*<arg_value>")
_PAIR_END = re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>|\Z))")
# Kimi numbers its calls: functions.read_file:0.
_NAMED = re.compile(
    rf"\s*+(?:<name>\s*+)?(?:call:)?([\w.:-]{{1,64}}?)(?::\d{{1,4}})?\s*+(?:{SEPARATOR}\s*+)?\(?\s*+(?=\{{|<arg_key>)"
)
_SPACE = re.compile(r"\s*")
_ANOTHER = re.compile(rf"\s*(?=<{DSML}function|<{DSML}invoke|call:|{NAMESPACE}<invoke|<\|open\|>call)")
_SPACED_CALL = re.compile(rf"\s*{NAMESPACE}<invoke\s+name=\"([^\">]{{1,64}})\">")
_SPACED_END = re.compile(rf"{NAMESPACE}</invoke>")
_SPACED_TAG = re.compile(rf"\s*{NAMESPACE}<(/?)([\w.-]{{1,64}})>")
_K3_CALL = re.compile(r"""\s*<\|open\|>call\s+tool="([^"]{1,64})"[^<]{0,80}<\|sep\|>""")
_K3_ARGUMENT = re.compile(r"""\s*<\|open\|>argument\s+key="([^"]{1,200})"(?:\s+type="(\w+)")?[^<]{0,80}<\|sep\|>""")
_K3_ARGUMENT_END = re.compile(r"<\|close\|>argument<\|sep\|>")
_K3_END = re.compile(r"\s*<\|close\|>call<\|sep\|>")
_LONGEST_PYTHON = 50_000
_DEEPEST_PYTHON = 50
_REPEATED_SIGNS = re.compile(r"[-+~]{20}|(?:not\s+){20}|(?:lambda\s*:\s*){20}")


class Found(Struct, frozen=True, kw_only=True):
    """A call as it was found; arguments that are not a readable object are kept as text."""

    name: str
    arguments: dict[str, Any] | str


def calls_of(value: Any, tools: Mapping[str, Spec], *, trusted: bool, depth: int = 0) -> list[Found] | None:
    """The calls that a JSON value means; None if it means none.

    Where it is not `trusted`, nothing else says that this is a call: then it must name one of the tools and
    say its arguments, for any object may have a name.
    """
    if depth > _DEEPEST_WRAP:
        return None
    if isinstance(value, list):
        return _calls_of_list(value, tools, trusted=trusted, depth=depth)
    if not isinstance(value, dict):
        return None
    for wrapper in (*_LISTS, *_WRAPPERS):
        if isinstance(value.get(wrapper), list if wrapper in _LISTS else dict):
            found = calls_of(value[wrapper], tools, trusted=trusted, depth=depth + 1)
            if found is not None:
                return found
    call = _call_of(value, tools, strict=not trusted)
    if call is None or not (trusted or call.name in tools or call.name.rpartition(".")[2] in tools):
        return None
    return [call]


def _calls_of_list(values: list[Any], tools: Mapping[str, Spec], *, trusted: bool, depth: int) -> list[Found] | None:
    found: list[Found] = []
    for item in values:
        calls = calls_of(item, tools, trusted=trusted, depth=depth + 1)
        if calls is None:
            return None
        found += calls
    return found or None


def _call_of(value: dict[str, Any], tools: Mapping[str, Spec], *, strict: bool) -> Found | None:
    naming = next((key for key in _NAMES if isinstance(value.get(key), str) and value[key].strip()), None)
    if naming is None:
        return None if strict else _keyed_by_name(value, tools)
    giving = next((key for key in _ARGUMENTS if key in value), None)
    if giving is None:
        rest = {key: item for key, item in value.items() if key != naming and key not in _BESIDE}
        return None if strict or _is_declaration(value, rest) else Found(name=value[naming].strip(), arguments=rest)
    if _is_declaration(value, value[giving]):
        return None
    return Found(name=value[naming].strip(), arguments=arguments_of(value[giving]))


def _keyed_by_name(value: dict[str, Any], tools: Mapping[str, Spec]) -> Found | None:
    """Read `{"read_file": {"path": "a"}}`."""
    if len(value) != 1:
        return None
    name, arguments = next(iter(value.items()))
    return Found(name=name, arguments=arguments) if name in tools and isinstance(arguments, dict) else None


def _is_declaration(value: dict[str, Any], arguments: Any) -> bool:
    """Tell a tool's own description, repeated by the model, from a call of it."""
    return isinstance(arguments, dict) and "description" in value and ("properties" in arguments or not arguments)


def arguments_of(value: Any) -> dict[str, Any] | str:
    """Arguments as an object, also where they are JSON in a string; else as text."""
    if isinstance(value, dict):
        return value
    if value is None or value == "":
        return {}
    if not isinstance(value, str):
        return raw(value)
    for reading in (_strictly, _tolerantly):
        found = reading(value.strip())
        if isinstance(found, dict):
            return found
    return value


def _strictly(text: str) -> Any:
    try:
        value, end = lenient_json.Source(text).strictly(0)
    except lenient_json.Wrong:
        return None
    return value if end == len(text) else None


def _tolerantly(text: str) -> Any:
    reader = lenient_json.Reader(text, 0)
    try:
        value = reader.value()
    except lenient_json.Wrong:
        return None
    return value if reader.at == len(text) and not reader.unclosed else None


def raw(value: Any) -> str:
    """A value as text, whatever is in it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "…"


def name_in(text: str) -> str:
    """The name that a broken call seems to have; "" if none."""
    function = _FUNCTION.search(text[:4096])
    if function is not None:
        return function[1]
    found = _NAME.search(text[:4096])
    return next(filter(None, found.groups())) if found else ""


def read_markup(
    source: Source, at: int, bound: int | None, tools: Mapping[str, Spec], *, whole: bool
) -> tuple[list[Found] | None, int]:
    """Read calls that are not one JSON object; `whole` says that the text was not stopped before its end.

    Gives None, and how far it was, where they cannot be read or are not complete.
    """
    calls: list[Found] = []
    while True:
        one, end = _one(source, at, bound, tools, whole=whole)
        if one is None:
            return calls or None, at if calls else end
        calls.append(one)
        at = end
        following = _ANOTHER.match(source.text, at)
        if following is None or (bound is not None and following.end() >= bound):
            return calls, at
        at = following.end()


def _one(
    source: Source, at: int, bound: int | None, tools: Mapping[str, Spec], *, whole: bool
) -> tuple[Found | None, int]:
    text = source.text
    function = _FUNCTION.match(text, at)
    if function is not None:
        return _function(source, function, tools, whole=whole)
    spaced = _SPACED_CALL.match(text, at)
    if spaced is not None:
        return _spaced(text, spaced, tools)
    k3 = _K3_CALL.match(text, at)
    if k3 is not None:
        return _k3(text, k3, tools)
    named = _NAMED.match(text, at)
    if named is None:
        return None, at
    if text.startswith("<arg_key>", named.end()):
        return _pairs(text, named, tools, whole=whole)
    return _named_object(source, named, bound)


def _named_object(source: Source, named: re.Match[str], bound: int | None) -> tuple[Found | None, int]:
    """Read `name{…}`, as gemma (`call:name{…}`), Mistral (`name[ARGS]{…}`) and others write it."""
    try:
        value, end = source.strictly(named.end())
    except lenient_json.Wrong:
        reader = lenient_json.Reader(source.text, named.end(), bound)
        try:
            value = reader.value()
        except lenient_json.Wrong as error:
            return None, error.at
        if reader.guessed or (reader.unclosed and bound is None):
            return None, reader.at
        end = reader.at
    end += source.text.startswith(")", end)
    return (Found(name=named[1], arguments=value), end) if isinstance(value, dict) else (None, end)


def _function(
    source: Source, function: re.Match[str], tools: Mapping[str, Spec], *, whole: bool
) -> tuple[Found | None, int]:
    """Read `<function=name>`, with JSON or with a tag per parameter inside."""
    text, at = source.text, function.end()
    arguments: dict[str, Any] = {}
    if text.startswith("{", at):
        read = _named_object(source, function, None)
        ending = _FUNCTION_END.match(text, read[1])
        return read if read[0] is None or ending is None else (read[0], ending.end())
    while (parameter := _PARAMETER.match(text, at)) is not None:
        ending = _PARAMETER_END.search(text, parameter.end())
        lost = _PARAMETER_LOST.search(text, parameter.end(), ending.start() if ending else len(text))
        ending = lost if ending is None else ending
        if ending is None:
            return None, len(text)
        value = _trimmed(text[parameter.end() : ending.start()])
        is_text = parameter[2] == "true"
        arguments[parameter[1]] = value if is_text else _typed(value, tools.get(function[1]), parameter[1])
        at = _behind(_SPACE, text, ending.end())
    ending = _FUNCTION_END.match(text, at)
    if ending is None and not (whole and arguments):
        return None, at
    return Found(name=function[1], arguments=arguments), ending.end() if ending else at


def _pairs(text: str, named: re.Match[str], tools: Mapping[str, Spec], *, whole: bool) -> tuple[Found | None, int]:
    """Read GLM's keys and values, a tag each."""
    at = named.end()
    arguments: dict[str, Any] = {}
    while (pair := _PAIR.match(text, at)) is not None:
        ending = _PAIR_END.search(text, pair.end())
        if ending is None:
            return None, len(text)
        arguments[pair[1].strip()] = _typed(text[pair.end() : ending.start()], tools.get(named[1]), pair[1].strip())
        at = ending.end()
    return (Found(name=named[1], arguments=arguments), at) if whole else (None, at)


def _spaced(text: str, call: re.Match[str], tools: Mapping[str, Spec]) -> tuple[Found | None, int]:
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
            value = _spaced_value(path.pop(), text[at : tag.start()])
            path[-1]["inner"].append((tag[2], value))
        elif len(path) > lenient_json.DEEPEST:
            return None, tag.end()
        else:
            path.append({"schema": _inside(path[-1]["schema"], tag[2]), "inner": [], "name": tag[2]})
        at = tag.end()
    return (Found(name=call[1], arguments=dict(root["inner"])), ending.end()) if len(path) == 1 else (None, at)


def _spaced_value(tag: dict[str, Any], text: str) -> Any:
    """The value of a tag that has ended: a list of items, an object, or what stands in it."""
    if not tag["inner"]:
        return _typed_by(text, tag["schema"])
    if all(name == "item" for name, _ in tag["inner"]):
        return [value for _, value in tag["inner"]]
    return dict(tag["inner"])


def _inside(schema: Any, name: str) -> Any:
    """The schema of a property, or of the items of an array; of the first choice that has it."""
    if not isinstance(schema, dict):
        return None
    choices = [schema, *(one for key in ("anyOf", "oneOf") for one in _list(schema.get(key)) if isinstance(one, dict))]
    for one in choices:
        properties = one.get("properties")
        if isinstance(properties, dict) and name in properties:
            return properties[name]
        if name == "item" and "items" in one:
            return one["items"]
    return None


def _k3(text: str, call: re.Match[str], tools: Mapping[str, Spec]) -> tuple[Found | None, int]:
    """Read Kimi K3's arguments, each of which says its type."""
    at = call.end()
    arguments: dict[str, Any] = {}
    while (argument := _K3_ARGUMENT.match(text, at)) is not None:
        ending = _K3_ARGUMENT_END.search(text, argument.end())
        if ending is None:
            return None, len(text)
        value = text[argument.end() : ending.start()]
        is_text = argument[2] == "string"
        arguments[argument[1]] = value if is_text else _typed(value, tools.get(call[1]), argument[1])
        at = ending.end()
    ending = _K3_END.match(text, at)
    return (Found(name=call[1], arguments=arguments), ending.end()) if ending else (None, at)


def read_python(text: str) -> list[Found] | None:
    """Read calls that are written as Python, `name(path="a")` or several in a list; None if the text is none.

    It is parsed and never run. Arguments have names and are literals.
    """
    text = text.strip()
    if len(text) > _LONGEST_PYTHON or _is_deep(text) or _REPEATED_SIGNS.search(text):
        return None
    try:
        body = ast.parse(text, mode="eval").body
        calls = [_python_call(node) for node in (body.elts if isinstance(body, ast.List | ast.Tuple) else [body])]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return calls or None


def _is_deep(text: str) -> bool:
    """Tell whether brackets are nested so deep that Python's parser might not come back from it."""
    depth = deepest = 0
    for bracket in re.findall(r"[(\[{)\]}]", text):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
    return deepest > _DEEPEST_PYTHON


def _python_call(node: ast.expr) -> Found:
    """One call; Gemma puts its calls into `print`. Raises TypeError or ValueError if it is something else."""
    if not isinstance(node, ast.Call):
        raise TypeError("not a call")
    if ast.unparse(node.func) == "print" and len(node.args) == 1 and not node.keywords:
        return _python_call(node.args[0])
    names = [keyword.arg for keyword in node.keywords]
    if node.args or None in names or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError("arguments without names")
    values = (ast.literal_eval(_Literals().visit(keyword.value)) for keyword in node.keywords)
    return Found(name=ast.unparse(node.func), arguments=dict(zip(map(str, names), values, strict=True)))


class _Literals(ast.NodeTransformer):
    """Takes JSON's words for Python's: models mix them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words = {"true": True, "false": False, "null": None}
        return ast.Constant(words[node.id]) if node.id in words else node


def _behind(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _trimmed(value: str) -> str:
    """A parameter without the line breaks that only set it apart from its tags."""
    return value.removeprefix("\n").removesuffix("\n")


def _typed(value: str, tool: Spec | None, name: str) -> Any:
    """A parameter in the type that the tool's schema wants of it; text where it does not say."""
    properties = tool.parameters.get("properties") if tool else None
    return _typed_by(value, properties.get(name) if isinstance(properties, dict) else None)


def _typed_by(value: str, schema: Any) -> Any:
    kinds = _kinds(schema)
    text = value.strip()
    if "null" in kinds and text == "null":
        return None
    if not kinds or "string" in kinds:
        return value
    read = _strictly(text.lower() if "boolean" in kinds else text)
    return value if read is None else read


def _kinds(schema: Any) -> frozenset[str]:
    """The types that a schema lets through, by their names; none if it does not say, as a foreign one may not."""
    if not isinstance(schema, dict):
        return frozenset()
    choices = [one for key in ("anyOf", "oneOf") for one in _list(schema.get(key))]
    named = schema.get("type")
    own = [kind for kind in ([named] if isinstance(named, str) else _list(named)) if isinstance(kind, str)]
    return frozenset(own).union(*map(_kinds, choices))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
