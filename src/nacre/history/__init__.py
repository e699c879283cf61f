"""Pure functions of entries: what a session's records mean."""
