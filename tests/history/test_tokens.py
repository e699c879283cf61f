"""The estimate against what real tokenizers count, and what is counted at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from nacre.agent.ports import Context, Spec
from nacre.entries import Message, ToolCall
from nacre.history.tokens import PER_CALL, PER_MEDIUM, PER_MESSAGE, PER_TOOL, Calibration, cost, count, estimate

IMAGE = {"type": "image_url", "image_url": {"url": "data:" + "x" * 9999}}
CALL = ToolCall(id="call", name="read", arguments={"a": 1})


class Sample(Struct, frozen=True):
    """A text of some kind, and how many tokens it is in each vocabulary."""

    kind: str
    tokens: dict[str, int]
    text: str


CORPUS = msgspec.json.decode(Path(__file__).with_name("corpus.json").read_bytes(), type=list[Sample])
VOCABULARIES = ("gemma-4", "qwen35", "llama-bpe", "smollm2")


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.kind)
def test_every_kind_of_text_is_within_a_third_of_what_a_tokenizer_counts(sample: Sample) -> None:
    assert 0.65 <= count(sample.text) / sample.tokens["gemma-4"] <= 1.35


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_after_calibration_a_mixed_session_is_within_a_tenth(vocabulary: str) -> None:
    calibration, estimated, reported = Calibration(), 0, 0
    errors = []
    for sample in sorted(CORPUS * 2, key=lambda sample: sample.text[-40:]):
        estimated += estimate(Message(role="user", content=sample.text))
        reported += sample.tokens[vocabulary] + 5
        errors.append(calibration.tokens(estimated) / reported - 1)
        calibration = calibration.learned(estimated, reported)
    assert all(abs(error) <= 0.1 for error in errors[20:])


def test_a_long_text_is_counted_by_samples() -> None:
    text = "".join(sample.text for sample in CORPUS) * 20
    whole = sum(count(text[start : start + 60_000]) for start in range(0, len(text), 60_000))
    assert count(text) == pytest.approx(whole, rel=0.2)
    assert count("7" * 1_000_001) == 1_000_001


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (Message(role="user"), 0),
        (Message(role="user", content=""), 0),
        (Message(role="user", content="two words"), 2),
        (Message(role="user", content=["1234", {"type": "text", "text": "12"}]), 6),
        (Message(role="user", content=[IMAGE]), PER_MEDIUM),
        (Message(role="user", content=[7, {"type": "audio"}]), 1 + count('{"type":"audio"}')),
        (Message(role="user", content="four", media=("a.png",)), 1 + PER_MEDIUM),
        (Message(role="assistant", tool_calls=(CALL,)), PER_CALL + 2 + count('{"a":1}')),
        (Message(role="assistant", content="four", reasoning="four"), 2),
        (Message(role="tool", tool_call_id="call", name="read", content="four"), 3),
    ],
)  # fmt: skip
def test_a_message_costs_what_is_in_it(message: Message, tokens: int) -> None:
    assert estimate(message) == PER_MESSAGE + tokens


@pytest.mark.parametrize("arguments", ['{"a":1}', {"a": 1}])
def test_arguments_cost_what_their_json_does(arguments: Any) -> None:
    message = Message(role="assistant", tool_calls=(ToolCall(arguments=arguments),))
    assert estimate(message) == PER_MESSAGE + PER_CALL + count('{"a":1}')


def test_a_context_costs_messages_tools_system_prompt_and_reply() -> None:
    said = Message(role="user", content="hello")
    tool = Spec(name="read", description="reads", parameters={"type": "object"})
    assert cost(Context(messages=[said])) == estimate(said)
    assert cost(Context(system="be brief", messages=[said])) == estimate(said) + PER_MESSAGE + 2
    tools = PER_TOOL + 2 + count('{"type":"object"}')
    assert cost(Context(messages=[said], tools=[tool]), reply=100) == estimate(said) + tools + 100


def test_the_first_high_report_is_believed_at_once() -> None:
    calibration = Calibration().learned(1000, 1800)
    assert (calibration.ratio, calibration.seen) == (1.8, 1)
    assert calibration.tokens(100) == 180
    assert calibration.room(180) == 100


def test_later_reports_raise_it_quickly_and_lower_it_slowly() -> None:
    calibration = Calibration(ratio=1.0, seen=1)
    assert calibration.learned(1000, 1400).ratio == pytest.approx(1.2)
    assert calibration.learned(1000, 600).ratio == pytest.approx(0.95)


@pytest.mark.parametrize(("estimated", "reported"), [(1000, 499), (1000, 0), (1000, -5), (63, 80), (0, 0), (0, 9)])
def test_a_report_that_says_nothing_changes_nothing(estimated: int, reported: int) -> None:
    assert Calibration().learned(estimated, reported) == Calibration()


def test_no_report_moves_it_out_of_bounds() -> None:
    high, low = Calibration(), Calibration()
    for _ in range(100):
        high, low = high.learned(100, 10**9), low.learned(100, 50)
    assert high.ratio == 4.0
    assert low.ratio == pytest.approx(0.5, rel=0.01)


def test_a_server_that_caches_every_other_prompt_costs_little() -> None:
    calibration = Calibration()
    for turn in range(1, 40):
        calibration = calibration.learned(1000 * turn, 100 if turn % 2 else 1200 * turn)
    assert calibration.ratio == pytest.approx(1.2, rel=0.01)
