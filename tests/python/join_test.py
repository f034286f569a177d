#!/usr/bin/env python3
"""crowdsurf.join(): what reaches a module, what an agent hears of it, and what is refused. Needs PyTorch, else skipped."""
import os
import random
import sys
import threading
import time
import unittest
import unittest.mock
import warnings

import numpy
from torch_case import JoinCase, flat, model, torch

import crowdsurf
import crowdsurf.module
from crowdsurf import job, memory, parameters, state
from stand_in import (ACKNOWLEDGED, ADOPTED, APPLIED, LOSS, LR_SCALE, METRICS, NOTICE, OPAQUE_GIVEN, OPAQUE_WANTED,
                      PATIENCE, PUBLISHED, RELEASED, SAMPLES, STEPS, STOP, WANTED)


class AveragingTest(JoinCase):
    def test_a_snapshot_is_the_module_and_a_result_is_added_to_it(self):
        here, net = self.agent(), model()
        joined = self.join(net)
        before = flat(net)
        here.put(WANTED, 5)
        self.assertTrue(joined.step(samples=8, loss=0.5).published)
        numpy.testing.assert_array_equal(here.outbox, before)
        self.assertEqual((here.get(PUBLISHED), here.get(PUBLISHED + 8), here.get(PUBLISHED + 16)), (5, 1, 8))
        with torch.no_grad():
            for p in net.parameters():
                p.add_(1)   # trained on meanwhile
        here.deliver(5, before + 0.25)
        self.assertTrue(joined.step(samples=8).applied)
        numpy.testing.assert_allclose(flat(net), before + 1.25, rtol=1e-6)
        self.assertEqual((here.get(APPLIED), here.get(STEPS), here.get(SAMPLES)), (5, 2, 16))
        self.assertEqual(here.get(LOSS, "d"), 0.5)

    def test_joiners_take_the_jobs_parameters_state_and_buffers(self):
        def net():
            torch.manual_seed(7)
            return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        donor = net()
        optimizer = torch.optim.Adam(donor.parameters(), lr=0.5)
        donor(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        here = self.agent()
        joined = self.join(donor, optimizer)
        here.put(OPAQUE_WANTED, 1)
        joined.step(samples=1)
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        joined.close()
        newcomer = net()
        fresh = torch.optim.Adam(newcomer.parameters(), lr=0.1)
        here.hold = True
        here.offer(flat(donor), here.given)
        self.join(newcomer, fresh)
        self.assertEqual(here.fresh, [True, True])
        self.assertEqual(here.get(ADOPTED), 1)
        for name, value in donor.state_dict().items():
            torch.testing.assert_close(newcomer.state_dict()[name], value)
        torch.testing.assert_close(fresh.state_dict()["state"], optimizer.state_dict()["state"])
        self.assertEqual(fresh.param_groups[0]["lr"], 0.5)

    def test_a_result_of_parameters_that_were_replaced_meanwhile_is_not_added(self):
        here, net = self.agent(), model()
        joined = self.join(net)
        here.put(WANTED, 5)
        joined.step(samples=8)
        here.offer(numpy.full(here.elements, 2.0))
        self.assertTrue(joined.step(samples=8).adopted)
        here.deliver(5, numpy.full(here.elements, 9.0))
        self.assertFalse(joined.step(samples=8).applied)
        self.assertTrue(numpy.all(flat(net) == 2))
        self.assertEqual(here.get(APPLIED), 5, "and the agent hears that the outbox is free")

    def test_a_trainer_that_is_held_gives_its_first_parameters(self):
        for init in ("job", "local"):
            with self.subTest(init):
                here, net = self.agent(hold=True), model()
                before, ended = flat(net), []
                thread = threading.Thread(target=lambda: ended.append(crowdsurf.join(net, init=init)))
                thread.start()
                self.assertTrue(here.registered.wait(PATIENCE))
                self.assertEqual(here.first, [True])
                self.assertEqual(here.get(PUBLISHED), 0, "nobody has asked")
                here.put(WANTED, 1)
                here.until(lambda: here.get(PUBLISHED) == 1, lambda: time.sleep(0.001))
                numpy.testing.assert_array_equal(here.outbox, before)
                self.assertEqual((here.get(PUBLISHED + 8), here.get(PUBLISHED + 16)), (0, 0))
                self.assertEqual(ended, [], "and waits on")
                here.put(OPAQUE_WANTED, 1)
                here.put(RELEASED, 1)
                here.let_start()
                thread.join(PATIENCE)
                (joined,) = ended
                self.assertEqual(here.get(OPAQUE_GIVEN), 1, "its state goes with them, before the first step")
                numpy.testing.assert_array_equal(flat(net), before)
                here.put(WANTED, 2)
                self.assertTrue(joined.step(samples=8).published)
                self.assertFalse(joined.last.applied)
                joined.close()
                here.close()

    def test_init_local_keeps_ones_own(self):
        here, net = self.agent(), model()
        first = self.join(net)
        first.close()
        before = flat(net)
        here.offer(before + 1)
        self.join(net, init="local")
        numpy.testing.assert_array_equal(flat(net), before)
        self.assertEqual(here.get(ADOPTED), 1, "and the agent does not wait")

    def test_a_state_that_does_not_fit_is_not_used_and_the_parameters_are(self):
        for wrong in (b"garbage", state.pack({"optimizer": {"state": {}, "param_groups": []}, "buffers": {}}),
                      state.pack([]), state.pack({"buffers": {"none": torch.ones(1)}})):
            with self.subTest(wrong):
                here, net = self.agent(), model()
                joined = self.join(net, torch.optim.SGD(net.parameters(), lr=0.1))
                here.offer(numpy.full(here.elements, 2.0), wrong)
                self.assertTrue(joined.step(samples=1).adopted)
                self.assertTrue(numpy.all(flat(net) == 2))
                self.assertIn("is not used", self.said[-1])
                joined.close()
                here.close()

    def test_large_parameters_are_added_piece_by_piece_to_the_last_value(self):
        elements = 2 * memory.CHUNK + 3
        for is_change in (False, True):
            net, flat_floats = torch.nn.Linear(1, 1, bias=False), numpy.arange(elements, dtype=numpy.float32)
            net.weight = torch.nn.Parameter(torch.arange(elements, dtype=torch.float32))
            ours, numpys = crowdsurf.module.ModuleParameters(net), parameters.FlatParameters(flat_floats, elements)
            ours.tensors[0].offset = 0
            ours.place(ours.tensors)
            inbox, outbox = numpy.arange(elements, 0, -1, dtype=numpy.float32), numpy.full(elements, 2, numpy.float32)
            for each in (ours, numpys):
                each.add(inbox, None if is_change else outbox)
            wanted = numpy.full(elements, elements - (0 if is_change else 2), numpy.float32)
            numpy.testing.assert_array_equal(net.weight.detach().numpy(), wanted)
            numpy.testing.assert_array_equal(flat_floats, wanted)

    def test_other_types_and_layouts_of_parameters_are_converted(self):
        for make in (lambda: torch.randn(4, 3).half(), lambda: torch.randn(4, 3).bfloat16(), lambda: torch.randn(4, 3).double(),
                     lambda: torch.randn(3, 4).t(), lambda: torch.randn(4, 6)[:, ::2]):
            net = torch.nn.Module()
            net.w = torch.nn.Parameter(make())
            with self.subTest(f"{net.w.dtype}, {net.w.stride()}"):
                kind, stride = net.w.dtype, net.w.stride()
                port = crowdsurf.module.ModuleParameters(net)
                (tensor,) = port.tensors
                self.assertEqual(tensor.shape, (4, 3))
                tensor.offset = 0
                port.place([tensor])
                before, region = net.w.detach().float().clone(), numpy.zeros(12, numpy.float32)
                port.read(region)
                numpy.testing.assert_array_equal(region.reshape(4, 3), before.numpy())
                port.add(region + 1, region)
                torch.testing.assert_close(net.w.detach().float(), before + 1, rtol=1e-2, atol=1e-2)
                port.write(numpy.arange(12, dtype=numpy.float32))
                torch.testing.assert_close(net.w.detach().float(), torch.arange(12.0).reshape(4, 3))
                self.assertEqual((net.w.dtype, net.w.stride()), (kind, stride))

    def test_buffers_are_averaged_where_the_job_says_so_also_after_a_move(self):
        here = self.agent(roles=("Parameter", "Buffer"))
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        joined = self.join(net)
        self.assertEqual([(t["name"], t["role"]) for t in here.tensors][-2:],
                         [("1.running_mean", "Buffer"), ("1.running_var", "Buffer")])
        net.double().float()   # replaces the buffers
        net(torch.randn(8, 3))
        here.put(WANTED, 1)
        joined.step(samples=1)
        numpy.testing.assert_array_equal(here.outbox[-4:], net[1].running_var.numpy())

    def test_a_job_that_is_over_ends_the_batches(self):
        here, net, taken = self.agent(), model(), []
        joined = self.join(net)
        for batch in joined.batches([1, 2, 3], epochs=1):
            taken.append(batch)
            if len(taken) == 5:
                here.put(STOP, 1, "I")
            joined.step(samples=1)
        self.assertEqual(taken, [1, 2, 3, 1, 2])
        self.assertTrue(joined.done)
        self.assertEqual(here.get(ACKNOWLEDGED, "I"), 1)
        self.assertEqual(list(joined.batches([1, 2, 3])), [])

    def test_loaders_that_are_empty_or_can_be_passed_once_are_refused(self):
        self.agent()
        joined = self.join(model())
        self.assertRaisesRegex(ValueError, "has no batch$", lambda: next(joined.batches([])))
        self.assertRaisesRegex(ValueError, "not an iterator", lambda: list(joined.batches(iter([1]))))

    def test_a_strategy_scales_the_learning_rate_of_each_step_and_no_schedule_sees_it(self):
        for early in (True, False):   # the schedule is made before join(), or after it
            with self.subTest(early):
                here, net = self.agent(), torch.nn.Linear(1, 1, bias=False)
                optimizer = torch.optim.SGD(net.parameters(), lr=1.0)

                def make():
                    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 2 else 0.5)

                schedule = make() if early else None
                joined = self.join(net, optimizer)
                moved = []
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    for scale in (0.25, 0.25, 0.25, 1.0):
                        here.put(LR_SCALE, scale, "d")
                        joined.step(samples=1)
                        schedule = schedule or make()
                        before = float(net.weight.detach())
                        net.weight.grad = torch.ones_like(net.weight)
                        optimizer.step()
                        schedule.step()
                        moved.append(before - float(net.weight.detach()))
                numpy.testing.assert_allclose(moved, [0.25, 0.25, 0.125, 0.5], rtol=1e-5)
                self.assertEqual(schedule.get_last_lr(), [0.5])
                joined.close()
                here.close()

    def test_metrics_reach_the_agent_by_name(self):
        here = self.agent()
        joined = self.join(model(), metrics=["accuracy", "recall"])
        joined.report(recall=0.75)
        self.assertEqual(here.get(METRICS + 8, "d"), 0.75)
        self.assertRaisesRegex(ValueError, "'f1' is none", joined.report, f1=1)
        self.assertEqual(joined.metrics()["averagings"], 0)

    def test_a_notice_is_told_without_a_step(self):
        here, told, came = self.agent(), [], threading.Event()
        here.notice = {"leaving": True, "reason": "SpotInterruption", "deadline": 1e9}
        self.join(model(), on_notice=lambda notice: (told.append(notice), came.set()))
        here.put(NOTICE, 1, "I")
        self.assertTrue(came.wait(PATIENCE))
        self.assertEqual(told, [crowdsurf.Notice("SpotInterruption", 1e9)])

    def test_workers_draw_different_numbers_though_their_scripts_have_one_seed(self):
        drawn = []
        for worker in ("digits-0-1", "digits-1-1"):
            here = self.agent(worker=worker)
            joined = self.join(model())
            drawn.append((float(torch.rand(())), random.random(), float(numpy.random.rand())))
            joined.close()
            here.close()
        for one, other in zip(*drawn):
            self.assertNotEqual(one, other)

    def test_workers_draw_different_batches_where_the_loader_has_a_seed_of_its_own(self):
        drawn = []
        for worker in ("digits-0-1", "digits-1-1"):
            here = self.agent(worker=worker)
            loader = torch.utils.data.DataLoader(range(20), shuffle=True, generator=torch.Generator().manual_seed(5))
            joined = self.join(model())
            drawn.append([int(batch) for _, batch in zip(range(40), joined.batches(loader))])
            joined.close()
            here.close()
        self.assertNotEqual(*drawn)
        self.assertNotEqual(drawn[0][:20], drawn[0][20:], "nor does a pass repeat the one before it")

    def test_a_training_that_ends_before_its_target_is_told_and_one_that_met_it_not(self):
        here = self.agent()
        self.join(model()).finish()
        self.assertIn("before the job's target is met", self.said[-1])
        joined = self.join(model())
        here.put(STOP, 1, "I")
        joined.step(samples=1)
        joined.finish()
        self.assertTrue(joined.closed)
        self.assertEqual(len(self.said), 1)


class AloneTest(JoinCase):
    def setUp(self):
        super().setUp()
        os.environ.pop("CROWDSURF_DIR", None)
        job._said_alone = False

    def test_it_trains_alone_and_says_so_once(self):
        for _ in range(2):
            joined = self.join(model())
            self.assertEqual(list(joined.batches([4, 5], epochs=2)), [4, 5, 4, 5])
            self.assertEqual(joined.step(samples=3, loss=torch.ones(())).job_samples, 3)
            self.assertEqual(joined.step(samples=3).job_samples, 6)
            self.assertFalse(joined.done)
        self.assertEqual(len(self.said), 1)
        self.assertIn("alone", self.said[0])

    def test_where_no_agent_can_be_it_says_client_only(self):
        with unittest.mock.patch.object(sys, "platform", "darwin"):
            self.join(model()).step(samples=3)
        self.assertRegex(self.said[0], "client only on macOS.*trains alone")

    def test_a_model_that_cannot_be_averaged_is_refused_alone_too(self):
        self.assertRaises(ValueError, crowdsurf.join, torch.nn.ReLU())


class NamesTest(JoinCase):
    def names(self, net):
        return [t.name for t in crowdsurf.module.ModuleParameters(net).tensors]

    def test_wrappers_leave_no_trace_in_the_names(self):
        class Compiled(torch.nn.Module):   # what torch.compile returns
            def __init__(self, inner):
                super().__init__()
                self._orig_mod = inner
        plain = self.names(model())
        self.assertEqual(plain, ["0.weight", "0.bias", "1.weight", "1.bias"])
        self.assertEqual(self.names(torch.nn.DataParallel(model())), plain)
        self.assertEqual(self.names(Compiled(torch.nn.DataParallel(model()))), plain)
        inside = model()
        inside[1] = Compiled(inside[1])
        self.assertEqual(self.names(inside), plain)

    def test_a_module_that_is_called_module_keeps_its_name(self):
        net = torch.nn.Module()
        net.module = torch.nn.Linear(1, 1)
        self.assertEqual(self.names(net), ["module.weight", "module.bias"])

    def test_tied_parameters_come_once_and_frozen_ones_not(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        net[1].weight = net[0].weight
        net[1].bias.requires_grad_(False)
        self.assertEqual([name for name in self.names(net) if not name.startswith("frozen.")], ["0.weight", "0.bias"])


class RefusedTest(JoinCase):
    def refused(self, kind, words, net, optimizer=None):
        with self.assertRaisesRegex(kind, words):
            crowdsurf.module.ModuleParameters(net, optimizer)

    def holding(self, *values):
        net = torch.nn.Module()
        for number, value in enumerate(values):
            net.register_parameter(f"w{number}", torch.nn.Parameter(value))
        return net

    def test_parameters_that_cannot_be_averaged_are_named(self):
        self.refused(TypeError, "w0 is torch.sparse_coo", self.holding(torch.eye(3).to_sparse()))
        self.refused(TypeError, "w1 is torch.complex64", self.holding(torch.ones(1), torch.ones(2, dtype=torch.complex64)))
        self.refused(ValueError, "w0 share memory.*clone", self.holding(torch.ones(1).expand(3)))
        self.refused(ValueError, "w0 is on the meta device", self.holding(torch.ones(1, device="meta")))
        self.refused(ValueError, "weight has no shape yet", torch.nn.LazyLinear(2))

    def test_two_parameters_in_one_memory_would_be_averaged_twice(self):
        whole = torch.ones(6)
        self.refused(ValueError, "w0 and w1 share memory", self.holding(whole[:4], whole[3:]))
        crowdsurf.module.ModuleParameters(self.holding(whole[:3], whole[3:]))   # side by side is no overlap

    def test_a_model_without_anything_to_train_is_refused(self):
        self.refused(ValueError, "nothing to average", model().requires_grad_(False))

    def test_an_optimizer_of_another_model_is_refused(self):
        self.refused(ValueError, "trains none", model(), torch.optim.SGD(model().parameters(), lr=0.1))

    def test_an_optimizer_whose_state_cannot_travel_is_refused(self):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer.param_groups[0]["schedule"] = object()
        self.refused(TypeError, "holds a object", net, optimizer)

    def test_a_second_join_in_one_process_is_refused_until_the_first_is_closed(self):
        here = self.agent()
        with self.join(model()) as first:
            self.assertRaisesRegex(crowdsurf.AgentError, "has joined already", crowdsurf.join, model())
        self.assertRaisesRegex(crowdsurf.AgentError, "after close", first.step, samples=1)
        self.join(model()).step(samples=1)
        self.assertEqual(here.fresh, [True, True])

    def test_a_join_that_fails_leaves_nothing_behind(self):
        here = self.agent()
        self.assertRaises(ValueError, crowdsurf.join, model(), init="mine")
        self.assertTrue(here.gone.wait(PATIENCE), "its connection has ended")
        self.join(model()).step(samples=1)


if __name__ == "__main__":
    unittest.main()
