"""Imports ADK once before the tests: what its own imports warn of is not about nacre."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The OpenTelemetry that ADK 2.8 asks for uses what Python 3.11 has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import google.adk.runners  # noqa: F401 - for what importing it does
