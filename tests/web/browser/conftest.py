"""A real browser: Debian's Chromium, driven by Playwright; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.web.browser.site import TOKEN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
Visit = Callable[..., "Page"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed: pip install playwright")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where there is one

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens a page of a server, logged in; whatever the page complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def visited(
        url: str,
        path: str,
        *,
        width: int = 1000,
        height: int = 800,
        scheme: str = "light",
        forgiven: str = "",
        **options: Any,
    ) -> Page:
        """Open a page; `forgiven` is a complaint that is to be expected."""
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text)
                if said.type == "error" and not (forgiven and forgiven in said.text)
                else None
            ),
        )
        page.on(
            "request", lambda asked: complaints.append(asked.url) if not asked.url.startswith((url, "data:")) else None
        )
        page.goto(f"{url}/login?next={quote(path, safe='')}#token={quote(TOKEN)}")
        page.wait_for_url(lambda address: "/login" not in address)
        return page

    yield visited
    for context in contexts:
        context.close()
    assert complaints == []
