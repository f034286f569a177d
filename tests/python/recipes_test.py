#!/usr/bin/env python3
"""What training loops do beside a plain step: mixed precision, accumulation, schedules, adapters, workers of a loader; and
what they do to a model that has joined. Needs PyTorch, else skipped.
"""
import unittest

import numpy
from torch_case import JoinCase, flat, model, torch

import crowdsurf
from stand_in import APPLIED, BEAT, EPOCH, JOB_SAMPLES, OPAQUE_WANTED, PUBLISHED, SAMPLES, STEPS, STOP, WANTED

INPUTS, WANTED_OUTPUTS = torch.linspace(-1, 1, 24).reshape(8, 3), torch.linspace(1, 2, 16).reshape(8, 2)


def backward(net, rows=slice(None)):
    """Adds the gradients of these rows of a batch of eight."""
    loss = ((net(INPUTS[rows]) - WANTED_OUTPUTS[rows]) ** 2).sum()
    loss.backward()
    return loss


class PrecisionTest(JoinCase):
    def test_with_autocast_the_full_parameters_are_averaged_and_the_loss_is_reported(self):
        here, net = self.agent(), model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        joined = self.join(net, optimizer)
        first = flat(net)
        for step in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = net(INPUTS)
                self.assertEqual(outputs.dtype, torch.bfloat16)
                loss = (outputs - WANTED_OUTPUTS).square().mean()
            loss.backward()
            optimizer.step()
            here.put(WANTED, step + 1)
            joined.step(samples=8, loss=loss)
            numpy.testing.assert_array_equal(here.outbox, flat(net))
            here.deliver(step + 1, here.outbox + 0.125)
            before = flat(net)
            self.assertTrue(joined.step(samples=0).applied)
            numpy.testing.assert_allclose(flat(net), before + 0.125, rtol=1e-6)
        self.assertGreater(numpy.abs(flat(net) - first).max(), 0.3)

    def test_a_model_of_half_numbers_stays_as_it_is_when_the_average_is_its_own_snapshot(self):
        for kind in (torch.bfloat16, torch.float16):
            with self.subTest(kind):
                here, net = self.agent(), model().to(kind)
                joined = self.join(net)
                here.put(WANTED, 1)
                joined.step(samples=8)
                before = flat(net)
                here.deliver(1, here.outbox)
                self.assertTrue(joined.step(samples=8).applied)
                numpy.testing.assert_array_equal(flat(net), before)
                joined.close()
                here.close()

    def test_a_scaler_and_a_schedule_go_to_joiners(self):
        def worker():
            net = model()
            optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
            return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5), Scaler()
        here = self.agent()
        net, optimizer, schedule, scaler = worker()
        joined = self.join(net, optimizer, stateful=[schedule, scaler])
        for _ in range(5):
            optimizer.step()
            schedule.step()
        scaler.scale = 2.0
        here.put(OPAQUE_WANTED, 1)
        joined.step(samples=1)
        joined.close()
        net, optimizer, schedule, scaler = worker()
        here.offer(flat(net), here.given)
        self.join(net, optimizer, stateful=[schedule, scaler])
        self.assertEqual((schedule.last_epoch, optimizer.param_groups[0]["lr"], scaler.scale), (5, 0.25, 2.0))
        optimizer.step()
        schedule.step()
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.125)

    def test_a_stateful_whose_state_cannot_travel_is_refused(self):
        self.agent()
        scaler = Scaler()
        scaler.scale = object()
        self.assertRaisesRegex(TypeError, "holds a object", crowdsurf.join, model(), stateful=[scaler])


class Scaler:
    scale = 65536.0

    def state_dict(self):
        return {"scale": self.scale}

    def load_state_dict(self, state):
        self.scale = state["scale"]


class LoopTest(JoinCase):
    def test_accumulated_gradients_are_one_step_and_averaging_comes_between_steps(self):
        here, net, plain = self.agent(), model(), model()
        joined = self.join(net)
        shift = 0
        for step in range(3):
            here.put(WANTED, step + 1)   # asked for while the parts of a step are under way
            for rows in (slice(0, 4), slice(4, 8)):
                backward(net, rows)
            self.assertEqual(here.get(PUBLISHED), step)
            backward(plain)
            for ours, theirs in zip(net.parameters(), plain.parameters()):
                torch.testing.assert_close(ours.grad, theirs.grad)
            for each in (net, plain):
                torch.optim.SGD(each.parameters(), lr=1e-2).step()
                each.zero_grad()
            self.assertTrue(joined.step(samples=8).published)
            here.deliver(step + 1, here.outbox + 1)
            joined.step(samples=0)
            shift += 1
            with torch.no_grad():
                for p in plain.parameters():
                    p.add_(1)
            numpy.testing.assert_allclose(flat(net), flat(plain), rtol=1e-4)
        self.assertEqual((here.get(SAMPLES), here.get(APPLIED)), (24, 3))

    def test_a_schedule_follows_the_samples_of_the_whole_job(self):
        here, net = self.agent(), model()
        optimizer = torch.optim.SGD(net.parameters(), lr=2.0)
        joined = self.join(net, optimizer)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: max(0.0, 1 - joined.samples / 1000))
        rates = []
        for total in (0.0, 250.0, 500.0, 5000.0):
            here.put(JOB_SAMPLES, total, "d")
            optimizer.step()
            joined.step(samples=1)
            schedule.step()
            rates.append(optimizer.param_groups[0]["lr"])
        self.assertEqual(rates, [2.0, 1.5, 1.0, 0.0])

    def test_a_resumed_worker_does_not_draw_its_first_batches_again(self):
        drawn = []
        for averaging in (None, None, 7, 7, 8):
            here, net = self.agent(), model()
            if averaging is not None:
                self.join(net).close()   # the file is there
                here.offer(flat(net), averaging=averaging)
            joined = self.join(net)
            drawn.append(torch.randperm(1000).tolist())
            joined.close()
            here.close()
        fresh, again, resumed, same, later = drawn
        self.assertEqual(fresh, again)
        self.assertEqual(resumed, same)
        self.assertNotEqual(fresh, resumed)
        self.assertNotEqual(resumed, later)

    def test_the_workers_of_a_loader_are_no_trainers(self):
        here, net = self.agent(), model()
        joined = self.join(net)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS), batch_size=2, num_workers=2)
        for number, (rows,) in enumerate(joined.batches(loader), 1):
            backward(net, slice(0, len(rows)))
            if number == 6:
                here.put(STOP, 1, "I")
            joined.step(samples=len(rows))
        self.assertEqual((number, here.get(STEPS), here.get(SAMPLES), here.get(EPOCH)), (6, 6, 12, 1))
        self.assertFalse(here.gone.is_set())

    def test_a_loader_of_unknown_length_is_passed_again_and_again(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(5))
        here = self.agent()
        joined, taken = self.join(model()), []
        for batch in joined.batches(torch.utils.data.DataLoader(Stream(), batch_size=2)):
            taken.append(len(batch))
            here.put(STOP, int(len(taken) == 4), "I")
            joined.step(samples=len(batch))
        self.assertEqual(taken, [2, 2, 1, 2])

    def test_a_data_set_of_length_0_is_refused(self):
        self.agent()
        empty = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS[:0]), batch_size=2)
        self.assertRaisesRegex(ValueError, "has no batch", next, self.join(model()).batches(empty))

    def test_an_agent_that_dies_under_the_loop_and_comes_back_harms_no_parameter(self):
        here, net = self.agent(), model()
        joined = self.join(net)
        here.put(WANTED, 1)
        joined.step(samples=1)
        before = flat(net)
        here.put(BEAT, 1)   # a beat makes the trainer look at its connection
        here.close()
        self.assertTrue(joined.step(samples=1).agent_lost)
        again = self.agent()
        again.until(lambda: not joined.step(samples=1).agent_lost, lambda: None)
        again.deliver(1, before + 1)   # of the snapshot that only the first agent had
        self.assertFalse(joined.step(samples=1).applied)
        numpy.testing.assert_array_equal(flat(net), before)
        self.assertEqual([words.split(" ")[4] for words in self.said], ["lost:", "back:"])


class SubsetTest(JoinCase):
    def test_tied_parameters_get_an_average_once_and_frozen_ones_never(self):
        here, net = self.agent(), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        net[1].weight = net[0].weight
        net[1].bias.requires_grad_(False)
        joined = self.join(net, torch.optim.SGD(net.parameters(), lr=0.1))
        weight, frozen = net[0].weight.detach().clone(), net[1].bias.detach().clone()
        here.put(WANTED, 1)
        joined.step(samples=1)
        here.deliver(1, here.outbox + 1)
        self.assertTrue(joined.step(samples=1).applied)
        torch.testing.assert_close(net[1].weight.detach(), weight + 1)
        self.assertIs(net[1].weight, net[0].weight)
        here.offer(numpy.full(here.elements, 3.0))
        self.assertTrue(joined.step(samples=1).adopted)
        self.assertTrue(torch.all(net[1].weight == 3))
        torch.testing.assert_close(net[1].bias.detach(), frozen)

    def test_an_adapter_averages_the_adapter_alone(self):
        class Adapted(torch.nn.Module):
            def __init__(self, inner, rank):
                super().__init__()
                self.inner = inner.requires_grad_(False)
                self.down = torch.nn.Linear(inner.in_features, rank, bias=False)
                self.up = torch.nn.Linear(rank, inner.out_features, bias=False)

            def forward(self, inputs):
                return self.inner(inputs) + self.up(self.down(inputs))

        here = self.agent()
        net = torch.nn.Sequential(Adapted(torch.nn.Linear(3, 4), 1), torch.nn.ReLU(), Adapted(torch.nn.Linear(4, 2), 1))
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)   # frozen ones have no gradient
        joined = self.join(net, optimizer)
        self.assertEqual([t["name"] for t in here.placed if t["offset"] is not None], ["0.down.weight", "0.up.weight", "2.down.weight", "2.up.weight"])
        self.assertEqual(here.elements, 3 + 4 + 4 + 2)
        base = [net[at].inner.weight.detach().clone() for at in (0, 2)]
        backward(net)
        optimizer.step()
        here.offer(numpy.full(here.elements, 0.5))
        self.assertTrue(joined.step(samples=8).adopted)
        self.assertTrue(all(torch.all(net[at].up.weight == 0.5) for at in (0, 2)))
        for at, weight in zip((0, 2), base):
            self.assertTrue(torch.equal(net[at].inner.weight, weight))

    def test_parameters_that_are_unfrozen_after_the_join_are_named_once(self):
        here, net = self.agent(), model()
        net[1].requires_grad_(False)
        joined = self.join(net)
        for ticket in (1, 2, 3):
            here.put(WANTED, ticket)
            joined.step(samples=1)
            here.deliver(ticket, here.outbox)
            joined.step(samples=1)
            net[1].weight.requires_grad_(True)
        self.assertEqual(len(self.said), 1)
        self.assertRegex(self.said[0], r"1\.weight is not averaged.*join\(\) again")

    def test_parameters_that_were_replaced_after_the_join_are_an_error_and_no_snapshot(self):
        def replace(net):
            net[1].weight = torch.nn.Parameter(torch.ones(2, 4))

        def grow(net):
            net[1].weight.data = torch.ones(3, 4)

        for change, words in ((replace, r"1\.weight of the model was replaced"),
                              (grow, r"1\.weight had the shape \[2, 4\].* and has \[3, 4\] now")):
            with self.subTest(change.__name__):
                here, net = self.agent(), model()
                joined = self.join(net)
                change(net)
                here.put(WANTED, 1)
                self.assertRaisesRegex(ValueError, words, joined.step, samples=1)
                self.assertEqual(here.get(PUBLISHED), 0)
                joined.close()
                here.close()


if __name__ == "__main__":
    unittest.main()
