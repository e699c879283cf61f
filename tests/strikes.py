"""Signals that strike in the middle of something, at every step of it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from itertools import count
from types import FrameType, ModuleType
from typing import Never

Handler = Callable[[], object]


class Strike:
    """A signal that is handled at one step: where a function of these modules begins, or one in C returns to them.

    That is where the interpreter looks for signals. Not inside a finalizer, which cannot pass on what a handler raises:
    the interpreter prints it and goes on.
    """

    def __init__(self, step: int, modules: Sequence[ModuleType], handler: Handler) -> None:
        self._left = step
        self._files = {module.__file__ for module in modules}
        self._handler = handler
        self.came = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename not in self._files or event not in ("call", "c_return") or is_finalizing(frame):
            return
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
            self.came = True
            self._handler()


def is_finalizing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def interrupt() -> Never:
    raise KeyboardInterrupt


def is_struck(step: int, act: Handler, *within: ModuleType, handler: Handler = interrupt) -> bool:
    """Act, whatever the handler raises meanwhile; tells whether there were that many steps, so that the signal came.

    Garbage of earlier acts is not collected meanwhile: no finalizer can pass on what a handler raises in it.
    """
    strike = Strike(step, within, handler)
    before = sys.getprofile()
    gc.disable()
    sys.setprofile(strike)
    try:
        act()
    except BaseException:
        if not strike.came:
            raise
    finally:
        sys.setprofile(before)
        gc.enable()
    return strike.came


def at_every_step(go_through: Callable[[int], bool]) -> None:
    """Go through something with a signal at each of its steps, and once without; it tells whether the signal came."""
    assert not all(go_through(step) for step in count())
