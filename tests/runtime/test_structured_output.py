"""Answers in a form: told to the model, checked in another process, asked for again, and then refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import anyio
import pytest

from nacre.agent.model_request import Terms, terms_of, to_extra, with_terms
from nacre.agent.ports import Context, Emit, Event, Form, Notice, Reply, Spec, Text
from nacre.errors import InvalidAnswer, InvalidArgument, ModelUnavailable, ProviderError
from nacre.messages import Message
from nacre.providers.scripted import Call, Scripted, Stops
from nacre.runtime import schema_check
from nacre.runtime.structured_output import Formed, check_schema

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": ["integer", "null"]}},
    "required": ["city"],
    "additionalProperties": False,
}
OSLO = '{"city": "Oslo"}'
WEATHER = Spec(name="weather", description="The weather.", parameters={"type": "object", "properties": {}})


def asked(
    content: Any = "Where?", *, schema: dict[str, Any] = CITY, tools: Iterable[Spec] = (), instructions: str = ""
) -> Context:
    terms = Terms(form=Form(schema=schema), instructions=instructions)
    words = Message(role="user", content=content, extra=to_extra(terms))
    return Context(system="Be kind.", messages=(words,), tools=tuple(tools))


def answered(model: Any, context: Context) -> tuple[Reply, list[Event]]:
    events: list[Event] = []

    async def run() -> Reply:
        return await Formed(model).complete(context, emit=events.append)

    return anyio.run(run), events


# ---- what is asked and answered


def test_the_model_is_told_the_schema_behind_the_words_and_asked_for_it_natively() -> None:
    model = Scripted([OSLO])
    reply, events = answered(model, asked())
    assert (reply.message.content, events) == (OSLO, [Text(OSLO)])
    (context,) = model.contexts
    assert str(context.messages[-1].content).startswith("Where?\n\nAnswer with one JSON value")
    assert '"required":["city"]' in str(context.messages[-1].content)
    assert (context.system, context.form) == ("Be kind.", Form(schema=CITY))


def test_words_in_parts_get_the_schema_as_a_further_part() -> None:
    model = Scripted([OSLO])
    answered(model, asked([{"type": "text", "text": "Where?"}]))
    content: Any = model.contexts[0].messages[-1].content
    assert [part["text"].partition(" ")[0] for part in content] == ["Where?", "Answer"]


def test_a_code_block_around_the_answer_is_left_out() -> None:
    reply, events = answered(Scripted([["```json\n", OSLO, "\n```\n"]]), asked())
    assert (reply.message.content, events) == (OSLO, [Text(OSLO)])


def test_instructions_follow_the_system_text() -> None:
    model = Scripted([OSLO])
    answered(model, asked(instructions="Speak Dutch."))
    assert model.contexts[0].system == "Be kind.\n\nSpeak Dutch."


def test_a_message_without_terms_is_passed_on_as_it_is() -> None:
    model = Scripted(["Hello!"])
    context = Context(messages=[Message(role="user", content="Hi", extra={"terms": {"form": "none of ours"}})])
    reply, events = answered(model, context)
    assert (reply.message.content, events) == ("Hello!", [Text("Hello!")])
    assert model.contexts == [context]


def test_the_terms_are_those_of_the_newest_words_of_the_user() -> None:
    old, new = Message(role="user", content="a"), Message(role="user", content="b")
    terms = Terms(instructions="x")
    messages = with_terms([old, Message(role="assistant", content="ok"), new, Message(role="tool")], terms)
    assert [bool(one.extra) for one in messages] == [False, False, True, False]
    assert terms_of(messages) == terms
    assert terms_of(with_terms(messages, Terms())) == Terms()
    assert with_terms([], terms) == []


# ---- checked and asked for again


def test_a_wrong_answer_is_asked_for_again_with_the_reason_and_without_tools() -> None:
    model = Scripted([["I think ", '{"city": 7}'], '{"city": 7, "size": "x"}', OSLO])
    reply, events = answered(model, asked(tools=[WEATHER]))
    assert reply.message.content == OSLO
    assert [one for one in events if isinstance(one, Text)] == [Text(OSLO)]
    assert sum(isinstance(one, Notice) for one in events) == 2
    first, second, third = model.contexts
    assert (len(first.tools), len(second.tools), len(third.tools)) == (1, 0, 0)
    assert [one.role for one in third.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert "it is not JSON" in str(second.messages[-1].content)
    assert "at $.city: 7 is not of type" in str(third.messages[-1].content)
    assert 'at $.size: "x" is not of types' in str(third.messages[-1].content)


def test_what_the_attempts_cost_is_added() -> None:
    one, _ = answered(Scripted([OSLO]), asked())
    two, _ = answered(Scripted(["no", OSLO]), asked())
    assert one.usage is not None
    assert two.usage is not None
    assert (one.usage.completion, two.usage.completion) == (2, 3)


def test_after_three_wrong_answers_the_reason_is_an_error() -> None:
    with pytest.raises(InvalidAnswer, match=r"gave 3 answers, and none .* at \$: \"city\" is a required property"):
        answered(Scripted(["{}", "{}", "{}", OSLO]), asked())


def test_an_empty_answer_is_asked_for_again() -> None:
    reply, _ = answered(Scripted(["", OSLO]), asked())
    assert reply.message.content == OSLO


def test_a_call_is_not_an_answer_yet() -> None:
    reply, events = answered(Scripted([["Let me see.", Call("weather")]]), asked(tools=[WEATHER]))
    assert (reply.finish, events) == ("calls", [])


def test_an_answer_that_was_cut_off_is_passed_on_and_says_so() -> None:
    reply, events = answered(Scripted([['{"city": "Os', Stops()]]), asked())
    assert (reply.finish, events) == ("length", [Text('{"city": "Os')])


class Particular:
    """A model whose server refuses forms, or everything."""

    model = "particular"

    def __init__(self, error: Exception, *, always: bool = False) -> None:
        self.error, self.always, self.forms = error, always, list[bool]()

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.forms.append(context.form is not None)
        if context.form is not None or self.always:
            raise self.error
        return Reply(message=Message(role="assistant", content=OSLO))

    async def close(self) -> None:
        """Nothing to release."""


def test_a_server_that_refuses_the_form_is_asked_without_it() -> None:
    model = Particular(ProviderError("answered 400: response_format is not supported"))
    reply, _ = answered(model, asked())
    assert (reply.message.content, reply.usage, model.forms) == (OSLO, None, [True, False])


def test_a_server_that_is_away_is_not_asked_twice() -> None:
    model = Particular(ModelUnavailable("away"), always=True)
    with pytest.raises(ModelUnavailable):
        answered(model, asked())
    assert model.forms == [True]


def test_a_provider_is_named_and_closed_through_it() -> None:
    model = Scripted([])
    anyio.run(Formed(model).close)
    assert (Formed(model).model, model.closed) == ("scripted", True)


# ---- schemas


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "strin"}, "not valid under any of the schemas"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "its own parts only"),
        ({"$ref": "file:///etc/passwd"}, "its own parts only"),
        ({"type": "string", "pattern": "("}, "is not a"),
    ],
    ids=["a type that there is not", "a schema elsewhere", "a file", "a pattern"],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument, match=f"the schema is not valid: .*{why}"):
        anyio.run(check_schema, schema)


def test_a_schema_that_refers_to_itself_is_fine() -> None:
    tree = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
    anyio.run(check_schema, tree)
    assert schema_check.check(tree, '{"next": {"next": null}}')["wrong"] == ""
    assert schema_check.check(tree, '{"next": {"next": 1}}')["wrong"] == "text"


def test_a_pattern_that_would_take_for_ever_elsewhere_takes_no_time() -> None:
    found = schema_check.check({"type": "string", "pattern": "^(a+)+$"}, f'"{"a" * 50}b"')
    assert found["wrong"] == "text"


@pytest.mark.parametrize("text", ["NaN", "[" * 100_000, "", "{} {}", '{"a": 1,}'])
def test_what_is_no_json_is_said_to_be_none(text: str) -> None:
    assert schema_check.check({}, text)["wrong"] == "text"


def test_a_check_that_does_not_end_is_ended() -> None:
    # Each definition looks twice at the next: a small schema that is checked for longer than anyone lives.
    names = [f"d{at}" for at in range(60)]
    doubling = {
        name: {"allOf": [{"$ref": f"#/$defs/{after}"}, {"$ref": f"#/$defs/{after}"}]}
        for name, after in zip(names, [*names[1:], "end"], strict=True)
    }
    schema = {"$defs": {**doubling, "end": {"type": "object"}}, "$ref": "#/$defs/d0"}
    with pytest.raises(InvalidAnswer, match="use a simpler schema"):
        answered(Scripted(["{}"]), asked(schema=schema))


def test_an_answer_that_is_wrong_in_millions_of_ways_takes_no_more_memory_than_it_may() -> None:
    schema = {"items": {"anyOf": [{"const": "x" * 200}] * 300}}
    given = json.dumps({"schema": schema, "text": json.dumps(list(range(100_000)))}).encode()
    # By a process in between: a process is said to have had as much memory as the one that started it.
    started = f"import subprocess, sys; subprocess.run([sys.executable, '-I', {schema_check.__file__!r}])"
    told = "import resource; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)"
    command, env = [sys.executable, "-c", f"{started}; {told}"], {**os.environ, "RUST_BACKTRACE": "0"}
    done = subprocess.run(command, input=given, capture_output=True, check=True, env=env)
    assert int(done.stderr.split()[-1]) * 1024 <= schema_check.MAX_MEMORY


@pytest.mark.parametrize("trouble", ["bytes(1 << 32)", "raise RuntimeError('Validation panicked')"])
def test_a_check_without_memory_says_so(tmp_path: Any, trouble: str) -> None:
    package = f"RegexOptions = dict\ndef validator_for(*_, **__):\n    {trouble}\n"
    (tmp_path / "jsonschema_rs.py").write_text(package)
    run = f"import runpy; runpy.run_path({schema_check.__file__!r}, run_name='__main__')"
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {run}"
    done = subprocess.run([sys.executable, "-c", script], input=b'{"schema": {}}', capture_output=True, check=True)
    assert "too much memory; use a simpler schema" in json.loads(done.stdout)["why"]


def test_without_the_package_the_program_says_so(tmp_path: Any) -> None:
    (tmp_path / "jsonschema_rs.py").write_text("raise ImportError")
    run = f"import runpy; runpy.run_path({schema_check.__file__!r}, run_name='__main__')"
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {run}"
    done = subprocess.run([sys.executable, "-c", script], input=b'{"schema": {}}', check=False)
    assert done.returncode == schema_check.MISSING
