"""Planted bugs: meta, labels, lists and pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from nacre import InvalidArgument, Page, SessionNotFound, Sessions
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import Listed
from nacre.testing import contract
from tests.testing.planted.table import planted


@planted(contract.meta_fields_are_merged_and_removed)
class MetaIsReplaced(Sessions):
    def set_meta(self, key: str, given: Any = None, /, **fields: Any) -> Any:
        return super().set_meta(key, given, **{**dict.fromkeys(self.get_meta(key)), **fields})


@planted(contract.meta_fields_are_merged_and_removed)
class NoneIsAValueOfMeta(Sessions):
    def get_meta(self, key: str) -> Any:
        return {**super().get_meta(key), "never_set": None}


@planted(contract.labels_are_set_and_removed_one_by_one)
class LabelsThatAreNotNamedAreRemoved(Sessions):
    def set_labels(self, key: str, **labels: Any) -> Any:
        return super().set_labels(key, **{"title": "", "tags": [], "pinned": False, **labels})


@planted(contract.labels_begin_no_session)
class LabelsBeginASession(Sessions):
    def set_labels(self, key: str, **labels: Any) -> Any:
        return self.set_meta(key, **labels)


@planted(contract.a_free_key_has_no_session)
class AnArchivedSessionLeavesItsKeyFree(Sessions):
    def free_key(self, key: str) -> str:
        return next(free for n in range(2, 99) if self.status(free := f"{key}-{n}") != "active")


@planted(contract.list_gives_true_keys_and_counts)
class AListNamesFiles(MemoryStore):
    def each(self, *, archived: bool) -> Iterator[Listed]:
        return (found._replace(key=found.key.replace("/", "_")) for found in super().each(archived=archived))


class _Shown(Sessions):
    """Sessions that a list shows otherwise than they are."""

    def show(self, info: Any) -> Any:
        raise NotImplementedError

    def page(self, **given: Any) -> Any:
        page = super().page(**given)
        return replace(page, items=list(map(self.show, page.items)))

    def list(self, **given: Any) -> Any:
        return map(self.show, super().list(**given))


@planted(contract.list_gives_true_keys_and_counts)
class AListCountsAllMessages(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, messages=len(self.transcript(info.key)))


@planted(contract.labels_do_not_make_a_session_newer)
class LabelsMakeASessionNewer(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, updated=list(self.records(info.key))[-1].ts)


@planted(contract.list_gives_the_newest_title)
class ATitleIsTheFirst(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, title=next(iter(self.records(info.key, "meta"))).data["meta"]["title"])


@planted(contract.a_page_tells_how_a_session_stands)
class EverySessionIsIdle(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, state="idle")


@planted(contract.a_page_tells_how_a_session_stands, contract.list_has_the_whole_meta)
class APageShowsNoOtherMeta(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, meta={"title": info.title, "other": None})


class _ShownMeta(_Shown):
    """Sessions whose meta a list shows otherwise than it is."""

    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        raise NotImplementedError

    def show(self, info: Any) -> Any:
        return replace(info, meta=self.change(info.meta, info))


@planted(contract.list_has_the_whole_meta)
class AnArchivedSessionIsListedWithoutMeta(_ShownMeta):
    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        return {} if info.archived else meta


@planted(contract.list_has_the_whole_meta)
class FieldsThatWereTakenAwayAreListed(_ShownMeta):
    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        ever = {name for entry in self.records(info.key, "meta") for name in entry.data["meta"]}
        return {**dict.fromkeys(ever), **meta}


@planted(contract.list_has_the_whole_meta)
class LabelsAreListedThatNobodySet(_ShownMeta):
    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        return {"title": info.title, "pinned": info.pinned, **meta}


@planted(contract.list_has_the_whole_meta)
class OnlyTextsOfMetaAreListed(_ShownMeta):
    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        return {name: item for name, item in meta.items() if isinstance(item, str)}


@planted(contract.list_has_the_whole_meta)
class ALongFieldIsListedAsNull(_ShownMeta):
    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        return {name: item if len(repr(item)) < 1000 else None for name, item in meta.items()}


@planted(contract.list_has_the_whole_meta)
class ALargeNumberIsListedAsAFloat(_ShownMeta):
    def change(self, meta: dict[str, Any], info: Any) -> dict[str, Any]:
        return {name: float(item) if type(item) is int else item for name, item in meta.items()}


@planted(contract.list_has_the_whole_meta)
class AListWithALimitHasNoMeta(Sessions):
    def list(self, *, limit: int | None = None, **given: Any) -> Any:
        found = super().list(limit=limit, **given)
        return found if limit is None else (replace(info, meta={}) for info in found)


@planted(contract.list_filters_by_prefix)
class APrefixIsOfAnyCase(Sessions):
    def list(self, *, prefix: str = "", **given: Any) -> Any:
        return (info for info in super().list(**given) if info.key.lower().startswith(prefix.lower()))


@planted(contract.list_gives_the_newest_first)
class OrderIsIgnored(Sessions):
    def list(self, **given: Any) -> Any:
        super().list(**given)
        return super().list(**{**given, "order": "updated"})


@planted(contract.list_gives_the_newest_first)
class ALimitOfZeroIsNone(Sessions):
    def list(self, **given: Any) -> Any:
        return super().list(**{**given, "limit": given.get("limit") or None})


@planted(contract.a_page_is_followed_by_the_next_one)
class ACursorIsAnOffset(Sessions):
    def page(self, *, limit: int | None = 50, cursor: str | None = None, **given: Any) -> Any:
        found, start = super().page(limit=None, **given).items, int(cursor or 0)
        end = len(found) if limit is None else start + limit
        return Page(items=found[start:end], total=len(found), cursor=str(end) if start < end < len(found) else None)


@planted(contract.a_page_is_followed_by_the_next_one)
class ATotalIsOfThePage(Sessions):
    def page(self, **given: Any) -> Any:
        page = super().page(**given)
        return replace(page, total=len(page.items))


@planted(contract.a_page_can_be_narrowed)
class OneOfTheTagsIsEnough(Sessions):
    def page(self, **given: Any) -> Any:
        return super().page(**{**given, "tags": [*given.get("tags", ())][-1:]})


@planted(contract.a_page_can_be_narrowed)
class AFolderIsAPrefix(Sessions):
    def page(self, *, folder: str | None = None, **given: Any) -> Any:
        page = super().page(**given)
        found = [info for info in page.items if folder is None or info.cwd.startswith(folder.rstrip("/"))]
        return Page(items=found, total=len(found))


@planted(contract.a_page_checks_its_arguments)
class AWrongCursorIsIgnored(Sessions):
    def page(self, **given: Any) -> Any:
        with suppress(InvalidArgument):
            return super().page(**given)
        return super().page(**{**given, "cursor": None})


@planted(contract.internal_sessions_are_listed_only_if_asked_for)
class InternalSessionsAreListed(Sessions):
    def list(self, **given: Any) -> Any:
        return super().list(**{**given, "internal": True})


@planted(contract.a_new_internal_key_is_refused)
class AnyoneMayBeginAnInternalSession(Sessions):
    def __init__(self, *store: Any, **options: Any) -> None:
        super().__init__(*store, **options)
        self._makes_internal = True


@planted(contract.a_key_has_a_status)
class AnArchivedSessionHasNoStatus(MemoryStore):
    def status(self, key: str) -> Any:
        found = super().status(key)
        return "" if found == "archived" else found


@planted(contract.archiving_an_unknown_key_is_not_found)
class ArchivingNothingIsNoError(Sessions):
    def archive(self, key: str, **rest: Any) -> Any:
        with suppress(SessionNotFound):
            super().archive(key, **rest)


@planted(contract.labels_are_set_and_removed_one_by_one)
class AnEmptyTitleIsATitle(Sessions):
    def set_labels(self, key: str, **labels: Any) -> Any:
        super().set_labels(key, **labels)
        if labels.get("title") == "":
            self.set_meta(key, title="")


@planted(contract.a_free_key_has_no_session)
class AKeyWithoutASessionIsFree(Sessions):
    def free_key(self, key: str) -> str:
        return super().free_key(key) if self.exists(key) else key


@planted(contract.list_gives_the_newest_first)
class TheOldestIsListedFirst(Sessions):
    def list(self, **given: Any) -> Any:
        found = [*super().list(**given)]
        return iter(found if given else found[::-1])


@planted(contract.a_page_tells_how_a_session_stands)
class APageShowsNoModel(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, model="")


@planted(contract.a_page_tells_how_a_session_stands)
class AnInterruptedTurnIsIdle(_Shown):
    def show(self, info: Any) -> Any:
        return replace(info, state="idle" if info.state == "interrupted" else info.state)


@planted(contract.internal_sessions_are_listed_only_if_asked_for)
class InternalSessionsAreListedByTheirPrefix(Sessions):
    def list(self, *, prefix: str = "", internal: bool = False, **given: Any) -> Any:
        return super().list(prefix=prefix, internal=internal or prefix == "nacre:", **given)


@planted(contract.internal_sessions_are_listed_only_if_asked_for)
class InternalSessionsAreNeverListed(Sessions):
    def list(self, *, internal: bool = False, **given: Any) -> Any:
        return super().list(**given)


@planted(contract.internal_sessions_are_listed_only_if_asked_for)
class ArchivedInternalSessionsAreListed(Sessions):
    def list(self, *, archived: bool = False, internal: bool = False, **given: Any) -> Any:
        return super().list(archived=archived, internal=internal or archived, **given)


@planted(contract.an_archived_session_can_be_read, contract.archiving_again_never_overwrites)
class AnArchivedSessionIsStillListed(MemoryStore):
    def each(self, *, archived: bool) -> Iterator[Listed]:
        yield from super().each(archived=archived)
        if not archived:
            yield from (found._replace(archived=False) for found in super().each(archived=True))


@planted(contract.archiving_an_unknown_key_is_not_found)
class UnarchivingNothingIsNoError(Sessions):
    def unarchive(self, key: str, **rest: Any) -> Any:
        with suppress(SessionNotFound):
            super().unarchive(key, **rest)
