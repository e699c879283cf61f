"""What the agent works with: workspace, tools, skills, and the system prompt that tells it so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from nacre.agent.ports import Finished, Sandbox, Tool
from nacre.app.closing import Closing
from nacre.config import Settings, path
from nacre.errors import ConfigError
from nacre.index.location import folder_of
from nacre.memory import Memory
from nacre.memory.folder import make_page
from nacre.memory.lines import MEMORY_PAGE
from nacre.sandbox import Kind, find
from nacre.sessions import Sessions
from nacre.skills import Catalogue, usual_places
from nacre.skills import find as find_skills
from nacre.tools import loading
from nacre.tools.delegate import Children, delegate_tool
from nacre.tools.reading import reading_tools
from nacre.tools.remembering import remembering_tools
from nacre.tools.searching import search_tool
from nacre.tools.shell import shell_tool
from nacre.tools.skill import skill_tool
from nacre.tools.web import web_tool
from nacre.tools.workspace import Workspace
from nacre.tools.writing import writing_tools

_PERSONA = "You are nacre, an assistant that works in its user's workspace. Be brief and exact."
_PERSONA_FILE, _PROJECT_FILE = "PERSONA.md", "AGENTS.md"
_OURS, _SKILLS = ("tools", "memory"), "skills"
_FOR_GUESTS = ("search_sessions", "use_skill", "web_fetch")


class Furniture(NamedTuple):
    """The tools by name, the skills, the system prompt, what a person should be told of them, and tools for guests."""

    tools: dict[str, Tool]
    skills: Catalogue
    system: str
    notes: list[str]
    for_guests: Mapping[str, Tool] = {}


class Makings(NamedTuple):
    """What the furniture is made of; `root` is where all stores are, `memory` is None where none is kept."""

    settings: Settings
    sessions: Sessions
    children: Children
    memory: Memory | None
    root: str
    is_guest: Callable[[str], bool]


async def furnish(place: Path, makings: Makings, closing: Closing) -> Furniture:
    """Find and make all of it, for a workspace."""
    settings, sessions, children, memory, root, is_guest = makings
    found = find_skills(usual_places(workspace=place, home=Path.home(), project=Path.cwd()))
    skills = Catalogue(entry.skill for entry in found.skills)
    notes = list(found.warnings)
    hidden = [*(str(place / name) for name in (*_OURS, MEMORY_PAGE)), *_beside(place, root)]
    frozen = [str(place / name) for name in (_SKILLS, _PERSONA_FILE)]
    files = Workspace(place, hidden=hidden, frozen=frozen)
    tools: list[Tool] = [*reading_tools(files), *writing_tools(files)]
    tools += await _shell(settings, place, notes, hidden=hidden, frozen=frozen)
    tools += [web_tool(allow=list(settings.texts("web.allow"))), delegate_tool(children)]
    if sessions.location != ":memory:":
        tools.append(search_tool(sessions.search, sees=lambda one, other: one == other or not is_guest(one)))
    if memory is not None:
        tools += remembering_tools(*_remembering(memory))
    if skills.names:
        tools.append(skill_tool(skills.names, skills.load))
    tools += await _servers(settings, closing, notes)
    loaded = loading.load(place / "tools", taken=[tool.spec.name for tool in tools])
    notes += [f"{problem.where}: {problem.reason}" for problem in loaded.problems]
    by_name = {tool.spec.name: tool for tool in [*tools, *loaded.tools]}
    allowed = _allowed(by_name, list(settings.texts("agent.only")), notes)
    return Furniture(allowed, skills, _system(settings, place, skills), notes, _for_guests(allowed))


def _for_guests(tools: dict[str, Tool]) -> dict[str, Tool]:
    """What may be used by somebody whose agent it is not: nothing of the owner's files, memory and private hosts."""
    theirs = {**tools, "web_fetch": web_tool()}
    return {name: theirs[name] for name in _FOR_GUESTS if name in tools}


def _allowed(tools: dict[str, Tool], only: list[str], notes: list[str]) -> dict[str, Tool]:
    """The tools that the agent may use; a name that none of them has may be that of a server which is away."""
    if not only:
        return tools
    notes += [f"agent.only names {name!r}, and there is no such tool here" for name in only if name not in tools]
    return {name: tool for name, tool in tools.items() if name in only}


def _remembering(memory: Memory) -> tuple[Callable[[str, str, str], str], Callable[[str], str]]:
    """What the tools that write memory do."""

    def remember(text: str, subject: str, key: str) -> str:
        return memory.remember(text, subject=subject, key=key).text

    def forget(what: str) -> str:
        return memory.forget(what).text

    return remember, forget


def workspace_of(settings: Settings, root: str) -> Path:
    """Where the workspace of an agent with a store is."""
    wanted = settings.text("agent.workspace")
    return (Path(wanted) if wanted else Path(root) / "workspace").expanduser()


def workspace(settings: Settings, root: str) -> Path:
    """The workspace, made if it is not there, with what in it is ours."""
    place = workspace_of(settings, root)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _provide(place)
    except OSError as error:
        raise ConfigError(f"the workspace {place} cannot be made: {error}; set agent.workspace") from error
    return place.resolve()


def _provide(place: Path) -> None:
    """Let everything of ours be in its place: what is not there can be neither hidden nor frozen."""
    for name in (*_OURS, _SKILLS):
        (place / name).mkdir(mode=0o700, exist_ok=True)
    make_page(place)
    with suppress(FileExistsError):
        (place / _PERSONA_FILE).touch(mode=0o600, exist_ok=False)


def _beside(place: Path, root: str) -> list[str]:
    """The stores of all agents, their index and the configuration; made where a tool could else be the first."""
    folders = [Path(path()).parent.resolve(), Path(root).resolve(), Path(folder_of(root, None)).parent.resolve()]
    for folder in folders:
        if folder.is_relative_to(place):
            with suppress(OSError):  # the sandbox will say what is missing
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [str(folder) for folder in folders]


async def _shell(
    settings: Settings, place: Path, notes: list[str], *, hidden: list[str], frozen: list[str]
) -> list[Tool]:
    """The shell, if there is something to confine it."""
    kind, network = cast("Kind", settings.text("sandbox.kind")), settings.flag("sandbox.network")
    found = await find(str(place), kind=kind, hidden=hidden, frozen=frozen, network=network)
    if found.sandbox is None:
        notes.append(f"no shell: {found.why}")
        return []
    if kind == "off":
        notes.append(found.why)
    return [shell_tool(_Provided(found.sandbox, place))]


class _Provided:
    """A sandbox that finds everything of ours in its place, whatever somebody took away: else it would not start."""

    def __init__(self, inner: Sandbox, place: Path) -> None:
        self._inner = inner
        self._place = place

    @property
    def name(self) -> str:
        return self._inner.name

    async def run(self, command: Sequence[str], *, timeout: float, most: int) -> Finished:  # noqa: ASYNC109 - a limit on the command
        _provide(self._place)
        return await self._inner.run(command, timeout=timeout, most=most)


async def _servers(settings: Settings, closing: Closing, notes: list[str]) -> list[Tool]:
    """The tools of the MCP servers in the configuration."""
    table = settings.table("mcp")
    if not table:
        return []
    from nacre.tools import mcp  # noqa: PLC0415 - nothing of it unless there is a server

    try:
        configs = [msgspec.convert({**entry, "name": name}, mcp.Config) for name, entry in table.items()]
    except msgspec.ValidationError as error:
        raise ConfigError(f"an MCP server in {path()} cannot be read: {error}") from error
    servers = [mcp.Server(config) for config in configs]
    for server in servers:
        closing.add("MCP server", server.close)
    found, problems = await mcp.tools_of(servers)
    notes += problems
    return list(found)


def _system(settings: Settings, place: Path, skills: Catalogue) -> str:
    """The system prompt: the same bytes from turn to turn, so that what the server has cached of it holds."""
    persona = settings.text("agent.persona") or _text(place / _PERSONA_FILE) or _PERSONA
    project = _text(Path.cwd() / _PROJECT_FILE)
    parts = [persona, f"The project says in {_PROJECT_FILE}:\n\n{project}" if project else "", skills.text]
    return "\n\n".join(part for part in parts if part)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
