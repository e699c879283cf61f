"""What the agent works with: folder, tools, skills, and the system prompt that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
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
from nacre.skills import Catalogue, Place, usual_places
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


class AgentParts(NamedTuple):
    """The tools by name, the skills, the system prompt, notices about them, and what guests have."""

    tools: dict[str, Tool]
    skills: Catalogue
    system: str
    notes: list[str]
    for_guests: Mapping[str, Tool] = {}
    files: Workspace | None = None
    confined: frozenset[str] = frozenset()
    prompts: Mapping[str, Prompt] = {}
    guest_system: str = ""


class AgentSetup(NamedTuple):
    """What the parts are made of.

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


async def make_parts(setup: AgentSetup, servers: Servers | None) -> AgentParts:
    """Find and make all of it; in a folder that is not trusted only what reads."""
    settings, is_open = setup.settings, setup.folder.is_trusted or setup.is_daemon
    skills, places, notes = _find_skills(setup)
    # No tool sees the stores of all agents, their index, the configuration, or what the user trusts.
    index = folder_of(setup.root, None)
    private = (Path(setup.root), Path(path()).parent, Path(index).parent, Path(state_folder()))
    hidden = [str(place.resolve()) for place in private]
    files = Workspace(setup.folder.path, hidden=hidden)
    tools = await _make_tools(setup, skills, files, hidden=hidden, places=places, notes=notes)
    own = {tool.spec.name for tool in tools} if is_open else set()
    offers: dict[str, Offer] = {}
    theirs: dict[str, Tool] = {}
    if is_open:
        offers, problems = await servers.offers() if servers is not None else ({}, [])
        notes += problems
        for tool in (tool for offer in offers.values() for tool in offer.tools):
            if tool.spec.name not in own:
                theirs.setdefault(tool.spec.name, tool)  # of two servers' tools with one name, the first
        tools += theirs.values()
        users, broken = load_tools(setup.home / "tools", taken=[tool.spec.name for tool in tools])
        notes += [f"{where}: {reason}" for where, reason in broken]
        tools += users
    by_name = {tool.spec.name: tool for tool in tools}
    allowed, only = by_name, settings.texts("agent.only")
    if only:
        allowed = {name: tool for name, tool in by_name.items() if name in only}
        if is_open:
            # One that is not there may be that of a server which is away.
            absent = [name for name in only if name not in by_name]
            notes += [f"agent.only names {name!r}, which is not a tool of this agent" for name in absent]
    prompts = {name: prompt for offer in reversed(offers.values()) for name, prompt in offer.prompts.items()}
    if servers is not None:
        fixed = by_name.keys() - theirs.keys()
        servers.follow(offers, allowed, prompts, accepts=lambda name: name not in fixed and (not only or name in only))
    # Guests use nothing of the owner's files, memory and private hosts, and do not learn what files of theirs say.
    for_guests = {**allowed, "web_fetch": web_tool()}
    persona = settings.text("agent.persona") or _read_text(setup.home / _PERSONA_FILE) or _PERSONA
    return AgentParts(
        tools=allowed,
        skills=skills,
        system=_system_prompt(setup, persona, skills),
        notes=notes,
        for_guests={name: for_guests[name] for name in _FOR_GUESTS if name in allowed},
        files=files,
        confined=frozenset(own - {"web_fetch"}),
        prompts=prompts,
        guest_system="\n\n".join(part for part in (persona, skills.text) if part),
    )


async def _make_tools(  # noqa: PLR0913 - what was found so far
    setup: AgentSetup, skills: Catalogue, files: Workspace, *, hidden: list[str], places: list[str], notes: list[str]
) -> list[Tool]:
    """The agent's own tools; what they cannot do here is added to the notes."""
    settings, sessions, sees, place = setup.settings, setup.sessions, setup.is_guest, setup.folder.path
    tools: list[Tool] = [*reading_tools(files, [Workspace(folder, hidden=hidden) for folder in places])]
    if sessions.is_durable:
        meaning = partial(searches_by_meaning, settings)
        tools.append(search_tool(sessions, sees=lambda one, other: one == other or not sees(one), meaning=meaning))
    if skills.names:
        tools.append(skill_tool(skills.names, skills.load))
    if not (setup.folder.is_trusted or setup.is_daemon):
        return tools
    tools += writing_tools(files, setup.keep)
    for folder in map(Path, hidden):
        # A command could otherwise be the first to make one below the workspace.
        if folder.is_relative_to(place):
            with suppress(OSError):  # the sandbox says what is missing
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tools += await _make_shell(settings, place, notes, hidden=hidden, skills=places)
    tools += [web_tool(allow=settings.texts("web.allow")), delegate_tool(setup.children)]
    if (memory := setup.memory) is not None:
        tools += memory_tools(
            lambda text, subject, key: memory.remember(text, subject=subject, key=key).text,
            lambda what: memory.forget(what).text,
        )
    return tools


def searches_by_meaning(settings: Settings) -> bool:
    """Tell whether sessions are searched by meaning too: unless the user turned it off, if embeddings are installed."""
    return settings.text("search.embeddings") == "auto" and is_installed()


def _find_skills(setup: AgentSetup) -> tuple[Catalogue, list[str], list[str]]:
    """The skills that may be used here, the folders that tools may read for them, and what is wrong with others."""
    folder = setup.folder
    projects = dict.fromkeys((folder.path, folder.root)) if folder.is_trusted else ()
    extra = [Place(whose="project", folder=folder.root / name) for name in folder.config.skill_folders]
    places = (*extra, *usual_places(home=setup.home, user=Path.home(), projects=projects))
    found, warnings = find_skills(places, accepts=folder.follows)
    hidden = folder.config.hidden_skills
    offered = [entry for entry in found if entry.skill.name not in hidden]
    shown: dict[str, None] = {}
    for entry in offered:
        # The place with all its skills is shown, or for a link where it leads; but a link of a project that leads out
        # of it could lead anywhere.
        place, real = entry.place.folder.resolve(), entry.skill.folder.resolve()
        if entry.place.whose != "project" or real.is_relative_to(folder.root.resolve()):
            shown[str(place if real.is_relative_to(place) else real)] = None
    catalogue = Catalogue((entry.skill for entry in offered), is_current=folder.is_current)
    return catalogue, list(shown), warnings


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


async def _make_shell(
    settings: Settings, place: Path, notes: list[str], *, hidden: list[str], skills: list[str]
) -> list[Tool]:
    """The shell, if there is something to confine it."""
    kind, network = cast("Kind", settings.text("sandbox.kind")), settings.flag("sandbox.network")
    wanted = settings.texts("sandbox.readable")
    readable = [str(Path(folder).expanduser()) for folder in wanted]  # noqa: ASYNC240 - it reads the environment
    aside = Path(state_folder()) / "aside"
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


def servers_for(setup: AgentSetup) -> Servers | None:
    """The MCP servers in the configuration, if there are any and they may be used here."""
    table = setup.settings.table("mcp")
    if not table or not (setup.folder.is_trusted or setup.is_daemon):
        return None
    from nacre.tools.mcp import Servers, login_from, servers_of  # noqa: PLC0415 - nothing of it unless there is a server

    return Servers(servers_of(table, login=login_from(setup.tokens)))


def _system_prompt(setup: AgentSetup, persona: str, skills: Catalogue) -> str:
    """The system prompt: the same bytes from turn to turn, so that the server's cache of it stays valid."""
    folder = setup.folder
    where = "" if setup.is_daemon else f"You work in the folder {folder.path}; paths are relative to it."
    if not (folder.is_trusted or setup.is_daemon):
        where += " The user has not trusted this folder: you can read files and change nothing."
    said = [f"The project says in {name}:\n\n{text.strip()}" for name, text in folder.instructions]
    return "\n\n".join(part for part in (persona, where, *said, skills.text) if part)


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
