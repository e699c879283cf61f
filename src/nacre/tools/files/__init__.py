"""The file tools: a workspace that no path leads out of, and what reads and writes in it."""
