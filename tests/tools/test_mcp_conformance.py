"""Our MCP client in the conformance kit of the protocol's authors: each scenario is a server that checks the client."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.npm import installed

KIT = "0.2.0-alpha.12"
"""The first versions that know the protocol of 2026-07-28; the last stable one has half of these scenarios."""
CLIENT = Path(__file__).with_name("mcp_conformance.py")

APPLY = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
DO_NOT_APPLY = {
    "auth/client-credentials-jwt": "an extension for programs that log in without a person; a header does that here",
    "auth/client-credentials-basic": "the same",
    "auth/wif-jwt-bearer": "the same, with the identity of a workload",
    "auth/enterprise-managed-authorization": "an extension that needs an identity provider of a company",
    "auth/dpop": "an extension that binds tokens to keys; the client package does not have it",
    "auth/dpop-nonce": "the same",
    "sep-2640-client-no-prefetch": "an extension for skills from servers; skills are folders here",
    "sep-2640-client-verify-digest": "the same",
    "sep-2640-client-verify-size": "the same",
    "sep-2640-client-verify-frontmatter": "the same",
}


@pytest.fixture(scope="session")
def kit(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs the kit, with a Node that is new enough for it."""
    system, machine = platform.system().lower(), {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "x64")
    node = f"node-{system}-{machine}"
    modules = installed(request.config, f"@modelcontextprotocol/conformance@{KIT}", f"{node}@22")
    return [str(modules / node / "bin" / "node"), str(modules / "@modelcontextprotocol/conformance/dist/index.js")]


@pytest.mark.parametrize("scenario", APPLY)
def test_our_client_passes(scenario: str, kit: list[str], tmp_path: Path) -> None:
    command = [*kit, "client", "--command", f"{sys.executable} {CLIENT}", "--scenario", scenario, "--timeout", "120000"]
    done = subprocess.run([*command, "-o", str(tmp_path)], capture_output=True, text=True, timeout=200, check=False)
    (found,) = tmp_path.rglob("checks.json")
    checks: list[dict[str, Any]] = json.loads(found.read_text())
    failed = [check for check in checks if check["status"] == "FAILURE" and not _is_late(check)]
    assert [check["id"] for check in failed] == [], f"{failed}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert any(check["status"] == "SUCCESS" for check in checks)


def test_every_client_scenario_is_run_or_has_a_reason_not_to_be(kit: list[str]) -> None:
    listed = subprocess.check_output([*kit, "list", "--client"], text=True, env={**os.environ, "NO_COLOR": "1"})
    scenarios = listed.partition("Client scenarios")[2].partition("Authorization server")[0]
    names = {line.split()[1] for line in scenarios.splitlines() if line.startswith("  - ")}
    assert names == {*APPLY, *DO_NOT_APPLY}


def _is_late(check: dict[str, Any]) -> bool:
    """Tell whether a client only reconnected later than it should have, as it does on a busy machine."""
    return check["id"] == "client-sse-retry-timing" and bool(check["details"].get("veryLate"))
