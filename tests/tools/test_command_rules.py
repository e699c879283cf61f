"""Command lines under allow rules, judged by real shells: whatever is allowed runs nothing but what the rules name.

The oracle is not our parser. Every line that we allow is run by bash and by sh, in an empty directory, with a PATH of
programs that only write down what they were called with; programs that run others (env, xargs, find, …) are the real
ones. What was called is compared with the rules, word by word, and nothing may have been written.
"""

# ruff: noqa: E501, Q003 - a table of command lines

from __future__ import annotations

import random
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacre.tools.permission_rules import Judge, Rules, parse_rule

EXACT = [["git", "status"], ["make", "all"], ["ls"], ["echo", "a b"], ["grep", "x;y", "f"], ["test", "-f", "a"]]
EXACT += [["git", "log", "--oneline", "-3"]]
OPEN = [["npm", "run"], ["git", "log"], ["cat"], ["wc", "-l"], ["tar", "cf"], ["zip"], ["sort"], ["make"]]
RUNNERS = [
    "env",
    "find",
    "git",
    "nice",
    "nohup",
    "python3",
    "sh",
    "bash",
    "timeout",
    "xargs",
    "sed",
    "awk",
    "printf",
    "tar",
]
"""Allowed with any words, so that only the list of commands which always ask stands in the way."""
RULES = [
    "shell(git status)",
    "shell(make all)",
    "shell(ls)",
    "shell(echo 'a b')",
    "shell(grep 'x;y' f)",
    "shell(test -f a)",
    "shell(git log --oneline -3)",
    *(f"shell({' '.join(words)} *)" for words in OPEN),
    *(f"shell({name} *)" for name in RUNNERS),
]
JUDGE = Judge(Rules(allow=tuple(map(parse_rule, RULES))))
STUBS = [
    "git",
    "make",
    "ls",
    "grep",
    "npm",
    "cat",
    "wc",
    "evil",
    "rm",
    "curl",
    "tee",
    "status",
    "log",
    "tar",
    "zip",
    "sort",
]
REAL = ["env", "find", "nice", "nohup", "timeout", "xargs", "sed", "awk", "python3", "sh", "bash", "busybox", "setsid"]
HOSTILE_NAMES = ["--checkpoint=1", "--checkpoint-action=exec=evil", "-exec", "-c", "--output=out", "-o", "evil;x"]
"""Files that lie in the folder, so that `*` or `[-]c` becomes an option."""
STUB = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" "$(printf '\\036')" >> 'LOG'
"""

PLAIN = ["git status", "npm run build", "npm run 'a b' \"c d\"", "ls", "cat f g", "make all", "git log --oneline -3"]
JOINS = ["{c} && {c}", "{c} || {c}", "{c}; {c}", "{c} | {c}", "{c}\n{c}", "{c};", " {c} ", "{c} |\n{c}", "\n\n{c}\n"]
HOSTILE = [
    # another command behind, before or beside an allowed one
    "{c}; {e}", "{c} && {e}", "{c} || {e}", "{c} | {e}", "{c}\n{e}", "{e}; {c}", "{c} & {e}", "{e} & {c}", "{c} |& {e}",
    "{c} &", "{c};{e}", "{c}&&{e}", "{c}|{e}", "{c}\r\n{e}", "{c}\r{e}", "{c}\v{e}", "{c}\f{e}", "{c}\x00{e}", "! {c}",
    # substitution
    "{c} $({e})", "{c} `{e}`", "{c} \"$({e})\"", "{c} \"`{e}`\"", "{c} <({e})", "{c} >({e})", "{c} ${{x:-$({e})}}",
    "{c} \"${{x:=`{e}`}}\"", "{c} $(( $({e}) ))", "$({e})", "`{e}`", "{c} $'\\n{e}'", "{c} $\"$({e})\"", "{c} \"a$({e})b\"",
    "{c} '$' $({e})", "{c} \\\\$({e})", "{c} \\\\`{e}`", "{c} \"\\\\$({e})\"", "{c} \"\\\\\\\\`{e}`\"",
    # redirection and heredocs
    "{c} > out", "{c} >> out", "{c} 2> out", "{c} &> out", "{c} >| out", "{c} <> out", "> out {c}", "{c} >out{e}",
    "cat <<X > out\n{e}\nX", "cat <<X\n$({e})\nX", "cat <<<\"$({e})\"", "cat << 'X' | sh\n{e}\nX", "{c} 3>out",
    # assignments, functions, groups, the language
    "A=1 {c}", "PATH=. {c}", "A=$({e}) {c}", "A+=1 {c}", "a[$({e})]=1 {c}", "{c} && A=1", "git() {{ {e}; }}; git status",
    "function git {{ {e}; }}; git status", "( {e} )", "{{ {e}; }}", "({c})", "if {e}; then {c}; fi", "while {e}; do {c}; done",
    "for x in a; do {e}; done", "case x in x) {e};; esac", "[[ -n $({e}) ]]", "coproc {e}", "time {e}", "{c} && (cd / && {e})",
    "select x in a; do {e}; done", "until {c}; do {e}; done", "{c} && {{ {e}; }}", "[[ a ]] && {e}", "((x=$({e})))",
    # wrappers
    "env {e}", "env A=1 {e}", "env -S '{e}'", "xargs {e}", "echo x | xargs {e}", "find . -exec {e} \\;", "find . -exec {e} +",
    "find . -execdir {e} \\;", "find . -ok {e} \\;", "find . -delete", "find . -fprint out", "find . -fprintf out x",
    "sh -c '{e}'", "bash -c '{e}'", "bash -lc '{e}'", "bash +x -c '{e}'", "bash --norc -c '{e}'", "/bin/sh -c '{e}'",
    "sh -s <<< '{e}'", "ls | sh", "nice {e}", "nice -n 5 {e}", "nohup {e}", "timeout 5 {e}", "setsid {e}", "command {e}",
    "builtin eval '{e}'", "eval '{e}'", "eval {e}", "exec {e}", ". ./f", "source ./f", "sudo {e}", "busybox sh -c '{e}'",
    "python3 -c 'open(\"out\",\"w\")'", "python3 -Ic 'open(\"out\",\"w\")'", "python3 -u -c 'open(\"out\",\"w\")'",
    "python3 - <<X\nopen('out','w')\nX", "awk 'BEGIN {{ system(\"{e}\") }}'", "sed -n '1e {e}' /etc/passwd",
    "sed 's/^/{e}/e' /etc/passwd", "sed -n 'w out' /etc/passwd", "sed -i s/a/b/ f", "trap '{e}' EXIT", "alias git=evil; git status",
    "hash -p ./evil git; git status", "printf -v PATH .; git status", "cd / && {c}", "export PATH=.; {c}", "set -x; {c}",
    "test -v 'a[$({e})]'", "[ -v 'a[$({e})]' ]", "printf -v 'a[$({e})]' x", "read 'a[$({e})]' < f", "unset 'a[$({e})]'",
    "let 'a[$({e})]=1'", "declare 'a[$({e})]=1'", "git -c alias.x='!{e}' x", "git --exec-path=. status", "git -C / status",
    "git -calias.x='!{e}' x", "enable -f ./x y", "jobs -x {e}", "wait -p 'a[$({e})]'", "command -p {e}", "nohup -- {e}",
    # words that are not what they look like
    "{c}\\\n; {e}", "gi\\\nt status; {e}", "git\\ status", "'git status'", "git  'status;{e}'; {e}", "git status # ; {e}\n{e}",
    "# {c}\n{e}", "git\u00a0status; {e}", "git\u2003status\u2028{e}", "git status\u0085{e}", "g*t status", "./git status",
    "~/git status", "{{git,evil}} status", "git st{{atus,x}}", "git stat?s", "git status;;{e}", "git status ;& {e}",
    "%1", "-c {e}", "git 'status' \"\" ", "git status\\", "git 'status", "git \"status", "npm run `{e}`", "npm run a;{e}",
    "npm run a&{e}", "npm run a|{e}", "npm run a\n{e}", "npm run 'a;b'", "npm run $HOME", "npm run \"$HOME\"", "npm run",
    "cat f > out", "cat f | tee out", "wc", "wc -c f", "ls -l", "ls;ls > out", "echo a b", "make all evil", "make  all;{e}",
    "npm run {{a,b}}", "npm run \\$({e})", "npm run '$({e})' $({e})", "echo 'a b' $({e})", "grep 'x;y' f; {e}", "grep x;y f",
    "{c} \\; {e}", "{c} \\| {e}", "{c} '|' {e}", "{c} \"&&\" {e}", "npm run \\\n{e}", "npm run a\\\\\n{e}", "npm run 'a\\' ; {e} '",
    # options that run a program or write a file: alone, shortened, in a cluster, without a dash, as a setting
    "git rebase -fx '{e}' HEAD", "git difftool -yx '{e}'", "git grep -nO'{e}' foo", "git clone -u '{e}' . x", "git log -p",
    "git clone -c core.fsmonitor='{e}' . x", "git archive -o out HEAD", "git log --outp=out", "git log 'a' '--output=out'",
    "tar cIf '{e}' x.tar a", "tar -cIf '{e}' x.tar a", "tar cf x.tar a -I '{e}'", "tar cf x.tar --to-c='{e}'", "tar cFf '{e}' x",
    "zip -qTT '{e}' x.zip a", "zip x.zip a -T -TT '{e}'", "npm run build --script-shell=./evil", "sort -o out a", "sort a -oout",
    "make SHELL=./evil", "make 'a/b!={e}'", "make -f evil", "make --eval='$(shell {e})'", "cat +x", "find a -fls out",
    # names of files that are options
    "find a -exe[c] {e} '{{}}' +", "bash [-]c '{e}'", "sh -? '{e}'", "git log --outpu[t]=out", "tar cf x.tar *", "cat *", "sort * a",
    "cat -*", "npm run ?c", "npm run ~", "ls *", "zip x.zip [e]*", "wc -l *", "make all*", "git status*", "git log ./*",
]  # fmt: skip
EVIL = ["evil x", "rm -rf y", "/bin/sh -c 'echo >out'"]


def lines() -> Iterator[str]:
    """Every generated command line."""
    chance = random.Random(11)
    for template in [*JOINS, *HOSTILE]:
        for _ in range(2):
            yield template.format(c=chance.choice(PLAIN), e=chance.choice(EVIL))
    yield from PLAIN
    pieces = [*PLAIN, *EVIL, "git", "status", "npm run", "a", "x", ";", "&&", "||", "|", "&", "\n", " ", " ", " ", "'"]
    pieces += ['"', "\\", "$", "$(", ")", "`", ">", "<", "{", "}", "(", "*", "~", "#", "=", "\t", "'a b'", '"c d"', "!"]
    pieces += [" -x", " *", " [-]c", "tar cf ", "sort a"]
    for _ in range(6000):
        yield "".join(chance.choice(pieces) for _ in range(chance.randint(1, 7)))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs: stubs that write down how they were called, and real ones that run others."""
    place = tmp_path_factory.mktemp("bin")
    for name in STUBS:
        (place / name).write_text(STUB.replace("LOG", f"{place.parent}/calls"))
        (place / name).chmod(stat.S_IRWXU)
    for name in REAL:
        found = shutil.which(name)
        if found is not None and not (place / name).exists():
            (place / name).symlink_to(found)
    return place


def is_allowed(words: list[str]) -> bool:
    """What the rules say, of words that a program was really called with."""
    if words in EXACT:
        return True
    return any(
        words[: len(start)] == start
        and len(words) > len(start)
        and not any(mark in word for word in words[len(start) :] for mark in ";&|\n=")
        and not any(word.startswith(("-", "+")) for word in words[len(start) :])
        for start in [*OPEN, ["git"]]
    )


def wrong_calls(line: str, programs: Path, place: Path) -> list[str]:
    """Run a line in both shells; gives what it did that no rule allows."""
    found, log = [], programs.parent / "calls"
    for name in HOSTILE_NAMES:
        (place / name).touch()
    for shell in ("bash", "sh"):
        log.unlink(missing_ok=True)
        subprocess.run(
            [shutil.which(shell) or shell, "-c", line],
            cwd=place,
            env={"PATH": str(programs), "HOME": str(place), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        calls = log.read_text().split("\x1e\0")[:-1] if log.exists() else []
        found += [f"{shell}: {call!r}" for call in calls if not is_allowed(call.split("\0")[:-1])]
        found += [f"{shell}: wrote {file}" for file in place.iterdir() if file.name not in HOSTILE_NAMES]
    return found


def test_no_command_line_is_allowed_wrongly(programs: Path, tmp_path: Path) -> None:
    every = list(dict.fromkeys(lines()))
    allowed = [line for line in every if JUDGE.verdict("shell", {"command": line}) == "allow"]
    wrong = {line: found for line in allowed if "\0" not in line and (found := wrong_calls(line, programs, tmp_path))}
    assert wrong == {}
    assert len(every) > 2000
    assert len(allowed) > 100


def test_the_oracle_notices_what_it_is_there_for(programs: Path, tmp_path: Path) -> None:
    for line in ("git status; evil x", "env evil x", "npm run $(rm y)", "find . -exec rm x {} +", "echo x > out"):
        assert wrong_calls(line, programs, tmp_path)
        for file in tmp_path.iterdir():
            file.unlink()


@pytest.mark.parametrize("template", HOSTILE)
def test_a_hostile_line_is_asked_about(template: str, programs: Path, tmp_path: Path) -> None:
    """Each kind by name; those that turn out to be harmless words are allowed, and were run by the oracle above."""
    line = template.format(c="git status", e="evil x")
    verdict = JUDGE.verdict("shell", {"command": line})
    assert verdict is None or not wrong_calls(line, programs, tmp_path)


@pytest.mark.parametrize("line", [join.format(c=plain) for join in JOINS for plain in PLAIN])
def test_plain_lines_of_allowed_commands_are_allowed(line: str) -> None:
    assert JUDGE.verdict("shell", {"command": line}) == "allow"
