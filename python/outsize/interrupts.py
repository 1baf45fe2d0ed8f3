"""Ctrl-C during a planned step: held until the step has come to an end that leaves the state whole.

with Interrupts(most=1) as interrupts:       # a step that can be undone
    session.step(..., stop=interrupts)       # stops at an op boundary once there was one
# here: KeyboardInterrupt, or whatever the handler that was there before does
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """See the file's head. Called, it says whether the step is to stop: after `most` of them.

    raised: what another signal's handler raised in the step, which stops it at once. Only the main
    thread's steps can be interrupted: Python runs handlers nowhere else.
    """

    def __init__(self, most: int) -> None:
        self.raised: BaseException | None = None
        self._most = most
        self._count = 0
        self._before: Any = None

    def __call__(self) -> bool:
        return self._count >= self._most

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._before = handler
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self._count:
            self._before(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
