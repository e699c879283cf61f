"""Spans of `nacre acp` in a process where everything is recorded, as `opentelemetry-instrument` sets it up."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import schema

from tests.servers.acp.conftest import Place, run

WORD = "albatross"
RECORD = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class ToFile(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
"""
SERVER = """
import json, os, sys
for line in sys.stdin:
    with open(os.environ["SAID"], "a") as file:
        file.write(line)
    message = json.loads(line)
    name, answer = message["method"], {}
    if name == "initialize":
        info = {"name": "s", "version": "1"}
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if name == "tools/list":
        answer = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    reply = {"jsonrpc": "2.0", "id": message.get("id"), "result": answer}
    if name in ("server/discover", "tools/call"):
        del reply["result"]
        reply["error"] = {"code": -32000, "message": "there is no albatross"}
    if "id" in message:
        print(json.dumps(reply), flush=True)
"""


async def look(place: Place, said: Path) -> None:
    env = [schema.EnvVariable(name="SAID", value=str(said))]
    server = schema.McpServerStdio(name="clinic", command=sys.executable, args=["-c", SERVER], env=env)
    async with place.editor() as editor:
        made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[server])
        await editor.ask(made.session_id, f"look for the {WORD}")


@pytest.mark.parametrize(
    ("spans", "names"),
    [
        ("off", []),
        ("on", ["chat scripted", "execute_tool clinic_look", "chat scripted", "invoke_agent main"]),
    ],
)
def test_no_package_makes_spans_of_its_own(place: Place, tmp_path: Path, spans: str, names: list[str]) -> None:
    config = Path(place.environ["NACRE_CONFIG"])
    config.write_text(f'{config.read_text()}[telemetry]\nspans = "{spans}"\n')
    (tmp_path / "sitecustomize.py").write_text(RECORD)
    written, said = tmp_path / "spans", tmp_path / "said"
    written.touch()
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    place.environ |= {"SPANS": str(written), "PYTHONPATH": os.pathsep.join(paths)}
    place.model.script = [[{"call": "clinic_look", "for": WORD}], ["There is none."]]
    run(look(place, said))
    assert WORD in said.read_text()
    assert "traceparent" not in said.read_text()
    assert WORD not in written.read_text()
    found: list[dict[str, Any]] = [json.loads(line) for line in written.read_text().splitlines()]
    assert [span["name"] for span in found] == names
