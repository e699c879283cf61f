"""OpenAI's list of models, and its embeddings.

The agent is listed by its own name and its model's, further agents by their names. Texts are embedded by the small
model that search and memory use, where it is installed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.config import MAIN
from nacre.index import minilm
from nacre.web.api.api_routes import decode_body, json_response
from nacre.web.api.openai_schemas import Embed, Vector, VectorList
from nacre.web.caller import agent, caller
from nacre.web.http_errors import Fault

_ALIAS = "nacre"
_EMBEDDED_AT_ONCE = 16


async def models(request: Request) -> Response:
    """What may be asked for."""
    return json_response({"object": "list", "data": _model_list(request)})


async def model(request: Request) -> Response:
    """One of them; a slash in its name may be escaped or not."""
    name, listed = unquote(request.path_params["id"], errors="replace"), _model_list(request)
    found = next((one for one in listed if one["id"] == name), None)
    if found is None:
        raise _unknown(name, [one["id"] for one in listed])
    return json_response(found)


async def embed(request: Request) -> Response:
    """A vector for each text."""
    wanted = await decode_body(request, Embed)
    if not minilm.is_installed():
        raise Fault("unsupported", "embeddings are not installed here: run `nacre setup embeddings`, and start again")
    if wanted.model not in (minilm.MODEL, _ALIAS):
        raise Fault("not_found", f"there is no model {wanted.model!r:.200} for embeddings; use {minilm.MODEL!r}")
    if wanted.dimensions not in (None, minilm.WIDTH):
        raise Fault("usage", f"dimensions must be left out: vectors have {minilm.WIDTH} here")
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    if any(isinstance(one, int | list) for one in texts):
        raise Fault(
            "usage",
            "input must be text: tokens of another model mean nothing here "
            "(LangChain sends text with check_embedding_ctx_length=False)",
        )
    if not all(isinstance(one, str) and one for one in texts):
        raise Fault("usage", "input must be a text or a list of texts, none of them empty")
    is_base64 = wanted.encoding_format == "base64"
    return json_response(await to_thread.run_sync(lambda: _embed(texts, is_base64=is_base64)))


def _embed(texts: list[str], *, is_base64: bool) -> VectorList:
    model = minilm.shared_model()
    tokens = model.encode(texts)
    for at, ids in enumerate(tokens):
        if len(ids) > minilm.MAX_TOKENS:
            raise Fault(
                "too_long",
                f"the text at index {at} has {len(ids)} tokens, and the model takes {minilm.MAX_TOKENS}: "
                "split it into smaller ones",
            )
    data: list[Vector] = []
    # A few texts at a time: together they would be as long as the longest, and need as much memory.
    for start in range(0, len(tokens), _EMBEDDED_AT_ONCE):
        for row in model.embed_tokens(tokens[start : start + _EMBEDDED_AT_ONCE]):
            vector = base64.b64encode(row.astype("<f4").tobytes()).decode() if is_base64 else row.tolist()
            data.append(Vector(index=len(data), embedding=vector))
    count = sum(map(len, tokens))
    return VectorList(data=data, model=minilm.MODEL, usage={"prompt_tokens": count, "total_tokens": count})


routes = [
    Route("/v1/models", models),
    Route("/v1/models/{id:path}", model),
    Route("/v1/embeddings", embed, methods=["POST"]),
]


def choose_agent(request: Request, model: str) -> None:
    """Pass a request on to the agent that a model's name means; raises Fault if there is none."""
    own, further = _names(request)
    if model in further:
        request.scope["app"] = request.app.state.sites.of(model)
        return
    names = [*own, *([] if caller(request).is_guest else [agent(request).name]), *further]
    if model not in names:
        raise _unknown(model, names)


def _model_list(request: Request) -> list[dict[str, Any]]:
    made = int(request.app.state.began)
    own, further = _names(request)
    return [{"id": name, "object": "model", "created": made, "owned_by": "nacre"} for name in (*own, *further)]


def _names(request: Request) -> tuple[list[str], list[str]]:
    """The names of this agent, and the agents that the main one stands before; at their own addresses are none."""
    app, further = agent(request), []
    if app.name == MAIN and not caller(request).is_guest:
        further = [name for name in request.app.state.sites.names if name != MAIN]
    return list(dict.fromkeys((_ALIAS, app.provider.model, app.model))), further


def _unknown(name: str, names: Sequence[str]) -> Fault:
    return Fault("not_found", f"there is no model {name!r:.200}; there are: {', '.join(names)}", param="model")
