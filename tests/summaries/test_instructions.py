"""What tells an assistant how to work, and what only sounds like it."""

from __future__ import annotations

import pytest

from nacre.summaries.instructions import weigh
from tests.needles.planted import FACTS, IDENTIFIERS, INSTRUCTIONS


@pytest.mark.parametrize(
    "said",
    [
        *(needle.said for needle in INSTRUCTIONS),
        "Never touch the tests.",
        "Please don’t use tables in your answers!",
        "You should not guess.",
        "My name is Ilse.",
        "Ask me before you delete anything.",
        "I want you to run the tests before every commit.",
        "And please, keep all replies under 100 words.",
        "If something fails, you must not retry without asking me.",
        "Antworte immer auf Deutsch.",
        "Ab jetzt bitte keine Emojis.",
        "Réponds toujours en français.",
        "N'utilise pas de tableaux.",
        "Responde siempre en español.",
        "No uses emojis en las respuestas.",
        "D'ora in poi rispondi in italiano.",
        "Sempre responda em português.",
        "Всегда отвечай по-русски.",
        "以后请用中文回答。",
        "不要使用表格。",
        "今後は日本語で答えてください。",
        "앞으로 한국어로 대답해 주세요.",
    ],
)
def test_an_instruction_is_recognised(said: str) -> None:
    assert weigh(said) >= 3


@pytest.mark.parametrize(
    "said",
    [
        *(needle.said for needle in FACTS + IDENTIFIERS),
        "I'm here for you.",
        "He's awesome at catching frisbees in mid-air - never misses!",
        "I'm always here for you.",
        "Never give up!",
        "That must have been incredible!",
        "You must be so proud of yourself.",
        "You should try yoga, it is fun.",
        "Don't worry about it.",
        "No worries, Jon!",
        "Always up for something sweet.",
        "Never been there before.",
        "My kids always love the beach.",
        "I should have known.",
        "We'll keep going and never give up.",
        "Make sure to have fun!",
        "Call me back when you are home.",
        "Should I always answer in English?",
        "Send the report to Maria.",
        "Use the second one.",
    ],
)
def test_what_only_sounds_like_one_is_none(said: str) -> None:
    assert weigh(said) == 0


def test_a_rule_for_the_work_says_more_than_a_kind_word() -> None:
    assert weigh("Never push to the main branch without asking me.") > weigh("Don't let anything stop you.")
