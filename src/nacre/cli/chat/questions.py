"""The questions that chat asks in a terminal: whether a folder is trusted, and whether a tool may run."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Protocol

from nacre.agent.ports import Answer, Approval, Ask
from nacre.cli.chat.reader import About
from nacre.cli.failures import Failure
from nacre.cli.one_line import clean, is_utf8
from nacre.cli.output import Out
from nacre.config import load
from nacre.runtime.folder import Source, all_sources, digests, open_folder
from nacre.runtime.trust import TrustStore, find_root, why_broad
from nacre.skills.skill_file import FILE

_MAX_LINES = 40


def folder_of(args: Namespace) -> Path:
    """The folder that chat works in: -C, else the current one; raises Failure if it is not there."""
    wanted = args.directory or "."
    path = Path(os.path.realpath(Path(wanted).expanduser()))
    if not path.is_dir():
        raise Failure("not_found", f"there is no folder {wanted!r}", hint="-C takes a folder that exists")
    if not is_utf8(str(path)):
        hint = "rename it, or work in another one with -C; sessions store their folder as text"
        raise Failure("usage", f"the name of the folder {str(path)!r} is not UTF-8 text", hint=hint)
    return path


def ask_for_trust(path: Path, out: Out) -> None:
    """Ask the person at the terminal about a folder that is new, or that tells the agent something new."""
    root = find_root(path)
    store = TrustStore()
    covering = store.covering(root)
    if covering is None:
        if why_broad(root):
            return  # it is trusted only by name, and the agent says so at its start
        found = all_sources(path, root, load())
        out.warn(f"{out.bold(clean(str(root)))} is new to nacre.")
        out.warn("If you trust it, the agent can change files and run commands here (it asks before each),")
        out.warn(
            "and it follows these instructions of the folder:" if found else "and it follows AGENTS.md if there is one."
        )
        _list(found, root, out)
        if _confirm("Do you trust this folder, and what is below it?", found, out):
            store.accept(root, digests(found))
        return
    place, _ = covering
    changed = [source for source in open_folder(path, load()).pending if not source.problem]
    if not changed:
        return
    out.warn(f"Instructions in {out.bold(clean(str(root)))} are new or changed since you trusted it:")
    _list(changed, root, out)
    if _confirm("Follow them?", changed, out):
        store.accept(place, digests(changed))


def describe(source: Source, root: Path) -> str:
    """One line about a source."""
    name = clean(str(source.path.relative_to(root)))
    if source.problem:
        return f"{name} (not followed: {source.problem})"
    kind = {"instructions": f"{len(source.text):,} characters", "skill": "skill", "config": "settings"}[source.kind]
    return f"{name} ({kind})"


def _list(found: Iterable[Source], root: Path, out: Out) -> None:
    for source in found:
        out.warn(f"  {describe(source, root)}")


def _confirm(question: str, found: list[Source], out: Out) -> bool:
    """Ask until the answer is yes or no; "show" prints what the sources say."""
    options = "[y/N/show]" if found else "[y/N]"
    while True:
        answer = out.ask(fill(f"{question} {options}", width=out.width - 8) + " ")
        if not (found and answer in {"s", "show"}):
            return answer in {"y", "yes"}
        for source in found:
            file = source.path / FILE if source.kind == "skill" else source.path
            text = source.text or _beginning(file)
            lines = clean(text, lines=True).splitlines()
            out.warn(out.bold(clean(str(file))))
            out.warn("\n".join(f"  {line}" for line in lines[:_MAX_LINES]))
            if len(lines) > _MAX_LINES:
                out.warn(f"  … {len(lines) - _MAX_LINES} more lines")


def _beginning(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(10_000)
    except OSError as error:
        return f"({error.strerror})"


# ---- Ask a person whether a tool may run: yes, no, or always


_ANSWERS: dict[str, Answer] = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
_ALWAYS: dict[str, Answer] = {"a": "always", "always": "always"}
_VIEW = ("v", "view")


class Read(Protocol):
    """Asks a question and returns one of the answers; `about` is drawn above it, to fit the screen."""

    async def __call__(self, question: str, answers: Collection[str], about: About | None = None) -> str: ...


def ask_with(draw: Callable[[Approval, int], list[str]], show: Callable[[Sequence[str]], None], read: Read) -> Ask:
    """Make an `Ask`: a question is drawn to fit the screen, then an answer is read."""

    async def ask(approval: Approval) -> Answer:
        answers = {**_ANSWERS, **(_ALWAYS if approval.always else {})}
        prompt = f"Allow? [y]es, [n]o, {'[a]lways, ' if approval.always else ''}[v]iew: "
        shown: list[str] = []

        def draw_to_fit(limit: int) -> list[str]:
            shown[:] = draw(approval, limit)
            return shown

        def draw_first_line(_: int) -> list[str]:
            return draw(approval, sys.maxsize)[:1]

        show([])
        about: About = draw_to_fit
        while (answer := await read(prompt, (*answers, *_VIEW), about)) in _VIEW:
            # All of it is printed once, unless it was; then the question needs only its first line.
            whole = draw(approval, sys.maxsize)
            show(whole[1:] if len(shown) < len(whole) else ["  (this is all of it)"])
            about = draw_first_line
            shown = whole
        show([f"  {answers[answer]}"])
        return answers[answer]

    return ask
