#!/usr/bin/env python3
"""A worker whose wall clock is seconds off stays with its job, and its agent says so.

Usage: clock_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import os
import re
import unittest
import urllib.request

from runs import BIN, RunCase

AHEAD = "crowdsurf_dht_clock_ahead_seconds"
WORKERS = ["e2e-0-1", "e2e-1-1", "e2e-2-1", "e2e-3-1"]


class ClockTest(RunCase):
    def hash_of_view(self, worker):
        """The hash of the view that the worker's agent is in, and how many members it has."""
        with urllib.request.urlopen(f"http://{self.endpoints(worker)['http']}/summary", timeout=10) as answer:
            words = answer.read().decode()
        return re.search(r'"hash":"(\w+)"', words)[1], int(re.search(r'"members":(\d+)', words)[1])

    def in_one_view(self, workers):
        views = {self.hash_of_view(worker) for worker in workers}
        return len(views) == 1 and views.pop()[1] == len(workers)

    def worker_stays_with_its_job(self, seconds):
        """One of four workers has a clock that is `seconds` ahead; another worker is replaced meanwhile."""
        self.write_endless()
        shifted = {"LD_PRELOAD": str(BIN / "libclock_shift.so"), "CLOCK_SHIFT_WORKER": "e2e-1-1",
                   "CLOCK_SHIFT_SECONDS": str(seconds)}
        process = self.start(env={**os.environ, **shifted})
        seen = self.wait_for_all(process)
        self.wait_until(lambda: self.in_one_view(WORKERS))
        self.wait_until(lambda: abs(self.metric("e2e-1-1", AHEAD) - seconds) < .5)
        self.wait_until(lambda: abs(self.metric("e2e-0-1", AHEAD)) < .5)
        self.kill_worker("e2e-2-1")
        seen += self.wait_for(process, "e2e-2-2 trains, with state")
        now = ["e2e-0-1", "e2e-1-1", "e2e-2-2", "e2e-3-1"]
        self.wait_until(lambda: self.in_one_view(now))
        done = self.run_metric(seen, "crowdsurf_run_rounds_completed")
        self.wait_until(lambda: self.run_metric(seen, "crowdsurf_run_rounds_completed") >= done + 16)
        self.assertTrue(self.in_one_view(now))
        self.wait_until(lambda: "this machine's clock is off" in self.log("e2e-1-1", "agent"))
        for worker in ("e2e-0-1", "e2e-2-2", "e2e-3-1"):
            self.assertLess(abs(self.metric(worker, AHEAD)), .5, worker)
            self.assertNotIn("this machine's clock is off", self.log(worker, "agent"), worker)
        seen = self.end_job(process, seen)
        report = self.report()
        self.assertNotRegex(seen, "lineage")
        self.assertEqual((report["apart_seconds"], report["rounds"]["hash_mismatches"]), (0, 0), seen)
        self.assertNotRegex(seen, "e2e-[013]-2", "only the worker that was killed was replaced")
        self.nothing_is_left()

    def test_a_clock_that_is_3_5_s_ahead(self):
        self.worker_stays_with_its_job(3.5)

    def test_a_clock_that_is_3_5_s_behind(self):
        self.worker_stays_with_its_job(-3.5)

    def test_a_clock_that_is_2_2_s_ahead(self):
        self.worker_stays_with_its_job(2.2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
