#!/usr/bin/env python3
"""A job with tls.mode Disabled: it averages to the bit, control stays encrypted, and the job says what travels in the clear.

Usage: in_the_clear_test.py BIN     BIN is the folder of the built programs.
"""
import socket
import ssl
import unittest

from equal_bits import AVERAGING, EqualBitsCase
from runs import PATIENCE

MODE = {"checkpoint: {intervalSeconds: 1}": "checkpoint: {intervalSeconds: 1}\n  tls: {mode: Disabled}\n  agent: {logLevel: debug}"}
TOKENS = "crowdsurf_tensor_tokens_total"
GIVEN = r'crowdsurf_tensor_tokens_total\{result="given"\}'
UNKNOWN = r'crowdsurf_tensor_tokens_total\{result="unknown"\}'
ENDED = r'crowdsurf_tensor_connections_ended_total\{how="wrong_peer"\}'


class InTheClearTest(EqualBitsCase):
    def dial(self, worker, port):
        host, number = self.endpoints(worker)[port].rsplit(":", 1)
        return socket.create_connection((host, int(number)), timeout=PATIENCE)

    def member(self, worker):
        """TLS with that worker's certificate, as a peer of the job speaks it over control."""
        mine = self.state / "workers" / worker / "agent"
        context = ssl.create_default_context(cafile=mine / "ca.pem")
        context.load_cert_chain(mine / "cert.pem", mine / "key.pem")
        context.set_alpn_protocols(["h2"])
        return context

    def test_workers_are_equal_to_the_bit_and_strangers_are_refused(self):
        self.write_endless(**AVERAGING, **MODE)
        process = self.start()
        seen = self.wait_for_all(process)
        first = self.expect_equal_bits(self.names([1, 1, 1, 1]))
        for worker in self.names([1, 1, 1, 1]):
            self.assertGreaterEqual(self.metric(worker, GIVEN), 1, worker)
            # A link that asks again while its first Hello is on the way shows a token that is no longer known.
            refused = self.metric(worker, TOKENS) - self.metric(worker, GIVEN) - self.metric(worker, UNKNOWN)
            self.assertEqual(refused, 0, worker)
            log = self.log(worker, "agent")
            self.assertIn("tensors travel in the clear", log)
            self.assertIn(" debug ", log, "spec.agent.logLevel")
        with self.dial("e2e-0-1", "peer") as plain, \
                self.member("e2e-1-1").wrap_socket(plain, server_hostname="peer.crowdsurf") as connection:
            self.assertEqual(connection.version(), "TLSv1.3", "control is encrypted")
        with self.dial("e2e-0-1", "tensor") as plain:
            plain.sendall(b"CFT1" + bytes(44))
            self.assertEqual(plain.recv(1), b"", "no Hello, no answer")
        self.wait_until(lambda: self.metric("e2e-0-1", ENDED) >= 1)
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains")
        last = self.expect_equal_bits(self.names([1, 2, 1, 1]))
        self.assertGreater(last, first)
        seen = self.end_job(process, seen)
        report = self.report()
        self.assertEqual((report["rounds"]["hash_mismatches"], report["tensors"]), (0, "in the clear"), seen)
        self.assertIn("spec.tls.mode is Disabled", seen, "at the start")
        self.assertRegex(seen, r"(?m)^tensors +in the clear", "at the end")
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
