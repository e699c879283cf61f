"""nacre sessions verify: read everything and say what is damaged; nothing is changed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nacre.cli.failures import DAMAGED, OK
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find
from nacre.cli.store_choice import opened

if TYPE_CHECKING:
    from nacre.messages import Finding
    from nacre.sessions import Sessions

EXAMPLES = (
    ("every session", "nacre sessions verify"),
    ("one session, and its tool calls", "nacre sessions verify @last --deep"),
    ("for a cron job: mail only if something is damaged", "nacre sessions verify --quiet"),
)


class Found(NamedTuple):
    """Something that was found; `damage` decides the exit code."""

    key: str
    kind: str
    where: str
    detail: str
    damage: bool = True


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also report tool calls without a result (an interrupted turn leaves one), results without a call, "
        "duplicate results and a stale head; these are not damage, and the exit code stays 0",
    )


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        sizes = _asked(sessions, args.refs) if args.refs else _sizes(sessions)
        found = list(_damage(sessions, sizes, out, is_all=not args.refs))
        if args.deep:
            found += _snags(sessions, sizes.keys() - {one.key for one in found}, out)
    _tell(out, found, len(sizes))
    return DAMAGED if any(one.damage for one in found) else OK


# ---- what is looked for


def _asked(sessions: Sessions, refs: list[str]) -> dict[str, int]:
    return dict.fromkeys((find(sessions, ref).key for ref in refs), 0)


def _sizes(sessions: Sessions) -> dict[str, int]:
    """Every session, with the bytes of all its generations."""
    sizes: dict[str, int] = {}
    for info in (*sessions.list(internal=True), *sessions.list(archived=True, internal=True)):
        sizes[info.key] = sizes.get(info.key, 0) + info.bytes
    # Of a session that has no log any more, only what is in quarantine tells.
    return dict.fromkeys((entry.key for entry in sessions.quarantine()), 0) | sizes


def _damage(sessions: Sessions, sizes: dict[str, int], out: Out, *, is_all: bool) -> Iterator[Found]:
    """Findings of every session, one after the other so that it can be said how far it has come."""
    if is_all and sessions.has_other_logs([*sizes]):
        # A log that could not even be listed: only the store can say what is wrong with it.
        yield from (_found(finding) for finding in sessions.verify().findings)
        return
    with out.progress("verifying", total=sum(sizes.values())) as step:
        for key, size in sizes.items():
            yield from (_found(finding) for finding in sessions.verify(key).findings)
            step(size)


def _found(finding: Finding) -> Found:
    return Found(finding.key, finding.kind, finding.where, finding.detail)


def _snags(sessions: Sessions, keys: set[str], out: Out) -> Iterator[Found]:
    """What is in the way of going on, in sessions that are whole: to read a damaged one would be to mend it."""
    from nacre.history.lint import snags  # noqa: PLC0415 - only where it is asked for

    with out.progress("replaying", total=len(keys), unit="sessions") as step:
        for key in sorted(keys):
            for found in sessions.read_generations(key, snags):
                yield from (Found(key, snag.kind, f"record {snag.n}", snag.detail, damage=False) for snag in found)
            step(1)


# ---- how it is told


def _tell(out: Out, found: list[Found], count: int) -> None:
    damaged = sum(one.damage for one in found)
    if out.jsonl:
        out.listing(one._asdict() for one in found)
    elif out.json:
        findings = [one._asdict() for one in found]
        out.document({"ok": not damaged, "operation": "verify", "sessions": count, "findings": findings})
    else:
        for one in found:
            paint = out.red if one.damage else out.yellow
            what = f"{paint(clean(one.kind))}, {clean(one.where)}: {clean(one.detail)}"
            out.say(f"{out.bold(clean(one.key))}: {what}")
        aside = sum(one.kind == "quarantine" for one in found)
        if damaged > aside:
            hint = "`nacre sessions repair KEY --dry-run` shows what can be repaired"
            out.note(f"{several(damaged - aside, 'finding')}; {hint}")
        if aside:
            out.note(
                f"{several(aside, 'entry', 'entries')} in quarantine; `nacre sessions quarantine` shows and settles"
            )
        if not damaged:
            out.note(f"{several(count, 'session')} checked, no damage")
        if len(found) > damaged:
            others = several(len(found) - damaged, "finding")
            out.note(f"{others} of --deep: not damage, an agent continues from them by itself")
