"""Calls found in what models write: a corpus, and properties of any text in any pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nacre.agent.ports import Spec, Text, Thought
from nacre.codec import encode_message
from nacre.messages import Message, ToolCall
from nacre.providers.text_tools.call_shapes import ParsedCall
from nacre.providers.text_tools.lenient_json import Incomplete, NotJson, Reader
from nacre.providers.text_tools.parser import Answer, read, read_native
from nacre.providers.text_tools.provider import StreamFilter, call_text
from tests.growth import assert_linear

CASES = [json.loads(line) for line in (Path(__file__).parent / "corpus" / "calls.jsonl").read_text().splitlines()]
NAMES = [case["name"] for case in CASES]
FIELDS = {
    "path": {"type": "string"},
    "content": {"type": "string"},
    "command": {"type": "string"},
    "timeout": {"type": "integer"},
}
TOOLS = tuple(
    Spec(name=name, description=f"To {name}.", parameters={"type": "object", "properties": FIELDS})
    for name in ("read_file", "write_file", "list_files", "shell")
)

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
MARKED = st.lists(
    st.sampled_from(
        ['"', "'", "\\", "\n", "```", "</tool_call>", "<tool_call>", "{", "}", ",", ":", "a", "<think>", " "]
    )
).map("".join)
VALUES = st.recursive(
    LEAVES | TEXTS | MARKED, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8
)
ARGUMENTS = st.dictionaries(TEXTS | MARKED, VALUES, max_size=4)
TOOL_NAMES = st.text("abcXYZ_-019", min_size=1, max_size=64)
FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<tools>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call>", "<tool_call|>"),
        *(
            '{"name": "read_file", "arguments": ',
            '{"path": "a"}',
            "}",
            "{",
            "[",
            "]",
            '"',
            "'",
            "\n",
            "```json\n",
            "\n```\n",
        ),
        *(
            "<think>",
            "</think>",
            "<function=read_file>",
            "<parameter=path>",
            "</parameter>",
            "</function>",
            "\n{",
            "\n[",
        ),
        *(
            "call:read_file{",
            '<|"|>',
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "\\",
            "//",
            "/*",
            "<tool_response>",
            " word ",
        ),
        *("<|tool_call_start|>", "[read_file(", 'path="a")]', "<|tool_call_end|>", "[THINK]", "[/THINK]", "<|end|>"),
        *(
            "<\uff5ctool\u2581calls\u2581begin\uff5c>",
            "<\uff5ctool\u2581call\u2581begin\uff5c>",
            "<\uff5ctool\u2581sep\uff5c>",
            "<\uff5ctool\u2581call\u2581end\uff5c>",
            "<\uff5cDSML\uff5cinvoke name=",
        ),
        *("<|channel|>", "commentary to=", "analysis", "<|message|>", "<|call|>", "<|START_ACTION|>", "functools["),
        *("]<]minimax[>[", '<invoke name="shell">', "<a>", "</a>", "</invoke>", "<mm:think>", "</mm:think>"),
        *("<|open|>", "<|close|>", "<|sep|>", "tools", 'call tool="shell"', 'argument key="a"', "\n to=functions."),
    ]
)
JUMBLES = st.lists(FRAGMENTS | st.text(max_size=4), max_size=24).map("".join)


def in_pieces(text: str, sizes: Sequence[int]) -> list[str]:
    """A text cut into pieces of these sizes, over and over."""
    pieces: list[str] = []
    while text:
        size = sizes[len(pieces) % len(sizes)] if sizes else len(text)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def shown_of(text: str, sizes: Sequence[int], tools: Sequence[Spec] = TOOLS, *, native: bool = False) -> str:
    """What a sieve shows of a text that comes in pieces."""
    sieve = StreamFilter(tools, native=native)
    given = [event for piece in in_pieces(text, sizes) for event in sieve.feed(piece)]
    shown = "".join(event.text for event in given if isinstance(event, Text))
    assert shown == sieve.shown
    return shown


SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=5)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_what_models_write_is_read_as_it_was_meant(case: dict[str, Any]) -> None:
    calls = tuple(ParsedCall(name=call["name"], arguments=call["arguments"]) for call in case["calls"])
    meant = Answer(content=case["content"], reasoning=case["reasoning"], calls=calls)
    assert read(case["text"], TOOLS, cut=case["cut"]) == meant


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_while_it_comes_only_text_is_shown(case: dict[str, Any], size: int) -> None:
    shown = shown_of(case["text"], [size])
    # Before the end of a thought that was opened in the prompt nobody can know that it is one.
    if "</think>" not in case["text"] or "<think>" in case["text"]:
        assert case["content"].startswith(shown)


@pytest.mark.parametrize(
    "text", ["I will read it. <tool_call>{", "I will read it.\n\n```json\n{", "I will read it.\n{"]
)
def test_text_is_shown_before_the_call_has_come(text: str) -> None:
    assert shown_of(text, [1]) == "I will read it."


def test_a_code_block_and_a_thought_are_shown_as_they_come() -> None:
    assert shown_of("See:\n```python\nprint(1)\nprint(", [3]) == "See:\n```python\nprint(1)\nprint("
    sieve = StreamFilter(TOOLS)
    given = [event for piece in in_pieces("<think>So then</think>Hello", [2]) for event in sieve.feed(piece)]
    assert "".join(event.text for event in given if isinstance(event, Thought)) == "So then"
    assert sieve.shown == "Hello"


def test_the_corpus_is_large_and_has_no_two_cases_of_one_name() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 60


@given(st.lists(st.tuples(TOOL_NAMES, ARGUMENTS), min_size=1, max_size=4), TEXTS | MARKED, SIZES)
@example([("a", {"": '"}}</tool_call>'})], "", [1])
@settings(deadline=None, max_examples=100)
def test_what_is_rendered_is_read_back_equal(
    calls: list[tuple[str, dict[str, Any]]], prose: str, sizes: list[int]
) -> None:
    tools = [Spec(name=name, description="", parameters={}) for name, _ in calls]
    prose = prose.strip()
    # Text that holds marks of its own, or leaves a code block open, is not what this is about.
    assume("```" not in prose and "~~~" not in prose and read(f"{prose}\n", tools) == Answer(content=prose))
    assume("<tool_call>" not in prose)
    text = "\n".join(filter(None, (prose, *(call_text(name, arguments) for name, arguments in calls))))
    found = read(text, tools)
    assert [(call.name, call.arguments) for call in found.calls] == calls
    assert found.content == prose
    assert shown_of(text, sizes, tools) == prose


@given(JUMBLES, st.booleans(), SIZES)
@example(text="<tool_call>" + "word " * 30 + "{</tool_call>", cut=False, sizes=[1])
@example(text="<tool_call>" + "word " * 900 + "{</tool_call>", cut=False, sizes=[1])
@settings(deadline=None, max_examples=200)
def test_no_text_raises_and_whatever_is_found_can_be_stored(text: str, cut: bool, sizes: list[int]) -> None:
    found = read(text, TOOLS, cut=cut)
    calls = tuple(ToolCall(id="c", name=call.name, arguments=call.arguments) for call in found.calls)
    encode_message(Message(role="assistant", content=found.content, tool_calls=calls, reasoning=found.reasoning))
    shown = shown_of(text, sizes)
    closes = ("</think", "</mm:think", "<channel", "[/THINK]", "<|END_THINKING|>", "<|close|>think")
    assert any(mark in text for mark in closes) or found.content.startswith(shown)


@given(JUMBLES, st.booleans(), SIZES)
@settings(deadline=None, max_examples=200)
def test_no_text_of_a_model_with_native_calls_raises_or_is_lost(text: str, cut: bool, sizes: list[int]) -> None:
    found = read_native(text, TOOLS, cut=cut)
    calls = tuple(ToolCall(id="c", name=call.name, arguments=call.arguments) for call in found.calls)
    encode_message(Message(role="assistant", content=found.content, tool_calls=calls, reasoning=found.reasoning))
    assert all(call.name in {tool.name for tool in TOOLS} for call in found.calls)
    shown = shown_of(text, sizes, native=True)
    if not found.calls:
        assert text.endswith(found.content)
        assert found.content.lstrip().startswith(shown)


@pytest.mark.parametrize("case", [case for case in CASES if not case["calls"]], ids=lambda case: case["name"])
def test_a_model_with_native_calls_calls_nothing_where_others_do_not(case: dict[str, Any]) -> None:
    assert read_native(case["text"], TOOLS, cut=case["cut"]).calls == ()


CALL = '{"name": "read_file", "arguments": {"path": "notes.txt"}}'
TAGGED = f"<tool_call>{CALL}</tool_call>"


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        (TAGGED, "", ""),
        (f"I will look.\n{TAGGED}\n", "I will look.", ""),
        (f"{CALL}\n", "", ""),
        (f"<think>Hm.</think>{CALL}", "", "Hm."),
        (f"Hm.</think>\n{TAGGED}", "", "Hm."),
        (f"[THINK]Hm.[/THINK]{TAGGED}<|im_end|>", "", "Hm."),
        ('[TOOL_CALLS]read_file[ARGS]{"path": "notes.txt"}', "", ""),
        ("<function=read_file><parameter=path>notes.txt</parameter></function>", "", ""),
        ('[read_file(path="notes.txt")]', "", ""),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_call_written_as_text_is_one_where_it_is_clear(text: str, content: str, reasoning: str, size: int) -> None:
    call = ParsedCall(name="read_file", arguments={"path": "notes.txt"})
    assert read_native(text, TOOLS) == Answer(content=content, reasoning=reasoning, calls=(call,))
    if "</think>" not in text or "<think>" in text:
        assert content.startswith(shown_of(text, [size], native=True).rstrip())


@pytest.mark.parametrize("text", ["half of", "it is what it", "to", "f)", "Let us see [1]."])
def test_ordinary_words_are_shown_at_once(text: str) -> None:
    assert shown_of(f"Well, {text}", [1], native=True) == f"Well, {text}"


def test_a_line_of_a_model_with_native_calls_is_shown_with_its_end() -> None:
    assert shown_of("\n One line\n", [1], native=True) == "One line\n"


@pytest.mark.parametrize(
    "text",
    [
        f"So it is called:\n```json\n{CALL}\n```",
        f"```json\n{CALL}\n```",
        f"```tool_call\n{CALL}\n```",
        f"```xml\n{TAGGED}\n```",
        f"```\n{TAGGED}\n```\nThat is how.",
        f"So it is called: `{TAGGED}`",
        f"{TAGGED} is how it is called.",
        f"One writes\n{CALL}\nto read a file.",
        f"One writes\n{CALL}",
        f"{CALL}\nThat is how.",
        '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>',
        f'{TAGGED}<tool_call>{{"name": "get_weather", "arguments": {{}}}}</tool_call>',
        '[get_weather(city="Oslo")]',
        "The end of a thought is </think> in most models.",
        "A thought:\n<think>Hm.</think>\nwas that.",
        "  Text with space around it. \n",
        '{"name": "shell", "version": "1.0.0"}',
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_what_only_shows_a_call_stays_text_to_the_letter(text: str, size: int) -> None:
    assert read_native(text, TOOLS) == Answer(content=text)
    assert text.lstrip().startswith(shown_of(text, [size], native=True))


def test_a_call_inside_a_thought_is_not_run_and_the_thought_is_apart() -> None:
    text = f"<think>Maybe {TAGGED}?</think>\nNo."
    assert read_native(text, TOOLS) == Answer(content="\nNo.", reasoning=f"Maybe {TAGGED}?")


@given(ARGUMENTS, st.integers(0, 2000))
@settings(deadline=None, max_examples=100)
def test_a_call_cut_anywhere_is_never_completed(arguments: dict[str, Any], at: int) -> None:
    whole = call_text("write_file", arguments).removesuffix("\n</tool_call>")
    text = whole[: min(at, len(whole) - 1)]
    assert all(isinstance(call.arguments, str) for call in read(text, TOOLS, cut=True).calls)


HOSTILE = {
    "opening tags": "<tool_call>{" * 90_000,
    "opening tags without bodies": "<tool_call>" * 90_000,
    "calls that are wrong": "<tool_call>{x}</tool_call>" * 40_000,
    "calls that are right": '<tool_call>{"name":"shell","arguments":{}}</tool_call>' * 20_000,
    "nested lists": '\n{"name":[' * 100_000,
    "brackets": "\n[" * 500_000,
    "quotes": '<tool_call>{"name": "a" ' + '"' * 1_000_000,
    "quotes and tags": '<tool_call>{"a": "b" c' * 45_000,
    "escapes": '<tool_call>{"name": "' + "\\n" * 500_000 + '",}</tool_call>',
    "space": '<tool_call>{"name": "a"' + " \n" * 500_000 + "x</tool_call>",
    "space behind a name": "<tool_call>shell" + " " * 1_000_000,
    "fences": "```json\n{\n" * 100_000,
    "fences that call": '```json\n{"name": "shell",\n' * 40_000,
    "closing braces": '<tool_call>{"name":"shell","arguments":{}}' + "}" * 1_000_000,
    "parameters": "<function=shell><parameter=a>" * 35_000,
    "parameters that end": "<function=shell><parameter=a>b</parameter>" * 25_000,
    "pairs": "<tool_call>shell<arg_key>a</arg_key><arg_value>" * 20_000,
    "thoughts": "\n<think>" * 120_000,
    "thoughts that end": "</think>" * 120_000,
    "comments": "<tool_call>{/*" * 75_000,
    "verbatim": '<tool_call>{"a": """' * 50_000,
    "gemma": '<|tool_call>call:a{b:<|"|>' * 40_000,
    "python calls": "<|tool_call_start|>[shell(" * 40_000,
    "python calls that end": '<|tool_call_start|>[shell(command="ls")]<|tool_call_end|>' * 20_000,
    "python calls with nothing around them": "\n[shell(" * 120_000,
    "python brackets": "<|tool_call_start|>[shell(a=" + "[" * 1_000_000,
    "python signs": "<|tool_call_start|>[shell(a=" + "-" * 1_000_000,
    "names of python calls": "\n[" + "a." * 500_000,
    "kimi": "<|tool_call_begin|>functions.shell:0<|tool_call_argument_begin|>{" * 15_000,
    "deepseek": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>" * 25_000,
    "deepseek's tags": "<\uff5cDSML\uff5cinvoke name=shell><\uff5cDSML\uff5cparameter name=a>" * 20_000,
    "channels": "<|start|>assistant<|channel|>commentary to=shell<|message|>{" * 15_000,
    "answers": "<|start|>assistant<|channel|>final<|message|>" * 22_000,
    "thoughts of mistral": "\n[THINK]" * 120_000,
    "functools": "\nfunctools[{" * 90_000,
    "lines and nothing else": "\n" * 1_000_000,
    "receivers": "\n to=functions.shell" * 50_000,
    "minimax M3": ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="shell">]<]minimax[>[<a>' * 13_000,
    "minimax M3, nested": ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="shell">' + "]<]minimax[>[<a>" * 60_000,
    "kimi K3": '<|open|>tools<|sep|><|open|>call tool="shell"<|sep|><|open|>argument key="a"<|sep|>' * 12_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_megabyte_costs_time_in_proportion_to_its_length(text: str, campaign: bool) -> None:
    assert_linear(lambda part: (read(part, TOOLS), shown_of(part, [997])), text)
    if campaign:
        assert_linear(lambda part: (read_native(part, TOOLS), shown_of(part, [997], native=True)), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it''s'}", {"a": "it''s"}),
        ("{a: 1, b: -2.5e3, c: [x, 'y',],}", {"a": 1, "b": -2500.0, "c": ["x", "y"]}),
        ('{"a": "\\u00e9\\q\\n"}', {"a": "é\\q\n"}),
        ('{"a": "b" "c": "d"}', {"a": "b", "c": "d"}),
        ("{a: 0123, b: 1.2.3}", {"a": "0123", "b": "1.2.3"}),
    ],
)
def test_json_is_read_kindly(text: str, value: Any) -> None:
    assert Reader(text, 0).value() == value


@pytest.mark.parametrize("text", ['{"a', '{"a": ', '{"a": "b', "[tru", '{"a": """b'])
def test_a_value_that_is_cut_is_said_to_be(text: str) -> None:
    with pytest.raises(Incomplete):
        Reader(text, 0).value()


@pytest.mark.parametrize("text", ["{", '{"a": "b"', "[1, [2]"])
def test_brackets_that_are_left_open_are_noted(text: str) -> None:
    reader = Reader(text, 0)
    reader.value()
    assert reader.unclosed


@pytest.mark.parametrize("text", ["{]", "{:1}", "{a b}", '{"a": 1e999}', "[" * 101, "{a: NaN}"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        Reader(text, 0).value()


@pytest.mark.parametrize(
    ("schema", "written", "expected"),
    [
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": ["integer", "null"]}, "12", 12),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "True", True),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "null", None),
        ({"oneOf": "nonsense", "type": 7}, "12", "12"),
        ("nonsense", "12", "12"),
    ],
)
def test_a_parameter_has_one_of_the_types_of_its_schema(schema: Any, written: str, expected: Any) -> None:
    tool = Spec(name="find", description="", parameters={"type": "object", "properties": {"what": schema}})
    (call,) = read(
        f"<tool_call><function=find><parameter=what>{written}</parameter></function></tool_call>", [tool]
    ).calls
    assert call.arguments == {"what": expected}


def test_a_schema_without_properties_is_no_obstacle() -> None:
    tool = Spec(name="find", description="", parameters={"type": "object", "properties": ["nonsense"]})
    (call,) = read("<tool_call><function=find><parameter=what>12</parameter></function></tool_call>", [tool]).calls
    assert call.arguments == {"what": "12"}
