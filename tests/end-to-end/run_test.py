#!/usr/bin/env python3
"""`crowdsurf run` as a user sees it: real agents, real trainers, and what is left over after every end.

Usage: run_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
TRAINER = "crowdsurf-trainer, charlm, --text, TEXT, --hidden, '32', --step-time, 20ms"
JOB = """apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: e2e}
spec:
  replicas: 4
  averaging: {strategy: Moshpit, groupSize: 2, interval: {steps: 20}}
  target: {samples: 80000}
  runPolicy: {backoffLimit: 2}
  template: {spec: {containers: [{name: trainer, image: x, command: [COMMAND]}]}}
"""


def leftovers(state):
    """Processes of the run in `state` and shared files of it: (names, folders)."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(state).encode() in word for word in words) and b"crowdsurf" in words[0]:
            found.append(b" ".join(words).decode())
    return found


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="crowdsurf-e2e-")
        self.path = pathlib.Path(self.folder.name)
        self.state = self.path / "state"
        text = self.path / "text"
        text.write_text("\n%\n".join(f"The {n} surfers of the crowd carry {n * n} stars.\nAgain and again."
                                     for n in range(4000)) + "\n")
        self.job = self.path / "job.yaml"
        self.write(TRAINER.replace("TEXT", str(text)))
        self.shared = set(os.listdir("/dev/shm"))

    def tearDown(self):
        self.folder.cleanup()

    def write(self, command, **replace):
        text = JOB.replace("COMMAND", command)
        for old, new in replace.items():
            text = text.replace(old, new)
        self.job.write_text(text)

    def start(self, *flags, **extra):
        return subprocess.Popen([BIN / "crowdsurf", "run", self.job, "--state-dir", self.state, *flags],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **extra)

    def run_job(self, *flags, timeout=120):
        process = self.start(*flags)
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output

    def wait_for(self, process, pattern, timeout=60):
        """Reads the run's output until a line matches; all of it so far."""
        seen, end = "", time.time() + timeout
        while time.time() < end:
            line = process.stdout.readline()
            seen += line
            if re.search(pattern, line):
                return seen
            if not line:
                break
        self.fail(f"never saw {pattern}:\n{seen}")

    def nothing_is_left(self, patience=10):
        end = time.time() + patience
        while leftovers(self.state) and time.time() < end:
            time.sleep(0.05)  # between two looks at processes of others, which have no event; bounded by `end`
        self.assertEqual(leftovers(self.state), [])
        mine = lambda: [name for name in set(os.listdir("/dev/shm")) - self.shared if self.is_mine(name)]
        while mine() and time.time() < end:
            time.sleep(0.05)  # between two looks at processes of others, which have no event; bounded by `end`
        self.assertEqual(mine(), [])

    def is_mine(self, name):
        return name.startswith("crowdsurf-") and any((pathlib.Path("/dev/shm") / name).glob("e2e-*"))

    def test_trains_to_its_target_and_leaves_a_model_and_a_report(self):
        code, output = self.run_job()
        self.assertEqual(code, 0, output)
        report = json.loads((self.state / "report.json").read_text())
        self.assertGreaterEqual(report["samples"], 80000)
        self.assertEqual(report["rounds"]["hash_mismatches"], 0)
        self.assertLess(report["heldout_bits_per_char"], 8)
        self.assertTrue((self.state / "checkpoint" / "model.safetensors").exists())
        self.assertIn("</html>", (self.state / "report.html").read_text())
        self.assertIn("A fortune that the model made up", output)
        self.nothing_is_left()

    def test_carries_on_while_workers_are_killed_without_notice(self):
        code, output = self.run_job("--duration", "25s", "--preempt-every", "4s", "--notice", "none")
        self.assertEqual(code, 0, output)
        report = json.loads((self.state / "report.json").read_text())
        self.assertGreaterEqual(report["preemptions"], 3)
        self.assertEqual(report["rounds"]["hash_mismatches"], 0)
        self.assertIsNotNone(report["replacement_seconds"]["p50"], output)
        self.nothing_is_left()

    def test_ctrl_c_ends_everything_cleanly_and_twice_at_once(self):
        process = self.start("--duration", "10m")
        self.wait_for(process, "trains")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, output)
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
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)

    def test_mistakes_come_all_at_once_and_nothing_is_started(self):
        self.write("crowdsurf-trainer", **{"groupSize: 2": "groupsize: 1", "replicas: 4": "replicas: -4"})
        code, output = self.run_job("--notice", "soon")
        self.assertEqual(code, 2)
        for words in ("--notice: soon is not a duration", "job.yaml:5: spec.replicas: -4 is below 0",
                      "job.yaml:6: spec.averaging.groupsize: unknown field; did you mean groupSize?"):
            self.assertIn(words, output)
        self.assertFalse(self.state.exists())

    def test_a_missing_text_is_said_before_anything_starts(self):
        self.write(TRAINER.replace("TEXT", "/no/such/text"))
        code, output = self.run_job()
        self.assertEqual(code, 2)
        self.assertIn("/no/such/text is not there", output)

    def test_a_trainer_that_crashes_at_once_backs_off_and_fails_the_job_with_its_words(self):
        self.write("sh, -c, 'echo the data is gone; exit 7'")
        code, output = self.run_job(timeout=60)
        self.assertEqual(code, 1, output)
        self.assertIn("exit code 7", output)
        self.assertIn("the data is gone", output)
        self.assertIn("Retry", output)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
