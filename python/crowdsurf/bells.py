"""The bells of the mapped file: futexes that wake the other side. Where there are none, both sides look again and again."""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
import threading
import time
from typing import Any, Optional

_FUTEX_WAIT, _FUTEX_WAKE, _EVERYBODY = 0, 1, 2**31 - 1   # <linux/futex.h>; not the private kind: two processes
_NUMBERS = {"x86_64": 202, "aarch64": 98}                # of the system call; its time-out is a timespec of two longs


def system_call() -> Optional[Any]:
    """futex(2), or None where this process cannot call it."""
    number = _NUMBERS.get(platform.machine())
    if number is None or not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return None
    try:
        call = ctypes.CDLL(None).syscall
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_long
    return lambda *words: call(ctypes.c_long(number), *words)


class Bell:
    """A word that its owner counts up and wakes sleepers with. One process rings it, from any thread; others wait for it."""

    def __init__(self, mapped: mmap.mmap, offset: int) -> None:
        self._word = ctypes.c_uint32.from_buffer(mapped, offset)
        self._call = system_call()
        self._lock = threading.Lock()

    def rung(self) -> int:
        """How often it was rung. Ask before the words that it announces are read."""
        return int(self._word.value)

    def ring(self) -> None:
        with self._lock:
            self._word.value += 1   # of 32 bits, begins anew at 0
        if self._call is not None:
            self._call(ctypes.byref(self._word), ctypes.c_int(_FUTEX_WAKE), ctypes.c_int(_EVERYBODY), None, None, ctypes.c_int(0))

    def wait(self, rung: int, look: float, most: float) -> None:
        """Returns when it is rung more often than `rung`, after `most` seconds, or sooner. Without a futex: after `look`."""
        if self._call is None:
            time.sleep(look)
            return
        timeout = (ctypes.c_long * 2)(int(most), int(most % 1 * 1e9))
        self._call(ctypes.byref(self._word), ctypes.c_int(_FUTEX_WAIT), ctypes.c_uint32(rung), timeout, None, ctypes.c_int(0))
