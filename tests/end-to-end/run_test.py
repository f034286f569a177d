#!/usr/bin/env python3
"""`crowdsurf run` as a user sees it: real agents, real trainers, and what is left over after every end.

Usage: run_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import json
import re
import signal
import unittest
import urllib.request

from runs import PATIENCE, RunCase


class RunTest(RunCase):
    def test_trains_to_its_target_and_leaves_a_model_and_a_report(self):
        code, output = self.run_job()
        self.assertEqual(code, 0, output)
        report = self.report()
        self.assertGreaterEqual(report["samples"], 80000)
        self.assertEqual((report["rounds"]["failed"], report["rounds"]["hash_mismatches"]), (0, 0), output)
        self.assertGreaterEqual(report["rounds"]["completed"], 8, output)
        self.assertLess(report["heldout_bits_per_char"], 8)
        self.time_of_averagings_adds_up(report["averaging_seconds"], output)
        self.assertTrue((self.state / "checkpoint" / "model.safetensors").exists())
        self.assertIn("</html>", (self.state / "report.html").read_text())
        self.assertIn("A fortune that the model made up", output)
        self.nothing_is_left()

    def time_of_averagings_adds_up(self, seconds, output):
        """Waits fill what no work fills, and the host thread does one thing at a time (docs/data-plane.md)."""
        self.assertGreater(seconds["number"], 0, output)
        for part in ("send", "receive", "fold", "copy"):
            self.assertGreater(seconds[part], 0, (part, seconds))
        waits = seconds["wait_trainer"] + seconds["wait_peers"]
        send, receive, host = seconds["send"], seconds["receive"], seconds["fold"] + seconds["copy"]
        self.assertLessEqual(waits + max(send, receive, host), seconds["whole"] + 1e-6, seconds)
        self.assertGreaterEqual(waits + send + receive + host, seconds["whole"] - 1e-6, seconds)
        self.assertRegex(output, r"averaging  \S+ s: waited ")

    def test_carries_on_while_workers_are_killed_without_notice(self):
        self.write_endless()
        process = self.start("--preempt-every", "3s", "--notice", "none")
        seen = ""
        while seen.count("is taken by the spot market") < 3 or not re.search(r"e2e-\d-[2-9] trains", seen):
            seen += self.wait_for(process, "is taken by the spot market|trains")
        output = self.end_job(process, seen)
        report = self.report()
        self.assertGreaterEqual(report["preemptions"], 3)
        self.assertEqual(report["rounds"]["hash_mismatches"], 0)
        self.assertIsNotNone(report["replacement_seconds"]["p50"], output)
        self.nothing_is_left()

    def test_ctrl_c_ends_everything_cleanly_and_twice_at_once(self):
        process = self.start("--duration", "10m")
        self.wait_for(process, "trains")
        self.interrupt(process)
        self.nothing_is_left()
        process = self.start("--duration", "10m")
        self.wait_for(process, "trains")
        process.send_signal(signal.SIGINT)
        self.wait_for(process, "once more")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=5)
        self.assertEqual(process.returncode, 130, output)
        self.nothing_is_left()

    def test_kill_9_of_the_run_leaves_nothing(self):
        process = self.start("--duration", "10m")
        self.wait_for(process, "trains")
        process.kill()
        process.wait()
        process.stdout.close()
        self.nothing_is_left()

    def test_a_second_run_in_the_same_state_directory_is_refused(self):
        process = self.start("--duration", "10m")
        self.wait_for(process, "trains")
        code, output = self.run_job()
        self.assertEqual(code, 2)
        self.assertIn(f"in use by another run (pid {process.pid})", output)
        self.interrupt(process)

    def test_a_status_page_and_metrics_are_served_while_it_runs(self):
        process = self.start("--duration", "10m")
        seen = self.wait_for_all(process)
        page = self.page(seen)
        self.wait_until(lambda: "<td>Training" in urllib.request.urlopen(page, timeout=PATIENCE).read().decode())
        self.wait_until(lambda: self.run_metric(seen, "crowdsurf_run_workers_training") == 4)
        self.assertGreater(self.run_metric(seen, "controller_runtime_reconcile_total"), 0)
        self.interrupt(process)
        self.nothing_is_left()

    def model(self):
        """(averaging, bytes) of the model file."""
        data = (self.state / "checkpoint" / "model.safetensors").read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        return int(header["__metadata__"]["averaging"]), data

    def test_a_resumed_run_replaces_the_older_model(self):
        self.write_endless()
        process = self.start()
        self.wait_for_all(process)
        self.wait_until(lambda: list((self.state / "checkpoint").glob("*.crowdsurf")))
        self.interrupt(process)
        header = json.dumps({"__metadata__": {"job": "e2e", "averaging": "1"}}).encode()
        old = len(header).to_bytes(8, "little") + header
        (self.state / "checkpoint" / "model.safetensors").write_bytes(old)
        process = self.start()
        seen = self.wait_for_all(process)
        self.wait_until(lambda: self.metric("e2e-0-1", "crowdsurf_averaging_delivered_total") >= 2)
        output = self.end_job(process, seen)
        self.assertIn("resuming from the checkpoint", output)
        averaging, data = self.model()
        self.assertGreater(averaging, 1)
        self.assertGreater(len(data), 10_000)


if __name__ == "__main__":
    unittest.main()
