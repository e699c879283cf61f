"""Servers for other programs on this machine: editors and agents that start nacre and talk to it."""
