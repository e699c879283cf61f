"""What tests of nacre, and of code built on it, are made with."""

from nacre.testing.disk import Disk, Process
from nacre.testing.faults import Fault, Killed, WouldBlockForever
from nacre.testing.inodes import Snapshot
from nacre.testing.powercut import images

__all__ = ["Disk", "Fault", "Killed", "Process", "Snapshot", "WouldBlockForever", "images"]
