#!/usr/bin/env python3
"""A training script that ends: by an exception, Ctrl-C, SIGTERM, kill -9. Needs PyTorch, else skipped."""
import os
import signal
import subprocess
import sys
import unittest

import client_case
from stand_in import PATIENCE, STEPS, STOP

try:
    import torch  # noqa: F401  (the scripts need it)
except ImportError:
    print("skipped: needs PyTorch (Debian: python3-torch)")
    sys.exit(77)

# A plain script; what ends it stands in place of BODY.
SCRIPT = f"""
import os, sys
sys.path.insert(0, {str(client_case.ROOT / "python")!r})
import torch, crowdsurf
model = torch.nn.Linear(2, 1)
job = crowdsurf.join(model, torch.optim.SGD(model.parameters(), lr=0.1))
BODY
"""
ENDLESS = "for _ in job.batches([1]): job.step(samples=1)"


class ProcessTest(client_case.ClientCase):
    def setUp(self):
        super().setUp()
        self.here = self.agent()

    def start(self, body, **extra):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT.replace("BODY", body)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, **extra)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertTrue(self.here.registered.wait(PATIENCE))
        return process

    def ended(self, process):
        """Its exit code and what it said; the agent has heard of its end."""
        _, said = process.communicate(timeout=PATIENCE)
        self.assertTrue(self.here.gone.wait(PATIENCE))
        return process.returncode, said

    def signalled(self, number, body=ENDLESS):
        process = self.start(body)
        self.here.until(lambda: self.here.get(STEPS) > 0, os.sched_yield)
        process.send_signal(number)
        return self.ended(process)

    def test_an_exception_of_the_loop_is_what_the_user_sees(self):
        code, said = self.ended(self.start("job.step(samples=1); {}['lost']"))
        self.assertEqual(code, 1)
        self.assertIn("KeyError: 'lost'", said)
        self.assertNotIn("crowdsurf:", said)

    def test_a_script_that_ends_too_early_is_told(self):
        code, said = self.ended(self.start("job.step(samples=1)"))
        self.assertEqual(code, 0)
        self.assertIn("ends before the job's target is met", said)

    def test_a_script_whose_target_is_met_ends_in_silence(self):
        process = self.start(ENDLESS)
        self.here.put(STOP, 1, "I")
        self.assertEqual(self.ended(process), (0, ""))

    def test_ctrl_c_is_a_keyboard_interrupt(self):
        code, said = self.signalled(signal.SIGINT)
        self.assertEqual(code, -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", said)

    def test_sigterm_ends_it_at_once_with_its_finally_blocks(self):
        code, said = self.signalled(signal.SIGTERM, f"""
try:
    {ENDLESS}
finally:
    print("finally", file=sys.stderr)
""")
        self.assertEqual((code, said), (143, "finally\n"))

    def test_what_ends_a_script_that_hangs_shows_where_it_is(self):
        hangs = "def wait_for_ever():\n    job.step(samples=1)\n    while True: pass\n"
        code, said = self.signalled(signal.SIGABRT, hangs + "wait_for_ever()")
        self.assertEqual(code, -signal.SIGABRT)
        self.assertRegex(said, r"Fatal Python error: Aborted[\s\S]*in wait_for_ever")

    def test_sigterm_after_a_minute_without_a_step_shows_where_it_is(self):
        # The signal may come before step() is over: that is inside, too.
        hangs = "def wait_for_ever():\n    job.step(samples=1)\n    while True: pass\n"
        at_once = "import crowdsurf.job\ncrowdsurf.job._HANGS = 0.0\n"
        code, said = self.signalled(signal.SIGTERM, at_once + hangs + "wait_for_ever()")
        self.assertEqual(code, 143)
        self.assertRegex(said, "in wait_for_ever")

    def test_without_a_stderr_there_is_nothing_to_show_and_it_trains(self):
        process = self.start("job.close(); sys.stderr = None\njob = crowdsurf.join(model)\n" + ENDLESS)
        self.here.until(lambda: self.here.get(STEPS) > 0, os.sched_yield)
        self.here.put(STOP, 1, "I")
        self.assertEqual(self.ended(process), (0, ""))

    def test_a_handler_of_the_script_for_sigterm_stays(self):
        code, said = self.signalled(signal.SIGTERM, f"""
job.close()
import signal
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))
job = crowdsurf.join(model)
{ENDLESS}
""")
        self.assertEqual((code, said), (7, ""))

    def test_sigterm_in_a_loop_over_leases_that_is_then_left_ends_it_after_the_loop(self):
        process = self.start("""
import signal
from torch.utils.data import DataLoader
for _ in job.shard(DataLoader([1.0] * 9)):
    job.step(samples=1)
    os.kill(os.getpid(), signal.SIGTERM)
    break
while True:
    signal.pause()
""")
        self.here.grant(stream=1, begin=0, leases=[[0, 0, 9]])
        self.assertEqual(self.ended(process), (143, ""))

    def test_a_forked_child_ends_by_sigterm_as_without_a_join_and_says_nothing(self):
        process = self.start(f"""
for number in (0, 15):
    parent, (here, there) = os.getpid(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(there, b"x")   # Python forgets a signal that comes while it forks
        while number and os.getppid() == parent:
            pass   # until the signal comes
        sys.exit(0)
    os.read(here, 1)
    if number:
        os.kill(child, number)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == number and status in (0, 15), status
{ENDLESS}
""")
        self.here.put(STOP, 1, "I")
        self.assertEqual(self.ended(process), (0, ""))

    def test_the_agent_sees_a_kill_though_a_child_of_the_loader_lives(self):
        process = self.start("pid = os.fork()\nif pid == 0: sys.stdin.read(); os._exit(0)\n" + ENDLESS, stdin=subprocess.PIPE)
        self.here.until(lambda: self.here.get(STEPS) > 0, os.sched_yield)
        process.kill()
        self.assertTrue(self.here.gone.wait(PATIENCE))


if __name__ == "__main__":
    unittest.main()
