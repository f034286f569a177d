#!/usr/bin/env python3
"""Runs that are started in an odd way: under nohup, without standard descriptors, without /dev/shm, with trainers that
do not train or leave somebody behind.

Usage: started_oddly_test.py BIN     BIN is the folder of the built programs.
"""
import os
import pathlib
import shlex
import signal
import subprocess
import unittest

from runs import BIN, MARK, PATIENCE, RunCase

TWO = {"replicas: 4": "replicas: 2"}


class StartedOddlyTest(RunCase):
    def test_a_hangup_that_is_ignored_stays_ignored(self):
        self.write_endless(**TWO)
        process = self.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        seen = self.wait_for_each(process, ["e2e-0-1 trains", "e2e-1-1 trains"])
        process.send_signal(signal.SIGHUP)
        trainer = pathlib.Path(f"/proc/{self.trainer('e2e-0-1')}/status").read_text()
        ignored = int(next(line.split()[1] for line in trainer.splitlines() if line.startswith("SigIgn")), 16)
        self.assertTrue(ignored & 1 << (signal.SIGHUP - 1), "the trainer ignores it, too")
        seen = self.end_job(process, seen)
        self.assertNotIn("stopping", seen)
        self.nothing_is_left()

    def test_without_standard_descriptors(self):
        self.write(self.command, **{**TWO, "backoffLimit: 2": "backoffLimit: 0"})
        words = [BIN / "crowdsurf", "run", self.job, "--state-dir", self.state]
        line = " ".join(shlex.quote(str(word)) for word in words)
        run = subprocess.run(["sh", "-c", f"exec {line} 0<&- 1>&- 2>&-"], timeout=PATIENCE,
                             env={**os.environ, MARK: str(self.state)}, check=False)
        self.assertEqual(run.returncode, 0)
        self.assertEqual(self.report()["outcome"], "Succeeded")
        self.nothing_is_left()

    def test_why_nothing_trains_is_said(self):
        self.write("sleep, '1000'", **TWO)
        process = self.start()
        why = r"\b.* not train yet, for \d+ s: no trainer has connected to its agent"   # in one line, or in one each
        seen = self.wait_for_each(process, ["e2e-0-1" + why, "e2e-1-1" + why])
        self.interrupt(process, seen)
        self.nothing_is_left()

    def test_a_child_that_hides_from_the_run_ends_with_it(self):
        mark = f"1000.{os.getpid()}"
        script = f"env -i setsid sleep {mark} & exec {self.command.split(',')[0]} \"$@\""
        rest = ", ".join(self.command.split(", ")[1:])
        self.write_endless(f"sh, -c, '{script}', sh, {rest}", **TWO)
        process = self.start()
        seen = self.wait_for_each(process, ["e2e-0-1 trains", "e2e-1-1 trains"])
        self.assertEqual(len(self.sleepers(mark)), 2)
        self.end_job(process, seen)
        self.assertEqual(self.sleepers(mark), [])

    def sleepers(self, mark):
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                found.append(process.name)
        return found

    def test_without_shared_memory_the_link_lies_in_the_state_directory(self):
        self.write(self.command, **TWO)
        words = [BIN / "crowdsurf", "run", self.job, "--state-dir", self.state]
        line = " ".join(shlex.quote(str(word)) for word in words)
        # The state directory lies on a disk elsewhere, and here perhaps not.
        script = f"mount -t tmpfs -o ro none /dev/shm && exec {line}"
        run = subprocess.run(["unshare", "-m", "sh", "-c", script], timeout=PATIENCE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, env={**os.environ, MARK: str(self.state)}, check=False)
        if "unshare" in run.stdout or "mount:" in run.stdout:
            self.skipTest(f"no mounts here: {run.stdout}")
        self.assertEqual(run.returncode, 0, run.stdout)
        words = (self.state / "workers" / "e2e-0-1" / "agent.log").read_text()
        self.assertNotIn("not in memory", words)

    def test_a_file_of_this_machine_is_mounted_and_what_cannot_be_ends_the_start(self):
        volume = {"containers: [{name: trainer,": "volumes: [{name: v, hostPath: {path: PATH, type: TYPE}}], "
                                                  "containers: [{name: trainer, volumeMounts: [{name: v, mountPath: /v}],"}
        text = self.path / "text"
        command = self.command.replace(str(text), "/v")
        self.write(command, **TWO, **volume, PATH=str(text), TYPE="File")
        code, output = self.run_job()
        self.assertEqual(code, 0, output)
        self.write(command, **TWO, **volume, PATH=f"{text}/below", TYPE="DirectoryOrCreate")
        code, output = self.run_job()
        self.assertEqual(code, 2, output)
        self.assertIn(f"hostPath {text}/below: Not a directory", output)


if __name__ == "__main__":
    unittest.main()
