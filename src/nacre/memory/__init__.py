"""What an agent remembers across sessions: daily notes, facts, and how they are found again."""

from nacre.memory.consolidator import Consolidator
from nacre.memory.memory import Memory

__all__ = ["Consolidator", "Memory"]
