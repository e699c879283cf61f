"""What the agent works with: folder, tools, skills, and the system prompt that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from nacre.agent.ports import Tool
from nacre.config import Settings, path
from nacre.errors import ConfigError
from nacre.index.minilm import is_installed
from nacre.index.warm import folder_of
from nacre.memory import Memory
from nacre.runtime.folder import Folder
from nacre.sandbox import Kind, find
from nacre.sessions import Sessions
from nacre.skills import Catalogue, FoundSkill, Place, usual_places
from nacre.skills import find as find_skills
from nacre.tools.builtin import Children, delegate_tool, memory_tools, search_tool, shell_tool, skill_tool
from nacre.tools.files.file_reader import reading_tools
from nacre.tools.files.file_writer import Keep, writing_tools
from nacre.tools.files.workspace import Workspace
from nacre.tools.functions import load_tools
from nacre.tools.web.fetch import web_tool
from nacre.user_files import state_folder

if TYPE_CHECKING:
    from nacre.tools.mcp import Offer, Prompt, Servers

_PERSONA = "You are nacre, an assistant that works with its user's files. Be brief and exact."
_PERSONA_FILE = "PERSONA.md"
_FOR_GUESTS = ("search_sessions", "use_skill", "web_fetch")


class Furniture(NamedTuple):
    """The tools by name, the skills, the system prompt, what a person should be told of them, and what guests have."""

    tools: dict[str, Tool]
    skills: Catalogue
    system: str
    notes: list[str]
    for_guests: Mapping[str, Tool] = {}
    files: Workspace | None = None
    confined: frozenset[str] = frozenset()
    prompts: Mapping[str, Prompt] = {}
    guest_system: str = ""


class Makings(NamedTuple):
    """What the furniture is made of.

    `root` is where all stores are, `home` the agent's own folder, `tokens` that of its logins, `folder` where a
    conversation works (for the daemon its workspace, where `is_daemon` is set). `memory` is None where none is kept.
    """

    settings: Settings
    sessions: Sessions
    children: Children
    memory: Memory | None
    root: str
    home: Path
    tokens: Path
    folder: Folder
    is_daemon: bool
    is_guest: Callable[[str], bool]
    keep: Keep = lambda *_: None


async def furnish(makings: Makings, servers: Servers | None) -> Furniture:
    """Find and make all of it; in a folder that is not trusted only what reads."""
    settings, sessions, folder = makings.settings, makings.sessions, makings.folder
    skills, places, notes = _skills(makings)
    hidden = _hidden(makings.root)
    files = Workspace(folder.path, hidden=hidden)
    tools: list[Tool] = [*reading_tools(files, [Workspace(place, hidden=hidden) for place in places])]
    if sessions.location != ":memory:":
        sees = makings.is_guest
        tools.append(
            search_tool(
                sessions,
                sees=lambda one, other: one == other or not sees(one),
                meaning=lambda: searches_by_meaning(settings),
            )
        )
    if skills.names:
        tools.append(skill_tool(skills.names, skills.load))
    own: set[str] = set()
    offers: dict[str, Offer] = {}
    theirs: dict[str, Tool] = {}
    is_open = folder.is_trusted or makings.is_daemon
    if is_open:
        tools += writing_tools(files, makings.keep)
        _make(hidden, folder.path)
        tools += await _shell(settings, folder.path, notes, hidden=hidden, skills=places)
        tools += [web_tool(allow=settings.texts("web.allow")), delegate_tool(makings.children)]
        if makings.memory is not None:
            tools += memory_tools(*_remembering(makings.memory))
        own = {tool.spec.name for tool in tools}
        offers, problems = await servers.offers() if servers is not None else ({}, [])
        notes += problems
        for tool in (tool for offer in offers.values() for tool in offer.tools):
            if tool.spec.name not in own:
                theirs.setdefault(tool.spec.name, tool)  # of two servers' tools with one name, the first
        tools += theirs.values()
        users, broken = load_tools(makings.home / "tools", taken=[tool.spec.name for tool in tools])
        notes += [f"{where}: {reason}" for where, reason in broken]
        tools += users
    by_name = {tool.spec.name: tool for tool in tools}
    allowed = _allowed(by_name, settings.texts("agent.only"), notes if is_open else [])
    confined = frozenset(own - {"web_fetch"})
    prompts = {name: prompt for offer in reversed(offers.values()) for name, prompt in offer.prompts.items()}
    if servers is not None:
        only, fixed = settings.texts("agent.only"), by_name.keys() - theirs.keys()
        servers.follow(offers, allowed, prompts, accepts=lambda name: name not in fixed and (not only or name in only))
    return Furniture(
        tools=allowed,
        skills=skills,
        system=_system(makings, skills),
        notes=notes,
        for_guests=_for_guests(allowed),
        files=files,
        confined=confined,
        prompts=prompts,
        guest_system=_guest_system(makings, skills),
    )


def searches_by_meaning(settings: Settings) -> bool:
    """Tell whether sessions are searched by meaning too: unless the user turned it off, if embeddings are installed."""
    return settings.text("search.embeddings") == "auto" and is_installed()


def _skills(makings: Makings) -> tuple[Catalogue, list[str], list[str]]:
    """The skills that may be used here, the folders that tools may read for them, and what is wrong with others."""
    folder = makings.folder
    projects = dict.fromkeys((folder.path, folder.root)) if folder.is_trusted else ()
    extra = [Place(whose="project", folder=folder.root / name) for name in folder.config.skill_folders]
    places = (*extra, *usual_places(home=makings.home, user=Path.home(), projects=projects))
    found, warnings = find_skills(places, accepts=folder.follows)
    hidden = folder.config.hidden_skills
    offered = [entry for entry in found if entry.skill.name not in hidden]
    catalogue = Catalogue((entry.skill for entry in offered), is_current=folder.is_current)
    shown = dict.fromkeys(place for entry in offered if (place := _shown(entry, folder.root)))
    return catalogue, list(shown), warnings


def _shown(found: FoundSkill, project: Path) -> str:
    """The folder that is shown to tools for a skill: the place with all its skills, or for a link where it leads.

    A link of a project that leads out of it could lead anywhere: "".
    """
    place, real = found.place.folder.resolve(), found.skill.folder.resolve()
    if found.place.whose == "project" and not real.is_relative_to(project.resolve()):
        return ""
    return str(place if real.is_relative_to(place) else real)


def _for_guests(tools: dict[str, Tool]) -> dict[str, Tool]:
    """What may be used by somebody whose agent it is not: nothing of the owner's files, memory and private hosts."""
    theirs = {**tools, "web_fetch": web_tool()}
    return {name: theirs[name] for name in _FOR_GUESTS if name in tools}


def _allowed(tools: dict[str, Tool], only: Sequence[str], notes: list[str]) -> dict[str, Tool]:
    """The tools that the agent may use; a name that none of them has may be that of a server which is away."""
    if not only:
        return tools
    notes += [f"agent.only names {name!r}, which is not a tool of this agent" for name in only if name not in tools]
    return {name: tool for name, tool in tools.items() if name in only}


def _remembering(memory: Memory) -> tuple[Callable[[str, str, str], str], Callable[[str], str]]:
    """What the tools that write memory do."""

    def remember(text: str, subject: str, key: str) -> str:
        return memory.remember(text, subject=subject, key=key).text

    def forget(what: str) -> str:
        return memory.forget(what).text

    return remember, forget


def workspace_of(settings: Settings, root: str) -> Path:
    """Where the daemon's agent with a store works."""
    wanted = settings.text("agent.workspace")
    return (Path(wanted) if wanted else Path(root) / "workspace").expanduser()


def workspace(settings: Settings, root: str) -> Path:
    """The daemon's workspace, made if it is not there."""
    place = workspace_of(settings, root)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the workspace {place} cannot be created: {error}; set agent.workspace") from error
    return place.resolve()


def _hidden(root: str) -> list[str]:
    """What no tool may see: the stores of all agents, their index, the configuration, and what the user trusts."""
    places = (Path(root), Path(path()).parent, Path(folder_of(root, None)).parent, Path(state_folder()))
    return [str(place.resolve()) for place in places]


def _make(hidden: list[str], place: Path) -> None:
    """Make the hidden folders below a workspace: a command could otherwise be the first to make one."""
    for folder in map(Path, hidden):
        if folder.is_relative_to(place):
            with suppress(OSError):  # the sandbox says what is missing
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _shell(
    settings: Settings, place: Path, notes: list[str], *, hidden: list[str], skills: list[str]
) -> list[Tool]:
    """The shell, if there is something to confine it."""
    kind, network = cast("Kind", settings.text("sandbox.kind")), settings.flag("sandbox.network")
    readable, aside = _readable(settings), Path(state_folder()) / "aside"
    try:
        found = await find(
            str(place), kind=kind, hidden=hidden, readable=readable, skills=skills, network=network, aside=aside
        )
    except ConfigError as error:
        notes.append(f"no shell: {error}")
        return []
    if found.sandbox is None:
        notes.append(f"no shell: {found.why}")
        return []
    if kind == "off":
        notes.append(found.why)
    return [shell_tool(found.sandbox)]


def _readable(settings: Settings) -> list[str]:
    return [str(Path(folder).expanduser()) for folder in settings.texts("sandbox.readable")]


def servers_for(makings: Makings) -> Servers | None:
    """The MCP servers in the configuration, if there are any and they may be used here."""
    table = makings.settings.table("mcp")
    if not table or not (makings.folder.is_trusted or makings.is_daemon):
        return None
    from nacre.tools.mcp import Servers, login_from, servers_of  # noqa: PLC0415 - nothing of it unless there is a server

    return Servers(servers_of(table, login=login_from(makings.tokens)))


def _system(makings: Makings, skills: Catalogue) -> str:
    """The system prompt: the same bytes from turn to turn, so that the server's cache of it stays valid."""
    folder = makings.folder
    where = "" if makings.is_daemon else f"You work in the folder {folder.path}; paths are relative to it."
    if not (folder.is_trusted or makings.is_daemon):
        where += " The user has not trusted this folder: you can read files and change nothing."
    said = [f"The project says in {name}:\n\n{text.strip()}" for name, text in folder.instructions]
    return "\n\n".join(part for part in (_persona(makings), where, *said, skills.text) if part)


def _guest_system(makings: Makings, skills: Catalogue) -> str:
    """The same for guests, who are not told what files of the owner's say."""
    return "\n\n".join(part for part in (_persona(makings), skills.text) if part)


def _persona(makings: Makings) -> str:
    return makings.settings.text("agent.persona") or _text(makings.home / _PERSONA_FILE) or _PERSONA


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
