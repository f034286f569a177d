#!/usr/bin/env python3
"""Every panel of the Job dashboard has data while a job trains on this machine and loses workers.

Usage: job_test.py BIN     BIN is the folder of the built programs. Prometheus scrapes the agents and the run's own page.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import panels

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
JOB = panels.ROOT / "deploy/examples/paced.yaml"
LABELS = {"namespace": "local", "training_job": "paced"}
# The run's own end, should this test die, about six minutes.
TARGET = ("samples: 20000000", "samples: 9000000")
# An agent of the sanitizers' build needs seconds to be seated: a job that loses one every 4 s makes no round on a loaded machine.
PREEMPT_EVERY = "12s"
PATIENCE = 150  # seconds; all panels have data in half a minute on a quiet machine, a test fails by it and never waits for it


def agents_of(state):
    """host:port of the http port of every agent of the run in `state`."""
    found = set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if not words[0].endswith("crowdsurf-worker") or not any(str(state) in w for w in words) or "--agent-dir" not in words:
            continue
        try:
            folder = pathlib.Path(words[words.index("--agent-dir") + 1])
            found.add(json.loads((folder / "endpoints").read_text())["http"])
        except (OSError, ValueError, KeyError):
            continue  # it is starting
    return sorted(found)


class JobPanels(unittest.TestCase):
    def test_every_panel_of_a_job_has_data(self):
        program = panels.find_prometheus()
        if program is None:
            self.skipTest("there is no prometheus")
        with tempfile.TemporaryDirectory(prefix="crowdsurf-panels-") as folder:
            state, job = pathlib.Path(folder) / "state", pathlib.Path(folder) / "paced.yaml"
            text = JOB.read_text()
            self.assertIn(TARGET[0], text)
            job.write_text(text.replace(*TARGET))
            run = subprocess.Popen(
                [BIN / "crowdsurf", "run", job, "--state-dir", state, "--preempt-every", PREEMPT_EVERY, "--notice", "none"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            prometheus = panels.Prometheus(program, folder, {"agents": {}, "run": {"honor_labels": True}})
            try:
                self.judge(run, state, prometheus)
            finally:
                prometheus.stop()
                run.send_signal(signal.SIGINT)
                try:
                    run.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    run.kill()
                    run.communicate()

    def judge(self, run, state, prometheus):
        said = []
        page = None
        for line in run.stdout:
            said.append(line)
            page = re.search(r"http://(127\.0\.0\.1:\d+)", line)
            if page:
                break
        self.assertIsNotNone(page, "the run names no page:\n" + "".join(said)[-2000:])
        # The rest of what it says must not fill the pipe.
        threading.Thread(target=lambda: [None for _ in run.stdout], daemon=True).start()
        prometheus.targets("run", [{"targets": [page.group(1)], "labels": {}}])

        def tend():
            prometheus.targets("agents", [{"targets": agents_of(state), "labels": LABELS}])

        count, empty = panels.wait_for_panels(prometheus, "job", LABELS, seconds=PATIENCE, every=2, tend=tend)
        self.assertEqual({}, empty)
        self.assertGreater(count, 30)
        # The checker itself: a query that nothing answers is empty, one that is wrong is refused.
        self.assertEqual([], prometheus.ask("crowdsurf_no_such_metric_total"))
        with self.assertRaises(RuntimeError):
            prometheus.ask("rate(crowdsurf_worker_steps_total)")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    unittest.main()
