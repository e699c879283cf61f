"""nacre serve --check: whether a daemon could start as it is set up; nothing is changed, and nothing is sent."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

from nacre.app.agents import check_limits, check_workspaces
from nacre.app.furnishing import workspace_of
from nacre.app.manners import manners_of
from nacre.app.models import provider_for
from nacre.app.permissions import check_rules
from nacre.app.running import store_of
from nacre.app.serving import FOLDER, channels_by_name, schedule_of
from nacre.cli.doctor import Check
from nacre.cli.failures import FAILED, OK, USAGE
from nacre.cli.place import root_of
from nacre.cli.serve import TOKEN_HINT, VARIABLE, needs_token
from nacre.config import MAIN, Settings, load, path
from nacre.errors import ConfigError, NacreError, ProviderError
from nacre.web.server import listening

_OF_THE_WORLD = {"address", "store", "workspace", "model"}


async def checks(args: Namespace) -> AsyncIterator[Check]:
    """What was looked at, one part after the other."""
    yield _address(args)
    yield _token(args)
    try:
        settings = load()
        check_workspaces(settings, root_of(args))
        check_limits(settings)
        check_rules(settings)
    except ConfigError as error:
        yield Check("config", "fail", str(error), f"edit {path()}; `nacre config show` lists all settings")
        return
    yield Check("config", "ok", f"{path()}; agents: {', '.join(settings.agents)}")
    for name in settings.agents:
        async for found in _agent(settings.for_agent(name), name, args):
            yield found._replace(name=found.name if name == MAIN else f"{name}: {found.name}")


def code_of(found: list[Check]) -> int:
    """The exit code: settings that are wrong are the user's, anything else the world's."""
    bad = {check.name.rpartition(" ")[2] for check in found if check.status == "fail"}
    if not bad:
        return OK
    return FAILED if bad <= _OF_THE_WORLD else USAGE


def _address(args: Namespace) -> Check:
    try:
        for one in listening(args.host, args.port):
            one.close()
    except ConfigError as error:
        return Check("address", "fail", str(error), "is another daemon running? choose another with --port or --host")
    return Check("address", "ok", f"{args.host}, port {args.port}")


def _token(args: Namespace) -> Check:
    if needs_token(args):
        return Check("token", "fail", f"a daemon on {args.host} needs a token that you chose", TOKEN_HINT)
    return Check("token", "ok", f"in {VARIABLE}" if os.environ.get(VARIABLE) else "made anew at each start")


async def _agent(settings: Settings, name: str, args: Namespace) -> AsyncIterator[Check]:
    root = store_of(root_of(args), name)
    yield _folder("store", root, "--store or NACRE_HOME names another")
    yield _folder("workspace", str(workspace_of(settings, root)), "agent.workspace names another")
    async for found in _channels(settings, Path(root) / FOLDER):
        yield found
    yield await _model(settings, args.model if name == MAIN else None)


def _folder(name: str, place: str, hint: str) -> Check:
    """Whether a folder can be written, or made where it is not there yet."""
    above = place
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    inside = f"{place}/sessions"
    wanted = [above, inside] if os.path.exists(inside) else [above]
    if not all(os.path.isdir(one) and os.access(one, os.R_OK | os.W_OK | os.X_OK) for one in wanted):
        return Check(name, "fail", f"{place} cannot be written", hint)
    return Check(name, "ok", place if above == place else f"{place} (made at the start)")


async def _channels(settings: Settings, folder: Path) -> AsyncIterator[Check]:
    try:
        manners = manners_of(settings)
    except ConfigError as error:
        yield Check("channels", "fail", str(error), "see docs/channels.md")
        return
    makers = channels_by_name(settings, folder, manners)
    for name, make in makers.items():
        try:
            await make().close()
        except NacreError as error:
            yield Check(name, "fail", str(error), "see docs/channels.md")
        else:
            yield Check(name, "ok", f"a channel as [channels.{name}] says; its server was not asked")
    try:
        if schedule_of(settings, folder, list(makers)) is not None:
            yield Check("schedule", "ok", ", ".join(settings.table("schedule")))
    except ConfigError as error:
        yield Check("schedule", "fail", str(error), "see docs/channels.md")


async def _model(settings: Settings, wanted: str | None) -> Check:
    try:
        provider = await provider_for(settings, wanted)
    except (ProviderError, ConfigError) as error:
        first, _, hint = str(error).partition("\n")
        return Check("model", "fail", first, hint or "see docs/chat.md")
    kind, model = type(provider).__name__.lower(), provider.model
    try:
        listed = getattr(provider, "models", None)
        known = list(await listed()) if listed is not None else [model]
    except ProviderError as error:
        return Check("model", "fail", str(error).splitlines()[0], "see that its server runs, and agent.provider")
    finally:
        await provider.close()
    if model in known or f"{model}:latest" in known:
        return Check("model", "ok", f"{kind}/{model}")
    if kind == "ollama":
        return Check("model", "fail", f"Ollama has no {model}", f"ollama pull {model}")
    return Check(
        "model", "warn", f"{kind} does not list {model}", "agent.model, if it is not just another name for one"
    )
