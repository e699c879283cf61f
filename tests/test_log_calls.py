"""Every log call of the source: a constant event, and no error's own words, which may quote a conversation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nacre

ROOT = Path(nacre.__file__).parent
LEVELS = frozenset(("debug", "info", "warning", "error", "exception", "critical", "log"))


def log_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
        if is_call and isinstance(node.func.value, ast.Name) and node.func.value.id == "logger":  # type: ignore[attr-defined]
            assert isinstance(node, ast.Call)
            yield node


def caught(tree: ast.AST) -> set[str]:
    """The names under which errors are caught."""
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}


def is_told(node: ast.AST, errors: set[str]) -> bool:
    """Whether an expression is an error, its text, or a text that is made here."""
    match node:
        case ast.Name(id=name):
            return name in errors
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
            return name in errors
        case ast.JoinedStr():
            return True
        case ast.Dict(values=values):
            return any(is_told(value, errors) for value in values)
        case _:
            return False


def test_no_log_call_has_the_words_of_an_error() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        errors = caught(tree)
        for call in log_calls(tree):
            given = [*call.args, *(word.value for word in call.keywords if word.arg == "extra")]
            if any(is_told(each, errors) for each in given):
                wrong.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert wrong == []
