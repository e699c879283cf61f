"""Models behind their wires, and tool calling for those that only know text."""
