"""Imports ADK once before the tests: what its own imports warn of is not about nacre."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # ADK 2.8 imports classes that it has deprecated, and an OpenTelemetry that uses what Python 3.11 has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import google.adk.agents.llm_agent
    import google.adk.apps.app
    import google.adk.runners  # noqa: F401 - for what importing it does
