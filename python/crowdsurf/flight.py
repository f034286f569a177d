"""A snapshot that is on its way into the outbox while the script trains on."""

from __future__ import annotations

import threading
from typing import Callable, Optional


class Flight:
    """Copies on a thread of its own, and then announces what was copied."""

    def __init__(self, copy: Callable[[], None], announce: Callable[[], None]) -> None:
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._fly, args=(copy, announce), name="crowdsurf-snapshot", daemon=True)
        self._thread.start()

    def _fly(self, copy: Callable[[], None], announce: Callable[[], None]) -> None:
        try:
            copy()
            announce()
        except BaseException as error:   # of the device: it is the script's, and land() tells it
            self._error = error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()

    def land(self) -> None:
        """Waits for its end. Raises what has gone wrong."""
        self.wait()
        if self._error is not None:
            raise self._error
