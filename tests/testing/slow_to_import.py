"""A store whose module takes longer to import than a call may take; and then it hangs."""

from __future__ import annotations

import time

from tests.testing.conformance_stores import Hangs

time.sleep(0.5)

__all__ = ["Hangs"]
