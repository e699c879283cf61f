"""What a sandbox lets its processes see and use, checked before anything runs."""

# ruff: noqa: SIM905 - lists of words read better as words

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from nacre.errors import ConfigError

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Programs and libraries: readable, never writable."""

SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives crypto-policies debian_version group host.conf hosts ld.so.cache localtime mime.types"
        " nsswitch.conf os-release passwd pki/ca-trust/extracted pki/tls/certs protocols resolv.conf services"
        " ssl/certs ssl/openssl.cnf timezone"
    ).split()
)
"""The parts of /etc that programs need and that hold no secret, not even for root."""

PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
OTHER_PROGRAMS = "/opt"
_KEPT = ("LANG", "LANGUAGE", "TZ")


class Limits(Struct, frozen=True, kw_only=True):
    """What one process may use: seconds of CPU, bytes of memory and of a file; and how many processes there may be."""

    cpu: int = 3600
    memory: int = 8 << 30
    file: int = 4 << 30
    processes: int = 4096


class Policy(Struct, frozen=True, kw_only=True):
    """Real paths only: `covered` are the hidden ones that would be visible otherwise, `frozen` those that may be read.

    The folders of both, as far as they are in the workspace, are in `held`. `bared` are folders in covered ones that
    may be read all the same, and `system` are those of programs and libraries.
    """

    workspace: str
    covered: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    bared: tuple[str, ...] = ()
    system: tuple[str, ...] = SYSTEM
    network: bool = False
    limits: Limits


def settle(  # noqa: PLR0913 - each is a choice of its own, by name
    workspace: str,
    *,
    hidden: Sequence[str],
    frozen: Sequence[str] = (),
    readable: Sequence[str],
    skills: Sequence[str] = (),
    system: tuple[str, ...] = SYSTEM,
    network: bool,
    limits: Limits,
) -> Policy:
    """Check the paths and make a policy of them; raises ConfigError where they cannot work.

    The folders in `skills` may be read as far as they exist, even in something hidden.
    """
    room = os.path.realpath(workspace)
    if not os.path.isdir(room):
        raise ConfigError(f"the workspace {workspace!r} is not a folder; create it")
    if room == "/" or _is_inside_any(room, (*system, "/etc", "/proc", "/sys", "/dev", "/boot")):
        raise ConfigError(f"the workspace {workspace!r} belongs to the system; choose a folder of your own")
    for path in readable:
        if not os.path.exists(path):
            what = f"{path!r} must be readable in the sandbox, but does not exist"
            raise ConfigError(f"{what}; create it, or leave it out")
    open_to_all = tuple(map(os.path.realpath, readable))
    shown = tuple(dict.fromkeys(os.path.realpath(path) for path in skills if os.path.isdir(path)))
    # What is hidden matters only where it would be seen otherwise.
    visible = (room, *system, *SETTINGS, *open_to_all, *shown)
    real = {_real(path, room) for path in hidden}
    covered = sorted(path for path in real if _is_inside_any(path, visible) and os.path.lexists(path))
    for path in (room, *open_to_all):
        cover = next((other for other in covered if inside(path, other)), None)
        if cover is not None:
            raise ConfigError(f"{path!r} must be visible in the sandbox, but {cover!r} must be hidden; separate them")
    # What is frozen matters only where something could be written otherwise.
    kept = sorted(
        path
        for path in {os.path.realpath(path) for path in frozen}
        if _below(path, room) and not _is_inside_any(path, covered) and os.path.exists(path)
    )
    return Policy(
        workspace=room,
        covered=tuple(path for path in covered if not any(_below(path, other) for other in covered)),
        frozen=tuple(kept),
        held=tuple(sorted({folder for path in (*covered, *kept) for folder in _between(room, path)})),
        readable=(*open_to_all, *(path for path in shown if not _is_inside_any(path, (room, *covered)))),
        bared=tuple(path for path in shown if _is_inside_any(path, covered)),
        system=system,
        network=network,
        limits=limits,
    )


def environment(home: str) -> dict[str, str]:
    """The clean environment: nothing of ours but the language and the time zone."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return {"LANG": "C.UTF-8", **kept, "PATH": ":".join(PROGRAMS), "HOME": home, "TMPDIR": home, "TERM": "dumb"}


def linked_folders(
    programs: Sequence[str] = PROGRAMS, elsewhere: str = OTHER_PROGRAMS, *, hidden: Sequence[str] = ()
) -> list[str]:
    """The folders in `elsewhere` that programs are linked from: what is needed of a place that holds anything.

    Those that are hidden, or in something hidden, are left out.
    """
    secret = [os.path.realpath(path) for path in hidden]
    found: set[str] = set()
    for folder in dict.fromkeys(map(os.path.realpath, programs)):
        with suppress(OSError), os.scandir(folder) as entries:
            # A link to its neighbour leads nowhere that the neighbour does not.
            links = [entry.path for entry in entries if entry.is_symlink() and "/" in os.readlink(entry.path)]
            real = map(os.path.realpath, links)
            found |= {os.path.relpath(path, elsewhere).split("/")[0] for path in real if _below(path, elsewhere)}
    folders = (f"{elsewhere}/{name}" for name in found)
    return sorted(path for path in folders if os.path.isdir(path) and not _is_inside_any(path, secret))


def fingerprint(policy: Policy) -> tuple[tuple[int, int], ...]:
    """Which files the policy's paths name just now; raises ConfigError if one is gone."""
    found = []
    for path in (policy.workspace, *policy.covered, *policy.frozen):
        try:
            status = os.lstat(path)
        except OSError as error:
            message = f"the sandbox needs {path!r}, which cannot be found ({error.strerror}); create it"
            raise ConfigError(message) from error
        found.append((status.st_dev, status.st_ino))
    return tuple(found)


def inside(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it."""
    return path == folder or _below(path, folder)


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/") and path != folder


def _is_inside_any(path: str, visible: Sequence[str]) -> bool:
    return any(inside(path, place) for place in visible)


def _real(path: str, room: str) -> str:
    """The real path of something to hide."""
    real = os.path.realpath(path)
    # The path and every folder on the way to it.
    parts = [os.path.abspath(path)]
    while parts[-1] != "/":
        parts.append(os.path.dirname(parts[-1]))
    if any(os.path.islink(part) and inside(os.path.realpath(os.path.dirname(part)), room) for part in parts):
        # A tool could turn the link elsewhere, and what is hidden would be what the tool wrote.
        raise ConfigError(f"the hidden path {path!r} goes through a link in the workspace; use {real!r}")
    if inside(real, room) and not os.path.lexists(real):
        raise ConfigError(f"the hidden path {path!r} does not exist, so a tool could create it; create it first")
    return real


def _between(room: str, path: str) -> list[str]:
    """The folders below the workspace on the way to `path`: were one renamed, its cover would go with it."""
    if not _below(path, room):
        return []
    parts = os.path.relpath(path, room).split("/")[:-1]
    return [os.path.join(room, *parts[: count + 1]) for count in range(len(parts))]
