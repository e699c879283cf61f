"""The OpenAPI document says what the server does, and a machine that reads it finds nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode, checks

from nacre.errors import SessionNotFound
from nacre.index import minilm
from nacre.web import health
from nacre.web.api import api_routes, openai_completions, openai_models, openai_responses, openapi
from tests.web.conftest import TOKEN, Echo, Site, served

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
DOCUMENT = msgspec.json.decode(openapi.document())
REFUSED = {
    *("logprobs", "top_logprobs", "modalities", "audio", "functions", "function_call", "moderation"),
    *("web_search_options", "tools", "tool_choice", "response_format"),
}
"""Parameters of a chat that have valid values which are not for everybody."""
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.positive_data_acceptance,
    checks.unsupported_method,
    checks.ignored_auth,
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for everything that is tried."""
    with served(tmp_path_factory.mktemp("openapi") / "store", Echo()) as found:
        yield found


def test_every_operation_has_a_route_and_every_route_an_operation() -> None:
    documented = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    parts = (api_routes, openai_models, openai_completions, openai_responses, health)
    routes = [route for part in parts for route in part.routes]
    routed = {(method, route.path.replace(":path}", "}")) for route in routes for method in route.methods or ()} - {
        (method, "/openapi.json") for method in ("GET", "HEAD")
    }
    assert documented == {one for one in routed if one[0] != "HEAD"}


def test_every_shape_that_is_named_is_there() -> None:
    text = openapi.document().decode()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == set(DOCUMENT["components"]["schemas"])


@contextmanager
def filled(site: Site, operation: openapi.Operation) -> Iterator[None]:
    """Sessions that a guess may hit, in the state that the operation is for."""
    for key in ("0", "00", "a"):
        if not site.sessions.exists(key):
            site.sessions.add_message(key, "user", "hello")
        if operation.id == "unarchive":
            with suppress(SessionNotFound):
                site.sessions.archive(key)
    yield


def stored_response(site: Site) -> str:
    """The id of a response; it is made again if it was deleted."""
    body = {"model": "nacre", "input": "hello"}
    id: str = site.client.post("/v1/responses", json=body, headers={"Idempotency-Key": "r"}).json()["id"]
    return id


def answerable(case: Any, site: Site) -> None:
    """Make a valid case one that ends, and that is for somebody: what else a schema cannot say."""
    if case.operation.path.endswith("/events"):
        case.query = {**(case.query or {}), "wait": "no"}
    if case.operation.path.endswith("/completions"):
        used = {name: value for name, value in case.body.items() if name not in REFUSED}
        case.body = {**used, "model": "nacre", "messages": [{"role": "user", "content": "hello"}], "n": 1}
    if case.operation.path == "/v1/responses" and case.operation.method == "post":
        case.body = {"model": "nacre", "input": "hello", "stream": case.body.get("stream")}
    if case.operation.path == "/v1/responses/{id}":
        case.path_parameters = {"id": stored_response(site)}
    if case.operation.path == "/v1/embeddings":
        case.body = {**case.body, "model": "nacre", "dimensions": 384}
    if case.operation.path == "/v1/models/{id}":
        case.path_parameters = {"id": "echo/echo"}
    if case.operation.path.endswith("/messages/{n}"):
        case.path_parameters, case.query = {**case.path_parameters, "n": 2}, {}


def is_endless(case: Any) -> bool:
    query = case.query or {}
    return bool(case.operation.path.endswith("/events") and query.get("wait", "yes") == "yes")


def checks_of(one: openapi.Operation) -> list[Any]:
    """What is looked at; a chat may hold anything somewhere, and a number of more than 64 bits is not taken there."""
    return [
        check for check in CHECKS if one.id not in {"chat", "respond"} or check is not checks.positive_data_acceptance
    ]


def has_input(one: openapi.Operation) -> bool:
    return bool(one.query or one.body or one.headers or "{" in one.path)


TRIED = [
    pytest.param(one, mode, id=f"{one.id}-{mode}")
    for one in openapi.OPERATIONS
    for mode in ("positive", "negative")
    if (has_input(one) or mode == "positive") and (one.id != "embed" or minilm.is_installed())
]


@pytest.mark.parametrize(("operation", "mode"), TRIED)
def test_a_machine_that_reads_the_document_finds_nothing_else(
    site: Site, operation: openapi.Operation, mode: str
) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.config.base_url = site.url
    found: Any = schema[operation.path][operation.method]
    tried: list[int] = []

    @given(case=found.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def attempt(case: Any) -> None:
        # What a URL cannot hold is not sent, and cannot be refused.
        assume(not any(value in ([], {}, None) for value in (case.query or {}).values()))
        if mode == "positive":
            answerable(case, site)
        elif is_endless(case):
            case.query = {**(case.query or {}), "wait": "no"}
        with filled(site, operation):
            answer = case.call(headers=HEADERS)
            tried.append(answer.status_code)
            case.validate_response(answer, checks=checks_of(operation), headers=HEADERS)

    attempt()
    assert len(tried) >= (10 if has_input(operation) else 1)
    assert mode == "negative" or min(tried) < 300
