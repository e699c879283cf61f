"""remember and forget."""

from __future__ import annotations

import anyio
import pytest

from nacre.agent.ports import Output, Scene
from nacre.entries import ToolCall
from nacre.errors import NacreError, ToolError
from nacre.tools.builtin import memory_tools
from nacre.tools.functions import Function


class Kept:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, str, str]] = []

    def remember(self, text: str, subject: str, key: str) -> str:
        self.facts.append((text, subject, key))
        return text

    def forget(self, text: str) -> str:
        for fact in self.facts:
            if text in fact[0]:
                self.facts.remove(fact)
                return fact[0]
        raise NacreError(f"no fact matches {text!r}")


def run(tool: Function, **arguments: str) -> Output:
    scene = Scene(key="telegram:42", call=ToolCall(id="c", name=tool.spec.name), emit=lambda _: None)
    return anyio.run(tool.run, arguments, scene)


def test_a_fact_is_kept_with_the_session_it_was_said_in_and_taken_out_again() -> None:
    kept = Kept()
    remember, forget = memory_tools(kept.remember, kept.forget)
    assert (
        run(remember, fact="Release day is Thursday", subject="releases").text == "remembered: Release day is Thursday"
    )
    assert kept.facts == [("Release day is Thursday", "releases", "telegram:42")]
    assert run(forget, fact="Thursday").text == "forgotten: Release day is Thursday"
    assert kept.facts == []


def test_what_is_not_known_is_told_to_the_model() -> None:
    _, forget = memory_tools(Kept().remember, Kept().forget)
    with pytest.raises(ToolError, match="no fact matches"):
        run(forget, fact="Friday")


def test_the_model_is_told_of_fact_and_subject_only() -> None:
    remember, forget = memory_tools(Kept().remember, Kept().forget)
    assert set(remember.spec.parameters["properties"]) == {"fact", "subject"}
    assert remember.spec.parameters["required"] == ["fact"]
    assert set(forget.spec.parameters["properties"]) == {"fact"}
    assert remember.effect == forget.effect == "write"
