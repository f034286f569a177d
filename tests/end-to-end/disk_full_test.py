#!/usr/bin/env python3
"""A run whose disk is really full (a small tmpfs; root alone can mount one): it says so and goes on once there is space.

Usage: disk_full_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
import unittest

from runs import BIN, PATIENCE, RunCase

FULL = "No space left on device"
LIBC = ctypes.CDLL(None, use_errno=True)
# <sched.h>, <sys/mount.h>
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def small_dev_shm():
    """Gives the calling process a /dev/shm of its own with 64 KiB."""
    own = LIBC.unshare(CLONE_NEWNS) == 0 and any(  # the first of these that is a mount; in a chroot / is none
        LIBC.mount(b"none", place, None, MS_REC | MS_PRIVATE, None) == 0 for place in (b"/", b"/dev/shm", b"/dev"))
    if not own or LIBC.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64k"):
        raise OSError(ctypes.get_errno(), "mount")


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
        with self.filler.open("ab") as file:
            while (pages := (disk := os.statvfs(self.state)).f_bavail - leave) > 0:
                with contextlib.suppress(OSError):  # the run was faster with one of these pages: what is left now?
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, pages * disk.f_bsize)
                    return

    def half_files(self):
        return [str(file) for file in self.state.rglob("*") if file.suffix == ".new" or ".tmp." in file.name]

    def keep_full(self):
        """Fills what is freed until told to stop: a dead worker's files make room for the next one's."""
        stop = threading.Event()

        def fill():
            while not stop.wait(0.01):
                self.fill()

        thread = threading.Thread(target=fill)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(stop.set)

        def end():
            stop.set()
            thread.join()
            self.filler.unlink()

        return end

    def test_without_space_nothing_is_started_and_the_folder_and_the_need_are_said(self):
        self.fill(leave=2)  # for the lock; nothing else would fit
        code, output = self.run_job()
        self.assertEqual(code, 2, output)
        self.assertIn(f"crowdsurf: no space: the state directory {self.state} has room for 8 KiB; "
                      "4 workers need 2048 KiB for logs and report", output)
        self.assertEqual(os.listdir(self.state), ["filler"])
        self.nothing_is_left()

    def test_workers_start_and_checkpoints_are_written_once_there_is_space(self):
        self.write_endless()
        process = self.start("--workers", "1")
        seen = self.wait_for(process, "e2e-0-1 trains")
        make_room = self.keep_full()
        os.kill(self.trainer("e2e-0-1"), signal.SIGKILL)
        seen += self.wait_for(process, f"cannot write {self.state}/workers/e2e-0-\\d/agent/.*: {FULL}")
        make_room()
        seen += self.wait_for(process, r"e2e-0-\d trains")
        self.fill()
        seen += self.wait_for(process, f"cannot write {self.state}/checkpoint/checkpoint-.*: {FULL}")
        self.wait_until(lambda: not list((self.state / "checkpoint").glob("*.new")))  # nothing half written stays
        self.filler.unlink()
        self.wait_until(lambda: list((self.state / "checkpoint").glob("*.crowdsurf")))
        output = self.end_job(process, seen)
        self.assertNotIn("not all of it is written", output)
        for file in ("checkpoint/model.safetensors", "report.json", "report.html"):
            self.assertGreater((self.state / file).stat().st_size, 500, file)
        self.assertTrue(list((self.state / "checkpoint").glob("*.crowdsurf")))
        self.assertEqual(self.half_files(), [])
        self.assertEqual(self.report()["rounds"]["failed"], 0)
        self.nothing_is_left()

    def test_an_agent_without_space_for_its_own_files_fails_the_job_in_its_words(self):
        # The run's own files fit; when the agent starts, the last page is taken.
        agent = self.path / "agent"
        agent.write_text(f'#!/bin/sh\ncat /dev/zero >>{self.filler} 2>/dev/null\nexec {BIN}/crowdsurf-worker "$@"\n')
        agent.chmod(0o755)
        process = self.start("--workers", "1", env={**os.environ, "CROWDSURF_AGENT_PROGRAM": str(agent)})
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, output)
        self.assertRegex(output, f"agent does not start error=.*write {self.state}/workers/e2e-0-3/agent/.*: {FULL}")
        self.assertIn("3 failures, backoffLimit is 2", output)
        self.assertEqual(self.half_files(), [])
        self.nothing_is_left()

    def test_a_full_dev_shm_fails_the_job_with_what_is_needed_and_what_is_free(self):
        process = self.start("--workers", "1", preexec_fn=small_dev_shm)
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, output)
        said = re.search(r"the trainer link needs (\d+) KiB \(3 x the \d+ KiB that are averaged\) and "
                         r"/dev/shm/crowdsurf-\w+/e2e-0-3 has (\d+) KiB free: make room there", output)
        self.assertIsNotNone(said, output)
        self.assertGreater(int(said.group(1)), int(said.group(2)))
        self.assertIn("3 failures, backoffLimit is 2", output)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
