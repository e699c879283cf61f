"""Every verb with one line about it: what the overviews show without loading any verb."""

from __future__ import annotations

from nacre.cli.flags import HELP

ALIASES = {"session": "sessions", "s": "sessions", "ls": "list"}
DEFAULT = {"sessions": "list"}

SESSIONS = {
    "list": "every session, newest first (ls)",
    "show": "read a conversation",
    "search": "find words in every session, archived ones too",
    "tail": "the last records of a session; -f goes on as they are written",
    "fork": "begin a new session that shares a past",
    "rename": "give a session a title",
    "tag": "put tags on a session; `list --tag` finds it by them",
    "untag": "take tags off a session",
    "pin": "keep sessions: retention leaves them alone",
    "unpin": "take the pin off sessions",
    "archive": "close sessions; they can still be read",
    "unarchive": "open archived sessions again",
    "rm": "move sessions to the trash",
    "trash": "list, restore or empty the trash",
    "restore": "bring sessions back from the trash",
    "export": "a conversation as Markdown, HTML or JSON",
    "stats": "messages and tokens, per day, model and session",
    "verify": "read everything and say what is damaged",
    "repair": "set damaged bytes aside and mend a session",
    "summarize": "let a model summarise all but the last turn",
    "compact": "move what is no longer live out of the log",
    "migrate": "take in the sessions of an earlier agent",
    "du": "how much room sessions take",
    "gc": "remove what no session needs any more",
    "retain": "archive and remove old sessions, as it is set",
}

TOP = {
    "chat": "talk to the agent, or have it answer once",
    "sessions": "list, read, search, branch, move and mend sessions (s)",
    "serve": "run the agent as a daemon: channels, HTTP, a page",
    "setup": "install what is fetched only when wanted: a tiny model, embeddings",
    "doctor": "check the store, its permissions, free space and index",
    "config": "the settings: show, path, check",
    "skills": "what the agent was taught: list, check, new",
    "memory": "what the agent remembers: list, search, why, forget, edit",
    "trust": "which folders the agent may work in: add, list, revoke",
    "permissions": "what you allowed always in a folder: list, revoke, clear",
    "completion": "completion for bash, zsh or fish",
}

GROUPS = {"sessions": SESSIONS}
HIDDEN = ("__complete",)
MODULES = {"__complete": "complete"}

REF = """\
a session is named by
  telegram:42           its key; a unique beginning of it (4 characters or more)
  0190a3, …9f2c         the beginning or the end of its uid
  'Tax return'          its title
  @last, @last~2        the newest one; the second before that
  @3                    row 3 of the last list
  path/to/file.jsonl    its file
  telegram:42@17        … and a record of it, where a verb takes one
"""

_EXAMPLES = """\
examples:
  nacre sessions list                       what there is
  nacre sessions show @last                 read the newest conversation
  nacre sessions search 'database error'    find it again
  nacre doctor                              is everything in order?
"""

_SESSIONS_EXAMPLES = """\
examples:
  nacre sessions                            the list
  nacre s show @1                           read the first of it
  nacre s rm @2 && nacre s restore @last    into the trash and back
  nacre s verify --json | jq .ok            for scripts
"""


def overview() -> str:
    """What `nacre --help` prints."""
    return (
        "usage: nacre VERB …\n\nDurable sessions for AI agents.\n\n"
        f"verbs:\n{_table(TOP)}\n{_EXAMPLES}\n{HELP}"
        "  --version             the version\n\n`nacre VERB --help` says more about a verb.\n"
    )


def group_overview(group: str) -> str:
    """What `nacre sessions --help` prints."""
    return (
        f"usage: nacre {group} [VERB] …\n\n"
        "List, read, search, branch, move and mend sessions. Without a verb: the list.\n\n"
        f"verbs:\n{_table(GROUPS[group])}\n{REF}\n{_SESSIONS_EXAMPLES}\n{HELP}"
        f"\n`nacre {group} VERB --help` says more about a verb.\n"
    )


def _table(verbs: dict[str, str]) -> str:
    return "".join(f"  {name:<12}{summary}\n" for name, summary in verbs.items())
