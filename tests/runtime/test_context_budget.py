"""The room for a request: what is configured, what the server takes, and what it said when it refused one."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from nacre.agent.ports import Context, Reply, Usage, ignore
from nacre.messages import Message
from nacre.providers.scripted import Scripted
from nacre.runtime.context_budget import Budget, Known, Windows, sizes_in


class Small(Scripted):
    """A model that takes little."""

    context_size = 4096


def request(tokens: int) -> Context:
    """A request of about so many estimated tokens."""
    return Context(messages=[Message(role="user", content="word " * tokens)])


def test_the_reply_takes_its_part() -> None:
    assert Budget(8000).room(Scripted([])) == 7000


def test_a_small_model_has_a_small_room() -> None:
    assert Budget(32_000).limit(Small([])) == 4096
    assert Budget(200).room(Small([])) == 256


def test_a_model_that_counts_more_is_shown_less() -> None:
    budget, model = Budget(8000), Scripted([])
    reply = Reply(message=Message(role="assistant", content="ok"), usage=Usage(prompt=1000))
    budget.learn(model, request(400), reply)
    assert budget.room(model) < 7000 * 0.7
    assert budget.limit(model) == 8000


def test_what_a_session_is_made_of_is_read_once_before_its_first_reply() -> None:
    asked: list[str] = []

    def mix(key: str) -> dict[str, int]:
        asked.append(key)
        return {"thai": 100}

    budget, model = Budget(8000, mix=mix), Scripted([])
    reply = Reply(message=Message(role="assistant", content="ok"), usage=Usage(prompt=1000))
    budget.learn(model, request(400), reply, key="another")
    rooms = {budget.room(model, "k") for _ in range(5)} | {budget.capacity(model, "k") or 0, budget.room(model, "k")}
    assert len(rooms) <= 2
    assert asked == ["k"]


def test_it_learns_from_every_request() -> None:
    budget = Budget(8000)
    watched = budget.watch(Scripted(["ok"]))
    context = Context(messages=[Message(role="user", content="word, " * 400)])
    anyio.run(lambda: watched.complete(context, emit=ignore))
    anyio.run(watched.close)
    assert budget.calibration(watched).ratios


@pytest.mark.parametrize(
    ("refusal", "sizes"),
    [
        ("the request exceeds the available context size (9000 > 4096 tokens)", (9000, 4096)),
        ("request (1163 tokens) exceeds the available context size (1024 tokens), try increasing it", (1163, 1024)),
        ("the request exceeds the available context size (n_prompt_tokens: 1163, n_ctx: 1024)", (1163, 1024)),
        (
            "This model's maximum context length is 4097 tokens. However, your messages resulted in 4275 tokens.",
            (4275, 4097),
        ),
        (
            "maximum context length is 2048 tokens. However, you requested 2100 tokens (1900 in the messages, …).",
            (1900, 2048),
        ),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", (5000, 4096)),
        ("prompt is too long: 210,000 tokens > 200,000 maximum", (210_000, 200_000)),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it",
            (190_000, 200_000),
        ),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            (1_200_000, 1_048_576),
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
            (200_000, 131_072),
        ),
        ("the model is loaded with context length of only 4096 tokens", (0, 4096)),
        ("Ollama at http://127.0.0.1:11434 answered 400: the input length exceeds the context length", (0, 0)),
        ("maximum context length is 3 tokens", (0, 0)),
    ],
)
def test_sizes_are_read_in_the_words_of_servers(refusal: str, sizes: tuple[int, int]) -> None:
    assert sizes_in(refusal) == sizes


def test_a_refusal_with_sizes_settles_window_and_ratio() -> None:
    budget, model = Budget(32_000), Scripted([])
    budget.learn_refusal(model, request(6000), "prompt is too long: 9000 tokens > 4096 maximum")
    assert budget.limit(model) == 4096
    assert budget.tokens(model, 1000) == pytest.approx(1500, abs=5)
    assert budget.room(model) == pytest.approx((4096 - 512) / 1.5, rel=0.01)


def test_a_refusal_that_tells_only_the_window_says_that_we_count_too_little() -> None:
    budget, model = Budget(32_000), Scripted([])
    budget.learn_refusal(model, request(4000), "maximum context length is 4096 tokens")
    assert budget.room(model) < 3500


def test_what_was_accepted_after_a_refusal_without_sizes_is_remembered() -> None:
    budget, reply = Budget(32_000), Reply(message=Message(role="assistant", content="ok"))
    model = Scripted([])
    budget.learn_refusal(model, request(6000), "the input length exceeds the context length")
    budget.learn(model, request(3000), reply)
    assert budget.room(model) == pytest.approx(3000, abs=20)


def test_what_was_found_is_known_to_the_next_process_for_a_day(tmp_path: Path) -> None:
    file, model = tmp_path / "state/windows.json", Scripted([])
    Budget(32_000, windows=Windows(file)).learn_refusal(model, request(6000), "9000 tokens > 4096 maximum")
    assert Budget(32_000, windows=Windows(file)).limit(model) == 4096
    file.write_bytes(re.sub(rb'"at":[0-9.e+]+', b'"at":1000', file.read_bytes()))
    assert Budget(32_000, windows=Windows(file)).limit(model) == 32_000


def test_a_file_that_cannot_be_read_or_written_is_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "windows.json"
    file.write_text("not JSON")
    assert Windows(file).of("m") is None
    there = Windows(file / "below-a-file")
    there.remember("m", Known(tokens=4096))
    assert there.of("m") is not None
