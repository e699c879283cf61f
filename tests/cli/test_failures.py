"""What is said of a package that is not installed."""

from __future__ import annotations

from importlib import import_module

import pytest

from nacre.cli.failures import Failure, require_extra


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(Failure) as raised, require_extra("acp", "`nacre acp` needs"):
        import_module("no_such_package")
    assert raised.value.to_mapping() == {
        "type": "unavailable",
        "message": "`nacre acp` needs no_such_package",
        "hint": 'pip install "nacre-sessions[acp]"',
    }


def test_a_missing_module_of_our_own_is_not_hidden_behind_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"nacre\.no_such_module"), require_extra("acp", "it needs"):
        import_module("nacre.no_such_module")
