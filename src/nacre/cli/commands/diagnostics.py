"""The checks of `nacre doctor`, `nacre config check` and `nacre serve --check`: one list, of which each runs a part.

Nothing is changed and no message is sent. Servers of models are asked which models they have.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple

from nacre import config
from nacre.cli.failures import EXTRAS, FAILED, OK, USAGE
from nacre.cli.one_line import clean, wrap
from nacre.cli.output import Out
from nacre.cli.store_choice import is_url, main_root, main_store
from nacre.errors import ConfigError, NacreError, ProviderError, install_command

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.config import Settings
    from nacre.storage.postgres.inspection import Inspection

_ENVIRONMENT = {"address", "daemon", "store", "folder", "workspace", "model", "sandbox", "extras", "role"}
"""Checks that fail because of the machine, not because of the configuration."""
_DELAY = 0.5
_MAX_NAMED = 5
_INDENT = 19
_UNLIMITED = 100_000
_PROGRAMS = frozenset(("chmod", "nacre", "ollama", "pip", "rm"))


class Check(NamedTuple):
    """The result of one check: ok, warn or fail, and what to do."""

    name: str
    status: str
    detail: str
    hint: str = ""


def print_checks(checks: Iterable[Check], out: Out) -> list[Check]:
    """Print each check as soon as it is done, unless it is for a program; gives them all."""
    found = []
    for check in checks:
        found.append(check)
        if not out.json:
            _print_check(check, out)
    return found


def _print_check(check: Check, out: Out) -> None:
    """Print a check, and below it what to do."""
    paint = {"ok": out.green, "warn": out.yellow, "fail": out.red}[check.status]
    lead = f"{paint(f'{check.status:<4}')}  {out.bold(f'{check.name:<12}')} "
    # On a narrow terminal the text stands below its name; in a pipe every text is one line.
    columns = out.width if out.has_width else _UNLIMITED
    indent = _INDENT if columns >= 3 * _INDENT else 6
    lines = [line for part in check.detail.splitlines() for line in wrap(clean(part), columns - indent)]
    first = lines.pop(0) if indent == _INDENT and lines else ""
    out.say(f"{lead}{first}".rstrip())
    for line in lines:
        out.say(f"{'':<{indent}}{line}")
    for part in check.hint.splitlines():
        # A command stays whole, so that it can be copied.
        is_command = part.partition(" ")[0] in _PROGRAMS
        for place, line in enumerate(wrap(clean(part), _UNLIMITED if is_command else columns - indent - 2)):
            out.say(f"{'':<{indent}}{' ' if place else out.dim('→')} {line}")


def code_of(found: list[Check]) -> int:
    """The exit code: 2 if the configuration is wrong, 1 if it is something else."""
    bad = {check.name.rpartition(" ")[2] for check in found if check.status == "fail"}
    if not bad:
        return OK
    return FAILED if bad <= _ENVIRONMENT else USAGE


def settings_checks(args: Namespace, out: Out, *, model: str | None = None) -> Iterator[Check]:
    """Whether the configuration can work: the file, and of each agent workspace, channels, sandbox and model."""
    try:
        text = config.read_text()
        wrong = config.complaints(config.parse(text), os.environ, text=text)
    except ConfigError as error:
        wrong = [str(error)]
    if not wrong and args.agent not in (known := config.load().agents):
        wrong = [f"there is no agent {args.agent!r}; there are {', '.join(known)}"]
    for problem in wrong:
        yield Check("config", "fail", problem, "nacre config edit")
    if wrong:
        return
    settings = config.load()
    path = config.path()
    file = path if os.path.exists(path) else f"defaults ({path} does not exist)"
    yield _check_extras(settings)
    try:
        from nacre.runtime.agents import check_limits, check_workspaces  # noqa: PLC0415 - optional
        from nacre.runtime.permissions import check_rules  # noqa: PLC0415 - the same
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        yield Check("config", "ok", file)
        yield Check("model", "warn", f"not checked: {error.name} is not installed", install_command("agent"))
        return
    try:
        check_workspaces(settings, main_root(args))
        check_limits(settings)
        check_rules(settings)
    except ConfigError as error:
        yield Check("config", "fail", str(error), "nacre config edit")
        return
    yield Check("config", "ok", f"{file}; agents: {', '.join(settings.agents)}")
    for name in [args.agent] if args.agent != config.MAIN else settings.agents:
        for found in _agent_checks(settings.for_agent(name), name, args, out=out, model=model):
            yield found._replace(name=found.name if name == config.MAIN else f"{name}: {found.name}")


def _check_extras(settings: Settings) -> Check:
    """Which optional parts are installed, and the command for each that is not."""
    missing: dict[str, list[str]] = {}
    for module, extra in EXTRAS.items():
        lacking = missing.setdefault(extra, [])
        try:
            is_installed = find_spec(module) is not None
        except (ImportError, ValueError):
            is_installed = False
        if not is_installed:
            lacking.append(module)
    detail = f"installed: {', '.join(extra for extra, lacking in missing.items() if not lacking) or 'none'}"
    absent = {extra: lacking for extra, lacking in missing.items() if lacking}
    if not absent:
        return Check("extras", "ok", detail)
    serves = "channels" in settings.tables or "schedule" in settings.tables
    is_lacking = "agent" in absent or ("mcp" in absent and "mcp" in settings.tables)
    status = "fail" if "serve" in absent and serves else "warn" if is_lacking else "ok"
    named = "; ".join(f"{extra} (without {', '.join(lacking)})" for extra, lacking in absent.items())
    return Check("extras", status, f"{detail}; not installed: {named}", "\n".join(map(install_command, absent)))


def _agent_checks(settings: Settings, name: str, args: Namespace, *, out: Out, model: str | None) -> Iterator[Check]:
    """The checks of one agent; `model` is the one that a flag named for the main agent."""
    from pathlib import Path  # noqa: PLC0415 - slow to import

    import anyio  # noqa: PLC0415 - optional

    from nacre.opening import store_of  # noqa: PLC0415 - loads the library
    from nacre.runtime.agent_parts import workspace_of  # noqa: PLC0415 - optional

    root = store_of(main_root(args), name)
    store = store_of(main_store(args), name)
    if is_url(store):
        yield check_database(store)
        yield _check_folder("folder", root, "choose another with NACRE_HOME")
    else:
        yield check_seal("store", root) or _check_folder("store", root, "choose another with --store or NACRE_HOME")
    yield _check_folder("workspace", str(workspace_of(settings, root)), "nacre config set agent.workspace DIR")
    yield from anyio.run(_check_channels, settings, Path(root))
    # Whether the programs of MCP servers exist.
    for server, table in settings.table("mcp").items():
        command = table.get("command")
        words = command if isinstance(command, list) else str(command or "").split()
        if not words and not table.get("url"):
            yield Check("mcp", "warn", f"[mcp.{server}] has neither a command nor a url", "see docs/tools.md")
        elif words and not shutil.which(os.path.expanduser(str(words[0]))):
            yield Check("mcp", "warn", f"[mcp.{server}]: {words[0]} is not installed", "see docs/tools.md")
    if name == config.MAIN or _sandbox_of(settings) != _sandbox_of(config.load().for_agent(config.MAIN)):
        with _say_what_takes_long(out, "trying the sandbox"):
            yield anyio.run(_check_sandbox, settings)
    with _say_what_takes_long(out, "asking for the model"):
        yield anyio.run(_check_model, settings, model if name == config.MAIN else None)


def check_database(url: str) -> Check:
    """Whether a database can be reached and has the tables that this program works with."""
    from nacre.opening import inspect_database  # noqa: PLC0415 - loads the library

    try:
        found = inspect_database(url)
        check = check_tables(found)
        return check if check.status != "ok" or not found.lacking else check_role(found)
    except NacreError as error:
        return Check("store", "fail", str(error), "`nacre doctor` says more, `nacre store` which one it is and why")


def check_tables(found: Inspection) -> Check:
    """Whether a database has the tables that this program works with."""
    if not found.tables and found.lacking:
        return check_role(found)._replace(name="store")
    if not found.tables:
        detail = f"{found.shown} has no tables of nacre in schema {found.schema!r}"
        return Check("store", "fail", detail, f"nacre store init {shlex.quote(found.shown)}")
    detail = f"{found.shown} has tables of version {found.tables}"
    if found.tables < found.known:
        return Check("store", "fail", detail, f"nacre store upgrade {shlex.quote(found.shown)}")
    if found.tables > found.known:
        return Check("store", "fail", f"{detail}, this nacre knows {found.known}", "update nacre")
    if found.sealed_to:
        return _sealed("store", found.shown, found.sealed_to)
    return Check("store", "ok", f"{found.shown}: PostgreSQL {found.release.partition(' ')[0]}")


def check_role(found: Inspection) -> Check:
    """Whether the role may do what this program does."""
    if found.lacking:
        named = ", ".join(found.lacking[:_MAX_NAMED]) + (" …" if len(found.lacking) > _MAX_NAMED else "")
        hint = f"as the owner of the schema: GRANT {found.lacking[0].replace(' on ', f' ON {found.schema}.')} TO …"
        if found.lacking[0].startswith("USAGE"):
            hint = f"as the owner of the schema: GRANT USAGE ON SCHEMA {found.schema} TO {found.role}"
        return Check("role", "fail", f"role {found.role} lacks {named}", f"{hint}; docs/postgres.md has all of them")
    if found.is_superuser:
        hint = "use a role that may only read and write the tables: docs/postgres.md has the statements"
        return Check("role", "warn", f"role {found.role} is a superuser of the whole server", hint)
    return Check("role", "ok", f"role {found.role} may do what nacre needs")


def check_seal(name: str, root: str) -> Check | None:
    """The failure of a store in a folder whose sessions were moved elsewhere; None if they were not."""
    from nacre.opening import sealed_to  # noqa: PLC0415 - loads the library

    try:
        moved = sealed_to(root)
    except OSError:
        return None  # other checks say why
    return _sealed(name, root, moved) if moved else None


def _sealed(name: str, store: str, moved: str) -> Check:
    from nacre.opening import unseal_command  # noqa: PLC0415 - the same

    detail = f"{store} is sealed, and refuses every write: its sessions were moved to {moved}"
    return Check(name, "fail", detail, f"use that store; or take it back:\n{unseal_command(store)}")


def _check_folder(name: str, place: str, hint: str) -> Check:
    """Whether a folder can be written, or made where it does not exist yet."""
    above = place
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    inside = f"{place}/sessions"
    wanted = [above, inside] if os.path.exists(inside) else [above]
    if not all(os.path.isdir(one) and os.access(one, os.R_OK | os.W_OK | os.X_OK) for one in wanted):
        return Check(name, "fail", f"{place} cannot be written", hint)
    return Check(name, "ok", place if above == place else f"{place} (will be created)")


async def _check_channels(settings: Settings, root: Path) -> list[Check]:
    from nacre.runtime.daemon import FOLDER, channels_by_name, schedule_of  # noqa: PLC0415 - the same
    from nacre.runtime.gateway.access import access_of  # noqa: PLC0415 - optional

    folder = root / FOLDER
    try:
        makers = channels_by_name(settings, folder, access_of(settings))
    except ConfigError as error:
        return [Check("channels", "fail", str(error), "see docs/channels.md")]
    found = []
    for name, make in makers.items():
        try:
            await make().close()
        except NacreError as error:
            found.append(Check(name, "fail", str(error), "see docs/channels.md"))
        else:
            found.append(Check(name, "ok", f"[channels.{name}] is complete; its server was not asked"))
    try:
        if schedule_of(settings, list(makers)) is not None:
            found.append(Check("schedule", "ok", ", ".join(settings.table("schedule"))))
    except ConfigError as error:
        found.append(Check("schedule", "fail", str(error), "see docs/channels.md"))
    return found


def _sandbox_of(settings: Settings) -> tuple[str, bool]:
    return settings.text("sandbox.kind"), settings.flag("sandbox.network")


async def _check_sandbox(settings: Settings) -> Check:
    """Which sandbox works here, found by running a command in it."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - needed only here
    from typing import cast  # noqa: PLC0415 - the same

    from nacre.sandbox.sandboxes import Kind, find  # noqa: PLC0415 - optional

    kind = settings.text("sandbox.kind")
    with TemporaryDirectory() as folder:
        try:
            found = await find(folder, kind=cast("Kind", kind), network=settings.flag("sandbox.network"))
        except ConfigError as error:
            return Check("sandbox", "fail", str(error), "see docs/tools.md")
    if found.sandbox is None:
        why, _, hint = found.why.rpartition("; ")
        return Check("sandbox", "warn" if kind == "auto" else "fail", f"no shell: {why or found.why}", hint)
    if kind == "off":
        return Check("sandbox", "warn", found.why, "nacre config set sandbox.kind auto")
    return Check("sandbox", "ok", found.why)


async def _check_model(settings: Settings, wanted: str | None) -> Check:
    """Which model would answer, and whether its server has it."""
    from nacre.runtime.model_chain import provider_for  # noqa: PLC0415 - optional

    try:
        provider = await provider_for(settings, wanted)
    except (ProviderError, ConfigError) as error:
        first, _, hint = str(error).partition("\n")
        return Check("model", "fail", first, hint or "nacre init")
    switches: list[str] = []
    try:
        await provider.check(lambda event: switches.append(getattr(event, "text", "")))
        known = await provider.models()
    except ProviderError as error:
        first, _, hint = str(error).partition("\n")
        return Check("model", "fail", first, hint or "check that its server runs, and agent.provider")
    finally:
        await provider.close()
    if switches:
        return Check("model", "warn", "\n".join(switches), "start the server of the first model, or change agent.model")
    has_host = settings.text("ollama.host") or os.environ.get("OLLAMA_HOST")
    if has_host and provider.note.startswith("Ollama") and not provider.ref.startswith("ollama/"):
        return Check("model", "warn", provider.note, "start Ollama, or correct ollama.host or OLLAMA_HOST")
    if provider.model in known or f"{provider.model}:latest" in known:
        return Check("model", "ok", provider.ref)
    return Check("model", "warn", f"{provider.ref} is not in the provider's list", "check agent.model")


@contextmanager
def _say_what_takes_long(out: Out, what: str) -> Iterator[None]:
    """Say on a terminal what takes more than half a second."""
    is_shown = not out.quiet and not out.json and sys.stderr is not None and sys.stderr.isatty()
    drawn: list[bool] = []

    def draw() -> None:
        drawn.append(True)
        sys.stderr.write(f"{what} …")
        sys.stderr.flush()

    timer = Timer(_DELAY, draw)
    if is_shown:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if is_shown:
            timer.join()
        if drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
