"""remember and forget: what the agent is to know in every later conversation."""

from __future__ import annotations

from collections.abc import Callable

from nacre.agent.ports import Scene
from nacre.tools.functions import Function

Remember = Callable[[str, str, str], str]
"""Keep a fact, given its text, its subject and the session it was said in; gives the text that is kept."""

Forget = Callable[[str], str]
"""Take out the fact that a text or an id means; gives its text. Raises what the model is to be told."""


class Rememberer:
    """The two tools."""

    def __init__(self, remember: Remember, forget: Forget) -> None:
        self._remember = remember
        self._forget = forget

    def remember(self, fact: str, scene: Scene, subject: str = "") -> str:
        """Keep a fact or a preference for all later conversations; only what the user wants kept.

        Args:
            fact: one short sentence that can be understood on its own
            subject: what it is about, in one to three words; a fact about it that this one contradicts is replaced
        """
        return f"remembered: {self._remember(fact, subject, scene.key)}"

    def forget(self, fact: str) -> str:
        """Remove a fact from memory that is wrong or no longer wanted.

        Args:
            fact: its text, or its id
        """
        return f"forgotten: {self._forget(fact)}"


def remembering_tools(remember: Remember, forget: Forget) -> list[Function]:
    """The tools that write memory."""
    both = Rememberer(remember, forget)
    return [Function(both.remember, effect="write"), Function(both.forget, effect="write")]
