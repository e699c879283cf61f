"""Everything that the interface takes or gives is offered, described and shown by an example that runs."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import doctest
import inspect
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nacre
from tests import reference

NAMES = sorted({name for names in reference.grouped().values() for name in names})
TYPES = [name for name in nacre.__all__ if inspect.isclass(getattr(nacre, name))]
METHODS = [name for name, _ in reference.members(nacre.Sessions)]

FOREIGN = {name for module in (builtins, typing, collections.abc, types) for name in dir(module)} | {"datetime"}
"""Names of Python's own that signatures have."""


def annotations_of(name: str) -> Iterator[tuple[Any, str]]:
    """The annotations of a function, or of the fields, methods and properties of a type; and where they are from."""
    value = getattr(nacre, name)
    if inspect.isfunction(value):
        yield from ((value, text) for text in value.__annotations__.values())
        return
    if issubclass(value, msgspec.Struct):
        yield from ((value, value.__annotations__[field]) for field in value.__struct_fields__)
    for _, member in reference.members(value):
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        yield from ((function, text) for text in function.__annotations__.values())


def named_in(home: Any, annotation: str) -> set[str]:
    """The names in an annotation that are neither Python's nor a variable for a type."""
    found = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    module = inspect.getmodule(home)
    modules_and_variables = types.ModuleType | typing.TypeVar
    return {name for name in found - FOREIGN if not isinstance(vars(module).get(name), modules_and_variables)}


@pytest.mark.parametrize("name", ["open", *TYPES])
def test_every_type_in_a_signature_is_offered(name: str) -> None:
    found = {each for home, text in annotations_of(name) for each in named_in(home, text)}
    assert found <= set(nacre.__all__)


def test_every_error_is_offered() -> None:
    assert set(reference.grouped()["Errors"]) <= set(nacre.__all__)


def test_every_name_and_every_method_is_on_the_page_once() -> None:
    found = [name for names in reference.grouped().values() for name in names]
    assert sorted(found) == sorted({*nacre.__all__, *METHODS})


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_described(name: str) -> None:
    value = reference.find(name)
    prose, _ = (reference.read_alias(name)[1], "") if reference.is_alias(value) else reference.split_doc(value)
    assert prose.endswith(".")
    if inspect.isclass(value):
        assert [each for each, member in reference.members(value) if not inspect.getdoc(member)] == []


def has_example(name: str) -> bool:
    """Whether an example is due: a name for a union has none, nor has an error that no call of the library raises."""
    value = reference.find(name)
    is_of_the_agent = reference.is_error(value) and value is not nacre.NacreError
    is_of_the_agent = is_of_the_agent and not issubclass(value, nacre.StoreError | nacre.RateLimited)
    return not reference.is_alias(value) and not is_of_the_agent


@pytest.mark.parametrize("name", [name for name in NAMES if has_example(name)])
def test_every_example_runs(name: str, root: Path) -> None:
    value = reference.find(name)
    documented = [(name, value)]
    if inspect.isclass(value) and value is not nacre.Sessions:
        documented += [(f"{name}.{each}", member) for each, member in reference.members(value)]
    assert reference.split_doc(value)[1], "its docstring has no example"
    for number, (title, each) in enumerate(documented):
        with nacre.open(root / str(number)) as sessions:
            sessions.add_message("cli:1", "user", "What is nacre?")
            sessions.add_message("cli:1", "assistant", "Mother-of-pearl.")
            names = {"nacre": nacre, "sessions": sessions}
            example = doctest.DocTestParser().get_doctest(inspect.getdoc(each) or "", names, title, None, 0)
            said: list[str] = []
            doctest.DocTestRunner().run(example, out=said.append)
            assert not said, "".join(said)


@pytest.mark.parametrize("name", [name for name in NAMES if has_example(name)])
def test_nothing_is_said_after_an_example(name: str) -> None:
    parts = doctest.DocTestParser().parse(inspect.getdoc(reference.find(name)) or "")
    first = next(at for at, part in enumerate(parts) if isinstance(part, doctest.Example))
    assert [part for part in parts[first:] if isinstance(part, str) and part.strip()] == []


def test_the_page_is_what_is_made_now() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run `make reference`"
