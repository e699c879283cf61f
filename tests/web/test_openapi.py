"""The OpenAPI document says what the server does, and a machine that reads it finds nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode, checks

from nacre.web import api, openapi
from tests.web.conftest import TOKEN, Echo, Site, served

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
DOCUMENT = msgspec.json.decode(openapi.document())
STREAMS = "events"
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
    routed = {(method, route.path) for route in api.routes for method in route.methods or ()} - {
        (method, "/openapi.json") for method in ("GET", "HEAD")
    }
    assert documented == {one for one in routed if one[0] != "HEAD"}


def test_every_shape_that_is_named_is_there() -> None:
    text = openapi.document().decode()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == set(DOCUMENT["components"]["schemas"])


@contextmanager
def filled(site: Site) -> Iterator[None]:
    """Sessions that a guess may hit."""
    for key in ("0", "00", "a"):
        if not site.sessions.exists(key):
            site.sessions.add_message(key, "user", "hello")
    yield


@pytest.mark.parametrize("operation", [one for one in openapi.OPERATIONS if one.id != STREAMS], ids=lambda one: one.id)
@pytest.mark.parametrize("mode", ["positive", "negative"])
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
        with filled(site):
            answer = case.call(headers=HEADERS)
            tried.append(answer.status_code)
            case.validate_response(answer, checks=CHECKS, headers=HEADERS)

    attempt()
    assert len(tried) >= 10
