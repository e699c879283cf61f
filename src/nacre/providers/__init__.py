"""Models on servers and in this process, and tool calling for those that only know text."""
