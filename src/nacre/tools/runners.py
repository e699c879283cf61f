"""Commands that run other commands, or change how the next one is understood: no rule allows them."""

# ruff: noqa: SIM905 - lists of words read better as words

from __future__ import annotations

import re
from collections.abc import Sequence

_ALWAYS = frozenset(
    # programs that run the command they are given
    """
    at batch bwrap busybox chroot command crontab doas env eval exec expect fakeroot firejail flock gdb ionice ltrace
    nice nohup nsenter parallel runuser script setarch setpriv setsid socat ssh start-stop-daemon stdbuf strace su
    sudo systemd-run taskset tclsh time timeout toybox unbuffer unshare watch xargs xterm
    """.split()
    # languages and editors whose program is an argument or standard input
    + """
    awk dc ed emacs ex gawk gnuplot m4 mariadb mawk mysql nawk nvim octave psql screen sqlite3 tmux vi view vim
    """.split()
    # builtins that run something, or change what the next command means
    + """
    . alias bg bind builtin caller cd compgen complete compopt coproc declare dirs disown enable export fc fg getopts
    hash history jobs let local logout mapfile popd pushd read readarray readonly return set shift shopt source
    suspend times trap typeset ulimit umask unalias unset wait
    """.split()
)
_SHELLS = frozenset("ash bash csh dash fish ksh mksh rbash sh tcsh yash zsh".split())
_LANGUAGES = re.compile(
    r"(?:bun|deno|guile|irb|julia|lua(?:jit)?|node(?:js)?|osascript|perl|php|pwsh|pypy|python|r(?:script)?|ruby|swipl)[\d.]*"
)
_OPTIONS_FIRST = frozenset("7z 7za 7zr ar bsdtar gtar rar star tar unrar".split())
_FIND_ACTS = ("-exec", "-ok", "-delete", "-fprint", "-fls")
_VERSION = ("-V", "-VV", "--version")
_HARMLESS_PYTHON = frozenset((*_VERSION, "-B", "-E", "-I", "-O", "-OO", "-S", "-s", "-u"))
_HARMLESS_GIT = frozenset(("--no-pager", "-P", "--version", "-v", "--help", "-h"))
_LINES_OF_SED = re.compile(r"(?:\d+|\$)?(?:,(?:\d+|\$))?[dpq]")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "git": (
        "--config",
        "--exec",
        "--extcmd",
        "--ext-diff",
        "--open-files-in-pager",
        "--output",
        "--receive-pack",
        "--template",
        "--upload-pack",
    ),
    "man": ("-P", "-H", "--pager", "--html"),
    "printf": ("-v",),
    "rg": ("--pre", "--hostname-bin"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S", "-o"),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "tar": (
        "-F",
        "-I",
        "--checkpoint-action",
        "--info-script",
        "--new-volume-script",
        "--rmt-command",
        "--rsh-command",
        "--to-command",
        "--use-compress-program",
    ),
    "tcpdump": ("-z",),
    "test": ("-v", "-R"),
    "[": ("-v", "-R"),
    "zip": ("-TT", "--unzip-command"),
}
"""Options that name a program to run, a file to write, or a variable to set; long ones may be shortened."""
_GIT_RUNS = {
    "bisect": ("run",),
    "clone": ("-c", "-u"),
    "difftool": ("-x",),
    "grep": ("-O",),
    "rebase": ("-x",),
    "submodule": ("foreach",),
}


def always_asks(words: Sequence[str]) -> bool:
    """Tell whether a command must be asked about each time, whatever rules say."""
    name, rest = words[0].rpartition("/")[2], words[1:]
    if name == "tar" and rest:
        # Its first argument has options with or without a dash: `tar cIf PROGRAM …`.
        rest = [f"-{rest[0].removeprefix('-')}" if not rest[0].startswith("--") else rest[0], *rest[1:]]
    return (
        not name
        or name in _ALWAYS
        or (name in _SHELLS and (not rest or rest[0][:1] in {"-", "+", ""}))
        or (_LANGUAGES.fullmatch(name.lower()) is not None and _is_inline(name, rest))
        or (name == "find" and any(word.startswith(_FIND_ACTS) for word in rest))
        or (name == "sed" and not _is_plain_sed(rest))
        or (name == "git" and _git_is_led(rest))
        or any(_names(word, option) for option in _OPTIONS.get(name, ()) for word in rest)
    )


def has_options_first(program: str) -> bool:
    """Tell whether the first argument of a program has options without a dash, as in `tar cIf PROGRAM …`."""
    return program.rpartition("/")[2] in _OPTIONS_FIRST


def _is_inline(name: str, rest: Sequence[str]) -> bool:
    """Whether an interpreter takes its program from an argument or from standard input."""
    is_python = name.lower().startswith(("python", "pypy"))
    words = [word for at, word in enumerate(rest) if not is_python or {*rest[: at + 1]} - _HARMLESS_PYTHON]
    if not words:
        return not any(word in _VERSION for word in rest)
    if words[0] == "-m" and is_python:
        return False
    return (words[0][:1] in {"-", ""} and list(words) != ["--version"]) or words[0] in {"eval", "repl"}


def _is_plain_sed(rest: Sequence[str]) -> bool:
    words = list(rest)
    while words and words[0] in {"-n", "-E", "-r"}:
        words.pop(0)
    return bool(words) and bool(_LINES_OF_SED.fullmatch(words[0])) and not any(w.startswith("-") for w in words[1:])


def _git_is_led(rest: Sequence[str]) -> bool:
    words = list(rest)
    while words and words[0] in _HARMLESS_GIT:
        words.pop(0)
    if not words:
        return False
    verb, more = words[0], words[1:]
    starts = _GIT_RUNS.get(verb, ())
    runs = any(word.startswith(start) or _names(word, start) for start in starts for word in more)
    return verb.startswith("-") or verb == "filter-branch" or runs


def _names(word: str, option: str) -> bool:
    """Whether a word is an option: a long one may be shortened, a short one may stand among others."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > len("--x") and option.startswith(name)
    if word.startswith("--") or not word.startswith("-"):
        return False
    return word.startswith(option) or (len(option) == len("-x") and option[1] in word[1:])
