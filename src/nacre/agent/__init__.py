"""The agent: ports, one turn, one session's actor, and the kernel that keeps them."""
