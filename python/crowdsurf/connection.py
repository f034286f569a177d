"""HTTP with small JSON bodies over the agent's Unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
import weakref
from typing import Any, Dict, Sequence, Tuple, Union

_ANSWER = 30.0   # seconds for one request; making `tensors` clears 3 x the model


Body = Union[bytes, Sequence[Union[bytes, bytearray]]]   # or its pieces


class AgentError(Exception):
    """The agent refused, in its own words, or is not there."""


class Refusal(AgentError):
    """The agent is there and does not do what it was asked for. `code`: of its answer, 200 where that cannot be used."""

    def __init__(self, words: str, code: int = 200) -> None:
        super().__init__(words)
        self.code = code


class Connection:
    """One kept connection to agent.sock. While it is open, the agent knows that the trainer lives. Any thread."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        path = os.path.join(directory, "agent.sock")
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise AgentError(f"no agent answers at {path}: {error.strerror}") from error
        self._http = http.client.HTTPConnection("agent")
        self._http.auto_open = 0   # a closed one would look for a host of that name
        self._http.sock = self._socket
        _open.add(self)

    @classmethod
    def wait_for(cls, directory: str, patience: float) -> Connection:
        """Tries until the agent answers; AgentError after `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return cls(directory)
            except AgentError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.02)

    def again(self) -> Connection:
        """Another connection to the same agent. AgentError: it does not answer."""
        return Connection(self._directory)

    def call(self, method: str, target: str, body: Body = b"") -> Tuple[Dict[str, str], bytes]:
        """The answer's headers, by their names in small letters, and body. AgentError: refused, or the connection ended."""
        length = len(body) if isinstance(body, bytes) else sum(len(piece) for piece in body)
        try:
            with self._lock:
                self._http.request(method, target, body, {"Content-Length": str(length)})
                answer = self._http.getresponse()
                content = answer.read()
        except BaseException as error:   # Ctrl-C, too
            self.close()   # the next request would be given the answer to this one
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise AgentError(f"{method} {target}: {str(error) or 'the connection is closed'}") from error
            raise
        if answer.status >= 300:
            try:
                words = str(json.loads(content)["error"])
            except (ValueError, KeyError, TypeError):
                words = f"{method} {target}: the agent answered {answer.status}"
            raise Refusal(words, answer.status)
        return {key.lower(): value for key, value in answer.getheaders()}, content

    def call_json(self, method: str, target: str, body: Any = None) -> Dict[str, Any]:
        content = self.call(method, target, b"" if body is None else json.dumps(body).encode())[1]
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Refusal(f"{method} {target}: the agent's answer is no JSON object")
        return answer

    def alive(self) -> bool:
        """False once the agent has closed its end. Never waits, but for a request of another thread."""
        with self._lock:
            if self._socket.fileno() < 0:   # http.client closes it when the agent ends an answer early
                return False
            try:
                self._socket.settimeout(0)   # with another one Python waits for bytes, whatever the flags say
                return self._socket.recv(1, socket.MSG_PEEK) != b""
            except BlockingIOError:
                return True
            except OSError:
                return False
            finally:
                self._socket.settimeout(_ANSWER)

    def close(self) -> None:
        self._http.close()
        self._socket.close()

    def forget(self) -> None:
        """In a forked child: closes this copy. The parent's connection stays, and ends with the parent alone."""
        self._socket.close()


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # A worker of a data loader would keep the connection open, and with it the sign of life, after the trainer's death.
    for connection in list(_open):
        connection.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
