"""The questions that chat asks in a terminal: whether a folder is trusted, and whether a tool may run."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from textwrap import fill
from typing import Protocol

from nacre.agent.ports import Answer, Approval, Ask
from nacre.cli.chat.reader import About
from nacre.cli.failures import Failure
from nacre.cli.one_line import is_utf8
from nacre.cli.output import Out
from nacre.config import load
from nacre.runtime.trust import TrustStore
from nacre.runtime.trust_question import Shown, find_trust_question


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
    store = TrustStore()
    question = find_trust_question(path, load(), store)
    if question is None:
        return
    for line in question.about:
        out.warn(line.replace(question.root, out.bold(question.root), 1))
    for one in question.shown:
        out.warn(f"  {one.about}")
    words = "Do you trust this folder, and what is below it?" if question.is_new else "Follow them?"
    if _confirm(words, question.shown, out):
        store.accept(question.place, question.digests)


def _confirm(question: str, shown: Sequence[Shown], out: Out) -> bool:
    """Ask until the answer is yes or no; "show" prints what the sources say."""
    options = "[y/N/show]" if shown else "[y/N]"
    while True:
        answer = out.ask(fill(f"{question} {options}", width=out.width - 8) + " ")
        if not (shown and answer in {"s", "show"}):
            return answer in {"y", "yes"}
        for one in shown:
            out.warn(out.bold(one.file))
            out.warn("\n".join(f"  {line}" for line in one.text.split("\n")))
            if one.rest:
                out.warn(f"  {one.rest}")


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
