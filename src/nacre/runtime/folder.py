"""The folder that a conversation works in: what it tells the agent, and whether that is followed."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import string
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from nacre.config import Settings, flat
from nacre.runtime.permissions import readable_rules
from nacre.runtime.trust import TrustStore, find_root, why_broad
from nacre.skills.catalogue import Place, folders, project_places
from nacre.skills.skill_file import FILE

_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
_MAX_TEXT = 32_768
_MAX_FILES, _MAX_SKILL = 500, 8 << 20

Kind = Literal["instructions", "skill", "config"]

CONFIG_FILE = ".nacre/config.toml"
_LIMITS = (
    "agent.max_context_tokens",
    "agent.max_history_messages",
    "agent.max_steps",
    "anthropic.max_tokens",
    "memory.tokens",
)
_LISTS = {
    "permissions.ask": "ask",
    "permissions.deny": "deny",
    "skills.folders": "skill_folders",
    "skills.hide": "hidden_skills",
}
_MAY = "a folder may set agent.model, skills, permissions.ask, permissions.deny and lower limits"


# ---- the configuration that a folder brings


class FolderConfig(Struct, frozen=True, kw_only=True):
    """What a folder's configuration sets; `refused` has a line for everything that it may not set."""

    model: str = ""
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    skill_folders: tuple[str, ...] = ()
    hidden_skills: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    refused: tuple[str, ...] = ()


def parse_config(text: str, settings: Settings) -> FolderConfig:
    """Read a folder's configuration; `settings` are the user's, which it can only narrow."""
    try:
        tables = tomllib.loads(text)
    except ValueError as error:
        return FolderConfig(refused=(f"{CONFIG_FILE} is not followed: it is not TOML ({error})",))
    known: dict[str, Any] = {}
    limits: dict[str, int] = {}
    refused: list[str] = []
    for key, value in flat(tables):
        problem = ""
        if key == "agent.model":
            allowed = configured_models(settings)
            if isinstance(value, str) and value in allowed:
                known["model"] = value
            else:
                names = ", ".join(allowed) or "none"
                problem = f"{value!r} is not among the models that you configured ({names})"
        elif key in _LIMITS:
            if type(value) is not int or value < 1:
                problem = "it is a whole number above 0"
            elif value > (own := settings.number(key)):
                problem = f"{value} is more than your own limit of {own}"
            else:
                limits[key] = value
        elif key in _LISTS:
            is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
            problem = "" if is_list else "it is an array of texts"
            known[_LISTS[key]] = tuple(value) if is_list else ()
        else:
            problem = _MAY
        if problem:
            refused.append(f"{CONFIG_FILE}: {key} is not followed: {problem}")
    outside = [name for name in known.get("skill_folders", ()) if name.startswith("/") or ".." in name.split("/")]
    refused += [f"{CONFIG_FILE}: skills.folders: {name!r} is outside the folder and not followed" for name in outside]
    if outside:
        known["skill_folders"] = tuple(name for name in known["skill_folders"] if name not in outside)
    for kind in ("ask", "deny"):
        known[kind], problems = readable_rules(known.get(kind, ()))
        refused += [f"{CONFIG_FILE}: permissions.{kind}: {problem}; it is not followed" for problem in problems]
    return FolderConfig(**known, limits=limits, refused=tuple(refused))


def apply_config(config: FolderConfig, settings: Settings) -> Settings:
    """The user's settings, narrowed by a folder's; a model that a variable names is not replaced."""
    for key, value in config.limits.items():
        # `parse_config` compared it with the main agent's; another agent may have a lower one of its own.
        settings = settings.override(key, min(value, settings.number(key)))
    if config.model and "NACRE_AGENT_MODEL" not in os.environ:
        settings = settings.override("agent.model", config.model)
    return settings


def configured_models(settings: Settings) -> list[str]:
    """The models that the user's configuration names, for any agent."""
    agents = [settings.for_agent(name) for name in settings.agents]
    names = [own.text(key) for own in agents for key in ("agent.model", "memory.model")]
    names += [name for own in agents for name in own.texts("agent.fallback")]
    return list(dict.fromkeys(name for name in names if name))


# ---- the folder


class Source(Struct, frozen=True, kw_only=True):
    """Something in a folder that tells the agent what to do: a file, or the folder of a skill.

    `text` is what was read of a file when the digest was made, so that what was accepted is what is followed; of a
    skill it is the beginning of its SKILL.md, of which `unread` characters are left out, and `files` counts its files.
    `problem` says why it cannot be followed at all.
    """

    kind: Kind
    path: Path
    digest: str = ""
    text: str = ""
    unread: int = 0
    files: int = 1
    problem: str = ""


class Folder(Struct, frozen=True, kw_only=True):
    """A folder to work in, by its real path; `root` is its git root, else the folder itself.

    `followed` are the sources that the user accepted, `pending` those that are new or changed since, and
    are not followed. Both are empty while the folder is not trusted: then nothing of it is read.
    """

    path: Path
    root: Path
    is_trusted: bool = False
    followed: tuple[Source, ...] = ()
    pending: tuple[Source, ...] = ()
    config: FolderConfig = FolderConfig()

    @property
    def instructions(self) -> list[tuple[str, str]]:
        """What the folder says to agents: the name of each file from the root, and its text."""
        return [
            (str(source.path.relative_to(self.root)), source.text)
            for source in self.followed
            if source.kind == "instructions" and source.text.strip()
        ]

    def follows(self, skill: Path) -> bool:
        """Tell whether a skill of the folder was accepted."""
        return any(source.kind == "skill" and source.path == skill for source in self.followed)

    def is_current(self, skill: Path) -> bool:
        """Tell whether a skill has the files that were accepted; one that is not the folder's own is not looked at."""
        accepted = [source for source in self.followed if source.kind == "skill" and source.path == skill]
        return all(_read_skill(skill, self.root).digest == source.digest for source in accepted)

    @property
    def notes(self) -> list[str]:
        """Notices about it, a line each."""
        if not self.is_trusted:
            broad = why_broad(self.root)
            reason = f" ({broad})" if broad else ""
            how = f"nacre trust {shell_word(self.root)}"
            return [f"{_visible(self.root)} is not trusted{reason}: files can only be read; to trust it: {how}"]
        found = [f"{self._name(source)} is not followed: {source.problem}" for source in self.pending if source.problem]
        changed = [self._name(source) for source in self.pending if not source.problem]
        if changed:
            verb = "is" if len(changed) == 1 else "are"
            names = ", ".join(changed)
            found.append(
                f"{names} {verb} new or changed and not followed; to accept: nacre trust {shell_word(self.path)}"
            )
        return [*found, *self.config.refused]

    def _name(self, source: Source) -> str:
        return _visible(source.path.relative_to(self.root))


def shell_word(path: Path) -> str:
    """A path as a word that can be pasted into a shell; if it has a line break, in the form $'…'."""
    text = str(path)
    if text.isprintable():
        return shlex.quote(text)
    plain = b"/._- " + string.ascii_letters.encode() + string.digits.encode()
    safe = (chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in os.fsencode(text))
    return f"$'{''.join(safe)}'"


def _visible(path: Path) -> str:
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(path))


def open_folder(path: Path, settings: Settings, *, is_trusted: bool = False, trust: TrustStore | None = None) -> Folder:
    """The folder at a path, with what is followed of it; `is_trusted` follows all of it, for this run only."""
    real = Path(os.path.realpath(path))
    root = find_root(real)
    if is_trusted:
        accepted = None
    else:
        found = (trust or TrustStore()).covering(root)
        if found is None:
            return Folder(path=real, root=root)
        accepted = found[1].accepted
    everything = all_sources(real, root, settings, accepted=accepted)
    followed = [source for source in everything if _is_accepted(source, accepted)]
    texts = (source.text for source in followed if source.kind == "config")
    return Folder(
        path=real,
        root=root,
        is_trusted=True,
        followed=tuple(followed),
        pending=tuple(source for source in everything if not _is_accepted(source, accepted)),
        config=next((parse_config(text, settings) for text in texts), FolderConfig()),
    )


def all_sources(
    path: Path, root: Path, settings: Settings, *, accepted: Mapping[str, str] | None = None
) -> list[Source]:
    """The sources of a folder, with the skills in folders that its configuration names, if that is accepted."""
    found = sources(path, root)
    texts = [source.text for source in found if source.kind == "config" and _is_accepted(source, accepted)]
    more = [root / name for text in texts for name in parse_config(text, settings).skill_folders]
    return found + [skill for skill in _skills(root, more) if skill not in found]


def _is_accepted(source: Source, accepted: Mapping[str, str] | None) -> bool:
    """Tell whether a source is followed; None accepts everything that can be."""
    return not source.problem and (accepted is None or accepted.get(str(source.path)) == source.digest)


def sources(path: Path, root: Path) -> list[Source]:
    """Everything in a folder that would tell an agent what to do, whether accepted or not; runs nothing."""
    places = [root] if path == root else [root, path]
    found: list[Source] = []
    for place in places:
        name = next((name for name in _INSTRUCTIONS if os.path.lexists(place / name)), None)
        if name is not None:
            found.append(_read("instructions", place / name, root))
    found += _skills(root, [found.folder for place in places for found in project_places(place)])
    if os.path.lexists(root / CONFIG_FILE):
        found.append(_read("config", root / CONFIG_FILE, root))
    return found


def digests(found: Iterable[Source]) -> dict[str, str]:
    """The digests of sources by path, as trust keeps them."""
    return {str(source.path): source.digest for source in found if not source.problem}


def _read(kind: Kind, path: Path, root: Path) -> Source:
    """A file and its digest; a link is followed only inside the folder: it must not show what is elsewhere."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(root):
        return Source(kind=kind, path=path, problem="it is a link that leads out of the folder")
    try:
        fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return Source(kind=kind, path=path, problem="it is not a regular file")
            data = file.read(_MAX_TEXT + 1)
    except OSError as error:
        return Source(kind=kind, path=path, problem=f"it cannot be read ({error.strerror})")
    if len(data) > _MAX_TEXT and kind == "config":
        return Source(kind=kind, path=path, problem=f"it has more than {_MAX_TEXT:,} bytes")
    text = data[:_MAX_TEXT].decode("utf-8", "replace")
    if len(data) > _MAX_TEXT:
        text += f"\n[only the first {_MAX_TEXT:,} bytes are shown]"
    return Source(kind=kind, path=path, digest=hashlib.sha256(data).hexdigest(), text=text)


def _skills(root: Path, places: Iterable[Path]) -> list[Source]:
    found: dict[Path, Source] = {}
    for place in places:
        for skill in folders(Place(whose="project", folder=place)):
            found.setdefault(skill, _read_skill(skill, root))
    return list(found.values())


def _read_skill(skill: Path, root: Path) -> Source:
    """A skill with a digest of all its files, and what its SKILL.md said when that was made."""
    if not Path(os.path.realpath(skill)).is_relative_to(root):
        return Source(kind="skill", path=skill, problem="it is a link that leads out of the folder")
    if (skill / FILE).is_symlink():
        # Links are not part of the digest: what it leads to could change unseen.
        return Source(kind="skill", path=skill, problem=f"its {FILE} is a link")
    digest, size, read, instructions = hashlib.sha256(), 0, 0, ""
    for count, file in enumerate(_files(skill)):
        try:
            with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    continue
                data = stream.read(_MAX_SKILL + 1)
        except OSError as error:
            return Source(kind="skill", path=skill, problem=f"{_visible(file)} cannot be read ({error.strerror})")
        size += len(data)
        if size > _MAX_SKILL or count >= _MAX_FILES:
            limits = f"{_MAX_FILES} files or {_MAX_SKILL >> 20} MB"
            return Source(kind="skill", path=skill, problem=f"it has more than {limits}")
        name = os.fsencode(file.relative_to(skill))
        digest.update(b"%d %b %d " % (len(name), name, len(data)) + data)
        read += 1
        if file == skill / FILE:
            instructions = data.decode("utf-8", "replace")
    text = instructions[:_MAX_TEXT]
    unread = len(instructions) - len(text)
    return Source(kind="skill", path=skill, digest=digest.hexdigest(), text=text, unread=unread, files=read)


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder that are no links, in a fixed order."""
    for here, below, names in os.walk(folder):
        below.sort()
        yield from (Path(here, name) for name in sorted(names) if not Path(here, name).is_symlink())
