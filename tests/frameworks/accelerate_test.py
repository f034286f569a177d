#!/usr/bin/env python3
"""crowdsurf.accelerate with the real Accelerator and a stand-in of the agent. tests/frameworks/inside has the libraries."""
import os
import types
import unittest

import numpy
from frameworks import FrameworkCase, Line, MomentsTests, Points, flat, torch
from accelerate import Accelerator, DistributedType
from accelerate.utils import DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState

import crowdsurf
from crowdsurf import job
from crowdsurf.accelerate import LocalSGD
from stand_in import (ACKNOWLEDGED, LOSS, OPAQUE_GIVEN, OPAQUE_WANTED, PATIENCE, PUBLISHED, SAMPLES, STEPS, STOP, WANTED)


class AccelerateCase(FrameworkCase):
    def setUp(self):
        super().setUp()
        AcceleratorState._reset_state(True)   # one for a process otherwise, whatever a test asks for
        GradientState._reset_state()

    def prepared(self, count=16, rate=0.1, **options):
        """accelerator, model, optimizer, loader, schedule: all but the first as prepare() returns them."""
        accelerator, net = Accelerator(cpu=True, **options), Line()
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        torch.manual_seed(5)
        loader = torch.utils.data.DataLoader(Points(count), batch_size=4, shuffle=True)
        return (accelerator, *accelerator.prepare(net, optimizer, loader, schedule))

    @staticmethod
    def train(accelerator, net, optimizer, batch):
        loss = net(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss


class TrainingTest(AccelerateCase):
    def test_a_snapshot_is_the_model_and_a_result_is_added_to_it(self):
        here = self.agent()
        accelerator, net, optimizer, loader, _ = self.prepared(rate=0.0)
        with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
            first = flat(net)
            for number, batch in enumerate(loader, 1):
                loss = self.train(accelerator, net, optimizer, batch)
                here.put(WANTED, int(number == 1))
                local_sgd.step(loss=loss)
                if number == 1:
                    numpy.testing.assert_array_equal(here.outbox, first)
                    here.deliver(1, first + 0.25)
        numpy.testing.assert_allclose(flat(net), first + 0.25, rtol=1e-6)
        self.assertEqual((here.get(STEPS), here.get(SAMPLES), here.get(PUBLISHED)), (4, 16, 1))
        self.assertGreater(here.get(LOSS, "d"), 0)

    def test_a_loop_of_accelerates_own_local_sgd_needs_another_import_alone(self):
        here = self.agent()
        accelerator, net, optimizer, loader, _ = self.prepared(gradient_accumulation_steps=2)
        with LocalSGD(accelerator=accelerator, model=net, local_sgd_steps=8, enabled=True) as local_sgd:
            for batch in loader:
                with accelerator.accumulate(net):
                    self.train(accelerator, net, optimizer, batch)
                    local_sgd.step()
        self.assertEqual((here.get(STEPS), here.get(SAMPLES)), (2, 16))

    def test_the_jobs_target_ends_the_batches(self):
        here, taken = self.agent(), 0
        accelerator, net, optimizer, loader, _ = self.prepared()
        with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
            for batch in local_sgd.batches(loader):
                self.train(accelerator, net, optimizer, batch)
                taken += 1
                here.put(STOP, int(taken == 7), "I")
                local_sgd.step()
        self.assertEqual((taken, here.get(STEPS), here.get(ACKNOWLEDGED, "I")), (7, 7, 1))
        self.assertTrue(local_sgd.done and local_sgd.job.closed)
        self.assertEqual(self.said, [])

    def test_samples_are_counted_exactly_with_accumulation_and_a_last_batch_that_is_short(self):
        for count, accumulated in ((10, 1), (10, 2), (22, 4), (3, 1)):
            with self.subTest(count=count, accumulated=accumulated):
                self.setUp()
                here = self.agent()
                accelerator, net, optimizer, loader, _ = self.prepared(count, gradient_accumulation_steps=accumulated)
                with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
                    for _ in range(2):
                        for batch in loader:
                            with accelerator.accumulate(net):
                                self.train(accelerator, net, optimizer, batch)
                                local_sgd.step()
                self.assertEqual(here.get(SAMPLES), 2 * count)
                here.close()

    def test_workers_draw_different_batches_in_a_plain_loop_too(self):
        for seedable in (False, True):   # the sampler has a seed of its own, which is the same at every worker
            drawn = []
            for worker in ("digits-0-1", "digits-1-1"):
                here = self.agent(worker=worker)
                config = DataLoaderConfiguration(use_seedable_sampler=seedable)
                accelerator, net, _, loader, _ = self.prepared(dataloader_config=config)
                with LocalSGD(accelerator, net):
                    drawn.append([batch["x"].reshape(-1).tolist() for batch in loader])
                here.close()
            self.assertNotEqual(*drawn)

    def test_joiners_take_the_jobs_parameters_and_the_states_of_optimizer_and_schedule(self):
        here = self.agent()
        accelerator, donor, optimizer, loader, schedule = self.prepared()
        with LocalSGD(accelerator, donor, optimizer=optimizer, stateful=[schedule]) as local_sgd:
            for batch in loader:
                self.train(accelerator, donor, optimizer, batch)
                schedule.step()
            here.put(OPAQUE_WANTED, 1)
            local_sgd.step(samples=4)
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        here.offer(flat(donor), here.given)
        accelerator, net, fresh, loader, follows = self.prepared()
        with LocalSGD(accelerator, net, optimizer=fresh, stateful=[follows]):
            numpy.testing.assert_array_equal(flat(net), flat(donor))
        torch.testing.assert_close(fresh.state_dict()["state"], optimizer.state_dict()["state"])
        self.assertEqual(follows.state_dict()["last_epoch"], 4)

    def test_mixed_precision_averages_the_full_parameters(self):
        here = self.agent()
        accelerator, net, optimizer, loader, _ = self.prepared(mixed_precision="bf16")
        with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
            for number, batch in enumerate(loader):
                self.train(accelerator, net, optimizer, batch)
                here.put(WANTED, int(number == 3))
                local_sgd.step()
        self.assertEqual(here.get(PUBLISHED), 1)
        numpy.testing.assert_array_equal(here.outbox, flat(net))

    def test_a_state_that_was_loaded_is_what_the_worker_begins_with_where_the_job_has_none(self):
        here = self.agent()
        accelerator, net, optimizer, _, _ = self.prepared()
        with torch.no_grad():
            net.linear.bias.fill_(3)
        accelerator.save_state(self.folder.name + "/saved", safe_serialization=False)
        with torch.no_grad():
            net.linear.bias.fill_(0)
        accelerator.load_state(self.folder.name + "/saved")
        with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
            here.put(WANTED, 1)
            local_sgd.step(samples=1)
            self.assertEqual(here.outbox[1], 3)


class MomentsTest(MomentsTests, AccelerateCase):
    def fit(self, net, begun, stepped):
        accelerator = Accelerator(cpu=True)
        loader = torch.utils.data.DataLoader(Points(24), batch_size=4)
        net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.1), loader)
        with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
            begun(optimizer)
            for number, batch in enumerate(loader, 1):
                local_sgd.step(loss=self.train(accelerator, net, optimizer, batch))
                stepped(number)


class WrongTest(AccelerateCase):
    def test_an_accelerator_that_spreads_the_model_is_refused(self):
        for kind in (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MULTI_GPU):
            spread = types.SimpleNamespace(distributed_type=kind, num_processes=2)
            self.assertRaisesRegex(ValueError, f"{kind} with 2 processes: a worker of a job is one process", LocalSGD, spread, Line())

    def test_an_exception_in_the_block_is_the_users_and_the_worker_leaves(self):
        here = self.agent()
        accelerator, net, optimizer, _, _ = self.prepared()
        with self.assertRaises(KeyError):
            with LocalSGD(accelerator, net, optimizer=optimizer):
                raise KeyError("lost")
        self.assertTrue(here.gone.wait(PATIENCE))
        self.assertEqual(self.said, [], "the end came by itself")
        with LocalSGD(accelerator, net, optimizer=optimizer) as local_sgd:
            local_sgd.step(samples=1)
        self.assertEqual(here.fresh, [True, True])

    def test_a_block_within_a_block_and_a_step_outside_are_refused(self):
        self.agent()
        accelerator, net, _, _, _ = self.prepared()
        with LocalSGD(accelerator, net) as local_sgd:
            self.assertRaisesRegex(crowdsurf.AgentError, "has joined already", LocalSGD(accelerator, Line()).__enter__)
        self.assertRaisesRegex(crowdsurf.AgentError, "within the block", LocalSGD(accelerator, net).step)
        self.assertRaisesRegex(crowdsurf.AgentError, "after close", local_sgd.step, samples=1)

    def test_a_step_without_a_prepared_loader_asks_for_the_samples(self):
        self.agent()
        accelerator, net, _, _, _ = self.prepared()
        with LocalSGD(accelerator, net) as local_sgd:
            self.assertRaisesRegex(ValueError, "needs samples=", local_sgd.step)
            self.assertRaisesRegex(ValueError, "negative", local_sgd.step, samples=-1)

    def test_without_an_agent_it_trains_alone_and_says_so_once(self):
        os.environ.pop("CROWDSURF_DIR", None)
        job._said_alone = False
        accelerator, net, optimizer, loader, _ = self.prepared()
        for enabled, wanted in ((True, 32), (False, 0)):
            with LocalSGD(accelerator, net, enabled=enabled) as local_sgd:
                taken = 0
                for batch in local_sgd.batches(loader, epochs=2):
                    taken += len(batch["x"])
                    samples = local_sgd.step().job_samples
            self.assertEqual((taken, samples), (32, wanted))
        self.assertEqual(len(self.said), 1)
        self.assertRegex(self.said[0], "trains alone")


if __name__ == "__main__":
    unittest.main()
