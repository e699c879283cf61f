"""A shell command line taken apart into plain simple commands, or not at all.

This is not a shell parser. It understands a small, safe part of the language: words with quotes and backslashes,
joined by `&&`, `||`, `;`, `|` and line breaks. Everything else is refused (`NotPlain`), so that a rule is only ever
applied to words that bash and sh would run as they stand.
"""

# ruff: noqa: SIM905 - lists of words read better as words

from __future__ import annotations

import re
from collections.abc import Iterator
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
    last = ""
    for found in [*_tokens(line), "\n"]:
        if isinstance(found, Word):
            words.append(found)
        elif words:
            commands.append(tuple(words))
            words, last = [], found
        elif found != "\n":
            raise NotPlain(f"there is no command before {found!r}")
    if last not in {"\n", ";"} or not commands:
        raise NotPlain("the command line is not complete")
    for command in commands:
        _check_name(command[0])
    return commands


def _check_name(word: Word) -> None:
    if word.is_pattern and word.text != "[":
        raise NotPlain(f"the program {word.text!r} is a pattern")
    if not word.text or word.text.startswith(("%", "-")):
        raise NotPlain(f"{word.text!r} is not a program")
    if _ASSIGNMENT.match(word.text):
        raise NotPlain(f"{word.text!r} sets a variable")
    if word.text in _RESERVED:
        raise NotPlain(f"{word.text!r} is part of the shell's language")


def _tokens(line: str) -> Iterator[Word | str]:
    """Words and operators."""
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
            continue
        operator = next((one for one in _OPERATORS if line.startswith(one, at)), "")
        if operator:
            at += len(operator)
            yield operator
            continue
        word, at = _word(line, at)
        yield word


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
            piece, at = _double_quoted(line, at + 1)
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


def _double_quoted(line: str, at: int) -> tuple[str, int]:
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
_LONGEST_WRAPPED = 200
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
                    yield tuple(words[at + 1 : at + 1 + _LONGEST_WRAPPED])
