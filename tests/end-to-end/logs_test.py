#!/usr/bin/env python3
"""`crowdsurf logs` and `crowdsurf export` beside a run that lives, was killed, or is over.

Usage: logs_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import json
import os
import subprocess
import unittest

from runs import BIN, PATIENCE, RunCase

# Says its name and its lines, and lives until it is told to go.
TALKER = "sh, -c, 'echo I am $CROWDSURF_WORKER; echo two; printf \"three\\033[31m\\n\"; exec sleep 1000'"


class LogsTest(RunCase):
    def logs(self, *words, **extra):
        """(exit code, what it printed, its errors); without a cluster."""
        environment = {**os.environ, "KUBECONFIG": str(self.path / "none"), "XDG_STATE_HOME": str(self.path / "home")}
        done = subprocess.run([BIN / "crowdsurf", "logs", *words], text=True, timeout=PATIENCE, env=environment,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **extra})
        return done.returncode, done.stdout, done.stderr

    def test_a_run_that_lives_and_one_that_was_killed_have_logs(self):
        self.write_endless(TALKER, **{"replicas: 4": "replicas: 2"})
        process = self.start()
        here = ("e2e", "--state-dir", str(self.state))
        all_lines = "".join(f"e2e-{i}-1 | {line}\n" for i in range(2) for line in (f"I am e2e-{i}-1", "two", "three"))
        self.wait_until(lambda: self.logs(*here)[1] == all_lines)
        self.assertEqual(self.logs(*here, "1", "--tail", "2"), (0, "two\nthree\n", ""))
        self.wait_until(lambda: "agent listens worker=e2e-0-1" in self.logs(*here, "e2e-0-1", "--agent")[1])
        follower = subprocess.Popen([BIN / "crowdsurf", "logs", *here, "-f"], stdout=subprocess.PIPE, text=True)
        self.started.append(follower)
        seen = {follower.stdout.readline() for _ in range(6)}
        self.assertEqual(seen, set(all_lines.splitlines(keepends=True)))
        process.kill()
        process.wait()
        output, _ = follower.communicate(timeout=PATIENCE)
        self.assertEqual((follower.returncode, output), (0, ""))
        self.assertEqual(self.logs(*here), (0, all_lines, ""))
        self.nothing_is_left()

    def test_a_run_that_is_over_keeps_the_logs_of_workers_that_are_gone(self):
        self.write("sh, -c, 'echo the data is gone from $CROWDSURF_WORKER; exit 7'", **{"replicas: 4": "replicas: 1"})
        code, output = self.run_job()
        self.assertEqual(code, 1, output)
        self.assertIn(f"more: crowdsurf logs e2e e2e-0-3 --state-dir {self.state}\n", output)
        here = ("e2e", "--state-dir", str(self.state))
        self.assertEqual(self.logs(*here, "e2e-0-1"), (0, "the data is gone from e2e-0-1\n", ""))
        self.assertEqual(self.logs(*here, "0", "--previous"), (0, "the data is gone from e2e-0-2\n", ""))
        self.assertEqual(self.logs(*here), (0, "e2e-0-3 | the data is gone from e2e-0-3\n", ""))
        code, output, errors = self.logs(*here, "e2e-0-9")
        self.assertEqual((code, output), (2, ""))
        self.assertEqual(errors, "crowdsurf: no worker e2e-0-9; there are e2e-0-1, e2e-0-2, e2e-0-3\n")
        with open("/dev/full", "w") as full:
            code, _, errors = self.logs(*here, stdout=full)
        self.assertEqual((code, errors), (1, "crowdsurf: cannot write: No space left on device\n"))

    def test_a_checkpoint_of_a_job_that_runs_becomes_a_model(self):
        self.write_endless()
        process = self.start()
        export = [BIN / "crowdsurf", "export", "e2e", "--state-dir", self.state, "-o", self.path / "model.safetensors"]
        tell = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": PATIENCE}
        self.wait_until(lambda: list(self.state.glob("checkpoint/*.crowdsurf")))
        done = subprocess.run(export, **tell)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"model.safetensors is written: \d+ parameters of e2e, averaging \d+, after \S+ samples\n")
        again = subprocess.run(export, **tell)
        self.assertEqual((again.returncode, again.stdout),
                         (2, f"crowdsurf: {self.path}/model.safetensors is there already\n"))
        self.end_job(process)
        # What the job leaves has the same tensors.
        heads = []
        for path in self.path / "model.safetensors", self.state / "checkpoint" / "model.safetensors":
            content = path.read_bytes()
            length = int.from_bytes(content[:8], "little")
            head = json.loads(content[8:8 + length])
            head.pop("__metadata__")
            heads.append((head, len(content) - length))
        self.assertEqual(*heads)

    def test_a_job_that_is_nowhere_is_an_error_that_names_those_that_are(self):
        (self.path / "home" / "crowdsurf" / "digits" / "workers").mkdir(parents=True)
        code, output, errors = self.logs("digit")
        self.assertEqual((code, output), (2, ""))
        self.assertRegex(errors, r"^crowdsurf: no job digit has run on this machine \(there are digits\); .*none")
        self.assertEqual(self.logs("digits")[0], 2, "its run has started no worker")
        code, _, errors = self.logs("digits", "--state-dir", str(self.path / "none"))
        self.assertEqual((code, errors), (2, f"crowdsurf: {self.path}/none is not the state directory of a run\n"))
        self.assertEqual(self.logs("digits", "--tail", "-2")[0], 2)
        code, _, errors = self.logs("jobs/digits.yaml")
        self.assertEqual(code, 2)
        self.assertIn("jobs/digits.yaml is no name of a job: JOB is the metadata.name", errors)


if __name__ == "__main__":
    unittest.main()
