"""nacre completion: what a shell needs to complete verbs, options and sessions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.failures import OK
from nacre.cli.output import Out

EXAMPLES = (
    ("bash", "nacre completion bash > ~/.local/share/bash-completion/completions/nacre"),
    ("zsh, in a directory of $fpath", "nacre completion zsh > ~/.zfunc/_nacre"),
    ("fish", "nacre completion fish > ~/.config/fish/completions/nacre.fish"),
)

# Keys hold colons, at which bash breaks words: it must be told the whole word, and gets only what is behind the colon.
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


def add(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="shell to print the script for")


def run(args: Namespace, out: Out) -> int:
    if out.json:
        out.document({"shell": args.shell, "script": _SCRIPTS[args.shell]})
    else:
        out.write(_SCRIPTS[args.shell])
    return OK
