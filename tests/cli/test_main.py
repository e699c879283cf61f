"""Finding the verb, the options that all verbs have, and errors."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import nacre as library
from nacre.cli import main
from nacre.cli.failures import failure_of
from nacre.cli.notices import print_warnings
from tests.cli.conftest import Nacre


def test_help_is_asked_for_on_stdout(nacre: Nacre) -> None:
    result = nacre("--help")
    assert (result.code, result.err) == (0, "")
    assert "examples:" in result.out


def test_bare_nacre_explains_itself_on_stdout(nacre: Nacre) -> None:
    assert nacre() == nacre("--help") == nacre("help")


@pytest.mark.parametrize("noun", ["sessions", "session", "s"])
def test_the_noun_has_aliases_and_lists_by_default(nacre: Nacre, noun: str) -> None:
    nacre.fill("one")
    assert nacre(noun, "--json").json["items"][0]["key"] == "one"
    assert nacre(noun, "ls", "--json").json["count"] == 1


def test_the_group_has_its_own_help(nacre: Nacre) -> None:
    result = nacre("sessions", "--help")
    assert result.code == 0
    assert "@last~2" in result.out


def test_version(nacre: Nacre) -> None:
    assert nacre("--version").out == nacre("-V").out == f"nacre {library.__version__}\n"


def test_an_unknown_verb_says_which_was_meant(nacre: Nacre) -> None:
    result = nacre("sessions", "serach", "x")
    assert result.code == 2
    assert "did you mean `nacre sessions search`?" in result.err


@pytest.mark.parametrize("verb", ["del", "delete", "remove"])
def test_the_verb_of_other_programs_leads_to_ours(nacre: Nacre, verb: str) -> None:
    result = nacre("sessions", verb, "x")
    assert result.code == 2
    assert "did you mean `nacre sessions rm`?" in result.err


def test_options_may_stand_anywhere(nacre: Nacre) -> None:
    nacre.fill("one")
    store = str(nacre.root)
    lines = (("--store", store, "s", "list", "--json"), ("s", "--json", "list", f"--store={store}"), ("--json", "s"))
    assert [nacre(*line).json["count"] for line in lines] == [1, 1, 1]


def test_behind_two_dashes_a_word_is_just_a_word(nacre: Nacre) -> None:
    nacre.fill("one")
    assert nacre("s", "rename", "one", "--", "--json").out == "one: renamed to --json\n"


@pytest.mark.parametrize("line", [("--store",), ("s", "list", "--color=blue"), ("s", "list", "--limit", "x")])
def test_a_wrong_option_is_exit_2(nacre: Nacre, line: tuple[str, ...]) -> None:
    assert nacre(*line).code == 2


def test_a_named_store_that_is_not_there_is_not_made(nacre: Nacre) -> None:
    result = nacre("s", "list", "--store", f"{nacre.root}-not", "--json")
    assert (result.code, result.json["error"]["type"]) == (3, "not_found")
    assert not nacre.root.with_name(f"{nacre.root.name}-not").exists()


def test_the_default_store_that_is_not_there_is_empty_and_not_made(nacre: Nacre) -> None:
    assert nacre("s", "list", "--json").json["count"] == 0
    assert not nacre.root.exists()


def test_ambiguity_is_exit_4_with_the_candidates_on_stderr(nacre: Nacre) -> None:
    nacre.fill("telegram:1", "telegram:2")
    result = nacre("s", "tail", "tele")
    assert (result.code, result.out) == (4, "")
    assert "  telegram:1\n  telegram:2\n" in result.err


def test_ambiguity_in_json_has_the_candidates(nacre: Nacre) -> None:
    nacre.fill("telegram:1", "telegram:2")
    error = nacre("s", "tail", "tele", "--json").json["error"]
    assert error["type"] == "ambiguous"
    assert [candidate["key"] for candidate in error["candidates"]] == ["telegram:1", "telegram:2"]


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (library.SessionNotFound("x"), 3, "not_found"),
        (library.SessionBusy("x"), 5, "locked"),
        (library.LogDamaged("x"), 6, "damaged"),
        (library.FormatTooNew("x"), 8, "too_new"),
        (library.Conflict("x"), 1, "conflict"),
        (library.Refused("x"), 1, "refused"),
        (library.StoreError("x"), 1, "failed"),
        (library.ConfigError("x"), 2, "config"),
        (OSError("x"), 1, "failed"),
        (ZeroDivisionError("x"), 1, "internal"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_have_their_exit_codes(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, kind: str
) -> None:
    def fails(*_: object) -> int:
        raise error

    assert main(["s", "list", "--json"], dispatch=fails) == code
    assert json.loads(capsys.readouterr().out)["error"]["type"] == kind


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 141)])
def test_who_interrupts_it_or_stops_reading_hears_nothing(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def fails(*_: object) -> int:
        raise error

    assert main(["s", "list"], dispatch=fails) == code
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("variables", "words", "colored"),
    [
        ({}, (), False),
        ({}, ("--color",), True),
        ({}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color=always",), True),
        ({"FORCE_COLOR": "1"}, ("--no-color",), False),
        ({"NACRE_CLI_COLOR": "always"}, (), True),
        ({"FORCE_COLOR": "1"}, ("--json",), False),
    ],
)
def test_colour_is_for_who_wants_it(
    nacre: Nacre, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: tuple[str, ...], colored: bool
) -> None:
    nacre.fill("one")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in nacre("s", "list", *words).out) is colored


def test_a_warning_that_has_no_reason_does_not_end_in_a_colon(capsys: pytest.CaptureFixture[str]) -> None:
    print_warnings()
    logging.getLogger("nacre.test").warning("it did not work", extra={"key": "one", "error": ""})
    assert capsys.readouterr().err == "nacre: it did not work: one\n"


@pytest.mark.parametrize("line", [("chat", "hi"), ("s", "summarize", "one")])
def test_what_is_not_installed_is_one_clear_line(nacre: Nacre, line: tuple[str, ...]) -> None:
    nacre.fill("one")
    program = "import sys; sys.modules['anyio'] = None; from nacre.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *line], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    assert done.stderr == 'nacre: this needs anyio, which is not installed\n  pip install "nacre-sessions[agent]"\n'


@pytest.mark.parametrize("module", ["anyio", "snowballstemmer"])
@pytest.mark.parametrize(("line", "extra"), [(("mcp", "serve"), "mcp"), (("acp",), "acp")])
def test_a_server_without_a_module_names_its_own_extra(
    nacre: Nacre, line: tuple[str, ...], extra: str, module: str
) -> None:
    nacre.fill("one")
    program = f"import sys; sys.modules[{module!r}] = None; from nacre.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *line], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 1
    said = f'nacre: `nacre {" ".join(line)}` needs {module}\n  pip install "nacre-sessions[{extra}]"\n'
    assert done.stderr == said


def test_any_other_missing_module_is_a_mistake_of_ours() -> None:
    assert failure_of(ModuleNotFoundError("No module named 'nacre.nope'", name="nacre.nope")) is None


@pytest.mark.parametrize("verb", ["show", "rm", "tail", "verify"])
def test_a_key_that_looks_like_an_option_is_named_with_the_way_to_give_it(nacre: Nacre, verb: str) -> None:
    done = nacre("s", verb, "-home-ann/7c9e")
    assert done.code == 2
    assert f"a key that begins with - stands after --: `nacre sessions {verb} -- -home-ann/7c9e`" in done.err


READERS = [
    ("s", "list"),
    ("s", "list", "--json"),
    ("s", "verify"),
    ("s", "stats"),
    ("s", "du"),
    ("s", "trash", "list"),
    ("s", "quarantine"),
    ("memory", "list"),
]


@pytest.mark.parametrize("line", READERS, ids=" ".join)
@pytest.mark.parametrize("what", ["file", "below a file", "dangling link"])
@pytest.mark.parametrize("is_named", [False, True])
def test_a_place_that_cannot_be_a_store_does_not_look_like_an_empty_one(
    nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...], what: str, is_named: bool
) -> None:
    place = tmp_path / "place"
    if what == "dangling link":
        place.symlink_to(tmp_path / "nothing")
    else:
        place.write_text("not a store")
    store = place / "inside" if what == "below a file" else place
    monkeypatch.setenv("NACRE_HOME", str(store))
    done = nacre(*line, *(("--store", str(store)) if is_named else ()))
    assert done.code == 1
    assert f"{place} is not a directory" in done.err + done.out


@pytest.mark.parametrize("line", READERS, ids=" ".join)
def test_a_store_that_is_not_there_yet_is_said_to_be_so(
    nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    monkeypatch.setenv("NACRE_HOME", str(tmp_path / "later"))
    done = nacre(*line)
    assert done.code == 0
    assert done.err.count(f"no store at {tmp_path}/later yet") == 1
    assert "no store" not in done.out
    assert "no store" not in nacre(*line, "--quiet").err


def test_a_file_of_an_earlier_agent_that_cannot_be_read_is_told_once_in_a_sentence(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "repair", "one")
    (nacre.root / "quarantine").mkdir(exist_ok=True)
    (nacre.root / "sessions" / "old.json").write_text("{no session")
    done = nacre("s", "list", "--all")
    assert done.err.count("old.json") == 1
    assert "old.json, a session of an earlier agent, cannot be read and was left as it is" in done.err
    assert "move it out of the store" in done.err
    assert "{'" not in done.err
