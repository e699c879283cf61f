"""A long skill with a script and a reference, used to its end in one turn; what its `allowed-tools` allow."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Answer as Said
from nacre.agent.ports import Approval
from nacre.config import Settings
from nacre.runtime import App, Options, run_agent
from tests.ollama_server import Answer, OllamaServer, called, done, said, serving
from tests.runtime.test_assembly import MODELS, play, used
from tests.sandbox.places import CONFINED, usable

HEAD = "---\nname: letters\ndescription: Writes letters.\nallowed-tools: Bash(/bin/sh:*) Read\n---\n"
BODY = "\n".join(f"{number}. " + "Mind the margins of the page. " * 10 for number in range(100))
LAST = "At last run: /bin/sh {folder}/scripts/sign.sh pearl"
both = pytest.mark.parametrize("kind", CONFINED)


def write_skill(place: Path) -> Path:
    folder = place / "letters"
    for name in ("scripts", "references"):
        (folder / name).mkdir(parents=True)
    body = BODY + "\n" + LAST.format(folder=folder.resolve()) + "\n"
    assert len(body) > 30_000
    (folder / "SKILL.md").write_text(HEAD + body)
    (folder / "references" / "forms.md").write_text("Dear reader,")
    (folder / "scripts" / "sign.sh").write_text('echo "signed by $1 in $(pwd)"; cat "${0%/*}/../references/forms.md"\n')
    return folder


class Model(OllamaServer):
    """A model that does what a skill says: it reads on while there is more, then runs what stands at its end."""

    def __init__(self, folder: Path) -> None:
        super().__init__([], MODELS)
        self._plan = [
            called("use_skill", {"name": "letters", "file": "references/FORMS.md"}),
            called("read_file", {"path": str(folder / "References" / "forms.md")}),
            called("list_files", {"path": str(folder), "pattern": "**"}),
        ]
        self._run = b""

    def next(self) -> Answer:
        last = self.chats[-1]["messages"][-1]
        text = str(last["content"])
        if last["role"] == "user":
            return _answer(called("use_skill", {"name": "letters"}))
        if more := re.search(r"offset=(\d+) continues\]$", text):
            return _answer(called("use_skill", {"name": "letters", "offset": int(more[1])}))
        if command := re.search(r"At last run: (.+)", text):
            self._run = called("shell", {"command": command[1]})
        if self._plan:
            return _answer(self._plan.pop(0))
        run, self._run = self._run, b""
        return _answer(run) if run else _answer(said("signed"))


def _answer(chunk: bytes) -> Answer:
    return Answer(chunks=(chunk, done()))


def converse(skill: Path, sections: Mapping[str, Any], ask: Any, *texts: str, **options: Any) -> list[list[str]]:
    """What the tools gave in each turn."""

    async def run() -> list[list[str]]:
        found: list[list[str]] = []
        for text in texts:
            async with serving(Model(skill)) as server:
                configured = Settings({**sections, "ollama": {"host": server.host}}, {})
                async with run_agent(configured, Options(**options)) as app:
                    before = len(app.sessions.get_history("k")) if app.sessions.exists("k") else 0
                    await app.kernel.deliver(UserMessage(key="k", content=text), ask=ask)
                    turn = app.sessions.get_history("k")[before:]
            found.append([str(message.content) for message in turn if message.role == "tool"])
        return found

    return anyio.run(run)


def asking(answer: Said, asked: list[Approval]) -> Any:
    async def ask(approval: Approval) -> Said:
        asked.append(approval)
        return answer

    return ask


@both
def test_a_long_skill_is_used_to_its_end(home: Path, kind: str) -> None:
    usable(kind)
    folder = write_skill(home / "nacre_home" / "home" / "skills")
    sections = {"sandbox": {"kind": kind}, "agent": {"max_context_tokens": 60_000}}
    (results,) = converse(folder, sections, asking("yes", []), "Write a letter.")
    *parts, reference, read, listed, ran = results
    texts = [re.sub(r"\n\[[\d,]+ of [\d,]+ characters follow; offset=\d+ continues\]$", "", part) for part in parts]
    assert BODY in "".join(texts)
    assert all(len(part) <= 16_000 for part in parts)
    assert (reference, read) == ("Dear reader,", "Dear reader,")
    assert f"{folder}/scripts/sign.sh  " in listed
    assert ran.startswith("signed by pearl in ")
    assert ran.endswith("Dear reader,")


# ---- where a skill may be


def in_the_store(home: Path) -> tuple[Path, Path]:
    return home / "nacre_home" / "home" / "skills", home / "project"


def in_a_store_that_the_folder_contains(home: Path) -> tuple[Path, Path]:
    return home / "nacre_home" / "home" / "skills", home


def behind_a_link_of_the_users(home: Path) -> tuple[Path, Path]:
    (home / "home" / ".claude" / "skills").mkdir(parents=True)
    (home / "home" / ".claude" / "skills" / "letters").symlink_to(home / "elsewhere" / "letters")
    return home / "elsewhere", home / "project"


def in_the_project_above_the_folder(home: Path) -> tuple[Path, Path]:
    for name in (".git", "part"):
        (home / "project" / name).mkdir()
    return home / "project" / ".agents" / "skills", home / "project" / "part"


PLACES = [
    in_the_store,
    in_a_store_that_the_folder_contains,
    behind_a_link_of_the_users,
    in_the_project_above_the_folder,
]


@both
@pytest.mark.parametrize("place", PLACES)
def test_its_files_are_read_and_its_scripts_run_wherever_it_is(home: Path, kind: str, place: Any) -> None:
    usable(kind)
    where, work = place(home)
    folder = write_skill(where)
    (home / "nacre_home").mkdir(exist_ok=True)
    (home / "nacre_home" / "diary").write_text("very private")

    async def act(app: App) -> None:
        run = f"/bin/sh {shlex.quote(str(folder))}/scripts/sign.sh x"
        assert f"signed by x in {work}" in await used(app, "shell", command=run)
        assert await used(app, "read_file", path=f"{folder}/references/forms.md") == "Dear reader,"
        assert f'folder="{folder}"' in app.skills.load("letters")
        changing = f"echo x >{folder}/SKILL.md; rm {folder}/references/forms.md; touch {folder}/new"
        assert "ead-only" in await used(app, "shell", command=changing)
        assert "private" not in await used(app, "shell", command=f"cat {home}/nacre_home/diary {folder}/../../../diary")
        assert "private" not in await used(app, "read_file", path=f"{folder}/../../../diary")

    play([], act, {"sandbox": {"kind": kind}}, folder=work, is_trusted=True)
    assert (folder / "references" / "forms.md").exists()
    assert not (folder / "new").exists()


def test_a_link_of_a_project_that_leads_out_of_it_is_not_followed_by_tools(home: Path) -> None:
    usable("auto")
    folder = write_skill(home / "outside")
    (home / "project" / ".agents" / "skills").mkdir(parents=True)
    (home / "project" / ".agents" / "skills" / "letters").symlink_to(folder)

    async def act(app: App) -> None:
        assert "outside the workspace" in await used(app, "read_file", path=f"{folder}/references/forms.md")
        assert "No such file" in await used(app, "shell", command=f"cat {folder}/references/forms.md")

    play([], act, folder=home / "project", is_trusted=True)


# ---- what it may do


def test_a_person_allows_what_a_skill_names_at_once(home: Path) -> None:
    usable("auto")
    folder = write_skill(home / "nacre_home" / "home" / "skills")
    asked: list[Approval] = []
    texts = ("Write a letter.", "Write another.")
    turns = converse(folder, {}, asking("always", asked), *texts, folder=home / "project", is_trusted=True)
    assert [turn[-1].startswith("signed by pearl") for turn in turns] == [True, True]
    (question,) = asked
    assert (question.call.name, question.skill, question.scope) == ("shell", "letters", "session")
    assert question.always == ("shell(/bin/sh *)", "read_file")


def test_a_skill_allows_nothing_by_itself(home: Path) -> None:
    usable("auto")
    folder = write_skill(home / "nacre_home" / "home" / "skills")
    (results,) = converse(folder, {}, None, "Write a letter.")
    assert "nobody can be asked" in results[-1]


@pytest.mark.parametrize(
    ("permissions", "told"),
    [
        ({"skills": ["let*"]}, "signed by pearl"),
        ({"skills": ["other"]}, "nobody can be asked"),
        ({"skills": ["*"], "ask": ["shell"]}, "nobody can be asked"),
        ({"skills": ["*"], "deny": ["shell(/bin/sh *)"]}, "denies it"),
    ],
)
def test_a_skill_that_the_user_trusts_runs_what_it_names_within_the_rules(
    home: Path, permissions: Mapping[str, Any], told: str
) -> None:
    usable("auto")
    folder = write_skill(home / "nacre_home" / "home" / "skills")
    (results,) = converse(folder, {"permissions": permissions}, None, "Write a letter.")
    assert told in results[-1]
