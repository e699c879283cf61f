"""Tags and pins in a session's meta."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nacre.history.overview import Labels, labels, tags_in


def test_tags_stand_between_commas_each_once_and_without_blanks_around_them() -> None:
    assert tags_in(" work, two words,,work ,\t,<b>") == ["work", "two words", "<b>"]


def test_a_long_tag_is_cut() -> None:
    assert tags_in("x" * 100) == ["x" * 40]


@given(st.text(alphabet="ab, \t"))
def test_tags_read_again_are_the_same(text: str) -> None:
    tags = tags_in(text * 9)
    assert tags_in(", ".join(tags)) == tags


def test_meta_that_holds_no_labels_has_none() -> None:
    assert labels({}) == labels({"tags": "work", "pinned": False}) == Labels(pinned=False, tags=())


def test_what_is_no_tag_is_left_out() -> None:
    assert labels({"tags": ["work", 3, None], "pinned": True}) == Labels(pinned=True, tags=("work",))
