"""nacre init: find the models that can answer, ask three questions, write a commented configuration."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from nacre import config
from nacre.cli import settings_file
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.user_files import locked, state_folder, write_whole

if TYPE_CHECKING:
    from nacre.config import Settings
    from nacre.runtime.models import Listed

EXAMPLES = (
    ("answer three questions", "nacre init"),
    ("take the defaults, ask nothing", "nacre init --yes"),
    ("choose the model here", "nacre init --yes --model ollama/gemma4:e4b"),
    ("show the configuration, write nothing", "nacre init --yes --dry-run"),
)

_MAX_SHOWN = 9
_HINT_FILE = "init-hint"
_TEMPLATE = """\
# Configuration of nacre, written by `nacre init`.
# Every key can be overridden by a variable: agent.model is NACRE_AGENT_MODEL.
# `nacre config show` lists all settings, `nacre config check` checks this file.

[agent]
# The model that answers, as "provider/model". `nacre models` lists them; empty: nacre chooses at each start.
model = {model}
# Models that answer, in this order, if that one is unavailable. Each switch is reported.
# fallback = ["ollama/llama3.2:3b", "openai/gpt-5-mini"]
# May a remote model answer in sessions that a local model answered so far? If not, you are asked.
# allow_remote = false
# The largest request to the model, in tokens. A model with a smaller window gets less.
# max_context_tokens = 32000

[memory]
# Remember facts from one session to the next. `nacre memory list` shows them.
enabled = {memory}

[approvals]
# Before these tools run: "ask" (the default), "allow" or "deny".
{approvals}

# API keys are never in this file: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or name a file that has the key.
# [openai]
# key_file = "~/.config/nacre/openai.key"
# base_url = "https://api.openai.com/v1"

# [ollama]
# host = "127.0.0.1:11434"
"""


def add(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", metavar="NAME", help="the model that answers; skips this question")
    parser.add_argument("-y", "--yes", action="store_true", help="take the defaults, ask nothing")
    parser.add_argument("--force", action="store_true", help="replace an existing configuration; a backup is kept")
    parser.add_argument("--dry-run", action="store_true", help="print the configuration, write nothing")


def run(args: Namespace, out: Out) -> int:
    import anyio  # noqa: PLC0415 - not needed for help

    return anyio.run(set_up, args, out)


async def set_up(args: Namespace, out: Out) -> int:
    """Ask, and write the configuration file; returns the exit code."""
    is_asking = not args.yes and not out.json
    if is_asking and not (sys.stdin is not None and sys.stdin.isatty()):
        what = "`nacre init` asks questions, and standard input is not a terminal"
        raise Failure("usage", what, hint="nacre init --yes")
    path = Path(config.path())
    if os.path.exists(path) and not (args.force or args.dry_run):  # noqa: ASYNC240 - nothing else runs meanwhile
        if not is_asking:
            raise Failure("conflict", f"{path} exists already", hint="--force replaces it and keeps a backup")
        if _ask(f"{clean(str(path))} exists. Replace it (a backup is kept)? [y/N] ", {"y", "n"}, "n") == "n":
            out.note("nothing was changed")
            return OK

    from nacre.runtime.models import list_all  # noqa: PLC0415 - loads the providers

    settings = config.Settings({}, os.environ)
    with out.progress("looking for models"):
        listed = await list_all(settings)
    tools, memory = "a", "y"
    if is_asking:
        _print_found(listed, out)
        model = args.model if args.model is not None else await _ask_model(listed, settings, out)
        question = "2. Before the agent changes files or runs programs: [a]sk me, or [d]eny it always? [a] "
        tools = _ask(question, {"a", "d"}, "a")
        memory = _ask("3. Remember facts from one session to the next? [Y/n] ", {"y", "n"}, "y")
    else:
        best = await _find_best(settings)
        # The toy is not pinned: a better model may be there tomorrow.
        model = args.model or ("" if best.startswith("embedded/") else best)
    text = render(model, has_memory=memory == "y", is_read_only=tools == "d")
    if args.dry_run:
        out.write(text)
        return OK
    backup = write(path, text)
    if backup and not out.json:
        out.note(f"the earlier configuration is now {clean(backup)}")
    document = {"operation": "init", "path": str(path), "backup": backup or None, "model": model or None}
    return out.receipt(document, f"{clean(str(path))} is written. Start with: nacre chat")


def render(model: str, *, has_memory: bool = True, is_read_only: bool = False) -> str:
    """The configuration file for the answers to the three questions; `model` is "" for the automatic choice."""
    line = '{} = "deny"' if is_read_only else '# {} = "ask"'
    approvals = "\n".join(line.format(tool) for tool in ("shell", "write_file", "edit_file"))
    name = model.replace("\\", "\\\\").replace('"', '\\"')
    return _TEMPLATE.format(model=f'"{name}"', memory=str(has_memory).lower(), approvals=approvals)


def write(path: Path, text: str) -> str:
    """Write the configuration in one step, for the user alone; returns the path of the backup, or ""."""
    backup = ""
    with locked(path.parent):
        if path.exists():
            number = 1
            while (copy := path.with_name(f"{path.name}.bak{'' if number == 1 else number}")).exists():
                number += 1
            write_whole(copy, path.read_bytes())
            backup = str(copy)
        settings_file.write(str(path), text)
    return backup


# ---- the questions


def _print_found(listed: list[Listed], out: Out) -> None:
    """Say what was found, a line for each provider."""
    for one in listed:
        chat = sum(info.can_chat for info in one.models)
        out.say(f"{one.kind}: {clean(one.problem or several(chat, 'chat model'))}")
    kinds = {one.kind for one in listed}
    for kind, variable in (("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")):
        if kind not in kinds:
            out.say(f"{kind}: {variable} is not set")
    if "embedded" not in kinds:
        out.say("embedded: not installed (a tiny model without a server; `nacre setup embedded`)")
    out.say()


async def _ask_model(listed: list[Listed], settings: Settings, out: Out) -> str:
    """The model that answers; one that is not there yet can be installed now."""
    from nacre.runtime.models import DEFAULT_OLLAMA  # noqa: PLC0415 - loads the providers

    best = await _find_best(settings)
    refs = [f"{one.kind}/{info.name}" for one in listed for info in one.models if info.can_chat]
    refs = list(dict.fromkeys([*([best] if best else []), *refs]))[:_MAX_SHOWN]
    options: list[tuple[str, str]] = [(ref, ref) for ref in refs]
    if any(one.kind == "ollama" and not one.problem for one in listed) and f"ollama/{DEFAULT_OLLAMA}" not in refs:
        options.append(("pull", f"install {DEFAULT_OLLAMA} with Ollama now (about 3 GB)"))
    if not any(one.kind == "embedded" for one in listed):
        options.append(("setup", "install the embedded model now (130 MB): a toy, to try nacre without a server"))
    options.append(("", "decide at each start: Ollama, else a key, else the embedded model"))
    out.say("1. Which model answers?")
    for number, (_, text) in enumerate(options, 1):
        out.say(f"   {number}  {clean(text)}")
    out.flush()
    # The toy is not pinned by Enter either.
    default = str(len(options)) if best.startswith("embedded/") else "1"
    numbers = {str(number) for number in range(1, len(options) + 1)}
    picked = options[int(_ask(f"   number? [{default}] ", numbers, default)) - 1][0]
    if picked == "pull":
        from nacre.cli.commands.models import pull  # noqa: PLC0415 - only if wanted

        await pull(settings, DEFAULT_OLLAMA, out)
        return f"ollama/{DEFAULT_OLLAMA}"
    if picked == "setup":
        from nacre.cli.commands import setup  # noqa: PLC0415 - only if wanted

        setup.run(Namespace(what="embedded", dry_run=False), out)
        return "embedded"
    return picked


async def _find_best(settings: Settings) -> str:
    """The model that `auto` would choose now; "" if there is none."""
    from nacre.errors import ConfigError, ModelUnavailable  # noqa: PLC0415 - the same
    from nacre.runtime.models import choose  # noqa: PLC0415 - loads the providers

    try:
        model = await choose(settings)
    except (ModelUnavailable, ConfigError):
        return ""
    await model.provider.close()
    return model.ref


def _ask(question: str, answers: set[str], default: str) -> str:
    """Ask until one of the answers is given; Enter is the default, Ctrl-D or Ctrl-C ends the command."""
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        # The event loop would only cancel its task, which is this one, and it waits in `readline`.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            raise
        finally:
            signal.signal(signal.SIGINT, before)
        if not line:
            raise Failure("failed", "no answer was given; nothing was written", hint="nacre init --yes")
        answer = line.strip().lower() or default
        if answer in answers:
            return answer
        if answer[:1] in answers and answer in {"yes", "no", "ask", "deny"}:
            return answer[:1]


# ---- what `nacre chat` says about it


async def offer(error: Exception, out: Out) -> None:
    """Offer to set up a model where none can answer; raises the error if nobody is there or it is declined."""
    if not out.can_ask:
        raise error
    first, _, _ = str(error).partition("\n")
    out.warn(clean(first))
    if _ask("Set one up now? [Y/n] ", {"y", "n"}, "y") == "n":
        raise error
    await set_up(Namespace(model=None, yes=False, force=False, dry_run=False), out)


def mention(out: Out) -> None:
    """Say once, at the first use in a terminal without a configuration file, that `nacre init` exists."""
    if out.json or out.quiet or sys.stderr is None or not sys.stderr.isatty() or os.path.exists(config.path()):
        return
    mark = Path(state_folder()) / _HINT_FILE
    try:
        mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mark.touch(exist_ok=False)
    except OSError:
        return  # Said before, or it cannot be remembered: then it would be said each time.
    out.note("`nacre init` sets the model, approvals and memory. (This is shown once.)")
