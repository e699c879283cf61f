"""A conversation at a terminal: the user types, the agent answers."""
