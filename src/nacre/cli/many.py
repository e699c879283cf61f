"""One operation on several sessions: each result is printed, and a failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nacre.cli.failures import FAILED, OK, PARTIAL, Failure, failure_of
from nacre.cli.one_line import clean
from nacre.cli.output import Out, candidate_lines
from nacre.cli.refs import find, refuse_internal

if TYPE_CHECKING:
    from nacre.sessions import Sessions

T = TypeVar("T")
U = TypeVar("U")


class Done(NamedTuple):
    """What became of one session: a word, and more that a program may want to know."""

    key: str
    status: str
    more: Mapping[str, Any] = MappingProxyType({})
    words: str = ""


def keys_of(sessions: Sessions, refs: Iterable[str], *, internal: bool) -> dict[str, str | Failure]:
    """The keys that references name, as `resolve_refs` gives them; an internal one is a Failure unless allowed."""

    def look_up(ref: str) -> str:
        key = find(sessions, ref).key
        refuse_internal(key, allowed=internal)
        return key

    return resolve_refs(refs, look_up)


def resolve_refs(refs: Iterable[str], look_up: Callable[[str], T]) -> dict[str, T | Failure]:
    """What references mean, each thing once; a Failure where that is none or not only one.

    All are looked up before anything is done: what is done to one session may change what the next reference means.
    """
    found: dict[str, T | Failure] = {}
    known: set[T | Failure] = set()
    for ref in refs:
        one = _outcome(look_up, ref)
        if one not in known:
            known.add(one)
            found[ref] = one
    return found


def each(
    out: Out, operation: str, things: Mapping[str, T | Failure], work: Callable[[T], Done], *, dry_run: bool = False
) -> int:
    """Do something to each, by its reference; prints what became of it and returns the exit code."""
    results: list[dict[str, Any]] = []
    failures: list[Failure] = []
    for ref, thing in things.items():
        done = thing if isinstance(thing, Failure) else _outcome(work, thing)
        if isinstance(done, Failure):
            failures.append(done)
            results.append({"ref": ref, "ok": False, "error": done.to_mapping()})
            if not out.json:
                hint = [f"  {clean(done.hint)}"] if done.hint else []
                for line in (f"nacre: {clean(done.message)}", *candidate_lines(done), *hint):
                    out.warn(line)
        else:
            results.append({"ref": ref, "key": done.key, "ok": True, "status": done.status, **done.more})
            if not out.json:
                status = f"would be {done.status}" if dry_run else done.status
                out.say(f"{clean(done.key)}: {done.words or status}")
    have_all_failed = bool(failures) and len(failures) == len(results)
    if out.json:
        document = {"ok": not failures, "operation": operation, "dry_run": dry_run, "results": results}
        out.document({**document, **({"error": failures[0].to_mapping()} if have_all_failed else {})})
    if not have_all_failed:
        return PARTIAL if failures else OK
    codes = {failure.code for failure in failures}
    return codes.pop() if len(codes) == 1 else FAILED


def _outcome(act: Callable[[T], U], what: T) -> U | Failure:
    """What comes of it, or the failure that it ended with; raises what nobody foresaw."""
    try:
        return act(what)
    except Exception as error:
        failure = failure_of(error)
        if failure is None or isinstance(error, BrokenPipeError):
            raise
        return failure
