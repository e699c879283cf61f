"""The question whether a folder is trusted, for chat and editors: what is said, and what of the folder is shown."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from nacre.config import Settings
from nacre.render.text import visible, visible_line
from nacre.runtime.folder import Source, all_sources, digests, open_folder
from nacre.runtime.trust import TrustStore, find_root, why_broad
from nacre.skills.skill_file import FILE

_MAX_CHARACTERS, _MAX_LINES = 4_000, 100


class Shown(Struct, frozen=True, kw_only=True):
    """A source as a person is shown it, safe to print.

    `about` is a line about it, `text` the beginning of what `file` says, and `rest` a line about what is left out.
    """

    about: str
    file: str
    text: str
    rest: str = ""


class TrustQuestion(Struct, frozen=True, kw_only=True):
    """What a person is asked, in lines that are safe to print; after a yes the store is to accept `digests` at `place`.

    The digests are those of what is shown, so that what changes while the question is open is not accepted.
    """

    is_new: bool
    root: str
    about: tuple[str, ...]
    shown: tuple[Shown, ...]
    place: Path
    digests: dict[str, str]


def find_trust_question(path: Path, settings: Settings, store: TrustStore) -> TrustQuestion | None:
    """What to ask about a folder: it is new, or it tells the agent something new; None if there is nothing to ask."""
    root = find_root(path)
    name = visible_line(str(root))
    covering = store.covering(root)
    if covering is None:
        if why_broad(root):
            # It is trusted only by name, and the agent says so at its start.
            return None
        place, found = root, all_sources(path, root, settings)
        what = "these instructions of the folder:" if found else "AGENTS.md if there is one."
        about: tuple[str, ...] = (
            f"{name} is new to nacre.",
            "If you trust it, the agent can change files and run commands here (it asks before each),",
            f"and it follows {what}",
        )
    else:
        place, _ = covering
        pending = open_folder(path, settings, trust=store).pending
        found = [source for source in pending if not source.problem]
        if not found:
            return None
        about = (f"Instructions in {name} are new or changed since you trusted it:",)
    return TrustQuestion(
        is_new=covering is None,
        root=name,
        about=about,
        shown=tuple(_show(source, root) for source in found),
        place=place,
        digests=digests(found),
    )


def describe(source: Source, root: Path) -> str:
    """One line about a source."""
    name = visible_line(str(source.path.relative_to(root)))
    if source.problem:
        return f"{name} (not followed: {visible_line(source.problem)})"
    skill = "skill" if source.files == 1 else f"skill of {source.files:,} files"
    kind = {"instructions": f"{len(source.text):,} characters", "skill": skill, "config": "settings"}[source.kind]
    return f"{name} ({kind})"


def _show(source: Source, root: Path) -> Shown:
    file = visible_line(str(source.path / FILE if source.kind == "skill" else source.path))
    text = "\n".join(source.text[:_MAX_CHARACTERS].split("\n")[:_MAX_LINES])
    hidden = len(source.text) - len(text) + source.unread
    rest = f"… {hidden:,} more characters in {file}" if hidden else ""
    return Shown(about=describe(source, root), file=file, text=visible(text), rest=rest)
