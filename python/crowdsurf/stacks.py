"""Where this process is while it makes no step for long: what the agent shows of a trainer that hangs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import time
from typing import Optional

_FILE = "stacks"   # in CROWDSURF_DIR; the agent makes it
_SHARE = 0.5       # of the time after which the agent says that the trainer hangs
_LOCKED = 0.75     # the same, where no thread of Python's has come to run since _SHARE
_LOOKS = 8         # of the writer in _SHARE: each wakes the process
_REARM = 1.0       # seconds: arming starts a thread, so not at every step


class Stacks:
    """Has the stack of each thread written into the agent's file after half of the time that makes a hang.

    A thread of Python's writes them: it holds the interpreter's lock, so no other runs meanwhile. Where it cannot have the
    lock, as in a deadlock in an extension, a timer of faulthandler does. That one reads without the lock, and would crash the
    process if code of Python's ran. A process has one such timer: a script's own faulthandler.dump_traceback_later() does
    not last beside this.
    """

    def __init__(self) -> None:
        self._file = -1
        self._hangs = self._after = self._locked_after = self._armed_at = self._stepped_at = 0.0
        self._later = 0.0   # seconds that the script said it may be busy for, beyond the time that makes a hang
        self._closed, self._turn = threading.Event(), threading.Lock()   # of the file and the timer
        self._writer: Optional[threading.Thread] = None

    def open(self, directory: str, hang_after: float) -> None:
        """hang_after: seconds; 0: the agent never says so, or is older than this."""
        self.close()
        if not hang_after > 0:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            self._file = os.open(os.path.join(directory, _FILE), flags)
            self._hangs, self._after, self._locked_after = hang_after, hang_after * _SHARE, hang_after * _LOCKED

    def busy(self, seconds: float) -> None:
        """No step may come for so long: the time that makes a hang is not over before."""
        self._step(max(0.0, seconds - self._hangs))

    def step(self) -> None:
        """The process is where it should be: the time begins anew."""
        self._step(0.0)

    def _step(self, later: float) -> None:
        if self._file < 0:
            return
        now = time.monotonic()
        self._stepped_at, changed, self._later = now + later, later != self._later, later
        if changed or now - self._armed_at >= min(_REARM, self._after / 4):
            self._armed_at = now
            self.arm()
        if self._writer is None:
            self._closed = threading.Event()
            self._writer = threading.Thread(target=self._watch, args=(self._closed,), name="crowdsurf-stacks", daemon=True)
            self._writer.start()

    def arm(self) -> None:
        global _armed
        with self._turn, contextlib.suppress(OSError, RuntimeError, ValueError):
            os.ftruncate(self._file, 0)
            faulthandler.dump_traceback_later(self._locked_after + self._later, file=self._file)
            _armed = self

    def close(self) -> None:
        global _armed
        if self._file < 0:
            return
        self._closed.set()
        if self._writer is not None:
            self._writer.join()   # it uses the file
            self._writer = None
        if _armed is self:
            faulthandler.cancel_dump_traceback_later()
            _armed = None
        os.close(self._file)
        self._file, self._armed_at = -1, 0.0

    def _watch(self, closed: threading.Event) -> None:
        said = 0.0   # the step after which they were written
        while not closed.wait(self._after / _LOOKS):
            stepped = self._stepped_at
            if stepped != said and time.monotonic() - stepped >= self._after:
                said = stepped
                self._write(stepped)

    def _write(self, stepped: float) -> None:
        with self._turn, contextlib.suppress(OSError, RuntimeError, ValueError):
            if self._stepped_at != stepped:
                return
            faulthandler.cancel_dump_traceback_later()   # it would read frames that move
            if os.fstat(self._file).st_size == 0:        # else it has written: the lock was not to be had for long
                faulthandler.dump_traceback(file=self._file)


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
