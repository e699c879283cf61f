"""nacre sessions verify: read everything and say what is damaged; nothing is changed."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nacre.cli.failures import DAMAGED, OK
from nacre.cli.output import Out
from nacre.cli.place import opened
from nacre.cli.refs import add_ref, find
from nacre.cli.text import clean, several
from nacre.log.names import stem

if TYPE_CHECKING:
    from nacre.entries import Finding, SessionInfo
    from nacre.sessions import Sessions

EXAMPLES = (
    ("every session", "nacre sessions verify"),
    ("one of them", "nacre sessions verify @last"),
    ("for a cron job: mail only if something is damaged", "nacre sessions verify --quiet"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)


def run(args: Namespace, out: Out) -> int:
    with opened(args) as sessions:
        if args.refs:
            keys = [find(sessions, ref).key for ref in args.refs]
            findings = [finding for key in keys for finding in sessions.verify(key).findings]
            count = len(keys)
        else:
            infos = [*sessions.list(), *sessions.list(archived=True)]
            count = len({info.key for info in infos})
            findings = list(_all(sessions, infos, out))
    _tell(out, findings, count)
    return DAMAGED if findings else OK


def _all(sessions: Sessions, infos: list[SessionInfo], out: Out) -> Iterator[Finding]:
    """Findings of every session, one after the other so that it can be said how far it has come."""
    sizes: dict[str, int] = {}
    for info in infos:
        sizes[info.key] = sizes.get(info.key, 0) + info.bytes
    if _has_others(sessions.location, sizes):
        # A log that could not even be listed: only the store can say what is wrong with it.
        yield from sessions.verify().findings
        return
    with out.progress("verifying", total=sum(sizes.values())) as step:
        for key, size in sizes.items():
            yield from sessions.verify(key).findings
            step(size)


def _has_others(root: str, keys: dict[str, int]) -> bool:
    names = {stem(key) for key in keys}
    for folder in ("sessions", "archive"):
        try:
            files = os.listdir(f"{root}/{folder}")
        except OSError:
            continue
        if any(file.endswith(".jsonl") and file.partition(".")[0] not in names for file in files):
            return True
    return False


def _tell(out: Out, findings: list[Finding], count: int) -> None:
    if out.jsonl:
        out.listing(findings)
    elif out.json:
        out.document({"ok": not findings, "operation": "verify", "sessions": count, "findings": findings})
    elif findings:
        for finding in findings:
            what = f"{out.red(clean(finding.kind))}  {clean(finding.where)}: {clean(finding.detail)}"
            out.say(f"{out.bold(clean(finding.key))}: {what}")
        out.note(f"{several(len(findings), 'finding')}; `nacre sessions repair KEY --dry-run` says what can be done")
    else:
        out.note(f"{several(count, 'session')} verified, nothing is damaged")
