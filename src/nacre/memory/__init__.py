"""What an agent remembers across sessions: daily notes, facts, and how they are found again."""

from nacre.memory.agent_memory import Memory
from nacre.memory.consolidator import Consolidator

__all__ = ["Consolidator", "Memory"]
