#!/usr/bin/env python3
"""Workers that are told to go, by the spot market's notice or by SIGTERM: they leave by themselves, nobody is killed.

Usage: leave_test.py BIN     BIN is the folder of the built programs.
"""
import json
import os
import re
import select
import signal
import unittest
import urllib.error
import urllib.request

from runs import RunCase

LEAVE_WITHIN = 10  # seconds from SIGTERM to the exit: what the agent promises (docs/agent.md)


class LeaveTest(RunCase):
    def kept(self, worker, name):
        return (self.state / "workers" / worker / name).read_text()

    def left_by_itself(self, worker):
        """The agent ended with 0 because it had left, and said so in its termination log."""
        self.assertIn("agent ends reason=left code=0\n", self.kept(worker, "agent.log"), worker)
        self.assertEqual(json.loads(self.kept(worker, "termination"))["reason"], "left", worker)

    def when(self, output, what):
        """{worker: seconds since the start} of the lines that say `what` of a worker."""
        lines = re.findall(r"^(?:(\d+)m )?(\d+)s  " + what, output, re.M)
        return {worker: 60 * int(minutes or 0) + int(seconds) for minutes, seconds, worker in lines}

    def test_with_the_default_notice_workers_leave_before_their_machine_goes(self):
        self.write_endless()
        process = self.start("--preempt-every", "5s", "--preempt-count", "2")
        told, seen = [], ""
        while len(told) < 2:
            seen += self.wait_for(process, "is told that its machine goes")
            told = re.findall(r"(e2e-\d-\d+) is told that its machine goes", seen)
        # Who is still there when its machine goes, 10 s after the notice, is taken; its folder goes when it has gone.
        shared = self.shared_folder()
        self.wait_until(lambda: not any((shared / worker).exists() for worker in told[:2]))
        output = self.end_job(process, seen)
        told, report = re.findall(r"(e2e-\d-\d+) is told that its machine goes", output), self.report()
        self.assertGreaterEqual(report["preemptions"], 2, output)
        self.assertNotIn("is taken by the spot market", output, "nobody was still there when its machine went")
        self.assertEqual(report["rounds"]["hash_mismatches"], 0)
        for worker in told:  # who was told in the last moments may have ended with the job
            self.assertRegex(self.kept(worker, "agent.log"), r'agent ends reason=(left|"target met") code=0\n', worker)
        for worker in told[:2]:
            self.assertIn("notice leaving=true reason=SpotInterruption", self.kept(worker, "agent.log"))
            self.left_by_itself(worker)
        self.nothing_is_left()

    def test_a_trace_says_which_machines_there_are_and_when(self):
        trace = self.path / "trace.csv"
        trace.write_text("".join(f"0,add,n{node}\n" for node in range(4)) +
                         "40000,remove,n1\n40000,remove,n2\n60000,add,n5\n60000,add,n6\n")
        process = self.start("--duration", "10m", "--preempt-trace", trace, "--speed", "10", "--notice", "none")
        seen = ""
        while len(self.when(seen, r"(e2e-\d)-2 trains")) < 2:
            seen += self.wait_for(process, "-2 trains")
        self.interrupt(process, seen)
        taken, back = self.when(seen, r"(e2e-\d)-1 is taken by the spot market"), self.when(seen, r"(e2e-\d)-2 trains")
        self.assertEqual(len(taken), 2, seen)
        self.assertEqual(set(taken), set(back), seen)
        self.assertGreaterEqual(min(taken.values()), 4, "40 s of the trace at ten times its speed")
        self.assertGreaterEqual(min(back.values()), 6, "there is no machine for them before")
        self.nothing_is_left()

    def ready(self, worker):
        """The status of /readyz; 0 when nobody answers any more."""
        try:
            return urllib.request.urlopen(f"http://{self.endpoints(worker)['http']}/readyz", timeout=10).status
        except urllib.error.HTTPError as answer:
            return answer.code
        except OSError:
            return 0

    def test_an_agent_is_ready_from_its_seat_until_it_is_told_to_go(self):
        gate, words = self.path / "gate", self.command.replace(",", "").replace("'", "")
        self.write(f"sh, -c, 'case $CROWDSURF_WORKER in e2e-1-*) until [ -e {gate} ]; do sleep .1; done;; esac; exec {words}'")
        process = self.start("--duration", "10m")
        self.wait_for_all(process, but=1)
        self.wait_until(lambda: self.ready("e2e-1-1"))  # its agent, which may be slow to start, answers
        self.assertEqual([self.ready(f"e2e-{worker}-1") for worker in range(4)], [200, 503, 200, 200])
        gate.touch()
        self.wait_for(process, "e2e-1-1 trains")
        self.assertEqual(self.ready("e2e-1-1"), 200)
        ((agent, _),) = self.agents("e2e-1-1").items()
        os.kill(agent, signal.SIGTERM)
        # That it is not ready in the hundredth of a second before it has gone is a test of the agent's own.
        self.wait_until(lambda: self.ready("e2e-1-1") != 200)
        self.wait_for(process, "e2e-1-2 trains")
        self.interrupt(process)
        self.nothing_is_left()

    def test_an_agent_that_gets_sigterm_ends_in_time(self):
        process = self.start("--duration", "10m")
        self.wait_for_all(process)
        ((agent, _),) = self.agents("e2e-2-1").items()
        ends = os.pidfd_open(agent)
        os.kill(agent, signal.SIGTERM)
        ended, _, _ = select.select([ends], [], [], LEAVE_WITHIN)
        os.close(ends)
        self.assertTrue(ended, f"still there {LEAVE_WITHIN} s after SIGTERM")
        self.wait_for(process, r"e2e-2-2 trains")
        self.interrupt(process)
        self.assertIn("events asked to end signal=15\n", self.kept("e2e-2-1", "agent.log"))
        self.left_by_itself("e2e-2-1")
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
