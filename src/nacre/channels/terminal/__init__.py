"""A conversation at a terminal: somebody types, the agent answers."""
