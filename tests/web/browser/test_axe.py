"""Every page, light and dark, on a phone and on a desk, checked by axe-core, the engine of other people's audits."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nacre
from nacre.agent.ports import Tool
from nacre.messages import Message
from nacre.providers.scripted import Call, Pause, Step
from nacre.storage.paths import SessionPaths
from nacre.tools.functions import Function
from tests.web.browser.site import called, fill, returned, served
from tests.web.browser.test_reading import ANSI, PICTURE
from tests.web.browser.test_talking import Never, wipe, write

if TYPE_CHECKING:
    from playwright.sync_api import Page

Visit = Callable[..., "Page"]
AXE = "4.14.0"
# Beside the rules that are on by themselves: targets of at least 24 pixels (WCAG 2.2, 2.5.8).
RUN = """options => axe.run(document, {resultTypes: ["violations"], ...options}).then(found =>
  found.violations.flatMap(one => one.nodes.map(node => `${one.id}: ${node.target}: ${node.failureSummary}`)))"""
# Of all rules only those of colours can tell light from dark.
RULES: Mapping[str, Any] = {
    "light": {"rules": {"target-size": {"enabled": True}}},
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}},
}
TOOLS: dict[str, Tool] = {"wipe": Function(wipe, effect="write")}
TEXT = """# A heading

It *is* `code`, [a link](https://a.example/x) and ~~more~~.

```python
def f(x: int) -> str:  # why
    return f"{x}" if x > 1 else 'none'
```

| a | b |
|---|---|
| one | a cell that is very much longer than the screen of a phone is wide, and does not break its_words |

- [x] done
- [ ] to do

> quoted

שלום
"""
PAGES = (
    "/",
    "/?pinned=1&state=idle",
    "/?archived=1",
    "/?text=nothing-like-it",
    "/s/web:k",
    "/s/web:sum",
    "/s/web:sum?tip=44",
    "/s/web:old",
    "/s/web:gone",
    "/s/web:failed",
    "/search?q=text",
    "/search?q=nothing-like-it",
    "/new",
    "/use/web:k",
    "/model/web:k",
    "/s/nobody",
    "/nowhere/at/all",
)


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, installed once for all runs and all workers of a run."""
    if shutil.which("npm") is None:
        pytest.skip("axe-core is installed by npm, which is not on the path")
    cache = getattr(request.config, "cache", None)
    room = cache.mkdir(f"axe-core-{AXE}") if cache is not None else tmp_path_factory.mktemp("axe")
    source = room / "node_modules" / "axe-core" / "axe.min.js"
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(room), f"axe-core@{AXE}"]
    with (room / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not source.exists():
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode:
                pytest.skip(f"axe-core could not be installed: {done.stderr.strip()[-200:]}")
    return str(source.read_text("utf-8"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with nacre.open(str(root)) as sessions:
        sessions.add_message("irc:other", "user", "of another channel")
        sessions.add_message("web:old", "user", "the oldest of the web")
        sessions.archive("web:old")
        sessions.add_message("web:k", "user", "Look around.")
        for at in range(4):
            sessions.add_messages("web:k", [called(f"c{at}", "read_file", path=f"{at}.txt")])
            sessions.add_messages("web:k", [returned(f"c{at}", "read_file", f"text of {at}\n" * 99)])
        edit = {"path": "a.py", "old_text": "a\nb\nc", "new_text": "a\nB\nc"}
        sessions.add_messages("web:k", [called("e", "edit_file", **edit)])
        sessions.add_messages("web:k", [returned("e", "edit_file", ANSI, failed=True)])
        sessions.add_messages("web:k", [Message(role="assistant", content=TEXT, reasoning="Hm.", model="m")])
        content = [{"type": "text", "text": "A picture"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        sessions.add_full_message("web:k", Message(role="user", content=content))
        sessions.append("web:k", "use", {"prompt": 9000, "completion": 80})
        sessions.set_meta("web:k", title="Around", tags=["work"], pinned=True, cwd="/home/ada/work")
        fill(sessions, "web:sum", 40)
        sessions.set_summary("web:sum", "Many parts.", upto=21)
        sessions.add_message("web:sum", "user", "One way")
        sessions.rewind("web:sum", 41)
        sessions.add_message("web:sum", "user", "Another way")
        sessions.add_message("web:gone", "user", "lost")
        sessions.add_message("web:failed", "user", "are you there?")
        sessions.append("web:failed", "x.failed", {"after": 2, "code": "provider", "reason": "the model is asleep"})
        sessions.add_message("web:hurt", "user", "kept")
        sessions.add_message("web:hurt", "user", "hurt")
    Path(SessionPaths.of(str(root), "web:gone").log).write_bytes(b"")
    hurt = Path(SessionPaths.of(str(root), "web:hurt").log)
    hurt.write_bytes(hurt.read_bytes().replace(b"hurt", b"hXrt"))
    with nacre.open(str(root)) as sessions:
        sessions.repair("web:hurt")
    return root


def faults(page: Page, where: str) -> Iterator[str]:
    """What axe finds in a page as it is, at each size, in each scheme."""
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 800})
        for scheme, rules in RULES.items():
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            yield from (f"{where}, {width}, {scheme}: {one}" for one in page.evaluate(RUN, rules))


def test_axe_finds_nothing_on_any_page(root: Path, axe: str, visit: Visit) -> None:
    found: list[str] = []
    steps: list[Step] = [["I begin", Pause(Never())], Call("wipe", {"path": "a.txt"}), "Done."]
    with served(root, steps, tools=TOOLS) as url:
        page = visit(url, "/", forgiven="Failed to load resource", reduced_motion="reduce")

        def check(where: str, act: Callable[[], Any] = lambda: None) -> None:
            act()
            found.extend(faults(page, where))

        for path in PAGES:
            page.goto(url + path)
            page.evaluate(axe)
            page.evaluate("document.querySelectorAll('details:not(.menu)').forEach(one => { one.open = true })")
            check(path)
        page.goto(f"{url}/s/web:k")
        page.evaluate(axe)
        check("menu", lambda: page.click(".menu > summary"))
        check("help", lambda: page.evaluate("document.querySelector('#help').showModal()"))
        page.keyboard.press("Escape")
        check("sidebar", lambda: page.evaluate("document.querySelector('#side').showPopover()"))
        page.goto(f"{url}/s/irc:other")
        page.evaluate(axe)
        write(page, "go")
        page.wait_for_selector("#live >> text=I begin")
        check("a turn that runs")
        page.set_input_files("#choose", {"name": "a.bin", "mimeType": "", "buffer": b"\xff"})
        page.wait_for_selector("#refused >> text=a.bin")
        write(page, "and more")
        check("a message that waits and a file that is refused")
        page.click("#waiting button")
        page.fill("#say textarea", "")
        page.click("#stop")
        page.wait_for_selector("section >> text=stopped by the user")
        write(page, "wipe it")
        page.wait_for_selector(".ask")
        check("a tool that asks")
        page.click(".ask .no")
        page.wait_for_selector("section >> text=Done.")
        page.context.clear_cookies()
        page.goto(f"{url}/login")
        page.evaluate(axe)
        check("/login")
    assert found == []
