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
    """The keys that references name, as `meant` gives them; an internal one is a Failure unless it is allowed."""

    def look_up(ref: str) -> str:
        key = find(sessions, ref).key
        refuse_internal(key, allowed=internal)
        return key

    return meant(refs, look_up)


def meant(refs: Iterable[str], look_up: Callable[[str], T]) -> dict[str, T | Failure]:
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
            _complain(out, done)
        else:
            results.append({"ref": ref, "key": done.key, "ok": True, "status": done.status, **done.more})
            _tell(out, done, dry_run=dry_run)
    code = _code(failures, len(results))
    if out.json:
        _document(out, operation, results, failures, dry_run=dry_run)
    return code


def _outcome(act: Callable[[T], U], what: T) -> U | Failure:
    """What comes of it, or the failure that it ended with; raises what nobody foresaw."""
    try:
        return act(what)
    except Exception as error:
        failure = failure_of(error)
        if failure is None or isinstance(error, BrokenPipeError):
            raise
        return failure


def _document(
    out: Out, operation: str, results: list[dict[str, Any]], failures: list[Failure], *, dry_run: bool
) -> None:
    document = {"ok": not failures, "operation": operation, "dry_run": dry_run, "results": results}
    if failures and len(failures) == len(results):
        document["error"] = failures[0].to_mapping()
    out.document(document)


def _tell(out: Out, done: Done, *, dry_run: bool) -> None:
    if not out.json:
        status = f"would be {done.status}" if dry_run else done.status
        out.say(f"{clean(done.key)}: {done.words or status}")


def _complain(out: Out, failure: Failure) -> None:
    if not out.json:
        out.warn(f"nacre: {clean(failure.message)}")
        for line in candidate_lines(failure):
            out.warn(line)
        if failure.hint:
            out.warn(f"  {clean(failure.hint)}")


def _code(failures: list[Failure], count: int) -> int:
    if not failures:
        return OK
    if len(failures) < count:
        return PARTIAL
    codes = {failure.code for failure in failures}
    return codes.pop() if len(codes) == 1 else FAILED
