"""The estimate against what real tokenizers count, and what is counted at all."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from nacre.agent.ports import Context, Spec
from nacre.history import tokens
from nacre.history.tokens import (
    PER_CALL,
    PER_MEDIUM,
    PER_MESSAGE,
    PER_TOOL,
    Calibration,
    ContextSizes,
    Ratio,
    context_sizes,
    cost,
    count,
    definition,
    estimate,
    sizes,
)
from nacre.messages import Message, ToolCall

IMAGE = {"type": "image_url", "image_url": {"url": "data:" + "x" * 9999}}
CALL = ToolCall(id="call", name="read", arguments={"a": 1})


class Sample(Struct, frozen=True):
    """A text of some kind, and how many tokens it is in each vocabulary."""

    kind: str
    tokens: dict[str, int]
    text: str


CORPUS = msgspec.json.decode(Path(__file__).with_name("corpus.json").read_bytes(), type=list[Sample])
VOCABULARIES = ("o200k", "cl100k", "claude2", "llama3", "mistral")
REPLIES = 20


def main_script(text: str) -> str:
    """What most of a text is written in; some languages are told by some of their letters."""
    found = {script: size for script, size in sizes(text).items() if script != "digits"}
    for telling in ("kana", "vietnamese", "eastern"):
        if telling in found:
            return telling
    return max(found, key=lambda script: found[script])


@pytest.mark.parametrize(
    "sample", [sample for sample in CORPUS if "gemma-4" in sample.tokens], ids=lambda sample: sample.kind
)
def test_every_kind_of_text_is_within_a_third_of_what_a_tokenizer_counts(sample: Sample) -> None:
    assert 0.65 <= count(sample.text) / sample.tokens["gemma-4"] <= 1.35


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.kind)
def test_after_twenty_replies_in_its_script_no_text_is_estimated_a_fifth_too_low(
    sample: Sample, vocabulary: str
) -> None:
    # Learned from other texts in the same script, below a system prompt in English that is as long as two of them.
    others = [one for one in CORPUS if one is not sample and main_script(one.text) == main_script(sample.text)]
    prompt = [one for one in CORPUS if one.kind in ("markdown", "english")]
    calibration, rng = Calibration(), random.Random(sample.kind)
    for _ in range(REPLIES):
        shown = [*prompt, *rng.choices(others, k=3)]
        context = Context(messages=[Message(role="user", content=one.text) for one in shown])
        reported = sum(one.tokens[vocabulary] + PER_MESSAGE for one in shown)
        calibration = calibration.learn(context_sizes(context), reported)
    assert calibration.count(sample.text) >= 0.8 * sample.tokens[vocabulary]


@pytest.mark.parametrize("vocabulary", ["gemma-4", "qwen35", "llama-bpe", "smollm2"])
def test_after_calibration_a_mixed_session_is_never_low_and_hardly_a_fifth_too_high(vocabulary: str) -> None:
    calibration, found, reported = Calibration(), dict[str, int](), 0
    ratios = []
    for sample in sorted(
        2 * [sample for sample in CORPUS if vocabulary in sample.tokens], key=lambda sample: sample.text[-40:]
    ):
        for script, size in sizes(sample.text).items():
            found[script] = found.get(script, 0) + size
        reported += sample.tokens[vocabulary]
        ratios.append(calibration.tokens(found) / reported)
        calibration = calibration.learn(found, reported)
    assert all(0.97 <= ratio <= 1.25 for ratio in ratios[20:])


def test_scripts_are_learned_apart() -> None:
    calibration = Calibration().learn({"latin": 1000}, 1000).learn({"latin": 1000, "thai": 1000}, 4000)
    assert calibration.tokens({"thai": 100}) > 250
    assert calibration.tokens({"latin": 100}) < 130


def test_words_of_several_scripts_are_told_apart() -> None:
    assert sizes("hello world") == {"latin": 2}
    assert sizes("für die Größe, çok güzel")["accented"] > 0
    assert set(sizes("Привет, 42 γεια שלום 你好 かな 한국 👍 ✓ ←")) == {
        "latin", "digits", "cyrillic", "greek", "hebrew", "han", "kana", "hangul", "emoji", "symbols",
    }  # fmt: skip
    assert sizes("") == {}


def test_base64_has_no_words() -> None:
    sample = next(one for one in CORPUS if one.kind == "base64")
    assert all(count(sample.text) >= 0.9 * sample.tokens[vocabulary] for vocabulary in VOCABULARIES)


def test_a_calibration_counts_what_the_estimate_counts() -> None:
    said = Message(role="assistant", content="สวัสดี", tool_calls=(CALL,), media=("a.png",))
    tool = Spec(name="read", description="reads", parameters={"type": "object"})
    context = Context(system="be brief", messages=[said], tools=[tool])
    none, doubled = Calibration(), Calibration(ratios={"thai": Ratio(value=3.0)})
    assert none.cost(context, reply=7) == cost(context, reply=7) == sum(context_sizes(context).values()) + 7
    assert (none.estimate(said), none.definition(tool)) == (estimate(said), definition(tool))
    assert doubled.cost(context) - cost(context) == 2 * count("สวัสดี")
    assert doubled.ratio({"thai": 10, "latin": 10}) == 2.0
    assert none.ratio({}) == 1.0


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


def ratio(calibration: Calibration, script: str = "latin") -> float:
    return calibration.ratio({script: 1})


def test_the_first_report_on_a_script_is_believed_nearly_at_once() -> None:
    assert ratio(Calibration().learn({"thai": 1000}, 3000), "thai") == pytest.approx(3.3, rel=0.02)


def test_later_reports_raise_it_quickly_and_lower_it_slowly() -> None:
    before = Calibration(ratios={"latin": Ratio(value=1.0, doubt=0.01)})
    up, down = before.learn({"latin": 1000}, 1400), before.learn({"latin": 1000}, 600)
    assert ratio(up) - 1 > 3 * (1 - ratio(down)) > 0


@pytest.mark.parametrize(("estimated", "reported"), [(1000, 399), (1000, 0), (1000, -5), (63, 80), (0, 0), (0, 9)])
def test_a_report_that_says_nothing_changes_nothing(estimated: int, reported: int) -> None:
    assert Calibration().learn({"latin": estimated}, reported) == Calibration()


def test_a_report_that_was_expected_changes_nothing() -> None:
    calibration = Calibration().learn({"latin": 1000}, 1000)
    for _ in range(20):
        calibration = calibration.learn({"latin": 1000}, 1000)
    assert calibration.learn({"latin": 1000}, 1000) is calibration


def test_no_report_moves_it_out_of_bounds() -> None:
    high, low = Calibration(), Calibration()
    for _ in range(100):
        high, low = high.learn({"latin": 100}, 10**9), low.learn({"latin": 100}, 40)
    assert ratio(high) == 8.0
    assert 0.3 <= ratio(low) <= 0.5


def test_a_refusal_that_tells_the_size_is_believed_exactly() -> None:
    sizes_seen = {"latin": 1000, "thai": 500}
    calibration = Calibration(ratios={"thai": Ratio(value=2.0)}).correct(sizes_seen, 3000)
    assert calibration.tokens(sizes_seen) == 3000
    assert ratio(calibration, "greek") == 1.0


def test_a_server_that_caches_every_other_prompt_costs_little() -> None:
    calibration = Calibration()
    for turn in range(1, 40):
        calibration = calibration.learn({"latin": 1000 * turn}, 100 if turn % 2 else 1200 * turn)
    assert ratio(calibration) == pytest.approx(1.32, rel=0.05)


def test_long_texts_are_not_kept_in_memory_after_they_were_counted() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for at in range(30):
            count(f"{at} words and lines " * 20_000)
        assert tracemalloc.get_traced_memory()[0] - before < 2_000_000
    finally:
        tracemalloc.stop()


def test_sizes_that_are_remembered_are_the_same() -> None:
    tool = Spec(name="read", description="Read.", parameters={"type": "object"})
    messages = [Message(role="user", content=text) for text in ("hello", "Привет", "", "a" * 99)]
    known = ContextSizes(limit=3)
    for end in (1, 4, 2, 4):
        for system in ("", "Be brief."):
            context = Context(system=system, messages=messages[:end], tools=[tool])
            assert known(context) == context_sizes(context)


def test_a_message_is_measured_once_while_it_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ContextSizes()
    messages = [Message(role="user", content="hello"), Message(role="assistant", content="hi")]
    before = known(Context(messages=messages))
    monkeypatch.setattr(tokens, "sizes", None)
    assert known(Context(messages=messages)) == before
