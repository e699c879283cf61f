"""Bytes on disk: one append-only file per session, durable when the call returns."""
