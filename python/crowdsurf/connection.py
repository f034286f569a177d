"""HTTP with small JSON bodies over the agent's Unix socket."""

import http.client
import json
import os
import socket
import time

_ANSWER = 30.0   # seconds for one request; making `tensors` clears 3 x the model


class LinkError(Exception):
    """The agent refused, in its own words, or is not there."""


class Agent:
    """One kept connection to agent.sock. While it is open, the agent knows that the trainer lives."""

    def __init__(self, directory):
        self._path = os.path.join(directory, "agent.sock")
        self._http = http.client.HTTPConnection("agent")
        self._http.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._http.sock.settimeout(_ANSWER)
        try:
            self._http.sock.connect(self._path)
        except OSError as error:
            self._http.sock.close()
            raise LinkError(f"no agent answers at {self._path}: {error.strerror}") from error

    @classmethod
    def wait_for(cls, directory, patience):
        """Tries until the agent answers; LinkError after `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                return cls(directory)
            except LinkError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.02)

    def call(self, method, target, body=b""):
        """The answer's headers and body. LinkError: refused, or the connection ended."""
        try:
            self._http.request(method, target, body)
            answer = self._http.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LinkError(f"{method} {target}: {error}") from error
        if answer.status >= 300:
            try:
                words = json.loads(content)["error"]
            except (ValueError, KeyError, TypeError):
                words = f"{method} {target}: the agent answered {answer.status}"
            raise LinkError(words)
        return answer.headers, content

    def call_json(self, method, target, body):
        return json.loads(self.call(method, target, json.dumps(body).encode())[1])

    def alive(self):
        """False once the agent has closed its end. Never waits."""
        end = self._http.sock
        if end is None:
            return False
        try:
            end.settimeout(0)   # with another one Python waits for bytes, whatever the flags say
            return end.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            end.settimeout(_ANSWER)

    def close(self):
        self._http.close()
