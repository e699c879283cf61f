"""Bugs planted in the statements of PostgreSQL: the contract suite catches them, so it looks at what they do."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import nacre
from nacre.index.postgres_index import PostgresIndex
from nacre.testing import contract
from nacre.testing.contract import Check
from tests.postgres.opened import open_store


class Planted(NamedTuple):
    """A statement in which a part is another one, and the check that it cannot pass."""

    statement: str
    part: str
    instead: str
    check: Check


BUGS = {
    "an archived generation is written to": Planted(
        "append", "AND status = 0", "", contract.archiving_and_deleting_are_seen_across_openings
    ),
    "a large payload is not kept": Planted(
        "keep_blob", "AND writer = $6::bigint", "AND writer <> $6::bigint", contract.a_large_message_survives
    ),
    "an id from before a fork is forgotten": Planted(
        "shared_id", "n <= $4::bigint", "n > $4::bigint", contract.bytes_under_an_id_are_not_what_they_are_written_as
    ),
    "what is archived is counted twice": Planted(
        "set_status",
        "SELECT $1::uuid, status, internal, -1 FROM known UNION ALL",
        "",
        contract.a_page_is_followed_by_the_next_one,
    ),
    "a turn is anybody's": Planted(
        "claim", "DO NOTHING", "DO UPDATE SET holder = excluded.holder", contract.a_turn_has_one_holder
    ),
    "a lost lease is not noticed": Planted(
        "held", "1 / count(*)", "1", contract.what_relies_on_a_lease_is_refused_once_it_is_lost
    ),
    "forks are not named": Planted(
        "forks_at", "upto >= $3::bigint", "upto < $3::bigint", contract.who_may_still_have_the_words_is_named
    ),
    "what forks share is erased": Planted(
        "shared_upto", "max(upto)", "NULL::bigint", contract.a_fork_and_its_source_go_separate_ways
    ),
    "an erased message stays": Planted(
        "set_line", "line = $4", "line = line || left($4, 0)", contract.an_erased_message_leaves_a_marked_hole
    ),
    "what comes back from the trash is archived": Planted(
        "take_from_trash", "status = was", "status = 1", contract.a_session_in_the_trash_comes_back_whole
    ),
    "what is in the trash is listed": Planted(
        "put_in_trash", "status = 2", "status = 1", contract.a_session_in_the_trash_comes_back_whole
    ),
    "a document cannot be replaced": Planted(
        "set_document", "data = excluded.data", "data = documents.data", contract.a_document_is_replaced_whole
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_in_a_statement_is_caught(name: str, empty_database: str) -> None:
    bug = BUGS[name]

    def open_with_bug() -> nacre.Sessions:
        store = open_store(empty_database, patience=1)
        statement = getattr(store.statements, bug.statement)
        assert bug.part.encode() in statement.text, "the statement has changed: plant the bug again"
        spoilt = statement._replace(text=statement.text.replace(bug.part.encode(), bug.instead.encode()))
        setattr(store.statements, bug.statement, spoilt)
        return nacre.Sessions(store, index=lambda: PostgresIndex(store))

    with pytest.raises((AssertionError, nacre.NacreError)) as caught:
        bug.check(open_with_bug)
    assert "plant the bug again" not in str(caught.value)
