"""What tests of nacre, and of code built on it, are made with."""

from nacre.testing.disk import Disk, Fault, Killed, Process, WouldBlockForever
from nacre.testing.powercut import images
from nacre.testing.tree import Snapshot

__all__ = ["Disk", "Fault", "Killed", "Process", "Snapshot", "WouldBlockForever", "images"]
