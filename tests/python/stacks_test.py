#!/usr/bin/env python3
"""The stack of a trainer that hangs, in the file that its agent reads. No PyTorch."""
import array
import faulthandler
import os
import pathlib
import subprocess
import sys
import time
import unittest
import unittest.mock

import client_case

import crowdsurf
from stand_in import PATIENCE

# PyDLL keeps the interpreter's lock for the call, as an extension does that never gives it back.
LOCKED = """
import array, ctypes, sys
import crowdsurf
trainer = crowdsurf.Agent([crowdsurf.Tensor("w", (2, 3))])
trainer.start(array.array("f", [0.0] * 6))
def holds_the_lock():
    ctypes.PyDLL(None).usleep(600_000)
    return open(sys.argv[1]).read()
print(holds_the_lock())
"""
TENSORS = [crowdsurf.Tensor("w", (2, 3))]
FORKS = f"""
import array, os, signal, sys
sys.path.insert(0, {str(client_case.ROOT / "python")!r})
import crowdsurf
trainer = crowdsurf.Agent([crowdsurf.Tensor("w", (2, 3))])
trainer.start(array.array("f", [0.0] * 6))
child = os.fork()
if child == 0:
    signal.alarm(20)  # one that waits for ever must not outlive the test
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), crowdsurf.stacks._armed is not None)
"""


class StacksTest(client_case.ClientCase):
    def setUp(self):
        super().setUp()
        self.here = self.agent()
        self.here.wrong = {"hang_after": 0.2}
        # On a busy machine the timer would come before the writer, and read frames that move.
        never = unittest.mock.patch.object(crowdsurf.stacks, "_LOCKED", 1000)
        never.start()
        self.addCleanup(never.stop)
        self.file = pathlib.Path(self.folder.name, "stacks")
        self.file.touch()

    def started(self):
        trainer = crowdsurf.Agent(TENSORS)
        self.addCleanup(trainer.close)
        trainer.start(array.array("f", [0.0] * 6))
        return trainer

    def wait_for_ever(self):
        """Until the writer has come to this thread, the last one."""
        self.here.until(lambda: "in wait_for_ever" in self.file.read_text(), os.sched_yield)

    def test_they_are_there_when_no_step_comes_and_gone_with_the_next(self):
        trainer = self.started()
        self.wait_for_ever()
        self.assertIn("most recent call first", self.file.read_text())
        self.here.until(lambda: not self.file.read_text(), lambda: trainer.step(samples=1))
        self.wait_for_ever()

    def test_they_are_there_though_an_extension_keeps_the_interpreters_lock(self):
        environment = {**os.environ, "PYTHONPATH": str(client_case.ROOT / "python")}
        done = subprocess.run([sys.executable, "-B", "-c", LOCKED, self.file], text=True, timeout=PATIENCE, env=environment,
                              stdout=subprocess.PIPE)
        self.assertIn("in holds_the_lock", done.stdout)

    def test_code_that_runs_is_read_with_the_lock_alone(self):
        # The timer's thread reads without it, and crashes the process: here it writes nothing.
        with unittest.mock.patch.object(faulthandler, "dump_traceback_later") as timer, \
                unittest.mock.patch.object(faulthandler, "cancel_dump_traceback_later") as cancel:
            self.started()
            self.assertEqual(timer.call_args[0], (200.0,))
            self.wait_for_ever()
            cancel.assert_called()   # before it could

    def test_one_that_says_that_it_is_busy_is_left_alone_so_long(self):
        trainer = self.started()
        began = time.monotonic()
        trainer.busy(0.9)   # 0.7 s more than what makes a hang: the stacks are due half of that before its end
        self.wait_for_ever()
        self.assertGreaterEqual(time.monotonic() - began, 0.8)
        self.assertIn("/v1/busy", self.here.requests)
        trainer.step(samples=1)
        self.wait_for_ever()   # the step has ended it

    def test_busy_takes_a_week_at_most(self):
        trainer = self.started()
        for seconds in (-1, 604_801, float("nan")):
            self.assertRaises(ValueError, trainer.busy, seconds)
        self.assertNotIn("/v1/busy", self.here.requests)

    def test_after_the_end_none_are_written(self):
        self.here.wrong = {"hang_after": 60}   # none is due
        with unittest.mock.patch.object(faulthandler, "cancel_dump_traceback_later") as cancel:
            self.started().close()
        cancel.assert_called_once()
        faulthandler.cancel_dump_traceback_later()
        self.assertEqual(self.file.read_text(), "")

    def test_without_the_agents_file_or_word_there_is_no_timer(self):
        for wrong, there in ({"hang_after": 0.2}, False), ({"hang_after": 0}, True), ({}, True):
            with self.subTest(wrong=wrong, there=there), \
                    unittest.mock.patch.object(faulthandler, "dump_traceback_later") as arm:
                self.here.wrong = wrong
                self.file.touch() if there else self.file.unlink()
                self.started().close()
                self.assertTrue(self.here.gone.wait(PATIENCE))
                arm.assert_not_called()

    def test_a_link_in_the_files_place_is_not_followed(self):
        target = pathlib.Path(self.folder.name, "mine")
        target.write_text("mine")
        self.file.unlink()
        self.file.symlink_to(target)
        self.started().step(samples=1)
        self.assertEqual(target.read_text(), "mine")

    def test_a_forked_child_ends(self):
        done = subprocess.run([sys.executable, "-B", "-c", FORKS], text=True, timeout=PATIENCE, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, "3 True\n")


if __name__ == "__main__":
    unittest.main()
