"""The package itself: every name it promises, loaded when it is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nacre


@pytest.mark.parametrize("name", nacre.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(nacre, name) is not None


def test_modules_are_reached_through_the_package() -> None:
    program = "import nacre; print(nacre.errors.Refused.__name__)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "Refused\n"
    assert vars(nacre)["__getattr__"]("errors").Refused is nacre.Refused


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        nacre.nope  # noqa: B018


def test_importing_it_loads_no_event_loop_network_or_database() -> None:
    program = "import nacre, sys; nacre.open(':memory:'); print({'asyncio', 'ssl', 'sqlite3'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
