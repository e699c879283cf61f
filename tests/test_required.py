from __future__ import annotations

import pytest

from tests.required import ROOT, require, require_adapter


def test_what_is_missing_skips_a_test_and_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser: install one"):
        require(None, "no browser: install one")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no browser: install one"):
        require(None, "no browser: install one")
    require("/usr/bin/chromium", "no browser: install one")


def test_an_adapter_without_an_environment_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no-such is not installed: make \.venv/adapters/no-such"):
        require_adapter("no-such")


def test_make_installs_the_environment_of_every_adapter_before_the_tests() -> None:
    rules = (ROOT / "Makefile").read_text()
    (needed,) = (line for line in rules.splitlines() if line.startswith("test:"))
    assert "$(ADAPTERS:%=.venv/adapters/%/.installed)" in needed
