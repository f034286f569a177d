#!/usr/bin/env python3
"""Parameters on a device that does everything as late as it may: what reaches the outbox, and what reaches the parameters.

A planted fault leaves out one wait at a time, and some seed shows it. Needs PyTorch, else skipped.
"""
import functools
import threading
import unittest
import unittest.mock

import numpy
from torch_case import JoinCase, flat, model, torch

import crowdsurf.module
from crowdsurf import exchange, staging
from fake_device import FakeDevice, FakeEvent, FakeStream
from stand_in import ADOPTED, APPLIED, BEAT, OVERLAP, PATIENCE, PUBLISHED, WANTED

SEEDS = range(60)
ELEMENTS, PIECE = 53, 8   # seven pieces, the last one smaller


def places(*tensors):
    """One after the other, as an agent lays them out."""
    found, at = [], 0
    for tensor in tensors:
        found.append(staging.Place(tensor, slice(at, at + tensor.numel())))
        at += tensor.numel()
    return found


def tensors():
    """Of several shapes, types and layouts: ELEMENTS values in all."""
    torch.manual_seed(3)
    return [torch.randn(5, 3), torch.randn(4, 6)[:, ::2], torch.randn(20).bfloat16(), torch.randn(3, 2).t()]


def values(tensors_):
    return torch.cat([t.float().reshape(-1) for t in tensors_])


class StagingTest(unittest.TestCase):
    def trains(self, seed, plant=lambda staged: None):
        """A script that takes snapshots and gets averages, and changes its parameters at every moment between."""
        device, own = FakeDevice(seed), tensors()
        staged, there = staging.Staging(device, ELEMENTS, PIECE), places(*own)
        plant(staged)
        expected = [t.clone() for t in own]

        def train():
            for t, wanted in zip(own, expected):
                device.script.run(functools.partial(t.add_, 1))
                wanted.add_(1)

        here = torch.full((ELEMENTS,), float("nan"))
        for round_ in range(4):
            train()
            at_snapshot = values(expected)
            take = staged.hold(there)
            train()
            told = []
            take(here, lambda elements: told.append((elements, torch.equal(here[:elements], at_snapshot[:elements]))))
            del take
            if not torch.equal(here, at_snapshot):
                return f"round {round_}: the snapshot"
            self.assertEqual([elements for elements, _ in told], [*range(PIECE, ELEMENTS, PIECE), ELEMENTS])
            if not all(there_ for _, there_ in told):
                return f"round {round_}: values that were said to be there"
            for replaces in (round_ % 2 == 0, False):
                change = torch.arange(ELEMENTS) * 0.25 + (9 if replaces else round_)
                sent = staged.send(lambda to, part: to.copy_(change[part]))
                (staged.copy if replaces else staged.add)(there, sent)
                del sent
                for t, (_, part) in zip(expected, there):
                    t.mul_(0 if replaces else 1).add_(change[part].view(t.shape).to(t.dtype))
                change.fill_(float("nan"))   # the agent may write there at once
            train()
        device.rest()
        self.assertLessEqual(device.most, 2, "vectors of the device at a time")
        return "" if torch.equal(values(own), values(expected)) else "the parameters"

    def test_snapshots_and_averages_are_right_whatever_the_order_that_events_leave_open(self):
        for seed in SEEDS:
            self.assertEqual(self.trains(seed), "", f"seed {seed}")

    def test_planted_faults_turn_it_red(self):
        faults = {"the copies do not wait for the script": (FakeStream, "follow", self.for_side(FakeStream.follow)),
                  "the script does not wait for the copies": (FakeStream, "follow", self.for_script(FakeStream.follow)),
                  "nobody waits for a copy that comes": (FakeEvent, "wait", lambda event: None)}
        for name, (of, what, fault) in faults.items():
            with unittest.mock.patch.object(of, what, fault):
                self.assertTrue(any(self.trains(seed) for seed in SEEDS), name)
        self.assertTrue(any(self.trains(seed, self.forget_what_was_sent) for seed in SEEDS), "pinned memory is written too early")

    @staticmethod
    def forget_what_was_sent(staged):
        class Forgetful(list):
            def __setitem__(self, key, value):
                pass
        staged._sent = Forgetful([None, None])

    @staticmethod
    def for_side(follow):
        return lambda stream, event: None if stream is stream.device.side else follow(stream, event)

    @staticmethod
    def for_script(follow):
        return lambda stream, event: follow(stream, event) if stream is stream.device.side else None

    def test_a_vector_smaller_than_a_piece_needs_one_slot_of_its_size(self):
        asked = []
        device = FakeDevice(1)
        with unittest.mock.patch.object(device, "pinned", lambda elements: asked.append(elements) or torch.empty(elements)):
            staging.Staging(device, 5, PIECE)
            staging.Staging(device, 20, PIECE)
        self.assertEqual(asked, [5, 8, 8])


class DeviceCase(JoinCase):
    """join() of a model that is on a fake device."""

    def joined(self, seed=0, **options):
        self.device = FakeDevice(seed, **options)
        opened = functools.partial(staging.Staging, self.device, piece=PIECE)
        patch = unittest.mock.patch.object(crowdsurf.module, "staging_on", lambda device, elements: opened(elements))
        patch.start()
        self.addCleanup(patch.stop)
        self.here, self.net = self.agent(), model()
        return self.join(self.net)

    def train(self):
        for p in self.net.parameters():
            self.device.script.run(functools.partial(p.data.add_, 1))

    def until(self, true):
        self.here.until(true, lambda: threading.Event().wait(0.001))


class SnapshotTest(DeviceCase):
    def test_the_outbox_has_the_step_at_which_it_was_asked_for_and_the_script_goes_on_at_once(self):
        for seed in range(20):
            joined = self.joined(seed)
            self.train()
            self.device.rest()
            before, gate = flat(self.net), threading.Event()
            with unittest.mock.patch.object(FakeEvent, "wait", self.gated(gate)):
                self.here.put(WANTED, 5)
                self.assertTrue(joined.step(samples=8).published)
                self.train()
                self.assertEqual(self.here.get(PUBLISHED), 0, "it is on its way")
                self.assertFalse(joined.step(samples=8).published)
                self.train()
                gate.set()
                self.until(lambda: self.here.get(PUBLISHED) == 5)
            numpy.testing.assert_array_equal(self.here.outbox, before)
            self.assertEqual((self.here.get(PUBLISHED + 8), self.here.get(PUBLISHED + 16)), (1, 8), "steps and samples then")
            self.here.deliver(5, before + 0.25)
            self.here.until(lambda: self.here.get(APPLIED) == 5, lambda: joined.step(samples=8))
            self.device.rest()
            numpy.testing.assert_allclose(flat(self.net), before + 2.25, rtol=1e-6)
            joined.close()
            self.here.close()

    @staticmethod
    def gated(gate):
        wait = FakeEvent.wait

        def waits(event):
            if threading.current_thread() is not threading.main_thread():
                assert gate.wait(PATIENCE)
            wait(event)
        return waits

    def test_a_step_that_waits_for_its_average_gets_it(self):
        joined = self.joined()
        before = flat(self.net)
        self.here.put(OVERLAP, 1, "I")
        self.here.put(WANTED, 1)
        ended = []
        thread = threading.Thread(target=lambda: ended.append(joined.step(samples=1)))
        thread.start()
        self.until(lambda: self.here.get(PUBLISHED) == 1)
        self.here.deliver(1, before + 2)
        thread.join(PATIENCE)
        self.assertTrue(ended[0].applied)
        self.device.rest()
        numpy.testing.assert_allclose(flat(self.net), before + 2, rtol=1e-6)

    def test_an_adoption_waits_for_the_snapshot_and_voids_its_result(self):
        joined = self.joined()
        self.here.put(WANTED, 1)
        joined.step(samples=1)
        self.here.offer(numpy.full(self.here.elements, 2.0))
        self.assertTrue(joined.step(samples=1).adopted)
        self.assertEqual((self.here.get(PUBLISHED), self.here.get(ADOPTED)), (1, 1))
        self.here.deliver(1, numpy.full(self.here.elements, 9.0))
        self.assertFalse(joined.step(samples=1).applied)
        self.assertEqual(self.here.get(APPLIED), 1)
        self.device.rest()
        self.assertTrue(numpy.all(flat(self.net) == 2))

    def test_a_device_that_fails_tells_the_script_and_never_announces(self):
        joined = self.joined()

        def broken(event):
            raise RuntimeError("an illegal memory access")
        with unittest.mock.patch.object(FakeEvent, "wait", broken):
            self.here.put(WANTED, 1)
            joined.step(samples=1)
            with self.assertRaisesRegex(RuntimeError, "illegal memory access"):
                self.here.until(lambda: False, lambda: joined.step(samples=1))
        self.assertEqual(self.here.get(PUBLISHED), 0)

    def test_a_device_without_memory_is_copied_from_at_once(self):
        joined = self.joined(without=True)
        before = flat(self.net)
        self.here.put(WANTED, 1)
        joined.step(samples=1)
        self.assertEqual(self.here.get(PUBLISHED), 1)
        numpy.testing.assert_array_equal(self.here.outbox, before)
        self.here.deliver(1, before + 1)
        self.assertTrue(joined.step(samples=1).applied)
        numpy.testing.assert_allclose(flat(self.net), before + 1, rtol=1e-6)

    def test_an_agent_that_comes_back_gets_no_snapshot_that_the_last_one_asked_for(self):
        joined, gate, asked = self.joined(), threading.Event(), []
        land = exchange.Flight.land

        def lands(self_):
            asked.append(list(again.requests))
            gate.set()
            land(self_)
        with unittest.mock.patch.object(FakeEvent, "wait", self.gated(gate)), \
                unittest.mock.patch.object(exchange.Flight, "land", lands):
            self.here.put(WANTED, 1)
            joined.step(samples=1)
            self.here.put(BEAT, 1)   # a beat makes the trainer look at its connection
            self.here.close()
            again = self.agent()
            again.until(lambda: again.fresh, lambda: joined.step(samples=1))
        self.assertEqual((asked[0], again.fresh), ([], [False]), "it lands before the registration")
        self.assertEqual(again.get(PUBLISHED), 0)

    def test_close_waits_for_a_snapshot_on_its_way(self):
        joined = self.joined()
        self.here.put(WANTED, 1)
        joined.step(samples=1)
        joined.close()
        self.assertEqual(self.here.get(PUBLISHED), 1)


if __name__ == "__main__":
    unittest.main()
