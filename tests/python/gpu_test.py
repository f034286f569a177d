#!/usr/bin/env python3
"""Parameters on a CUDA device: what staging_test.py shows of a fake one holds for the real one. Needs one, else skipped."""
import sys
import time
import unittest

try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: needs PyTorch and numpy ({error})")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: needs a CUDA device")
    sys.exit(77)
from torch_case import JoinCase

import crowdsurf
from crowdsurf import cuda
from stand_in import ADOPTED, APPLIED, PATIENCE, PUBLISHED, WANTED

BUSY = 1 << 30   # cycles of the device: half a second or more
WIDTH = 2048     # 12.6 million parameters in all, so there are four pieces


def net(dtype=torch.float32):
    """Whole numbers, so that sums are exact."""
    made = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))).to("cuda", dtype)
    with torch.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_((torch.arange(p.numel(), device="cuda") % 100 + i).view(p.shape))
    return made


def flat(module):
    return torch.cat([p.detach().float().reshape(-1) for p in module.parameters()]).cpu().numpy()


def train(module):
    with torch.no_grad():
        for p in module.parameters():
            p.add_(1)


class GpuTest(JoinCase):
    def until(self, true):
        end = time.monotonic() + PATIENCE
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)   # between two looks at what another thread writes

    def test_snapshots_and_averages_are_exact_while_the_script_trains_on(self):
        here, model = self.agent(), net()
        joined, rng = self.join(model), numpy.random.default_rng(1)
        wanted = flat(model)
        for ticket in range(1, 21):
            torch.cuda._sleep(int(rng.integers(1, BUSY >> 5)))
            train(model)
            here.put(WANTED, ticket)
            self.assertTrue(joined.step(samples=1).published)
            train(model)
            self.until(lambda: here.get(PUBLISHED) == ticket)
            numpy.testing.assert_array_equal(here.outbox, wanted + 1)
            here.deliver(ticket, wanted + 1 + ticket)
            torch.cuda._sleep(int(rng.integers(1, BUSY >> 5)))
            self.assertTrue(joined.step(samples=1).applied)
            here.inbox(1)[:] = numpy.nan   # the agent may write there at once
            train(model)
            wanted += 3 + ticket
        numpy.testing.assert_array_equal(flat(model), wanted)
        self.assertEqual(here.get(APPLIED), 20)

    def test_a_step_that_takes_a_snapshot_does_not_wait_for_the_device(self):
        here, model = self.agent(), net()
        joined = self.join(model)
        here.put(WANTED, 1)
        joined.step(samples=1)   # the first one makes the pinned memory, and waits for that
        self.until(lambda: here.get(PUBLISHED) == 1)
        here.deliver(1, here.outbox)
        joined.step(samples=1)
        torch.cuda._sleep(BUSY)
        done = torch.cuda.Event()
        done.record()
        here.put(WANTED, 2)
        self.assertTrue(joined.step(samples=1).published)
        self.assertFalse(done.query(), "the device is still busy with what came before")
        self.assertEqual(here.get(PUBLISHED), 1)
        self.until(lambda: here.get(PUBLISHED) == 2)

    def test_an_adoption_replaces_parameters_of_16_bits(self):
        here, model = self.agent(), net(torch.bfloat16)
        joined = self.join(model)
        here.put(WANTED, 1)
        joined.step(samples=1)
        here.offer(numpy.arange(here.elements) % 200)
        train(model)
        self.assertTrue(joined.step(samples=1).adopted)
        self.assertEqual((here.get(PUBLISHED), here.get(ADOPTED)), (1, 1))
        numpy.testing.assert_array_equal(flat(model), numpy.arange(here.elements) % 200)

    def test_gradients_come_and_go(self):
        model = net()
        port = crowdsurf.module.ModuleParameters(model, torch.optim.SGD(model.parameters(), lr=1.0))
        at = 0
        for tensor in port.tensors:
            tensor.offset, at = 4 * at, at + tensor.elements
        port.place(port.tensors)
        before, region = flat(model), numpy.full(at, numpy.nan, numpy.float32)
        for p in list(model.parameters())[1:]:
            p.grad = torch.full_like(p, 3.0)
        port.read_gradients(region)
        first = model[0].weight.numel()
        self.assertTrue(numpy.all(region[:first] == 0) and numpy.all(region[first:] == 3))
        port.optimize(numpy.full(at, 2.0, numpy.float32))
        numpy.testing.assert_array_equal(flat(model), before - 2)

    def test_moments_come_and_go_for_each_way_in_which_adam_computes(self):
        for options in ({}, {"foreach": True}, {"fused": True}, {"capturable": True}):
            with self.subTest(options):
                here, model = self.agent(roles=("Parameter", "OptimizerState")), torch.nn.Linear(64, 64, device="cuda")
                optimizer = torch.optim.Adam(model.parameters(), **options)
                joined = self.join(model, optimizer)
                for _ in range(2):
                    model(torch.ones(2, 64, device="cuda")).square().sum().backward()
                    optimizer.step()
                here.put(WANTED, 1)
                joined.step(samples=1)
                self.until(lambda: here.get(PUBLISHED) == 1)
                states, third = [optimizer.state[p] for p in model.parameters()], here.elements // 3
                for at, key in ((1, "exp_avg"), (2, "exp_avg_sq")):
                    own = torch.cat([each[key].reshape(-1) for each in states]).cpu().numpy()
                    numpy.testing.assert_array_equal(here.outbox[at * third : (at + 1) * third], own)
                result = here.outbox.copy()
                result[2 * third :] -= 1   # less than nothing is left
                here.deliver(1, result)
                self.assertTrue(joined.step(samples=1).applied)
                self.assertTrue(all(bool((each["exp_avg_sq"] >= 0).all()) for each in states))
                optimizer.step()
                self.assertTrue(numpy.isfinite(flat(model)).all())
                joined.close()
                here.close()

    def test_a_device_without_memory_is_copied_from_at_once(self):
        here, model = self.agent(), net()
        joined, before = self.join(model), flat(model)
        torch.cuda.empty_cache()
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        self.assertIsNone(cuda.CudaDevice(torch.device("cuda", 0)).empty(here.elements))
        here.put(WANTED, 1)
        joined.step(samples=1)
        self.assertEqual(here.get(PUBLISHED), 1)
        numpy.testing.assert_array_equal(here.outbox, before)

    def test_the_memory_of_the_copies_is_pinned(self):
        self.assertTrue(cuda.CudaDevice(torch.device("cuda", 0)).pinned(10).is_pinned())


if __name__ == "__main__":
    unittest.main()
