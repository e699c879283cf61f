"""nacre serve tokens: made, listed and revoked from the command line, also while a daemon runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from nacre.runtime.access_tokens import FILE
from tests.cli.conftest import Nacre
from tests.cli.daemons import configure, environment

PROGRAM = [sys.executable, "-m", "nacre.cli"]


def test_a_token_is_all_that_is_printed(nacre: Nacre) -> None:
    result = nacre("serve", "tokens", "add", "bob", "--role", "guest")
    assert result.code == 0
    assert result.out.startswith("nacre_")
    assert len(result.out.splitlines()) == 1
    assert "This token is shown once" in result.err


def test_an_option_may_stand_before_the_name(nacre: Nacre) -> None:
    assert nacre("serve", "tokens", "add", "--role", "guest", "bob").out.startswith("nacre_")


def test_tokens_are_listed_without_what_opens_anything(nacre: Nacre) -> None:
    secret = nacre("serve", "tokens", "add", "bob", "--role", "guest").out.strip()
    nacre("serve", "tokens", "add", "phone", "--role", "owner")
    nacre("serve", "tokens", "revoke", "phone")
    for words in ((), ("list",), ("list", "--json")):
        result = nacre("serve", "tokens", *words)
        assert result.code == 0
        assert secret[6:] not in result.out
    rows = nacre("serve", "tokens", "--json").json
    assert (rows["schema_version"], rows["count"]) == (1, 2)
    assert [(one["name"], one["role"], one["agent"]) for one in rows["items"]] == [
        ("bob", "guest", "main"),
        ("phone", "owner", None),
    ]
    assert [bool(one["revoked"]) for one in rows["items"]] == [False, True]


def test_programs_are_answered_in_json(nacre: Nacre) -> None:
    added = nacre("serve", "tokens", "add", "bob", "--role", "guest", "--json").json
    assert (added["schema_version"], added["ok"], added["name"], added["role"]) == (1, True, "bob", "guest")
    assert added["token"].startswith("nacre_")
    revoked = nacre("serve", "tokens", "revoke", "bob", "--json").json
    assert (revoked["schema_version"], revoked["operation"]) == (1, "revoke")


def test_a_name_that_had_a_token_opens_the_same_sessions_and_that_is_said(nacre: Nacre) -> None:
    nacre("serve", "tokens", "add", "bob", "--role", "guest")
    nacre("serve", "tokens", "revoke", "bob")
    assert "the same sessions" in nacre("serve", "tokens", "add", "bob", "--role", "guest").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add",), 2, "needs the name"),
        (("add", "bob"), 2, "--role guest or --role owner"),
        (("add", "Bob", "--role", "guest"), 2, "'Bob' cannot be one"),
        (("add", "bob", "--role", "king"), 2, "invalid choice"),
        (("add", "bob", "--role", "owner", "--agent", "clerk"), 2, "opens every agent"),
        (("add", "bob", "--role", "guest", "--agent", "clerk"), 3, "there is no agent 'clerk'"),
        (("revoke",), 2, "needs the name"),
        (("revoke", "bob"), 3, "there is no token 'bob'"),
        (("revoke", "bob", "--role", "guest"), 2, "takes no --role"),
        (("list", "bob"), 2, "takes no 'bob'"),
        (("rename", "bob"), 2, "invalid choice"),
    ],
)
def test_what_cannot_be_done_is_said(nacre: Nacre, words: tuple[str, ...], code: int, said: str) -> None:
    result = nacre("serve", "tokens", *words)
    assert result.code == code
    assert said in result.err


def test_a_name_is_taken_once(nacre: Nacre) -> None:
    nacre("serve", "tokens", "add", "bob", "--role", "guest")
    result = nacre("serve", "tokens", "add", "bob", "--role", "guest")
    assert (result.code, "there is a token 'bob' already" in result.err) == (1, True)


def test_a_guest_of_another_agent_is_kept_with_the_others(nacre: Nacre, tmp_path: Path) -> None:
    configure(tmp_path, "[agents.clerk]\n")
    assert nacre("serve", "tokens", "add", "shop", "--role", "guest", "--agent", "clerk").code == 0
    assert [(one["name"], one["agent"]) for one in nacre("serve", "tokens", "--json").json["items"]] == [
        ("shop", "clerk")
    ]


def test_help_has_examples_and_the_overview_is_completed(nacre: Nacre) -> None:
    text = nacre("serve", "tokens", "--help").out
    assert "nacre serve tokens add bob --role guest" in text
    assert nacre("help", "serve", "tokens").out == text
    assert "tokens" in nacre("__complete", "serve", "to").out
    assert nacre("__complete", "serve", "tokens", "re").out.split() == ["revoke"]


def test_a_file_of_tokens_that_cannot_be_read_is_found_by_the_check(nacre: Nacre) -> None:
    nacre("serve", "tokens", "add", "bob", "--role", "guest")
    checks = {one["name"]: one for one in nacre("serve", "--check", "--port", "0", "--json").json["checks"]}
    assert "1 token of others" in checks["token"]["detail"]
    (nacre.root / FILE).write_text("{")
    checks = {one["name"]: one for one in nacre("serve", "--check", "--port", "0", "--json").json["checks"]}
    assert (checks["token"]["status"], "cannot be read" in checks["token"]["detail"]) == ("fail", True)


@pytest.mark.parametrize("proxy", ["10.0.0.5/8", "proxy.example", "10.0.0.256", ""])
def test_a_proxy_that_is_no_address_is_found_by_the_check(nacre: Nacre, tmp_path: Path, proxy: str) -> None:
    configure(tmp_path, f'[serve]\ntrusted_proxies = ["10.0.0.5", "{proxy}"]\n')
    result = nacre("serve", "--check", "--port", "0", "--json")
    (problem,) = [one["detail"] for one in result.json["checks"] if one["status"] == "fail"]
    assert result.code == 2
    wanted = 'serve.trusted_proxies is IP addresses and networks, as ["10.0.0.5", "fd00::/8"]'
    assert f"{wanted}, not ('10.0.0.5', '{proxy}')" in problem


def test_tokens_count_in_a_daemon_that_runs(tmp_path: Path) -> None:
    configure(tmp_path, '[agent]\nprovider = "openai"\nmodel = "m"\n')
    room = {**environment(tmp_path), "OPENAI_API_KEY": "k"}

    def nacre(*words: str) -> str:
        done = subprocess.run([*PROGRAM, *words], env=room, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    command = [*PROGRAM, "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, env=room, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        url = json.loads(daemon.stdout.readline())["url"]
        bearer = {"Authorization": f"Bearer {nacre('serve', 'tokens', 'add', 'bob', '--role', 'guest')}"}
        before = [httpx.get(f"{url}{path}", headers=bearer).status_code for path in ("api/sessions", "metrics")]
        nacre("serve", "tokens", "revoke", "bob")
        after = httpx.get(f"{url}api/sessions", headers=bearer).status_code
        daemon.terminate()
        daemon.communicate(timeout=60)
    assert (before, after) == ([200, 403], 401)
