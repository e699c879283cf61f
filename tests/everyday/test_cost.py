"""What a conversation costs, and what fills the model's context."""

from __future__ import annotations

import re

from tests.everyday.conftest import Person
from tests.everyday.terminal import Screen

PRICES = '[prices]\n"ollama/gemma4:e4b" = {input = 3.0, output = 15.0, cached = 0.3}\n'


def test_the_answer_of_a_script_carries_its_cost(person: Person) -> None:
    person.config(PRICES)
    usage = person.ask("hello")["usage"]
    assert usage["cost"] == round((usage["prompt"] * 3.0 + usage["completion"] * 15.0) / 1_000_000, 6)


def test_without_prices_there_are_only_tokens(person: Person) -> None:
    usage = person.ask("hello")["usage"]
    assert usage["requests"] == 1
    assert "cost" not in usage


def test_statistics_have_the_cost_of_everything(person: Person) -> None:
    person.config(PRICES)
    costs = [person.ask("hello")["usage"]["cost"] for _ in range(2)]
    total = person.nacre("sessions", "stats", "--json").json["cost"]
    assert total == round(sum(costs), 6)
    assert "$0.0" in person.nacre("sessions", "stats").out


def test_a_price_that_is_none_is_refused(person: Person) -> None:
    person.config('[prices]\n"gpt-5" = {input = "much"}\n')
    done = person.nacre("config", "check")
    assert done.code != 0
    assert "prices.gpt-5" in done.out + done.err


def test_cost_says_tokens_and_money_of_the_turn_and_the_session(person: Person) -> None:
    person.config(PRICES)
    with Screen(person, "chat") as screen:
        screen.until("gemma4:e4b")
        for words in ("first", "second"):
            screen.say(words)
            screen.until(f"You said: {words}")
        screen.say("/cost")
        screen.until("this session")
        assert re.search(r"this turn +1 request · [\d,]+ tokens in \(0 cached\), 7 out · \$0\.0", screen.text)
        assert re.search(r"this session +2 requests · [\d,]+ tokens in \(0 cached\), 14 out · \$0\.0", screen.text)
        assert screen.leave() == 0


def test_cost_says_which_price_is_missing(person: Person) -> None:
    with Screen(person, "chat") as screen:
        screen.until("gemma4:e4b")
        screen.say("hello")
        screen.until("You said: hello")
        screen.say("/cost")
        screen.until("no price for gemma4:e4b")
        assert screen.leave() == 0


def test_context_shows_what_fills_the_window_and_the_footer_keeps_its_limit(person: Person) -> None:
    with Screen(person, "chat", columns=60, rows=40) as screen:
        screen.until("/32.0k tokens")
        for words in ("first", "second"):
            screen.say(words)
            screen.until(f"You said: {words}")
        screen.until("/32.0k tokens")
        screen.say("/context")
        screen.until("of 32,000 tokens")
        for part in ("S system prompt", "T tools", "M messages", "R kept free for the reply", ". free"):
            assert part in screen.text, screen.text
        assert screen.leave() == 0
