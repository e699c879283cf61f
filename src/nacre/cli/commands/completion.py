"""nacre completion: what a shell needs to complete verbs, options and sessions, and the hidden verb that it calls."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator

from nacre.cli import verbs
from nacre.cli.failures import OK
from nacre.cli.loading import Command, load, parser_of
from nacre.cli.one_line import clean, cut, several
from nacre.cli.output import Out
from nacre.cli.store_choice import open_store
from nacre.cli.verbs import NAMES, Flags

_REFS = ("ref", "refs", "session")
_TAGS = ("tag", "tags")
_MAX_SESSIONS = 500

# Keys hold colons, at which bash breaks words: it is given the whole word, and only what follows the colon.
_BASH = r"""# nacre: completion for bash
_nacre() {
    local line=${COMP_LINE:0:COMP_POINT} words word cut value description width=0 replies=() shown=()
    read -ra words <<<"${line//\\/}"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[-1]}
    cut=""
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && cut=${word%"${word##*:}"}
    while IFS=$'\t' read -r value description; do
        [[ $value == "$word"* ]] || continue
        replies+=("$(printf %q "$value")")
        shown+=("$value${description:+  ($description)}")
    done < <("${words[0]}" __complete -- "${words[@]:1}" 2>/dev/null)
    if ((${#replies[@]} == 1)) || [[ $COMP_TYPE != 63 ]]; then
        COMPREPLY=("${replies[@]#"$cut"}")
    else
        COMPREPLY=("${shown[@]}")
    fi
}
complete -o nosort -o default -F _nacre nacre
"""

_ZSH = r"""#compdef nacre
# nacre: completion for zsh
_nacre() {
    local -a found
    local value description
    while IFS=$'\t' read -r value description; do
        found+=("${value//:/\\:}${description:+:$description}")
    done < <("${words[1]}" __complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#found} )); then
        _describe -V nacre found
    else
        _files
    fi
}
if [[ $funcstack[1] == _nacre ]]; then
    _nacre "$@"
else
    compdef _nacre nacre
fi
"""

_FISH = r"""# nacre: completion for fish
function __nacre_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] __complete -- $words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c nacre -f -k -a '(__nacre_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def _add_completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="shell to print the script for")


def _completion(args: Namespace, out: Out) -> int:
    if out.json:
        out.document({"shell": args.shell, "script": _SCRIPTS[args.shell]})
    else:
        out.write(_SCRIPTS[args.shell])
    return OK


completion = Command(
    _add_completion,
    _completion,
    ("bash", "nacre completion bash > ~/.local/share/bash-completion/completions/nacre"),
    ("zsh, in a directory of $fpath", "nacre completion zsh > ~/.zfunc/_nacre"),
    ("fish", "nacre completion fish > ~/.config/fish/completions/nacre.fish"),
)


# ---- the hidden verb


def _complete(args: Namespace, out: Out) -> int:
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    for value, description in completions(words or [""]):
        if value.isprintable():
            out.say(f"{value}\t{cut(clean(description), 60)}" if description else value)
    return OK


def completions(words: list[str]) -> Iterator[tuple[str, str]]:
    """Completions of the last word, each with a description."""
    flags = Flags()
    *before, last = words
    given = flags.take(before)
    while given[:1] == ["help"]:
        given = given[1:]
    verb, rest = _verb(given)
    if verb is None:
        table = verbs.GROUPS.get(verbs.ALIASES.get(given[0], given[0]), {}) if given else verbs.TOP
        yield from ((name, summary) for name, summary in table.items() if name.startswith(last))
        return
    if not rest:
        nested = {name.removeprefix(f"{verb} "): summary for name, summary in verbs.NESTED.items() if name != verb}
        yield from ((name, nested[name]) for name in nested if " " not in name and name.startswith(last))
    parser = parser_of("nacre", load(verb))
    if last.startswith("-"):
        options = {option: action.help or "" for action in _actions(parser) for option in action.option_strings}
        found = [*options.items(), *((flag, "") for flag in NAMES)]
        yield from ((name, what) for name, what in found if name.startswith(last) and name.startswith("--"))
    elif (action := _next_action(parser, rest)) is not None:
        yield from _values(action, last, flags, verb)


def _verb(given: list[str]) -> tuple[str | None, list[str]]:
    """The verb in the words so far, and its arguments."""
    if not given:
        return None, []
    first = verbs.ALIASES.get(given[0], given[0])
    if (nested := " ".join((first, *given[1:2]))) in verbs.NESTED:
        return nested, given[2:]
    if first not in verbs.GROUPS:
        return (first, given[1:]) if first in verbs.TOP else (None, [])
    second = verbs.ALIASES.get(given[1], given[1]) if len(given) > 1 else ""
    return (second, given[2:]) if second in verbs.GROUPS[first] else (None, [])


def _actions(parser: ArgumentParser) -> list[Action]:
    return parser._actions  # noqa: SLF001 - argparse has no public way


def _next_action(parser: ArgumentParser, rest: list[str]) -> Action | None:
    """The argument that the next word is a value of."""
    by_option = {option: action for action in _actions(parser) for option in action.option_strings}
    positionals = [action for action in _actions(parser) if not action.option_strings]
    waiting: Action | None = None
    for word in rest:
        if waiting is not None:
            waiting = None
        elif word in by_option:
            waiting = by_option[word] if by_option[word].nargs != 0 else None
        elif positionals and positionals[0].nargs not in {"+", "*"}:
            positionals.pop(0)
    return waiting or (positionals[0] if positionals else None)


def _values(action: Action, last: str, flags: Flags, verb: str) -> Iterator[tuple[str, str]]:
    """Values of an argument that begin with a word: its choices, sessions or tags."""
    if action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices if str(choice).startswith(last))
        return
    if action.dest not in (*_REFS, *_TAGS):
        return
    with open_store(Namespace(store=flags.store, agent=flags.agent)) as sessions:
        found: list[tuple[str, str]]
        if action.dest in _TAGS:
            # The tags that the newest sessions have.
            tags = {tag for info in sessions.list(limit=_MAX_SESSIONS) for tag in info.tags}
            found = [(tag, "") for tag in sorted(tags)]
        elif verb in {"restore", "trash"}:
            found = [(item.key, "in the trash") for item in sessions.list_trash()]
        elif verb == "quarantine":
            entries = sessions.quarantine()
            keys = dict.fromkeys(entry.key for entry in entries)
            found = [(key, "all entries of this session") for key in keys]
            found += [(entry.ref, entry.reason) for entry in entries]
        else:
            infos = sessions.page(which="all", prefix=last, limit=_MAX_SESSIONS).items
            found = [("@last", "the newest session")] if last else []
            found += [(info.key, info.title or several(info.messages, "message")) for info in infos]
    yield from ((value, what) for value, what in found if value.startswith(last))


# Its arguments are another command line, and are not parsed.
complete = Command(lambda _: None, _complete)
