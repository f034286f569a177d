#!/usr/bin/env python3
"""A run whose disk is really full (a small tmpfs; root alone can mount one): it says so and goes on once there is space.

Usage: disk_full_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import os
import subprocess
import unittest

from runs import RunCase

FULL = "No space left on device"


@unittest.skipIf(os.geteuid() != 0, "only root can mount a small disk")
class DiskFullTest(RunCase):
    def setUp(self):
        super().setUp()
        self.state.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", self.state], check=True)
        self.filler = self.state / "filler"

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        subprocess.run(["umount", "--lazy", self.state], check=True)  # a failed test may hold it a moment longer
        super().tearDown()

    def fill(self, leave=0):
        """All but `leave` pages are taken; each small file needs one."""
        disk = os.statvfs(self.state)
        with self.filler.open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), (disk.f_bavail - leave) * disk.f_bsize)

    def half_files(self):
        return [str(file) for file in self.state.rglob("*") if file.suffix == ".new" or ".tmp." in file.name]

    def test_workers_start_and_checkpoints_are_written_once_there_is_space(self):
        self.fill(leave=2)  # for the run's own lock, not for a worker's files
        process = self.start("--duration", "12s", "--workers", "1")
        seen = self.wait_for(process, f"cannot write {self.state}/workers/e2e-0-1/agent/.*: {FULL}")
        self.filler.unlink()
        seen += self.wait_for(process, r"e2e-0-\d trains")
        self.fill()
        seen += self.wait_for(process, f"cannot write: write {self.state}/checkpoint/checkpoint-.*: {FULL}")
        self.assertFalse(list((self.state / "checkpoint").glob("*.new")), "nothing half written stays")
        self.filler.unlink()
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, seen + output)
        self.assertNotIn("not all of it is written", output)
        for file in ("checkpoint/model.safetensors", "report.json", "report.html"):
            self.assertGreater((self.state / file).stat().st_size, 500, file)
        self.assertTrue(list((self.state / "checkpoint").glob("*.crowdsurf")))
        self.assertEqual(self.half_files(), [])
        self.assertEqual(self.report()["rounds"]["failed"], 0)
        self.nothing_is_left()

    def test_an_agent_without_space_for_its_own_files_fails_the_job_in_its_words(self):
        self.fill(leave=5)  # for what the run gives the agent, not for what the agent writes
        code, output = self.run_job("--workers", "1", timeout=60)
        self.assertEqual(code, 1, output)
        self.assertRegex(output, f"agent does not start error=.*write {self.state}/workers/e2e-0-3/agent/.*: {FULL}")
        self.assertIn("3 failures, backoffLimit is 2", output)
        self.assertEqual(self.half_files(), [])
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
