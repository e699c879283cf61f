"""The page docs/reference.md, made from the signatures and docstrings of what `nacre` offers: `make reference`.

A new type needs its name in `nacre.__all__`, a docstring and an example in it; it is then among the values, or the
errors. A new function, or method of `Sessions`, is named in `GROUPS` too: that says where on the page it is. So is a
type that belongs next to the method that takes or gives it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec

import nacre
from nacre import errors
from nacre.history import list_page
from nacre.storage import file_store, protocol

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"

GROUPS = {
    "Opening": (
        "open Durability Sessions location is_durable is_shared close within with_internal_keys SessionStore Forgiving"
    ),
    "One session": "Session",
    "Messages": "Message ToolCall AnyMessage",
    "Writing": """
        add_message add_full_message add_messages submit append update set_summary set_history truncate_history
        set_meta set_labels
    """,
    "Operations": "AnyOperation AnyEntry AppendRecord SetMeta Summarise Truncate Rewind Pop Pending",
    "Reading": """
        get_history get_summary get_meta snapshot Snapshot Version is_at transcript Stored records Entry follow watch
        Watch exists status Status read read_generations View
    """,
    "Branches": "rewind pop clear fork",
    "Turns": "hold Lease",
    "Listing and searching": """
        list SessionInfo page Page Order Which search Hit make_vectors resolve add_alias aliases forget_aliases free_key
    """,
    "Archiving and erasing": """
        archive unarchive move_to_trash list_trash TrashedSession restore_from_trash erase_from_trash delete redact
        Redaction finish_redactions
    """,
    "Upkeep": """
        save verify Report Finding repair Receipt quarantine QuarantineEntry QuarantineRecord restore discard Settlement
        generation GenerationInfo disk_usage DiskUsage log_size key_of_file has_other_logs remove_leftovers Leftover
        journal Journal document Document load Load
    """,
    "Asyncio": " ".join(["open_async", *sorted((name for name in nacre.__all__ if name[:5] == "Async"), reverse=True)]),
}
"""The headings of the page, and what is below each."""

ALIASES = (nacre.sessions, list_page, protocol, file_store)
"""The modules that have names for unions and choices; the text below such a name says what it is for."""

WIDTH = 110

HEAD = """# Reference

Everything that `import nacre` offers.
`make reference` makes this page from the docstrings; in Python, `help(nacre.Sessions)` shows the same.

The tests run every example.
In each of them `sessions` is a store of its own, with one session:

```pycon
>>> sessions = nacre.open("my-agent")
>>> sessions.add_message("cli:1", "user", "What is nacre?")
2
>>> sessions.add_message("cli:1", "assistant", "Mother-of-pearl.")
3
```

Words that come up everywhere:

- A **session** is everything under one key, such as `cli:1`. The first write begins it.
- A **record** is one line of its log, and has a number. Messages are records; so are summaries, notes and usage.
- **Live** messages are those of the history now. What was truncated, summarised or rewound stays in the transcript.
- A **generation** is a session from its beginning to its archiving. A write to the key then begins the next one.
- **Meta** is the title of a session, its labels, and fields of your own.

The parts of this page:
"""


def page() -> str:
    """The whole page."""
    groups = grouped()
    parts = [HEAD, "".join(f"- [{title}](#{title.lower().replace(' ', '-')})\n" for title in groups)]
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        if title == "Errors":
            parts.append(f"```text\n{error_tree()}\n```\n")
        parts += map(describe, names)
    return "\n".join(parts)


def grouped() -> dict[str, list[str]]:
    """Every name, by the heading that it is below."""
    found = {title: names.split() for title, names in GROUPS.items()}
    named = {name for names in found.values() for name in names}
    values = [name for name in nacre.__all__ if name not in named and not is_error(getattr(nacre, name))]
    return {**found, "Values": values, "Errors": [name for name, value in vars(errors).items() if is_error(value)]}


def describe(name: str) -> str:
    """What the page says of one name."""
    value = find(name)
    if is_alias(value):
        meaning, text = read_alias(name)
        return f"### {name}\n\n```py\n{name} = {meaning}\n```\n\n{text}\n"
    prose, example = split_doc(value)
    is_method = name not in nacre.__all__
    parts = [f"### {'sessions.' if is_method else ''}{name}"]
    if call := how_to_call(f"{'sessions' if is_method else 'nacre'}.{name}", value):
        parts.append(f"```py\n{call}\n```")
    parts.append(prose)
    if example:
        parts.append(f"```pycon\n{example}\n```")
    if inspect.isclass(value) and value not in (nacre.Sessions, nacre.AsyncSessions, nacre.Forgiving):
        said = ((call_of_member(each, member), split_doc(member)[0]) for each, member in members(value))
        lines = [f"- `{call}`: {' '.join(prose.split())}" for call, prose in said]
        parts += ["\n".join(lines)] * bool(lines)
    return "\n\n".join(parts) + "\n"


def find(name: str) -> Any:
    """What a name on the page stands for: something that the package offers, or a method of `Sessions`."""
    return getattr(nacre, name) if name in nacre.__all__ else inspect.getattr_static(nacre.Sessions, name)


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, nacre.NacreError)


def is_alias(value: object) -> bool:
    return bool(get_args(value))


def split_doc(value: Any) -> tuple[str, str]:
    """The sentences of a docstring, each paragraph in one line, and the example in it."""
    prose, mark, example = (inspect.getdoc(value) or "").partition(">>> ")
    paragraphs = [" ".join(part.split()) for part in prose.strip().split("\n\n")]
    return "\n\n".join(paragraphs), f"{mark}{example}".strip()


def read_alias(name: str) -> tuple[str, str]:
    """What a name for a type stands for, and the text below it."""
    for module in ALIASES:
        body = ast.parse(inspect.getsource(module)).body
        for node, below in pairwise(body):
            if not isinstance(node, ast.Assign) or not isinstance(below, ast.Expr):
                continue
            if ast.unparse(node.targets[0]) == name:
                return ast.unparse(node.value).replace("'", '"'), str(ast.literal_eval(below.value))
    raise LookupError(f"{name} has no text below it, or is in none of {', '.join(one.__name__ for one in ALIASES)}")


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a type that are written in the package; a future has those of Python's."""
    if kind is nacre.Pending:
        return
    kinds = property | classmethod | type(members)
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("nacre."):
            found = vars(base).items()
            yield from ((name, value) for name, value in found if name[0] != "_" and isinstance(value, kinds))


def call_of_member(name: str, member: Any) -> str:
    if isinstance(member, property):
        return name
    function = member.__func__ if isinstance(member, classmethod) else member
    arguments = [
        re.sub(r": .*?(?: = (.*))?$", lambda found: f"={found[1]}" if found[1] else "", one)
        for one in arguments_of(function)
    ]
    return f"{name}({', '.join(arguments)})"


def how_to_call(name: str, value: Any) -> str:
    """The signature in one line or, if that is long, with a line for each argument; "" if it is not for callers."""
    returned = ""
    if isinstance(value, property):
        return name
    if inspect.isclass(value):
        if not issubclass(value, msgspec.Struct | nacre.Forgiving):
            return ""
        arguments = fields_of(value) if issubclass(value, msgspec.Struct) else arguments_of(value.__init__)
    else:
        arguments, returned = arguments_of(value), f" -> {value.__annotations__['return']}"
    line = f"{name}({', '.join(arguments)}){returned}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returned}"
    return line.replace("builtins.", "")


def arguments_of(function: Any) -> list[str]:
    """The arguments of a function as they are written, with the star that stands before those with names."""
    found: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        default = "" if one.default is one.empty else f" = {show(one.default)}"
        found.append(f"{stars}{one.name}: {one.annotation}{default}")
    return found


def fields_of(struct: type[msgspec.Struct]) -> list[str]:
    """The fields of a value, with their defaults."""
    parameters = inspect.signature(struct).parameters.values()
    found = ["*"] if parameters and all(one.kind is one.KEYWORD_ONLY for one in parameters) else []
    for field in msgspec.structs.fields(struct):
        makes = field.default_factory
        value = field.default if makes is msgspec.NODEFAULT else makes()
        default = "" if value is msgspec.NODEFAULT else f" = {show(value)}"
        found.append(f"{field.name}: {struct.__annotations__[field.name]}{default}")
    return found


def show(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def error_tree() -> str:
    """The tree of the errors, as their module draws it."""
    text = inspect.getdoc(errors) or ""
    return text[text.index("NacreError\n") :].strip()


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(page(), encoding="utf-8")
