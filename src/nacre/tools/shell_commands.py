"""Shell command lines as permission rules see them: plain simple commands, or nothing that a rule may allow.

This is not a shell parser. It understands a small, safe part of the language: words with quotes and backslashes,
joined by `&&`, `||`, `;`, `|` and line breaks. Everything else is refused (`NotPlain`), so that a rule is only ever
applied to words that bash and sh would run as they stand. Commands that run other commands, or change how the next
one is understood, are allowed by no rule (`always_asks`).
"""

# ruff: noqa: SIM905 - lists of words read better as words

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import NamedTuple

_OPERATORS = ("&&", "||", ";", "|", "\n")
_GLOB = "*?[~"
"""Characters that make bash replace an unquoted word by others."""
_NEVER = "()<>&{}`$#"
"""Unquoted, these begin something that is not a plain word; `#` is fine inside one."""
_ESCAPED_IN_QUOTES = '$`"\\'
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[.*\])?\+?=", re.DOTALL)
_RESERVED = frozenset(
    "! case coproc do done elif else esac fi for function if in select then time until while [[ ]]".split()
)


class NotPlain(Exception):
    """A command line that cannot be judged; the message says why."""


class Word(NamedTuple):
    """A word of a command; `is_pattern` if the shell may replace it by others (`*.py`, `~/x`)."""

    text: str
    is_pattern: bool = False


def split(line: str) -> list[tuple[Word, ...]]:
    """The simple commands of a line, in order; raises NotPlain."""
    commands: list[tuple[Word, ...]] = []
    words: list[Word] = []
    last, at = "", 0
    while at <= len(line):
        if line[at : at + 1] in {" ", "\t"}:
            at += 1
            continue
        operator = "\n" if at == len(line) else next((one for one in _OPERATORS if line.startswith(one, at)), "")
        if not operator:
            word, at = _word(line, at)
            words.append(word)
            continue
        at += len(operator)
        if words:
            commands.append(tuple(words))
            words, last = [], operator
        elif operator != "\n":
            raise NotPlain(f"there is no command before {operator!r}")
    if last not in {"\n", ";"} or not commands:
        raise NotPlain("the command line is not complete")
    for (text, is_pattern), *_ in commands:
        if is_pattern and text != "[":
            raise NotPlain(f"the program {text!r} is a pattern")
        if not text or text.startswith(("%", "-")):
            raise NotPlain(f"{text!r} is not a program")
        if _ASSIGNMENT.match(text):
            raise NotPlain(f"{text!r} sets a variable")
        if text in _RESERVED:
            raise NotPlain(f"{text!r} is part of the shell's language")
    return commands


def _word(line: str, at: int) -> tuple[Word, int]:
    """The word that begins at a place, and where it ends."""
    text, is_pattern, start = "", False, at
    while at < len(line):
        character = line[at]
        if character in " \t\n;|" or line.startswith("&&", at):
            break
        if character == "'":
            end = line.find("'", at + 1)
            if end < 0:
                raise NotPlain("a quote is not closed")
            text += _printable(line[at + 1 : end])
            at = end + 1
        elif character == '"':
            piece, at = _read_double_quotes(line, at + 1)
            text += piece
        elif character == "\\":
            if at + 1 == len(line) or line[at + 1] == "\n":
                raise NotPlain("a backslash at the end of a line")
            text += _printable(line[at + 1])
            at += 2
        elif character in _NEVER and not (character == "#" and at > start):
            raise NotPlain(f"{character!r} is more than a plain command")
        else:
            # Outside quotes only what every shell takes for a plain character in every locale.
            if not character.isascii() and not character.isalnum():
                raise NotPlain(f"the character {character!r} outside quotes")
            text += _printable(character)
            is_pattern = is_pattern or character in _GLOB
            at += 1
    return Word(text, is_pattern), at


def _read_double_quotes(line: str, at: int) -> tuple[str, int]:
    """The text up to the closing double quote, and where it ends."""
    text = ""
    while at < len(line):
        character, after = line[at], line[at + 1 : at + 2]
        if character == '"':
            return text, at + 1
        if character == "\\" and after == "\n":
            raise NotPlain("a backslash at the end of a line")
        if character == "\\" and after and after in _ESCAPED_IN_QUOTES:
            text, at = text + after, at + 2
            continue
        if character == "`" or (character == "$" and after != '"'):
            raise NotPlain(f"{character!r} is more than a plain command")
        text, at = text + _printable(character), at + 1
    raise NotPlain("a quote is not closed")


def _printable(text: str) -> str:
    """A text without characters that are invisible, drive a terminal or end a line; a tab and a line feed may be."""
    for character in text:
        if not character.isprintable() and character not in "\t\n":
            raise NotPlain(f"the character {character!r}")
    return text


_LOOSE = re.compile(r"[;&|\n(){}`<>]|\$\(")
_WRAPPING = frozenset(
    "builtin busybox command doas env eval exec ionice nice nohup setsid stdbuf sudo time timeout watch xargs".split()
)
_MAX_WRAPPED = 200
"""How many words of a command after a wrapper are looked at; no rule has as many."""
_EXECUTING = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def loose_commands(line: str) -> Iterator[tuple[str, ...]]:
    """What may be a simple command anywhere in a line, however it is written; for rules that forbid.

    It looks into substitutions, groups, quotes and after wrappers. It can be deceived, and is a courtesy: the sandbox
    is what confines a command.
    """
    for text in {line, *re.findall(r'"((?:[^"\\]|\\.)*)"', line), *re.findall(r"'([^']*)'", line)}:
        for segment in _LOOSE.split(text.replace("\\\n", "")):
            words = [re.sub(r"[\"'\\]", "", word) for word in segment.split()]
            words = list(dropwhile(lambda word: _ASSIGNMENT.match(word) or word in _RESERVED or word == "$", words))
            if not words:
                continue
            yield tuple(words)
            for at, word in enumerate(words[:-1]):
                if words[0].rpartition("/")[2] in _WRAPPING or word in _EXECUTING:
                    yield tuple(words[at + 1 : at + 1 + _MAX_WRAPPED])


# ---- commands that run other commands, or change how the next one is understood

_ALWAYS_ASK = frozenset(
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
_FIND_ACTIONS = ("-exec", "-ok", "-delete", "-fprint", "-fls")
_VERSION = ("-V", "-VV", "--version")
_HARMLESS_PYTHON = frozenset((*_VERSION, "-B", "-E", "-I", "-O", "-OO", "-S", "-s", "-u"))
_HARMLESS_GIT = frozenset(("--no-pager", "-P", "--version", "-v", "--help", "-h"))
_LINES_OF_SED = re.compile(r"(?:\d+|\$)?(?:,(?:\d+|\$))?[dpq]")
_OPTIONS = {
    "fd": "-x -X --exec --exec-batch",
    "fdfind": "-x -X --exec --exec-batch",
    "git": "--config --exec --extcmd --ext-diff --open-files-in-pager --output --receive-pack --template --upload-pack",
    "man": "-P -H --pager --html",
    "printf": "-v",
    "rg": "--pre --hostname-bin",
    "rsync": "-e --rsh --rsync-path",
    "scp": "-S -o",
    "sort": "--compress-program",
    "split": "--filter",
    "tar": "-F -I --checkpoint-action --info-script --new-volume-script --rmt-command --rsh-command --to-command"
    " --use-compress-program",
    "tcpdump": "-z",
    "test": "-v -R",
    "[": "-v -R",
    "zip": "-TT --unzip-command",
}
"""Options that name a program to run, a file to write, or a variable to set; long ones may be shortened."""
_GIT_RUNS = {"bisect": "run", "clone": "-c -u", "difftool": "-x", "grep": "-O", "rebase": "-x", "submodule": "foreach"}


def always_asks(words: Sequence[str]) -> bool:
    """Tell whether a command must be asked about each time, whatever rules say."""
    name, rest = words[0].rpartition("/")[2], words[1:]
    if name == "tar" and rest:
        # Its first argument has options with or without a dash: `tar cIf PROGRAM …`.
        rest = [f"-{rest[0].removeprefix('-')}" if not rest[0].startswith("--") else rest[0], *rest[1:]]
    return (
        not name
        or name in _ALWAYS_ASK
        or (name in _SHELLS and (not rest or rest[0][:1] in {"-", "+", ""}))
        or (_LANGUAGES.fullmatch(name.lower()) is not None and _is_inline(name, rest))
        or (name == "find" and any(word.startswith(_FIND_ACTIONS) for word in rest))
        or (name == "sed" and not _is_plain_sed(rest))
        or (name == "git" and _git_runs_program(rest))
        or any(_is_option(word, option) for option in _OPTIONS.get(name, "").split() for word in rest)
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


def _git_runs_program(rest: Sequence[str]) -> bool:
    words = list(rest)
    while words and words[0] in _HARMLESS_GIT:
        words.pop(0)
    if not words:
        return False
    verb, more = words[0], words[1:]
    starts = _GIT_RUNS.get(verb, "").split()
    runs = any(word.startswith(start) or _is_option(word, start) for start in starts for word in more)
    return verb.startswith("-") or verb == "filter-branch" or runs


def _is_option(word: str, option: str) -> bool:
    """Whether a word is an option: a long one may be shortened, a short one may stand among others."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > len("--x") and option.startswith(name)
    if word.startswith("--") or not word.startswith("-"):
        return False
    return word.startswith(option) or (len(option) == len("-x") and option[1] in word[1:])
