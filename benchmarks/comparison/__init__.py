"""The frameworks' own session stores, described to the conformance suite; each is imported in its own environment."""
