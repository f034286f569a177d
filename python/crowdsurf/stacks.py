"""Where this process is while it makes no step for long: what the agent shows of a trainer that hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from typing import Optional

_FILE = "stacks"   # in CROWDSURF_DIR; the agent makes it
_SHARE = 0.5       # of the time after which the agent says that the trainer hangs
_REARM = 1.0       # seconds: arming starts a thread, so not at every step


class Stacks:
    """Has the stack of each thread written into the agent's file after half of the time that makes a hang.

    The writer is a thread of faulthandler's that needs no lock of the interpreter, so a deadlock in an extension does not
    stop it. A process has one such timer: a script's own faulthandler.dump_traceback_later() does not last beside this.
    """

    def __init__(self) -> None:
        self._file = -1
        self._after = self._armed_at = 0.0

    def open(self, directory: str, hang_after: float) -> None:
        """hang_after: seconds; 0: the agent never says so, or is older than this."""
        self.close()
        if not hang_after > 0:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            self._file = os.open(os.path.join(directory, _FILE), flags)
            self._after = hang_after * _SHARE

    def step(self) -> None:
        """The process is where it should be: the time begins anew."""
        now = time.monotonic()
        if self._file >= 0 and now - self._armed_at >= min(_REARM, self._after / 4):
            self._armed_at = now
            self.arm()

    def arm(self) -> None:
        global _armed
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            os.ftruncate(self._file, 0)
            faulthandler.dump_traceback_later(self._after, file=self._file)
            _armed = self

    def close(self) -> None:
        global _armed
        if self._file < 0:
            return
        if _armed is self:
            faulthandler.cancel_dump_traceback_later()
            _armed = None
        os.close(self._file)
        self._file, self._armed_at = -1, 0.0


_armed: Optional[Stacks] = None   # whose timer runs


# A forked child lacks the timer's thread, and would wait for it at its end, for ever.
def _before_fork() -> None:
    if _armed is not None:
        faulthandler.cancel_dump_traceback_later()


def _in_parent() -> None:
    if _armed is not None:
        _armed.arm()


def _in_child() -> None:
    global _armed
    _armed = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
