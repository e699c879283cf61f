"""Which store a command works on, and where what is not in it is kept."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

import nacre as library
from nacre import config
from nacre.cli.store_choice import main_root, main_store, root_of, shown_store, store_of
from nacre.errors import ConfigError
from tests.cli.conftest import Nacre

URL = "postgresql://ada@127.0.0.1/db"
SECRET = "geheim-geheim"  # noqa: S105 - it opens nothing


def choice(store: str | None = None, agent: str = "main") -> Namespace:
    return Namespace(store=store, agent=agent)


def configure(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "config" / "nacre"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f'[store]\nurl = "{url}"\n')


def test_without_anything_the_store_is_the_local_folder(nacre: Nacre) -> None:
    assert store_of(choice()) == root_of(choice()) == str(nacre.root)
    assert store_of(choice(agent="clerk")) == root_of(choice(agent="clerk")) == f"{nacre.root}/agents/clerk"


def test_the_file_is_second_to_the_environment_and_that_to_the_option(
    nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, f"{URL}?schema=file")
    assert store_of(choice()) == f"{URL}?schema=file"
    monkeypatch.setenv("NACRE_STORE_URL", f"{URL}?schema=variable")
    assert store_of(choice()) == f"{URL}?schema=variable"
    assert store_of(choice(f"{URL}?schema=option")) == f"{URL}?schema=option"
    assert store_of(choice(str(tmp_path / "folder"))) == str(tmp_path / "folder")
    # An empty variable is the local folder.
    monkeypatch.setenv("NACRE_STORE_URL", "")
    assert store_of(choice()) == str(nacre.root)


def test_what_is_not_in_a_database_is_in_the_local_folder(nacre: Nacre, tmp_path: Path) -> None:
    for agent, inside in (("main", ""), ("clerk", "/agents/clerk")):
        assert root_of(choice(URL, agent)) == f"{nacre.root}{inside}"
        assert main_root(choice(URL, agent)) == str(nacre.root)
    assert root_of(choice(str(tmp_path / "folder"))) == str(tmp_path / "folder")


def test_another_agent_of_a_database_has_its_own_schema(nacre: Nacre) -> None:
    assert store_of(choice(URL, "clerk")) == f"{URL}?schema=nacre_clerk"
    assert main_store(choice(URL, "clerk")) == URL


def test_a_password_is_accepted_from_the_environment_and_not_shown(
    nacre: Nacre,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NACRE_STORE_URL", f"postgresql://ada:{SECRET}@127.0.0.1/db")
    assert SECRET in store_of(choice())
    assert shown_store(choice()) == URL
    # What is shown can be given again.
    assert SECRET in store_of(choice(URL))
    assert SECRET not in store_of(choice("postgresql://bob@127.0.0.1/db"))


def test_a_password_is_refused_on_a_command_line(nacre: Nacre) -> None:
    with pytest.raises(ConfigError, match="NACRE_STORE_URL or PGPASSWORD") as caught:
        store_of(choice(f"postgresql://ada:{SECRET}@127.0.0.1/db"))
    assert SECRET not in str(caught.value)


def test_a_password_is_refused_in_the_file(nacre: Nacre, tmp_path: Path) -> None:
    configure(tmp_path, f"postgresql://ada:{SECRET}@127.0.0.1/db")
    with pytest.raises(ConfigError, match="with its password") as caught:
        store_of(choice())
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(config.complaints(config.read(), {}))


def test_a_file_that_cannot_be_read_is_an_error_not_another_store(nacre: Nacre, tmp_path: Path) -> None:
    configure(tmp_path, 'x"')
    with pytest.raises(ConfigError, match="cannot be read"):
        store_of(choice())


@pytest.mark.parametrize("url", ["/a/folder", "mysql://h/db", "postgresql://db.example/x?sslmode=disable"])
def test_what_is_no_usable_address_is_an_error(nacre: Nacre, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("NACRE_STORE_URL", url)
    with pytest.raises(ConfigError, match="NACRE_STORE_URL"):
        store_of(choice())


def test_an_agent_cannot_have_an_address_of_its_own(nacre: Nacre) -> None:
    (problem,) = config.problems({"agents": {"clerk": {"store": {"url": URL}}}}, {})
    assert "store cannot be set for one agent" in problem.text


def test_the_address_of_a_database_is_no_home(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_HOME", f"postgresql://ada:{SECRET}@127.0.0.1/db")
    for words in (("store",), ("doctor",), ("sessions", "list"), ("serve", "--check"), ("chat", "hello")):
        done = nacre(*words)
        assert (done.code, done.out, SECRET in done.err) == (2, "", False), (words, done)
        assert "put the address of a database into NACRE_STORE_URL" in done.err
    with pytest.raises(ConfigError, match="NACRE_HOME is a folder"):
        library.open()
