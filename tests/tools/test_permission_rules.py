"""Rules about tool calls: how they are read, and what they match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent.ports import Answer, Approval, Ask, Effect
from nacre.errors import ConfigError
from nacre.messages import ToolCall
from nacre.tools.approvals import Approvals, Grounds
from nacre.tools.files.workspace import Workspace
from nacre.tools.permission_rules import Judge, Rules, Verdict, parse_rule
from tests.growth import assert_linear
from tests.tools.test_approvals import named


def judge(root: Path | str = ".", **rules: list[str]) -> Judge:
    return Judge(
        Rules(**{kind: tuple(map(parse_rule, texts)) for kind, texts in rules.items()}), root="", base=str(root)
    )


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("", "cannot be read"),
        ("shell(", "cannot be read"),
        ("shell()", "empty pattern"),
        ("shell(a; b)", "2 commands"),
        ("shell(a $B)", "not a plain command"),
        ("shell(*)", "is a pattern"),
        ("web_fetch(http://x/y)", "names no host"),
        ("write_file(/etc/x)", "leaves the folder"),
        ("edit_file(a/../../b)", "leaves the folder"),
        ("github_create_issue(x)", "takes none"),
    ],
)
def test_a_rule_that_cannot_be_read_says_why(rule: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_rule(rule)


@pytest.mark.parametrize(
    "rule", ["read_file", "github_*", "shell(npm run *)", "web_fetch(*.python.org)", "web_fetch([::1]:80)"]
)
def test_a_rule_reads_as_it_was_written(rule: str) -> None:
    assert str(parse_rule(rule)) == rule


@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("npm run *", "npm run test", True),
        ("npm run *", "npm run a b 'c d'", True),
        ("npm run *", "npm run", False),
        ("npm run *", "npm run 'a;b'", False),
        ("npm run *", "npm running x", False),
        ("npm run test:*", "npm run test:unit", True),
        ("npm run test:*", "npm run test:unit --watch", False),
        ("npm run test:*", "npm run 'test:a|b'", False),
        ("ls *", "ls *.py", False),
        ("ls *", "ls ~", False),
        ("ls *.py", "ls *.py", False),
        ("ls '*.py'", "ls *.py", False),
        ("ls '*.py'", "ls '*.py'", True),
        ("git commit -m 'a b'", 'git commit -m "a b"', True),
        ("python -m pytest *", "python -m pytest tests", True),
        ("python -m pytest *", "python -m pytest -q tests", False),
        ("python -m pytest -q *", "python -m pytest -q tests", True),
        ("pytest -* *", "pytest -q tests", True),
        ("make *", "make SHELL=x", False),
        ("python *", "python -c 'x'", False),
        ("python3.11 *", "python3.11 - x", False),
        ("php *", "php -B x y", False),
        ("bash *", "bash scripts/test.sh", True),
        ("git *", "git --no-pager log", False),
        ("git --no-pager *", "git --no-pager log", True),
        ("git *", "git rebase -x rm HEAD~1", False),
        ("git *", "git diff --outp=x", False),
        ("sed -n *", "sed -n 1,20p f", True),
        ("tar *", "tar --checkpoint-action=exec=x f", False),
        ("tar -tf *", "tar -tf x", True),
        ("tar *", "tar cIf 'sh -c x' f g", False),
        ("tar *", "tar tf x", False),
        ("tar t*", "tar tIf x y", False),
        ("tar tf *", "tar tf x", True),
        ("git clone *", "git clone -qu x . y", False),
        ("git clone *", "git clone -c core.fsmonitor=x . y", False),
        ("git clone *", "git clone --conf core.fsmonitor=x . y", False),
        ("git clone *", "git clone --template=x . y", False),
        ("git clone --depth 1 *", "git clone --depth 1 https://a.b/c", True),
        ("./run.sh", "./run.sh", True),
        ("run.sh", "./run.sh", False),
    ],
)
def test_a_shell_rule_is_exact_words_and_stars(rule: str, command: str, is_allowed: bool) -> None:
    verdict = judge(allow=[f"shell({rule})"]).verdict("shell", {"command": command})
    assert verdict == ("allow" if is_allowed else None)


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "ls && rm -rf x",
        "echo $(rm x)",
        "sudo rm x",
        "A=1 rm x",
        "sh -c 'rm x'",
        "find . -exec rm {} +",
        "/bin/rm x",
    ],
)
def test_deny_finds_a_command_anywhere_in_a_line(command: str) -> None:
    rules = judge(allow=["shell"], deny=["shell(rm *)"])
    assert rules.verdict("shell", {"command": command}) == "deny"
    assert rules.verdict("shell", {"command": "git rm x"}) == "allow"


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("src/a.py", "allow"),
        ("src/deep/a.py", "allow"),
        ("./src//a.py", "allow"),
        ("src/../b.py", None),
        ("../src/a.py", None),
        ("src/out", None),
        ("src/in", "allow"),
        ("srcx/a.py", None),
        ("a.py", None),
    ],
)
def test_a_path_is_matched_where_it_really_leads(tmp_path: Path, path: str, verdict: Verdict | None) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/out").symlink_to("/etc/hostname")
    (tmp_path / "src/in").symlink_to("deep")
    assert judge(tmp_path, allow=["write_file(src/**)"]).verdict("write_file", {"path": path}) == verdict


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://docs.python.org/3/", True),
        ("http://DOCS.python.org", True),
        ("https://docs.python.org:443/", True),
        ("https://docs.python.org:8443/", False),
        ("https://docs.python.org.evil.com/", False),
        ("https://evil.com/docs.python.org", False),
        ("https://docs.python.org@evil.com/", False),
        ("https://docs.python.org\\@evil.com/", False),
        ("https://docs.python.org\t.evil.com/", False),
        ("ftp://docs.python.org/", False),
    ],
)
def test_a_host_is_the_host(url: str, is_allowed: bool) -> None:
    assert (judge(allow=["web_fetch(docs.python.org)"]).verdict("web_fetch", {"url": url}) == "allow") == is_allowed


@pytest.mark.parametrize(
    ("url", "is_denied"),
    [
        ("https://evil.com/", True),
        ("HTTPS://evil.com/", True),
        ("https://evil.com:8443/", True),
        ("https://evil.com/\u00e9", True),
        ("https://evil%2ecom/", True),
        ("https://de.wikipedia.org/wiki/K\u00e4se", False),
    ],
)
def test_a_denied_host_is_denied_however_it_is_written(url: str, is_denied: bool) -> None:
    rules = judge(allow=["web_fetch"], deny=["web_fetch(evil.com)"])
    assert rules.verdict("web_fetch", {"url": url}) == ("deny" if is_denied else "allow")


@pytest.mark.parametrize(
    ("tool", "arguments", "rules"),
    [
        ("shell", {"command": "git add a; git status"}, ("shell(git add a)", "shell(git status)")),
        ("shell", {"command": "echo 'a b'"}, ("shell(echo 'a b')",)),
        ("shell", {"command": "echo a > b"}, ()),
        ("shell", {"command": "ls *.py"}, ()),
        ("shell", {"command": "env x"}, ()),
        ("write_file", {"path": "a"}, ("write_file(**)",)),
        ("web_fetch", {"url": "https://a.b/c"}, ("web_fetch(a.b)",)),
        ("github_x", {}, ("github_x",)),
    ],
)
def test_always_offers_rules_that_allow_the_call(tool: str, arguments: dict[str, Any], rules: tuple[str, ...]) -> None:
    assert judge().always(tool, arguments) == rules
    if rules:
        assert judge(allow=list(rules)).verdict(tool, arguments) == "allow"


def test_always_keeps_the_rules_that_the_question_named() -> None:
    kept: list[str] = []
    asked: list[Approval] = []

    async def ask(approval: Approval) -> Answer:
        asked.append(approval)
        return "always"

    async def each() -> list[str]:
        guard = Approvals(Grounds(keep=kept.extend), ask=ask)
        commands = ["git push", "git push", "echo $X", "echo $X"]
        return [await guard(named("shell", "run"), ToolCall(name="shell", arguments={"command": c})) for c in commands]

    assert anyio.run(each) == [""] * 4
    assert kept == ["shell(git push)"]
    assert [(one.always, one.scope) for one in asked] == [(("shell(git push)",), "folder")] + [((), "folder")] * 2


def used(grounds: Grounds, *calls: tuple[str, dict[str, Any]], ask: Ask | None = None, **state: Any) -> list[str]:
    """What a guard says to calls, one after the other."""

    async def each() -> list[str]:
        guard = Approvals(grounds, ask=ask, **state)
        effects: dict[str, Effect] = {"use_skill": "read", "shell": "run", "write_file": "write"}
        return [await guard(named(name, effects[name]), ToolCall(name=name, arguments=given)) for name, given in calls]

    return anyio.run(each)


SKILLS = {"pdf": (parse_rule("shell(git *)"), parse_rule("write_file")), "web": (parse_rule("shell"),)}
LOAD, GIT = ("use_skill", {"name": "pdf"}), ("shell", {"command": "git log"})


def test_what_a_trusted_skill_names_runs_from_its_loading_on() -> None:
    grounds = Grounds(skills=SKILLS, trusted_skills=("p*",), is_protected=lambda path: path == "AGENTS.md")
    other = ("shell", {"command": "rm x"})
    files = [("write_file", {"path": path}) for path in ("a", "AGENTS.md")]
    assert [bool(told) for told in used(grounds, GIT, LOAD, GIT, other, *files)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("grounds", [Grounds(skills=SKILLS, trusted_skills=("*",), mode="read-only")])
def test_no_skill_writes_in_a_conversation_that_is_read_only(grounds: Grounds) -> None:
    assert "read-only" in used(grounds, LOAD, GIT)[1]


def test_a_question_offers_what_the_skill_in_use_names_for_the_session() -> None:
    kept: list[str] = []
    asked: list[Approval] = []

    async def ask(approval: Approval) -> Answer:
        asked.append(approval)
        return "always"

    more = ("shell", {"command": "git push"})
    assert used(Grounds(skills=SKILLS, keep=kept.extend), LOAD, GIT, more, ask=ask) == ["", "", ""]
    assert [(one.skill, one.scope, one.always) for one in asked] == [("pdf", "session", ("shell(git *)", "write_file"))]
    assert kept == []


def test_a_call_that_always_asks_is_not_offered_by_a_skill() -> None:
    asked: list[Approval] = []

    async def ask(approval: Approval) -> Answer:
        asked.append(approval)
        return "always"

    grounds = Grounds(skills=SKILLS, rules=Rules(ask=(parse_rule("shell(git *)"),)))
    assert used(grounds, LOAD, GIT, GIT, ask=ask) == ["", "", ""]
    assert [(one.skill, one.always) for one in asked] == [("", ())] * 2


def test_rules_of_a_session_that_cannot_be_read_allow_nothing() -> None:
    assert used(Grounds(), GIT, remembered=["shell(", "shell(git log)"]) == [""]
    assert "nobody" in used(Grounds(), GIT, remembered=["shell(", "shell()"])[0]


def test_a_protected_file_is_asked_about_in_every_mode() -> None:
    rules = Rules(allow=(parse_rule("write_file"),))
    grounds = Grounds(
        rules=rules, mode="yolo", confined=frozenset(["write_file"]), is_protected=lambda path: path == "x"
    )
    guard = Approvals(grounds, remembered=["write_file"])
    verdicts = [
        guard.verdict(named("write_file", "write"), ToolCall(name="write_file", arguments={"path": path}))
        for path in ("x", "y")
    ]
    assert verdicts == ["ask", "allow"]


@pytest.mark.parametrize("path", ["\ud83d", "a/\udfff/b", "\0"])
def test_a_path_that_no_file_can_have_is_judged_without_an_error(tmp_path: Path, path: str) -> None:
    rules = judge(tmp_path, allow=["write_file(**)"], deny=["read_file(secret)"])
    assert rules.verdict("write_file", {"path": path}) is None
    assert rules.verdict("read_file", {"path": path}) is None
    assert not Workspace(tmp_path).is_protected(path)


@pytest.mark.parametrize("word", ["env ", "sudo -u ", "if ", "xargs ", "a;"])
def test_no_command_line_takes_long_to_judge(word: str) -> None:
    rules = judge(deny=["shell(git push *)"])
    assert rules.verdict("shell", {"command": f"{'env ' * 300}git push x"}) == "deny"
    assert_linear(lambda line: rules.verdict("shell", {"command": line}), word * (80_000 // len(word)))
