"""Planted bugs: searches that find too much, too little, or in another order."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from nacre import Hit, Sessions, StoreError
from nacre.index import Index
from nacre.storage.protocol import Prefixed
from nacre.testing import contract
from tests.testing.planted.table import planted


@planted(contract.a_search_finds_messages_with_all_its_words)
class OneOfTheWordsIsEnough(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query, **{**options, "fill": True})


@planted(contract.a_search_finds_messages_with_all_its_words, files=True)
class ASearchIsRemembered(Sessions):
    _found: Any = None

    def search(self, query: str, **options: Any) -> Any:
        self._found = self._found or {}
        return self._found.setdefault(query, super().search(query, **options))


@planted(contract.a_query_can_be_narrowed)
class ARoleIsIgnored(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(re.sub(r"role:\w+", "", query), **options)


@planted(contract.a_query_can_be_narrowed)
class APhraseIsItsWords(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query.replace('"', ""), **options)


@planted(contract.a_query_can_be_narrowed)
class AWordThatMustNotBeThereIsSearched(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query.replace("-green", "green"), **options)


@planted(contract.a_search_gives_the_best_first)
class TheFirstComesFirst(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return sorted(super().search(query, **options), key=lambda hit: hit.n)


@planted(contract.a_search_gives_the_best_first)
class ALimitOfZeroIsNoLimit(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query, **{**options, "limit": options["limit"] or 50})


@planted(contract.a_search_gives_the_best_first)
class FillIsIgnored(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query, **{**options, "fill": False})


@planted(contract.what_is_no_longer_live_is_found, files=True)
class OnlyWhatIsLiveIsFound(Sessions):
    def search(self, query: str, **options: Any) -> Any:
        return [hit for hit in super().search(query, **options) if hit.n in self.snapshot(hit.key).numbers]


@planted(contract.what_is_no_longer_live_is_found)
class AHitIsAlwaysInTheActiveGeneration(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return [replace(hit, generation="") for hit in super().search(query, **options)]


@planted(contract.a_search_can_be_of_some_sessions)
class OneSessionIsAPrefix(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query, **{**options, "prefix": options["only"] or options["prefix"], "only": ""})


@planted(contract.a_search_can_be_of_some_sessions)
class WhatIsSkippedIsFound(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query, **{**options, "skip": None})


@planted(contract.internal_sessions_are_searched_only_if_asked_for)
class InternalSessionsAreSearched(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return super().search(query, **{**options, "internal": True})


@planted(contract.internal_sessions_are_searched_only_if_asked_for)
class InternalSessionsAreNeverSearched(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return [hit for hit in super().search(query, **options) if not hit.key.startswith("nacre:")]


@planted(contract.a_search_checks_its_arguments, files=True)
class AFloatIsTakenAsTheMost(Sessions):
    def search(self, query: str, **options: Any) -> Any:
        return super().search(query, **{**options, "limit": int(options.get("limit", 50))})


@planted(contract.a_search_checks_its_arguments)
class AnOpenQuoteIsAnError(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        if query.count('"') % 2:
            raise StoreError("unterminated string")
        return super().search(query, **options)


@planted(contract.a_search_finds_messages_with_all_its_words)
class ASnippetIsEmpty(Index):
    def search(self, query: str, **options: Any) -> list[Hit]:
        return [replace(hit, snippet="") for hit in super().search(query, **options)]


@planted(contract.a_search_can_be_of_some_sessions, files=True)
class APartSearchesTheWhole(Sessions):
    def within(self, prefix: str) -> Sessions:
        return Sessions(Prefixed(self._store, prefix), index=self._index)


@planted(contract.what_is_no_longer_live_is_found, files=True)
class WhatWasFoundIsFoundAgain(Sessions):
    _found: tuple[Hit, ...] = ()

    def search(self, query: str, **options: Any) -> Any:
        known = super().search(query, **options)
        self._found = (*known, *(hit for hit in self._found if not known))
        return list(self._found)


@planted(contract.a_search_checks_its_arguments, files=True)
class WhatIsNoTextIsSearchedAsText(Sessions):
    def search(self, query: str, **options: Any) -> Any:
        return super().search(str(query), **options)
