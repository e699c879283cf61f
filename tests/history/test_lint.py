"""What is in the way of going on from a session, and what is not."""

from __future__ import annotations

import msgspec

from nacre.codec import encode_message
from nacre.history.lint import snags
from nacre.messages import Message, ToolCall
from nacre.records import MemoryView, Operation, Pop, Record, Rewind, Summarise, Truncate
from tests.history.test_session_state import grown, log, user, without


def calling(*ids: str) -> Operation:
    calls = tuple(ToolCall(id=id, name="read", arguments={}) for id in ids)
    return encode_message(Message(role="assistant", content="", tool_calls=calls))


def result(id: str | None) -> Operation:
    return encode_message(Message(role="tool", content="done", tool_call_id=id))


def answer() -> Operation:
    return encode_message(Message(role="assistant", content="so it is"))


def found(*operations: Operation) -> list[tuple[str, int]]:
    return [(snag.kind, snag.n) for snag in snags(log(*operations))]


def test_an_empty_session_is_in_nobodys_way() -> None:
    assert found() == []


def test_an_item_without_a_role_is_in_nobodys_way() -> None:
    item = encode_message({"type": "function_call", "call_id": "a", "tool_calls": [{"id": "b"}]})
    assert found(user("go"), item, calling("a"), item, result("a"), answer()) == []


def test_calls_and_results_in_any_order_pair() -> None:
    assert found(user("go"), calling("a", "b"), result("b"), result("a"), answer()) == []


def test_ids_may_be_used_again_in_another_round() -> None:
    assert found(calling("call_0"), result("call_0"), calling("call_0"), result("call_0"), answer()) == []


def test_one_id_may_be_two_calls_of_one_message() -> None:
    assert found(calling("a", "a"), result("a"), result("a")) == []


def test_a_result_without_an_id_belongs_to_the_newest_call() -> None:
    assert found(calling("a"), result(None)) == []


def test_words_between_a_call_and_its_result_do_not_part_them() -> None:
    assert found(calling("a"), user("are you there?"), result("a")) == []


def test_an_interrupted_turn_leaves_a_call_without_a_result() -> None:
    assert found(user("go"), calling("a", "b"), result("a")) == [("call-without-result", 3)]


def test_a_late_result_belongs_to_its_call() -> None:
    assert found(calling("a"), answer(), result("a")) == []


def test_a_late_result_that_names_no_call_belongs_to_none() -> None:
    assert found(calling("a"), answer(), result(None)) == [("call-without-result", 2), ("result-without-call", 4)]


def test_a_call_that_is_made_again_waits_no_longer() -> None:
    assert found(calling("a"), calling("a"), result("a")) == [("call-without-result", 2)]


def test_a_second_result_is_one_too_many() -> None:
    assert found(calling("a"), result("a"), result("a")) == [("duplicate-result", 4)]


def test_a_history_that_was_cut_inside_a_pair_begins_with_a_result() -> None:
    assert found(calling("a"), result("a"), answer(), Truncate(2)) == [("result-without-call", 3)]


def test_the_detail_names_the_call_and_its_tool() -> None:
    assert [snag.detail for snag in snags(log(calling("a")))] == ["call 'a' of 'read' has no result"]


def test_what_was_taken_back_on_purpose_is_no_stale_head() -> None:
    assert found(user("a"), user("b"), Rewind(2)) == []
    assert found(user("a"), user("b"), Pop()) == []
    assert found(user("a"), Summarise("a was said"), user("b"), Rewind(0), user("c")) == []


def test_a_state_that_lags_behind_its_messages_is_a_stale_head() -> None:
    view = log(user("a"), user("b"))
    earlier = next(iter(view.back(2))).st
    lagging = MemoryView([*view.all(), msgspec.structs.replace(_mark(view), st=earlier)])
    assert [(snag.kind, snag.n) for snag in snags(lagging)] == [("stale-head", 4)]


def test_lost_messages_are_counted() -> None:
    view = without(log(user("a"), user("b"), user("c")), 3)
    assert [(snag.kind, snag.detail) for snag in snags(view)] == [
        ("lost-messages", "the history has 3 messages, but only 2 were found")
    ]


def _mark(view: MemoryView) -> Record:
    last = next(iter(view.back(view.n)))
    return Record(v=1, n=last.n + 1, t="mark", ts=last.ts, st=last.st)


def test_a_note_on_top_changes_nothing() -> None:
    view = log(user("a"))
    assert snags(MemoryView([*view.all(), _mark(view)])) == []
    assert snags(grown(view, user("b"))) == []
