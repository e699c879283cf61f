"""The documentation site: it is built without a warning, has every page, and asks nothing of another server."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.required import require

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

ROOT = Path(__file__).parents[1]
MKDOCS = ROOT / ".venv" / "site" / "bin" / "mkdocs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOWN = (
    "",
    *("tutorial.html", "adapters.html", "comparison.html", "examples.html"),
    *("reference.html", "api/adapters.html", "architecture.html"),
)
# What a browser loads by itself: by tag, the attribute that says from where. A link to click on is not among them.
LOADED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "script": "src",
    "source": "src",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` builds it."""
    require(MKDOCS.exists(), "what makes the site is not installed: make site")
    built = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(built)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # `--strict` makes every warning of ours an error; what tools say of themselves may change with their versions.
    assert ran.returncode == 0, ran.stderr
    return built


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site, served below a path, as project pages are."""

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return super().translate_path(path.removeprefix("/nacre"))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/nacre/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    require(CHROMIUM, "there is no Chromium here: apt-get install chromium")
    require(importlib.util.find_spec("playwright"), "Playwright is not installed: pip install playwright")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where there is one

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = found.new_context()
        # Its own is 30 seconds, which a busy machine may need.
        context.set_default_timeout(120_000)
        yield context
        found.close()


def loads(page: Path) -> list[str]:
    """What a page makes a browser load."""
    found: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(dict(attrs).get(LOADED.get(tag, ""), None) or "")

    Parser().feed(page.read_text(encoding="utf-8"))
    return [address for address in found if address]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loaded = {address for page in pages for address in loads(page)}
    assert any(address.endswith(".js") for address in loaded)
    assert [address for address in loaded if re.match(r"(\w+:)?//", address)] == []


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert [
        found for style in styles for found in re.findall(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", style)
    ] == []


def test_a_link_leads_to_a_page_where_the_site_is_opened_without_a_server(site: Path) -> None:
    links = re.findall(r'<a[^>]* href="([^"#?:]+)[^"]*" class="md-nav__link', (site / "index.html").read_text())
    links += re.findall(r'href="([^"#?:]+)[^":]*"', (site / "adapters.html").read_text())
    assert "tutorial.html" in links
    assert [link for link in links if not (site / link).is_file()] == []


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md")]
    assert [str(page) for page in pages if not (site / f"{page}.html").exists()] == []


def test_the_interface_is_described_once(site: Path) -> None:
    assert 'id="sessionsadd_message"' in (site / "reference.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in (site / "api").iterdir()) == ["adapters.html", "conformance.html"]


def test_the_page_of_the_conformance_suite_has_how_to_describe_a_store_and_how_to_run(site: Path) -> None:
    page = (site / "api" / "conformance.html").read_text(encoding="utf-8")
    described = re.findall(r'<h[23] id="nacre\.testing\.conformance\.([\w.]+)"', page)
    assert {"Store", "Factory", "Report", "run.run"} <= set(described)
    assert len(described) == len({name.rpartition(".")[2] for name in described})
    assert 'id="nacre.testing.conformance.Store.append"' in page


@pytest.mark.parametrize("name", ["adapters", "conformance"])
def test_an_example_in_a_docstring_is_no_quotation(site: Path, name: str) -> None:
    assert "<blockquote>" not in (site / "api" / f"{name}.html").read_text(encoding="utf-8")


def adapter_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of all adapters, with their modules, which are not imported: the frameworks are not installed."""
    for path in (ROOT / "src" / "nacre" / "integrations").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Nacre"):
                yield f"nacre.integrations.{path.stem}", node


def test_the_reference_of_the_adapters_has_a_heading_for_each_framework(site: Path) -> None:
    page = (site / "api" / "adapters.html").read_text(encoding="utf-8")
    used = (ROOT / "docs" / "adapters.md").read_text().partition("## How each is used")[2].partition("\n## ")[0]
    frameworks = re.findall("^### (.+)", used, re.MULTILINE)
    assert re.findall(r'<h2 id="[^"]+">([^<]+)', page) == frameworks


def test_the_reference_of_the_adapters_says_how_to_import_and_make_each_and_has_all_methods(site: Path) -> None:
    html = (site / "api" / "adapters.html").read_text(encoding="utf-8")
    text = unescape(re.sub("<[^>]+>", "", html))
    for module, adapter in adapter_classes():
        assert re.search(rf"^from {module} import .*\b{adapter.name}\b", text, re.MULTILINE)
        assert re.search(rf"^{adapter.name}\(\s*\w+: ", text, re.MULTILINE)
        methods = {one.name for one in adapter.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        public = {name for name in methods if name[0] != "_"} - {"class_name"}  # LlamaIndex calls it, nobody else
        assert public == set(re.findall(rf'id="{module}\.{adapter.name}\.(\w+)"', html)) & methods


def test_the_code_of_an_example_is_on_the_site(site: Path) -> None:
    page = (site / "examples.html").read_text(encoding="utf-8")
    assert 'href="#loops-tools_loop"' in page
    assert 'id="loops-tools_loop"' in page


@pytest.mark.parametrize("path", SHOWN)
def test_a_browser_asks_nobody_else_and_complains_of_nothing(browser: BrowserContext, address: str, path: str) -> None:
    complaints: list[str] = []
    requests: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("request", lambda asked: requests.append(asked.url))
    page.on("requestfailed", lambda asked: complaints.append(asked.url))
    answer = page.goto(address + path, wait_until="networkidle")
    assert answer is not None
    assert answer.status == 200
    assert page.locator("h1").first.is_visible()
    page.close()
    assert complaints == []
    assert [asked for asked in requests if not asked.startswith((address, "data:", "blob:"))] == []


def test_a_search_finds_a_page_and_leads_there(browser: BrowserContext, address: str) -> None:
    requests: list[str] = []
    page = browser.new_page()
    page.on("request", lambda asked: requests.append(asked.url))
    page.goto(address)
    page.locator("[data-md-component=search-query]").first.fill("truncate_history")
    result = page.locator("[data-md-component=search-result] a").first
    result.wait_for()
    result.click()
    page.wait_for_url(lambda url: url.split("?")[0].split("#")[0] != address)
    assert "truncate_history" in page.locator("article").inner_text()
    page.close()
    assert [asked for asked in requests if not asked.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize(
    ("words", "path"),
    [("MCP", "mcp-server.html"), ("ACP", "editors.html"), ("OpenTelemetry", "telemetry.html")],
)
def test_a_page_is_found_by_the_name_of_its_protocol(
    browser: BrowserContext, address: str, words: str, path: str
) -> None:
    page = browser.new_page()
    page.goto(address)
    assert words in page.locator(f".md-nav--primary a[href='{path}']").inner_text()
    page.locator("[data-md-component=search-query]").first.fill(words)
    result = page.locator("[data-md-component=search-result] a").first
    result.wait_for()
    assert words in result.locator("h1").inner_text()
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_its_window_and_no_name_in_a_table_is_cut(
    browser: BrowserContext, address: str, width: int
) -> None:
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    for path in SHOWN:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") == width, path
        # A name that is broken has a rectangle for each line.
        broken = """names => names.filter(it => !/[^\\w.]/.test(it.innerText) && it.getClientRects().length > 1)
            .map(it => it.innerText)"""
        assert page.locator("article td code").evaluate_all(broken) == [], path
        cut = "calls => calls.filter(it => it.scrollWidth > it.clientWidth).map(it => it.innerText)"
        assert page.locator(".doc-signature code").evaluate_all(cut) == [], path
    page.close()


@pytest.mark.parametrize("words", ["Pydantic AI", "asyncio"])
def test_a_search_finds_a_page_for_users_before_a_decision(browser: BrowserContext, address: str, words: str) -> None:
    page = browser.new_page()
    page.goto(address)
    page.locator("[data-md-component=search-query]").first.fill(words)
    result = page.locator("[data-md-component=search-result] a").first
    result.wait_for()
    assert "decisions/" not in (result.get_attribute("href") or "")
    page.close()
