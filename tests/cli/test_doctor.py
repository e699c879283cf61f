"""nacre doctor and nacre config."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Nacre
from tests.paths import log_of


def status(nacre: Nacre, name: str) -> dict[str, str]:
    checks: list[dict[str, str]] = nacre("doctor", "--json").json["checks"]
    return next(check for check in checks if check["name"] == name)


def configure(nacre: Nacre, text: str) -> None:
    path = Path(nacre("config", "path").out.strip())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_sound_store_is_well(nacre: Nacre) -> None:
    nacre.fill("one")
    result = nacre("doctor", "--json")
    assert (result.code, result.json["ok"]) == (0, True)
    assert {check["name"] for check in result.json["checks"]} >= {"store", "permissions", "space", "index", "config"}


def test_what_is_not_well_says_what_to_do(nacre: Nacre) -> None:
    nacre.fill("one")
    log_of(nacre.root, "one").chmod(0o644)
    found = status(nacre, "permissions")
    assert found["status"] == "warn"
    assert found["hint"] == f"chmod -R go= {nacre.root}"


def test_a_log_without_a_session_is_mentioned(nacre: Nacre) -> None:
    nacre.fill("one")
    log_of(nacre.root, "two").write_bytes(b"rubbish\n")
    assert status(nacre, "store")["status"] == "warn"


def test_a_place_that_cannot_be_a_store_fails(nacre: Nacre) -> None:
    nacre.root.mkdir(parents=True)
    (nacre.root / "sessions").write_text("a file where a directory belongs")
    result = nacre("doctor", "--json")
    assert result.code == 1
    assert result.json["checks"][0]["status"] == "fail"


def test_a_store_that_is_not_there_yet_is_no_failure_and_not_made(nacre: Nacre) -> None:
    assert nacre("doctor").code == 0
    assert not nacre.root.exists()


def test_too_little_room_fails(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(os.curdir)

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 1, real.f_frsize, real.f_files, real.f_favail

    monkeypatch.setattr("os.statvfs", lambda _: Full())
    nacre.fill("one")
    assert status(nacre, "space")["status"] == "fail"


def test_settings_come_from_the_environment_then_the_file_then_the_default(
    nacre: Nacre, monkeypatch: pytest.MonkeyPatch
) -> None:
    def color() -> dict[str, str]:
        found: dict[str, str] = nacre("config", "show", "--json").json["settings"]["cli.color"]
        return found

    assert color() == {"value": "auto", "source": "default"}
    configure(nacre, '[cli]\ncolor = "never"\n')
    assert color() == {"value": "never", "source": "file"}
    monkeypatch.setenv("NACRE_CLI_COLOR", "always")
    assert color() == {"value": "always", "source": "NACRE_CLI_COLOR"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[cli]\ncolour = "never"\n', "cli.colour is not a setting; did you mean cli.color? ({path}:2)"),
        ("[cli]\ncolor = 3\n", "cli.color is text, not 3 ({path}:2)"),
        ('[cli]\ncolor = "blue"\n', "cli.color is auto, always or never, not 'blue' ({path}:2)"),
        ('what = "?"\n', "what is not a setting; `nacre config show` lists all settings ({path}:1)"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(nacre: Nacre, text: str, problem: str) -> None:
    configure(nacre, text)
    result = nacre("config", "check", "--json")
    problem = problem.format(path=nacre("config", "path").out.strip())
    assert (result.code, result.json["problems"]) == (2, [problem])


def test_a_file_that_is_no_toml_is_told_as_such(nacre: Nacre) -> None:
    configure(nacre, "this is not toml")
    result = nacre("config", "check", "--json")
    assert (result.code, result.json["ok"]) == (2, False)
    assert "at line 1" in result.json["problems"][0]
    assert status(nacre, "config")["status"] == "fail"


def test_right_settings_are_right(nacre: Nacre) -> None:
    configure(nacre, '[cli]\ncolor = "never"\npager = "more"\n')
    assert nacre("config", "check").code == 0
