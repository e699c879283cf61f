"""nacre sessions summarize: let a model put what was said before the last turn into a summary."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref, find, refuse_internal
from nacre.cli.store_choice import is_active, opened

if TYPE_CHECKING:
    from nacre.runtime.summarizer import Compactor, Draft
    from nacre.sessions import Sessions

EXAMPLES = (
    ("the newest session", "nacre sessions summarize @last"),
    ("keep everything about one subject", "nacre sessions summarize @last --focus 'the invoice'"),
    ("see the summary without storing it", "nacre sessions summarize @last --dry-run"),
    ("undo the last summary", "nacre sessions summarize @last --undo"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser)
    parser.add_argument("--focus", metavar="TEXT", default="", help="subject to keep in full")
    parser.add_argument("--model", metavar="NAME", help="model that writes the summary")
    parser.add_argument("--dry-run", action="store_true", help="show the summary, and store nothing")
    parser.add_argument("--undo", action="store_true", help="undo the last summary, without a model")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    if args.undo and (args.focus or args.dry_run):
        raise Failure("usage", "--undo removes a summary: leave out --focus and --dry-run")
    import anyio  # noqa: PLC0415 - not needed to be told how it is used

    with opened(args) as sessions:
        key = find(sessions, args.ref).key
        refuse_internal(key, allowed=args.internal)
        if not is_active(sessions, key):
            raise Failure(
                "conflict", f"session {key!r} is archived", hint="`nacre sessions unarchive` makes it active again"
            )
        if args.undo:
            _tell_undone(out, key, anyio.run(_undone, sessions, key))
        else:
            with out.progress("summarising"):
                draft = anyio.run(_drafted, sessions, key, args)
            _tell(out, key, draft, dry_run=args.dry_run)
    return OK


async def _undone(sessions: Sessions, key: str) -> int:
    from nacre.runtime.summarizer import Compactor  # noqa: PLC0415 - brings the agent along

    def none(_: str) -> None:
        """No model is asked."""

    return await Compactor(sessions, none).undo(key)  # type: ignore[arg-type] # the same


async def _drafted(sessions: Sessions, key: str, args: Namespace) -> Draft:
    from nacre.config import load  # noqa: PLC0415
    from nacre.runtime import models  # noqa: PLC0415 - brings the agent along
    from nacre.runtime.model_origin import local_model_before  # noqa: PLC0415
    from nacre.runtime.summarizer import Compactor  # noqa: PLC0415
    from nacre.summaries.plan import Limits  # noqa: PLC0415

    settings = load().for_agent(args.agent)
    tokens, most = settings.number("agent.max_context_tokens"), settings.number("agent.max_history_messages")
    provider = await models.provider_for(settings, args.model)
    if local_model_before(provider, settings, sessions, key):
        await provider.close()
        problem = f"session {key!r} was answered by a local model, and {provider.model} is remote: nothing was sent"
        raise Failure("model_not_allowed", problem, hint="set agent.allow_remote = true, or name a local --model")
    try:
        compactor = Compactor(sessions, lambda _: provider, limits=lambda _: Limits(tokens=tokens, messages=most))
        return await _made(compactor, key, args)
    finally:
        await provider.close()


async def _made(compactor: Compactor, key: str, args: Namespace) -> Draft:
    if args.dry_run:
        return await compactor.preview(key, args.focus)
    return await compactor.compact(key, args.focus)


def _tell(out: Out, key: str, draft: Draft, *, dry_run: bool) -> None:
    covered, kept = len(draft.plan.covered), draft.plan.kept
    if out.json:
        document = {"ok": True, "operation": "summarize", "dry_run": dry_run, "key": key, "upto": draft.plan.upto}
        counts = {"covered": covered, "kept": kept, "tokens_before": draft.before, "tokens_after": draft.after}
        out.document({**document, **counts, "summary": draft.text})
        return
    out.say(clean(draft.text, lines=True))
    out.say()
    verb = "would be summarised" if dry_run else "are summarised"
    tokens = f"about {draft.before} → {draft.after} tokens"
    out.say(out.dim(f"{clean(key)}: {covered} messages {verb}, {kept} stay as they are; {tokens}"))


def _tell_undone(out: Out, key: str, count: int) -> None:
    if out.json:
        out.document({"ok": True, "operation": "summarize", "undo": True, "key": key, "live_again": count})
    else:
        out.say(f"{clean(key)}: the last summary was undone; {count} messages are live again")
