"""OpenAI's list of models: the agent by its own name and its model's, and further agents by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.config import MAIN
from nacre.runtime import App
from nacre.web.api.api_routes import answered
from nacre.web.caller import agent, caller
from nacre.web.http_errors import Fault

_ALIAS = "nacre"


async def models(request: Request) -> Response:
    """What may be asked for."""
    return answered({"object": "list", "data": _listed(request)})


async def model(request: Request) -> Response:
    """One of them; a slash in its name may be escaped or not."""
    name, listed = unquote(request.path_params["id"], errors="replace"), _listed(request)
    found = next((one for one in listed if one["id"] == name), None)
    if found is None:
        raise _unknown(name, [one["id"] for one in listed])
    return answered(found)


routes = [Route("/v1/models", models), Route("/v1/models/{id:path}", model)]


def choose_agent(request: Request, model: str) -> None:
    """Pass a request on to the agent that a model's name means; raises Fault if there is none."""
    further = _further(request)
    if model in further:
        request.scope["app"] = request.app.state.sites.of(model)
        return
    app = agent(request)
    names = [*_names_of(app), *([] if caller(request).is_guest else [app.name]), *further]
    if model not in names:
        raise _unknown(model, names)


def _listed(request: Request) -> list[dict[str, Any]]:
    made = int(request.app.state.began)
    names = [*_names_of(agent(request)), *_further(request)]
    return [{"id": name, "object": "model", "created": made, "owned_by": "nacre"} for name in names]


def _names_of(app: App) -> list[str]:
    return list(dict.fromkeys((_ALIAS, app.provider.model, app.model)))


def _further(request: Request) -> list[str]:
    """The agents that the main one stands before; at their own addresses there is only each of them."""
    if request.app.state.agent.name != MAIN or caller(request).is_guest:
        return []
    return [name for name in request.app.state.sites.names if name != MAIN]


def _unknown(name: str, names: Sequence[str]) -> Fault:
    return Fault("not_found", f"there is no model {name!r:.200}; there are: {', '.join(names)}", param="model")
