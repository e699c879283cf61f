"""Sessions on disk or in RAM: one append-only log per session, durable when the call returns."""
