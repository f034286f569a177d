"""A thread that looks for the platform's notice, so that a callback does not wait for the next step."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

from .connection import AgentError, Connection
from .tensor import Notice

_LOOK = 0.05   # seconds between two looks

log = logging.getLogger("crowdsurf")


def ask(directory: str) -> Notice:
    """What the agent says of a notice that is there. Over a connection of its own: the trainer's may be in use for long."""
    try:
        asked = Connection(directory)
    except AgentError:
        return Notice("", None)
    try:
        answer = asked.call_json("GET", "/v1/notice")
        return Notice(str(answer.get("reason", "")), answer.get("deadline"))
    except AgentError:
        return Notice("", None)
    finally:
        asked.close()


class NoticeWatch:
    """Calls `callback` once with the first notice that `look` returns. An exception of the callback is logged."""

    def __init__(self, look: Callable[[], Optional[Notice]], callback: Callable[[Notice], None]) -> None:
        self._look, self._callback = look, callback
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crowdsurf-notice", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns at once. A callback that runs goes on."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK):
            notice = self._look()
            if notice is None:
                continue
            try:
                self._callback(notice)
            except Exception:   # it is the user's, and must not end unseen with this thread
                log.exception("crowdsurf: the callback for a notice failed")
            return
