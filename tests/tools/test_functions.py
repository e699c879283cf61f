"""A typed function with a docstring is a tool."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from msgspec import Struct

from nacre.agent.ports import Output, Scene, Tool
from nacre.errors import ConfigError, ToolError
from nacre.tools import Function, tool
from tests.tools.scenes import output, scene, text


class Point(Struct):
    x: int
    title: str = ""


class Chain(Struct):
    next: Chain | None = None


@tool(effect="read")
def look(path: str, times: int = 1, mode: Literal["fast", "slow"] = "fast", tags: list[str] | None = None) -> list[Any]:
    """Look at a thing.

    It takes a while.

    Args:
        path: where it is,
            exactly
        times (int): how often
        other: not a parameter

    Returns:
        what was seen
    """
    return [path, times, mode, tags]


def test_the_description_is_the_docstring_without_its_sections() -> None:
    assert look.spec.name == "look"
    assert look.spec.description == "Look at a thing.\n\nIt takes a while."
    assert look.effect == "read"


def test_the_schema_comes_from_types_defaults_and_the_docstring() -> None:
    assert look.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where it is, exactly"},
            "times": {"type": "integer", "default": 1, "description": "how often"},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        },
        "required": ["path"],
    }


def test_references_are_written_out_and_a_field_may_be_called_title() -> None:
    def draw(points: list[Point], sizes: dict[str, int], by: Point) -> None:
        """Draw points."""

    point = {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "title": {"type": "string", "default": ""}},
        "required": ["x"],
    }
    assert tool(draw).spec.parameters["properties"] == {
        "points": {"type": "array", "items": point},
        "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "by": point,
    }


@pytest.mark.parametrize(
    "docstring",
    [
        "Go.\n\nArgs:\n  place: the place",
        "Go.\n\n:param place: the place",
        "Go.\n\nplace: the place\n",
        "Go.\n\n`place`: the place",
    ],
)
def test_parameters_are_described_in_several_styles(docstring: str) -> None:
    def go(place: str) -> None: ...

    go.__doc__ = docstring
    assert tool(go).spec.description == "Go."
    assert tool(go).spec.parameters["properties"]["place"]["description"] == "the place"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": "a", "times": "7"}, '["a",7,"fast",null]'),
        ({"path": "a", "times": 2.0}, '["a",2,"fast",null]'),
        ({"path": "a", "tags": '["x"]'}, '["a",1,"fast",["x"]]'),
        ({"path": "a", "times": None, "mode": None}, '["a",1,"fast",null]'),
        ({"path": "[1]"}, '["[1]",1,"fast",null]'),
    ],
)
def test_arguments_are_converted_leniently(given: dict[str, Any], expected: str) -> None:
    assert text(look, **given) == expected


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "missing required field `path`"),
        ({"path": "a", "times": "many"}, "Expected `int`, got `str` - at `times`"),
        ({"path": "a", "mode": "lazy"}, "Invalid enum value 'lazy' - at `mode`"),
        ({"path": "a", "pth": "b"}, "unknown field `pth`"),
        ({"path": "a", "tags": [1]}, r"Expected `str`, got `int` - at `tags\[0\]`"),
    ],
)
def test_wrong_arguments_say_what_is_wrong_and_what_is_taken(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint) as caught:
        output(look, **given)
    assert "look takes path (string), times (integer, optional), mode (one of fast, slow, optional)" in str(
        caught.value
    )


def test_the_scene_is_passed_in_and_is_not_in_the_schema() -> None:
    def whose(scene: Scene) -> str:
        """Tell whose call it is."""
        return scene.key

    assert tool(whose).spec.parameters == {"type": "object", "properties": {}, "required": []}
    assert text(tool(whose)) == "cli:1"


def test_a_plain_function_runs_in_a_worker_thread_and_an_async_one_does_not() -> None:
    def plain() -> bool:
        """Tell."""
        return threading.current_thread() is threading.main_thread()

    async def waiting() -> bool:
        """Tell."""
        return threading.current_thread() is threading.main_thread()

    assert text(tool(plain)) == "false"
    assert text(tool(waiting)) == "true"


def test_a_cancelled_call_does_not_wait_for_its_thread() -> None:
    release = threading.Event()

    def slow() -> None:
        """Wait."""
        release.wait(20)

    async def cancelled() -> bool:
        with anyio.move_on_after(0.01) as scope:
            await tool(slow).run({}, scene())
        release.set()
        return scope.cancelled_caught

    assert anyio.run(cancelled)


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("bad"), "ValueError: bad"), (ToolError("no"), "no"), (ConfigError("c"), "c")]
)
def test_whatever_a_function_raises_is_a_tool_error(error: Exception, said: str) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    with pytest.raises(ToolError) as caught:
        output(tool(fail))
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "done"), ("plain", "plain"), ({"a": 1}, '{"a":1}'), (Path("x"), "x"), (Output(text="o"), "o")],
)
def test_what_a_function_returns_becomes_text(value: object, said: str) -> None:
    def give() -> object:
        """Give."""
        return value

    assert text(tool(give)) == said


def test_long_text_is_bounded_and_kept_whole() -> None:
    def much() -> str:
        """Say much."""
        return "x" * 50_000

    found = output(tool(much))
    assert len(found.text) < 17_000
    assert found.whole == "x" * 50_000


def test_a_tool_can_still_be_called_as_a_function() -> None:
    assert look("a", times=2) == ["a", 2, "fast", None]


def test_mutable_defaults_are_not_shared() -> None:
    def add(to: list[int] = [1]) -> list[int]:  # noqa: B006 - what users write
        """Add."""
        to.append(2)
        return to

    adding = tool(add)
    assert [text(adding), text(adding)] == ["[1,2]", "[1,2]"]


def untyped(a) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - what users write
    """Untyped."""


def many(*a: int) -> None:
    """Many."""


def silent(a: int) -> None: ...


def odd(a: Path) -> None:
    """Odd."""


def endless(a: Chain) -> None:
    """Endless."""


def unknown(a: "Nowhere") -> None:  # type: ignore[name-defined] # noqa: F821, UP037 - what users write
    """Unknown."""


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (untyped, "'a' of tool 'untyped' has no type"),
        (many, "passes arguments by name"),
        (silent, "no docstring"),
        (odd, "JSON cannot represent"),
        (endless, "contains itself"),
        (unknown, "cannot be read: name 'Nowhere'"),
        (lambda: None, "cannot name a tool"),
    ],
)
def test_what_a_model_could_not_call_is_refused_when_it_is_made(function: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        tool(function)


def test_it_satisfies_the_port() -> None:
    found: Tool = Function(look._function, effect="write", name="other")
    assert (found.spec.name, found.effect) == ("other", "write")


def test_a_list_as_text_that_is_nested_too_deep_is_an_error_for_the_model() -> None:
    with pytest.raises(ToolError, match="look was not run"):
        output(look, path="a", tags="[" * 5000)
