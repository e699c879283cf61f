"""OpenAI's embeddings, by the small model that search and memory use, where it is installed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.index import minilm
from nacre.web.api.api_routes import answered, decoded, json_body
from nacre.web.api.openai_schemas import Embed, Vector, VectorList
from nacre.web.http_errors import Fault

_NAMES = (minilm.MODEL, "nacre")
_AT_ONCE = 16


async def embed(request: Request) -> Response:
    """A vector for each text."""
    wanted = decoded(await json_body(request), Embed)
    if not minilm.is_installed():
        raise Fault("unsupported", "embeddings are not installed here: run `nacre setup embeddings`, and start again")
    if wanted.model not in _NAMES:
        raise Fault("not_found", f"there is no model {wanted.model!r:.200} for embeddings; use {minilm.MODEL!r}")
    if wanted.dimensions not in (None, minilm.WIDTH):
        raise Fault("usage", f"dimensions must be left out: vectors have {minilm.WIDTH} here")
    texts = _texts(wanted.input)
    return answered(await to_thread.run_sync(_embedded, texts, wanted.encoding_format == "base64"))


routes = [Route("/v1/embeddings", embed, methods=["POST"])]


def _texts(given: str | list[Any]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if any(isinstance(one, int | list) for one in texts):
        raise Fault(
            "usage",
            "input must be text: tokens of another model mean nothing here "
            "(LangChain sends text with check_embedding_ctx_length=False)",
        )
    if not all(isinstance(one, str) and one for one in texts):
        raise Fault("usage", "input must be a text or a list of texts, none of them empty")
    return texts


def _embedded(texts: list[str], is_base64: bool) -> VectorList:  # noqa: FBT001 - it is called by a thread
    model = minilm.shared_model()
    tokens = model.encode(texts)
    for at, ids in enumerate(tokens):
        if len(ids) > minilm.MOST_TOKENS:
            raise Fault(
                "too_long",
                f"the text at index {at} has {len(ids)} tokens, and the model takes {minilm.MOST_TOKENS}: "
                "split it into smaller ones",
            )
    data = [
        Vector(
            index=at, embedding=base64.b64encode(row.astype("<f4").tobytes()).decode() if is_base64 else row.tolist()
        )
        for at, row in enumerate(_rows(model, tokens))
    ]
    count = sum(map(len, tokens))
    return VectorList(data=data, model=minilm.MODEL, usage={"prompt_tokens": count, "total_tokens": count})


def _rows(model: minilm.MiniLM, tokens: list[list[int]]) -> Iterator[Any]:
    """A few texts at a time: together they would be as long as the longest, and need as much memory."""
    for start in range(0, len(tokens), _AT_ONCE):
        yield from model.embed_tokens(tokens[start : start + _AT_ONCE])
