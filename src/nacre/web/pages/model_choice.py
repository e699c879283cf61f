"""Which model answers in a session: all that can be reached, to choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nacre.errors import ConfigError, ModelUnavailable
from nacre.render.html import escaped
from nacre.render.text import one_line
from nacre.runtime import App
from nacre.runtime.assembly import CHOSEN
from nacre.runtime.model_list import Listed, list_all
from nacre.web.api import queries
from nacre.web.pages import urls


def model_of(app: App, meta: Mapping[str, object]) -> str:
    """The name of the model that answers in a session; of a chosen one that cannot answer any more, too."""
    try:
        return app.provider_named(meta.get(CHOSEN)).ref
    except (ModelUnavailable, ConfigError):
        # The session can be read all the same, and another model chosen.
        return str(meta.get(CHOSEN, ""))


async def html(app: App, key: str, current: str) -> str:
    """The choice as a form, a button for each model; `current` answers now."""
    listed = await list_all(app.settings)
    own = _button("", f"the agent's own: {app.model}", is_here=current == app.model)
    # The agent's own is listed once more among the others: one of the two is chosen, not both.
    groups = "".join(_group(one, "" if current == app.model else current) for one in listed)
    return (
        f'<form class="models" method="post" action="{escaped(urls.to("do/model", key))}">'
        f"<p>It answers in this session from the next message on.</p>{own}{groups}</form>"
    )


async def chosen(app: App, key: str, model: str) -> str:
    """Keep a choice in a session's meta, "" for none; returns where to go. Raises ModelUnavailable, ConfigError."""
    ref = await app.find_choice(model) if model else ""
    queries.describe(app.sessions, key, {CHOSEN: ref or None})
    return urls.to("s", key)


def _group(listed: Listed, current: str) -> str:
    place = "" if listed.is_local else " · remote: the session is sent there"
    problem = f'<p class="none">{escaped(one_line(listed.problem))}</p>' if listed.problem else ""
    names: Sequence[str] = [info.name for info in listed.models if info.can_chat]
    rows = "".join(_button(f"{listed.kind}/{name}", name, is_here=f"{listed.kind}/{name}" == current) for name in names)
    return f"<h2>{escaped(listed.kind)}{place}</h2>{rows}{problem}"


def _button(ref: str, words: str, *, is_here: bool) -> str:
    here = ' aria-pressed="true"' if is_here else ' aria-pressed="false"'
    return f'<button name="model" value="{escaped(ref)}"{here}>{escaped(one_line(words))}</button>'
