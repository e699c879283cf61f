"""Several agents on one server: below `/agents/NAME/` is everything that the main one has at `/`."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from nacre.config import MAIN, is_name
from nacre.runtime import App
from nacre.web.caller import caller, caller_of
from nacre.web.http_errors import Fault
from nacre.web.pages import urls
from nacre.web.running_turns import Turns

FOLDER = "/agents/"
_SHARED = ("closing", "changes", "began", "parts", "check", "sites", "revocations", "settings", "limits")


class Sites:
    """What the web knows of each agent: a `state` for each, of which only what is everybody's is shared."""

    def __init__(self, main: Starlette, agents: Mapping[str, App]) -> None:
        self._found = {MAIN: main}
        self._agents = agents

    @property
    def names(self) -> list[str]:
        return list(self._agents)

    def of(self, name: str) -> Starlette:
        """The application of an agent as it runs now; raises Fault if there is none of that name."""
        agent = self._agents.get(name)
        if agent is None:
            raise Fault("not_found", f"there is no agent {name!r:.100}; there are: {', '.join(self.names)}")
        if name not in self._found:
            self._found[name] = _beside(self._found[MAIN])
        site = self._found[name]
        site.state.agent = agent
        return site


class Several:
    """Hands requests the application of the agent that they are for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sites: Sites = scope["app"].state.sites
        name, who = scope.get("root_path", "").removeprefix(FOLDER), caller_of(scope)
        if who.agent:
            # A guest talks to one agent, and need not know its name, nor that there are others.
            if name not in {"", who.agent} or who.agent not in sites.names:
                raise Fault("not_found", "there is nothing here")
            name = who.agent
        await self._app({**scope, "app": sites.of(name or MAIN)}, receive, send)


def split(path: str) -> tuple[str, str]:
    """What a path begins with if it is a further agent's, and the rest."""
    name, _, rest = path.removeprefix(FOLDER).partition("/")
    if not path.startswith(FOLDER) or not is_name(name):
        return "", path
    return f"{FOLDER}{name}", f"/{rest}"


def switch(request: Request) -> str:
    """The way to the other agents, for a page; nothing if there is only one."""
    sites: Sites = request.app.state.sites
    if caller(request).is_guest:
        return ""
    mine: str = request.app.state.agent.name
    shown = "".join(_link(name, is_here=name == mine) for name in sites.names)
    return f'<nav class="agents" aria-label="Agents">{shown}</nav>' if len(sites.names) > 1 else ""


def _link(name: str, *, is_here: bool) -> str:
    here = ' aria-current="page"' if is_here else ""
    folder = "/" if name == MAIN else f"{FOLDER}{name}/"
    return f'<a href="{urls.prefix()}{folder}"{here}>{name}</a> '


def _beside(main: Starlette) -> Starlette:
    site = Starlette()
    for name in _SHARED:
        setattr(site.state, name, getattr(main.state, name))
    site.state.turns = Turns()
    site.state.turns.traffic = main.state.turns.traffic
    return site
