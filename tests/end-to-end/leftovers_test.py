#!/usr/bin/env python3
"""The checker of what a run leaves (runs.py) turns red for each kind of thing that can be left.

Usage: leftovers_test.py BIN     BIN is the folder of the built programs.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import unittest

from runs import MARK, RunCase, processes, sockets_of


class LeftoversTest(RunCase):
    def setUp(self):
        super().setUp()
        self.state.mkdir()
        self.nothing_is_left()  # with patience: the shared folder of a run beside this one may be on its way out

    def assert_left(self, words):
        self.assertRegex("\n".join(self.left()), words)
        with self.assertRaises(AssertionError):
            self.nothing_is_left(patience=0)

    def child(self, **extra):
        """A process that a trainer could have begun: of another name, in a session of its own."""
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True,
                                 env={**os.environ, MARK: str(self.state)}, **extra)
        self.addCleanup(child.wait)
        self.addCleanup(child.stdin.close)
        self.wait_until(lambda: child.pid in processes(self.state), 10)
        return child

    def test_a_process_of_any_name(self):
        child = self.child()
        self.assert_left(f"process {child.pid}: cat")
        child.kill()
        child.wait()
        self.nothing_is_left()

    def test_a_tcp_socket_that_somebody_else_still_holds(self):
        with socket.create_server(("127.0.0.1", 0)) as held:
            child = self.child(pass_fds=[held.fileno()])
            self.sockets |= sockets_of(processes(self.state))
            child.kill()
            child.wait()
            self.assert_left(r"(?m)^socket \d+: 0100007F:")
        self.nothing_is_left()

    def test_a_unix_socket_that_listens_and_its_file(self):
        name = self.state / "agent.sock"
        with socket.socket(socket.AF_UNIX) as held:
            held.bind(str(name))
            held.listen()
            self.assert_left(rf"socket \d+: {name}\nsocket file {name}")
            name.unlink()
            self.assert_left(rf"(?m)socket \d+: {name}$")
        self.nothing_is_left()

    def test_a_shared_folder(self):
        folder = f"/dev/shm/crowdsurf-{os.getpid()}-left/e2e-0-1"
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, pathlib.Path(folder).parent)
        self.assert_left("shared folder crowdsurf-")


if __name__ == "__main__":
    unittest.main()
