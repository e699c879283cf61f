"""What becomes of a model's answer when it is asked for a title."""

from __future__ import annotations

import anyio
import pytest

from nacre.messages import Message
from nacre.providers.scripted import Scripted
from nacre.runtime.titles import clean_title, suggest_title


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Names for a boat", "Names for a boat"),
        ('\n"Names for a boat."\n\nI chose it because', "Names for a boat"),
        ("**Title:** Names  for a boat", "Names for a boat"),
        ("Titre : Noms de bateau", "Noms de bateau"),
        ("", ""),
        ("#", ""),
        ("As a helpful assistant I would say that this conversation is about boats", ""),
    ],
)
def test_only_a_short_line_is_a_title(answer: str, title: str) -> None:
    assert clean_title(answer) == title


def test_the_model_is_shown_what_was_said() -> None:
    provider = Scripted(["Boats"])
    said = [Message(role="user", content="names?"), Message(role="assistant", content="Ada")]
    assert anyio.run(suggest_title, provider, said) == "Boats"
