#!/usr/bin/env python3
"""Who is not of the job dials the ports of a real agent: refused, counted, and the job does not notice.

Usage: strangers_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import unittest
import urllib.request

from runs import PATIENCE, RunCase


class StrangersTest(RunCase):
    def finish_unharmed(self, process, seen):
        """The run ends well, with every worker that it began with and without a failed round."""
        self.wait_until(lambda: self.run_metric(seen, "crowdsurf_run_rounds_completed") >= 8)
        seen = self.end_job(process, seen)
        report = self.report()
        self.assertEqual((report["rounds"]["failed"], report["rounds"]["hash_mismatches"]), (0, 0), seen)
        self.assertGreaterEqual(report["rounds"]["completed"], 8, seen)
        self.assertNotRegex(seen, r"e2e-\d-2", "nobody was replaced")
        self.nothing_is_left()

    def address(self, worker, port):
        host, number = self.endpoints(worker)[port].rsplit(":", 1)
        return host, int(number)

    def ended(self, how):
        """Tensor connections of worker 0 that ended so."""
        return self.metric("e2e-0-1", f'crowdsurf_tensor_connections_ended_total{{how="{how}"}}')

    def turned_away(self, why):
        """Connections to the gRPC port of worker 0 that were refused for that reason."""
        return self.metric("e2e-0-1", f'crowdsurf_peer_connections_refused_total{{reason="{why}"}}')

    def metric(self, worker, name):
        return super().metric(worker, re.escape(name))

    def another_job(self):
        """A run of another job, of the same name even, with a signer of its own; it trains."""
        other = RunCase()
        other.setUp()
        self.addCleanup(other.tearDown)
        process = other.start("--duration", "10m", "--workers", "1")
        other.wait_for(process, "e2e-0-1 trains")
        return other, process

    def test_an_agent_of_another_job_is_refused_and_harms_nobody(self):
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        other, others = self.another_job()
        refused, failed = "crowdsurf_peer_certificates_refused_total", "crowdsurf_peer_dial_failures_total"
        self.assertEqual(self.metric("e2e-0-1", refused), 0)
        before = other.metric("e2e-0-1", failed)
        seeds = other.state / "workers" / "e2e-0-1" / "agent" / "seeds"
        new = seeds.with_name("seeds.of-a-stranger")
        new.write_text(self.endpoints("e2e-0-1")["peer"] + "\n")
        new.rename(seeds)
        self.wait_until(lambda: other.metric("e2e-0-1", failed) > before)
        self.wait_until(lambda: self.metric("e2e-0-1", refused) >= 1)
        self.wait_until(lambda: self.turned_away("certificate") >= 1)
        # Its real certificate at the other port.
        stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        agent = seeds.parent
        stranger.load_cert_chain(agent / "cert.pem", agent / "key.pem")
        with socket.create_connection(self.address("e2e-0-1", "tensor"), timeout=PATIENCE) as plain:
            with stranger.wrap_socket(plain) as connection, self.assertRaises(ssl.SSLError):
                connection.recv(1)  # in TLS 1.3 a client learns of its refusal after its own handshake
        self.wait_until(lambda: self.ended("wrong_peer") >= 1)
        self.assertEqual(other.metric("e2e-0-1", "crowdsurf_view_members"), 1, "it is still alone")
        others.send_signal(signal.SIGINT)
        others.communicate(timeout=30)
        self.finish_unharmed(process, seen)

    def test_a_peer_of_the_job_that_speaks_tls_1_2_is_refused(self):
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        mine = self.state / "workers" / "e2e-1-1" / "agent"
        for port in ("peer", "tensor"):
            for version, name in ((ssl.TLSVersion.TLSv1_2, None), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
                member = ssl.create_default_context(cafile=mine / "ca.pem")
                member.load_cert_chain(mine / "cert.pem", mine / "key.pem")
                member.set_alpn_protocols(["h2"])  # what gRPC asks for; the other port ignores it
                member.maximum_version = version
                with self.subTest(port=port, version=version), \
                        socket.create_connection(self.address("e2e-0-1", port), timeout=PATIENCE) as plain:
                    if name is None:
                        with self.assertRaisesRegex(OSError, "(?i)alert protocol version|reset|eof"):
                            member.wrap_socket(plain, server_hostname="peer.crowdsurf")
                        continue
                    with member.wrap_socket(plain, server_hostname="peer.crowdsurf") as connection:
                        self.assertEqual(connection.version(), name)
        self.wait_until(lambda: self.ended("wrong_peer") == 1)
        self.wait_until(lambda: self.turned_away("tls") == 1)
        self.finish_unharmed(process, seen)

    def client_hello(self):
        """The first bytes of a TLS client."""
        said = ssl.MemoryBIO()
        client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname="peer.crowdsurf")
        with self.assertRaises(ssl.SSLWantReadError):
            client.do_handshake()
        return said.read()

    def test_garbage_on_every_port_of_an_agent_harms_nobody(self):
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        half = self.client_hello()[:100]
        garbage = {"noise": os.urandom(5000), "an endless head": b"GET /" + b"x" * 100_000,
                   "plain HTTP": b"GET / HTTP/1.1\r\nHost: agent\r\n\r\n", "half a hello": half, "nothing": b""}
        for port in ("peer", "tensor", "http"):
            held = socket.create_connection(self.address("e2e-0-1", port), timeout=PATIENCE)
            self.addCleanup(held.close)
            held.sendall(half)  # and is never heard of again
            for kind, words in garbage.items():
                with self.subTest(port=port, kind=kind), \
                        socket.create_connection(self.address("e2e-0-1", port), timeout=PATIENCE) as connection:
                    try:
                        connection.sendall(words)
                    except OSError:
                        pass  # it was faster with closing
        self.wait_until(lambda: self.ended("wrong_peer") == 3)  # noise, head and HTTP are no TLS
        self.wait_until(lambda: self.ended("failed") >= 2)  # half a hello and nothing just ended
        self.wait_until(lambda: self.turned_away("tls") == 3)
        self.wait_until(lambda: self.turned_away("cut_off") >= 2)  # a peer may be late, too
        self.wait_until(lambda: self.turned_away("timed_out") >= 1)  # who is never heard of again
        with urllib.request.urlopen(f"http://{self.endpoints('e2e-0-1')['http']}/healthz", timeout=10) as answer:
            self.assertEqual(answer.status, 200)
        self.finish_unharmed(process, seen)


    def handshakes(self, port):
        """Whether that port of worker 0 answers a client's hello, as any other agent's would be."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        try:
            with socket.create_connection(self.address("e2e-0-1", port), timeout=PATIENCE) as plain:
                context.wrap_socket(plain).close()
            return True
        except OSError:
            return False

    def resident_mib(self, pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024

    def idle_connections_cost_nothing(self, descriptors):
        """1,100 at each port of an agent that may have so many descriptors and no more."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        if hard < 4096:
            self.skipTest("the system allows too few descriptors for the strangers")
        limit = (descriptors, descriptors)
        self.write_endless()
        process = self.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
        seen = self.wait_for_all(process)
        (agent,) = self.agents("e2e-0-1")
        normal = self.resident_mib(agent)
        idle = []
        for port in ("peer", "tensor", "http"):
            at = self.address("e2e-0-1", port)
            for _ in range(1100):
                idle.append(socket.create_connection(at, timeout=PATIENCE))
        # Every other machine is taken meanwhile, one after the other. The joiners come, and worker 0 stays.
        for worker in range(1, 4):
            self.kill_worker(f"e2e-{worker}-1")
            seen += self.wait_for(process, rf"e2e-{worker}-2 trains, with state")
        self.assertTrue(self.handshakes("peer") and self.handshakes("tensor"))
        with urllib.request.urlopen(f"http://{self.endpoints('e2e-0-1')['http']}/readyz", timeout=PATIENCE) as answer:
            self.assertEqual(answer.status, 200)
        held = self.resident_mib(agent)
        for connection in idle:
            connection.close()
        self.assertTrue(self.handshakes("peer") and self.handshakes("tensor"))
        grown = max(held, self.resident_mib(agent)) - normal
        print(f"{descriptors} descriptors: {normal:.0f} MiB, and {grown:.1f} MiB more")
        self.assertLess(grown, 64)
        self.assertGreaterEqual(self.turned_away("of_address"), 800)
        done = self.run_metric(seen, "crowdsurf_run_rounds_completed")
        self.wait_until(lambda: self.run_metric(seen, "crowdsurf_run_rounds_completed") >= done + 8)
        seen = self.end_job(process, seen)
        report = self.report()
        print(f"rounds {report['rounds']}")
        self.assertEqual((report["rounds"]["failed"], report["rounds"]["hash_mismatches"]), (0, 0), seen)
        self.assertNotRegex(seen, r"e2e-0-2", "the agent that was flooded was never replaced")
        self.nothing_is_left()

    def test_idle_connections_at_every_port_cost_no_round_and_no_joiner(self):
        self.idle_connections_cost_nothing(1024)

    def test_idle_connections_cost_nothing_where_descriptors_are_few(self):
        self.idle_connections_cost_nothing(400)


if __name__ == "__main__":
    unittest.main()
