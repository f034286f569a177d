#!/usr/bin/env python3
"""The bells between a trainer and its agent: who is woken, when, and what becomes of trainers that have none. No PyTorch."""
import array
import threading
import time
import unittest
import unittest.mock

import client_case

import crowdsurf
from crowdsurf import agent, bells
from stand_in import OVERLAP, PATIENCE, PUBLISHED, RUNG, STOP, WAKE_AT, WANTED

TENSORS = [crowdsurf.Tensor("w", (2, 3))]


class BellsCase(client_case.ClientCase):
    def setUp(self):
        super().setUp()
        self.here = self.agent()

    def started(self, adopt=None):
        trainer = crowdsurf.Agent(TENSORS)
        self.addCleanup(trainer.close)
        if adopt is not None:
            self.here.offer(adopt)
        trainer.start(array.array("f", [0.0] * 6))
        return trainer

    def rung(self):
        return self.here.get(RUNG, "I")

    def deliver_when_published(self):
        """On a thread of its own, as an agent does."""
        def deliver():
            self.here.until(lambda: self.here.get(PUBLISHED) == 1, lambda: time.sleep(0.001))   # polled: it is the test that waits
            self.here.deliver(1, 2.0)
        thread = threading.Thread(target=deliver)
        thread.start()
        self.addCleanup(thread.join)


@unittest.skipIf(bells.system_call() is None, "no futex here")
class RingTest(BellsCase):
    def test_the_agent_is_told_that_it_need_not_look(self):
        self.started()
        self.assertEqual(self.here.bells, [True])

    def test_steps_with_nothing_to_say_are_silent(self):
        trainer = self.started()
        for _ in range(5):
            trainer.step(samples=1)
        self.assertEqual(self.rung(), 0)

    def test_a_snapshot_its_result_an_adoption_and_the_end_are_rung_for(self):
        trainer = self.started(adopt=[1.0] * 6)
        self.assertEqual(self.rung(), 1)
        self.here.put(WANTED, 1)
        self.assertTrue(trainer.step(samples=1).published)
        self.assertEqual(self.rung(), 2)
        self.here.deliver(1, 2.0)
        self.assertTrue(trainer.step(samples=1).applied)
        self.assertEqual(self.rung(), 3)
        self.here.put(STOP, 1, "I")
        self.assertTrue(trainer.step(samples=1).stop)
        self.assertEqual(self.rung(), 4)

    def test_a_mark_is_rung_for_once_when_it_is_reached(self):
        trainer = self.started()
        for mark, at, samples in ((3, WAKE_AT, 1), (40, WAKE_AT + 8, 10)):   # steps, samples
            before = self.rung()
            self.here.put(at, mark)
            counts = []
            for _ in range(6):
                trainer.step(samples=samples)
                counts.append(self.rung() - before)
            self.assertEqual(sorted(set(counts)), [0, 1], f"mark {mark}")
            self.here.put(at, 0)

    def test_a_blocking_step_sleeps_until_it_is_rung_for(self):
        with unittest.mock.patch.object(agent, "_SLICE", PATIENCE):
            trainer = self.started()
            self.here.put(OVERLAP, 1, "I")
            self.here.put(WANTED, 1)
            self.deliver_when_published()
            self.assertTrue(trainer.step(samples=1).applied)

    def test_a_ring_before_the_wait_ends_it_at_once(self):
        self.started()
        bell = self.here.agent_bell()
        before = bell.rung()
        bell.ring()
        began = time.monotonic()
        bell.wait(before, PATIENCE, PATIENCE)
        self.assertLess(time.monotonic() - began, PATIENCE)

    def test_a_count_of_32_bits_begins_anew(self):
        self.started()
        self.here.put(RUNG, 2**32 - 1, "I")
        bells.Bell(self.here._map, RUNG).ring()
        self.assertEqual(self.rung(), 0)


class WithoutBellsTest(BellsCase):
    def test_a_trainer_without_a_futex_is_looked_at_and_looks_itself(self):
        with unittest.mock.patch.object(bells, "system_call", lambda: None):
            trainer = self.started()
            self.assertEqual(self.here.bells, [False])
            self.here.put(OVERLAP, 1, "I")
            self.here.put(WANTED, 1)
            self.deliver_when_published()
            self.assertTrue(trainer.step(samples=1).applied)


class SystemCallTest(unittest.TestCase):
    def test_it_is_known_on_linux_with_these_processors_alone(self):
        for machine, system, known in (("x86_64", "linux", True), ("aarch64", "linux", True), ("riscv64", "linux", False),
                                       ("arm64", "darwin", False), ("x86_64", "win32", False)):
            with unittest.mock.patch.object(bells.platform, "machine", lambda: machine), \
                    unittest.mock.patch.object(bells.sys, "platform", system):
                self.assertEqual(bells.system_call() is not None, known, (machine, system))


if __name__ == "__main__":
    unittest.main()
