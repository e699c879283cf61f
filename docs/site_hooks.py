"""What `make site` does besides rendering docs/: pages from elsewhere, two of docstrings, links that stay inside.

The pages are written to be read in the repository, and none is changed for the site.
"""

# ruff: noqa: INP001 - mkdocs loads this file by its path

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
# Pages outside docs/, and where they are on the site.
ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
# The adapters, under the headings that they have in docs/adapters.md: the module of each, and what is in it.
ADAPTERS = {
    "OpenAI Agents SDK": ("openai_agents", ["NacreSession"]),
    "LangGraph": ("langgraph", ["NacreSaver", "read_messages"]),
    "Claude Agent SDK": ("claude_agent", ["NacreSessionStore"]),
    "Pydantic AI": ("pydantic_ai", ["NacreConversationStore"]),
    "Google ADK": ("adk", ["NacreSessionService"]),
    "Strands Agents": ("strands", ["NacreSessionRepository", "NacreStorage"]),
    "Microsoft Agent Framework": ("agent_framework", ["NacreHistoryProvider"]),
    "LlamaIndex": ("llama_index", ["NacreChatStore", "NacreAsyncChatStore"]),
}
CONFORMANCE = """# The conformance suite

From the docstrings. A store to try it with is in [the comparison](../comparison.md#try-your-own-store).

::: nacre.testing.conformance

::: nacre.testing.conformance.run.run
"""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`(?!\]))", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Add every page that the navigation does not name: a how-to, or a decision."""
    sections = {name: pages for section in config.nav for name, pages in section.items()}
    named = {page for pages in sections.values() for one in _as_list(pages) for page in one.values()}
    docs = ROOT / "docs"
    sections["How-to"] += [{_title(page): page.name} for page in sorted(docs.glob("*.md")) if page.name not in named]
    decisions = [{_title(page): f"decisions/{page.name}"} for page in sorted((docs / "decisions").glob("*.md"))]
    sections["Explanation"].append({"Decisions": decisions})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from elsewhere, and those of docstrings: what `import nacre` offers is in docs/reference.md."""
    for source, path in ELSEWHERE.items():
        text = _inside((ROOT / source).read_text(encoding="utf-8"), source)
        if path == "examples.md":
            text = _with_files(text)
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "api/adapters.md", content=_adapters()))
    files.append(File.generated(config, "api/conformance.md", content=CONFORMANCE))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page in docs/ that lead out of it; a search finds decisions after what is for users."""
    source = page.file.src_uri
    if source.startswith("decisions/"):
        page.meta["search"] = {"boost": 0.1}
    return markdown if page.file.generated_by else _inside(markdown, f"docs/{source}")


def _inside(text: str, source: str) -> str:
    """The text of a page with links to where their targets are on the site; to what is not there, only the words."""
    home = posixpath.dirname(ELSEWHERE.get(source, source.removeprefix("docs/")))

    def turned(found: re.Match[str]) -> str:
        mark, words, link = found.groups()
        path, sign, anchor = link.partition("#")
        if ":" in path or not path:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if source == "examples/README.md" and path.endswith(".py"):
            return f"{mark}[{words}](#{_anchor(path)})"
        on_site = ELSEWHERE.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else "")
        if not on_site or not (ROOT / target).is_file():
            return words
        return f"{mark}[{words}]({posixpath.relpath(on_site, home or '.')}{sign}{anchor})"

    parts = CODE.split(text)
    return "".join(part if number % 2 else LINK.sub(turned, part) for number, part in enumerate(parts))


def _with_files(text: str) -> str:
    """The page of examples, with each of them below it."""
    examples = ROOT / "examples"
    lines = [text, "## The files", ""]
    for path in sorted(examples.rglob("*.py")):
        name = path.relative_to(examples).as_posix()
        code = path.read_text(encoding="utf-8")
        lines += [f"### {name} {{ #{_anchor(name)} }}", "", "```py", code.rstrip("\n"), "```", ""]
    return "\n".join(lines)


def _adapters() -> str:
    """The reference of the adapters: for each its framework, how it is imported, and what is in it."""
    parts = ["# Adapters, class by class", "From the docstrings. How each is used is in [Adapters](../adapters.md)."]
    for framework, (module, names) in ADAPTERS.items():
        anchor = framework.lower().replace(" ", "-")
        parts += [
            f"## {framework}",
            f"```py\nfrom nacre.integrations.{module} import {', '.join(names)}\n```",
            f"To install and use it: [{framework}](../adapters.md#{anchor}).",
        ]
        options = "    options:\n      heading_level: 3\n      merge_init_into_class: true"
        parts += [f"::: nacre.integrations.{module}.{name}\n{options}" for name in names]
    return "\n\n".join(parts) + "\n"


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name.removesuffix(".py"))


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _as_list(pages: Any) -> list[dict[str, str]]:
    return [{"": pages}] if isinstance(pages, str) else pages
