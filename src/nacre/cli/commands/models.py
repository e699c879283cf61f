"""nacre models: the models that can answer, and installing one with Ollama."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean, size
from nacre.cli.output import Out
from nacre.cli.table import Column

if TYPE_CHECKING:
    from nacre.config import Settings

EXAMPLES = (
    ("the models that can answer, and which one answers now", "nacre models"),
    ("install a model with Ollama", "nacre models pull gemma4:e4b"),
    ("use one of them once", "nacre chat -m ollama/gemma4:e4b 'hello'"),
    ("use it always", "nacre config set agent.model ollama/gemma4:e4b"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "pull"), nargs="?", default="list", help="default: list")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the model that `pull` installs, as gemma4:e4b")


def run(args: Namespace, out: Out) -> int:
    import anyio  # noqa: PLC0415 - not needed for help

    from nacre import config  # noqa: PLC0415 - the same

    if args.action == "pull" and not args.name:
        raise Failure("usage", "`nacre models pull` needs the name of a model", hint="nacre models pull gemma4:e4b")
    if args.action == "list" and args.name:
        raise Failure("usage", f"`nacre models list` takes no name, got {args.name!r}")
    settings = config.load().for_agent(args.agent)
    if args.action == "pull":
        anyio.run(pull, settings, args.name, out)
    else:
        anyio.run(_list, settings, out)
    return OK


async def _list(settings: Settings, out: Out) -> None:
    from nacre.runtime.models import list_all  # noqa: PLC0415 - loads the providers

    with out.progress("asking the providers"):
        listed = await list_all(settings)
        answers, problem = await _find_answering(settings)
    items: list[dict[str, Any]] = [
        {
            "model": f"{one.kind}/{info.name}",
            "provider": one.kind,
            "name": info.name,
            "size": info.size,
            "window": info.context,
            "capabilities": list(info.capabilities),
            "local": one.is_local,
            "answers_now": f"{one.kind}/{info.name}" == answers,
        }
        for one in listed
        for info in one.models
    ]
    if out.jsonl:
        out.listing(items)
    elif out.json:
        head = {"count": len(items), "answers_now": answers or None, "problem": problem or None}
        unreachable = {one.kind: one.problem for one in listed if one.problem}
        out.document({**head, "unreachable": unreachable, "items": items})
    else:
        _print(items, out)
        for one in listed:
            if one.problem:
                out.note(f"{one.kind}: {clean(one.problem)}")
        if problem:
            out.note(f"no model answers now: {clean(problem)}")


def _print(items: list[dict[str, Any]], out: Out) -> None:
    columns = [
        Column("MODEL", style=out.bold),
        Column("SIZE", right=True),
        Column("WINDOW", right=True),
        Column("CAPABILITIES", shrinks=True),
        Column("WHERE"),
        Column("", style=out.dim),
    ]
    rows = [
        (
            clean(item["model"]),
            size(item["size"]) if item["size"] else "",
            f"{item['window']:,}" if item["window"] else "",
            clean(", ".join(item["capabilities"])),
            "local" if item["local"] else "remote",
            "answers now" if item["answers_now"] else "",
        )
        for item in items
    ]
    if rows:
        table.show(out, columns, rows)


async def _find_answering(settings: Settings) -> tuple[str, str]:
    """The model that `nacre chat` would use now, or why none can answer."""
    from nacre.errors import ConfigError, ModelUnavailable  # noqa: PLC0415 - the same
    from nacre.runtime.model_chain import provider_for  # noqa: PLC0415 - loads the providers

    try:
        chain = await provider_for(settings)
    except (ModelUnavailable, ConfigError) as error:
        return "", str(error)
    try:
        await chain.check(lambda _: None)
    except ModelUnavailable as error:
        return "", str(error)
    finally:
        await chain.close()
    return chain.ref, ""


# ---- pull


async def pull(settings: Settings, name: str, out: Out) -> None:
    """Install a model with Ollama's API; progress on stderr. Stopped by Ctrl-C, the next pull resumes it."""
    from nacre.errors import ModelUnavailable, ProviderError  # noqa: PLC0415 - the same
    from nacre.runtime.models import make_ollama  # noqa: PLC0415 - loads the provider

    name = name.removeprefix("ollama/")
    ollama = make_ollama(settings, name)
    done: dict[str, int] = {}
    totals: dict[str, int] = {}
    status = ""
    try:
        with out.progress(f"pulling {clean(name)}") as progress:
            async for report in ollama.pull(name):
                status = str(report.get("status") or status)
                layer, now = str(report.get("digest") or ""), report.get("completed")
                if layer and isinstance(report.get("total"), int):
                    totals[layer] = report["total"]
                    progress.total = sum(totals.values())
                if layer and isinstance(now, int):
                    progress(max(0, now - done.get(layer, 0)))
                    done[layer] = now
                else:
                    progress(0)
    except ModelUnavailable as error:
        first, _, _ = str(error).partition("\n")
        hint = "check the name; `ollama.com/library` has the list" if "does not have" in first else ""
        raise Failure("model_unavailable", first, hint=hint) from error
    except ProviderError as error:
        raise Failure("failed", str(error), hint="run it again: it resumes where it stopped") from error
    finally:
        await ollama.close()
    if status != "success":
        what = f"Ollama stopped before {name} was installed (last status: {status or 'none'})"
        raise Failure("failed", what, hint="run it again: it resumes where it stopped")
    total = sum(totals.values())
    document = {"operation": "pull", "model": f"ollama/{name}", "bytes": total}
    use = f"use it: nacre chat -m ollama/{clean(name)}"
    out.receipt(document, f"{clean(name)} is installed ({size(total)}).", note=use)
