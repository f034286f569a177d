#!/usr/bin/env python3
"""Optimizers that train wider copies of 16-bit parameters: an average reaches the copy. Needs PyTorch, else skipped."""
import unittest

import numpy
from torch_case import JoinCase, torch

import crowdsurf
import crowdsurf.module
from crowdsurf import state
from stand_in import ADOPTED, WANTED


class MasterSGD(torch.optim.Optimizer):
    """Keeps its copies in its state, as TransformerEngine's FusedAdam does; they are made at the first step."""

    def __init__(self, parameters, lr=0.5, name="master_param"):
        super().__init__(parameters, {"lr": lr})
        self.name = name

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                master = self.state[p].setdefault(self.name, p.detach().float().clone())
                master -= group["lr"] * p.grad.float()
                p.copy_(master)


class CopiesOutside(torch.optim.SGD):
    """Keeps its copies in lists of its own, as Apex and DeepSpeed do, from the first step on."""

    @torch.no_grad()
    def step(self):
        self.groups_of_copies = [[p.detach().float().clone() for p in group["params"]] for group in self.param_groups]
        super().step()


def half_model():
    torch.manual_seed(7)
    return torch.nn.Linear(4, 4).bfloat16()


def train(net, optimizer, gradient=0.25):
    for p in net.parameters():
        p.grad = torch.full_like(p, gradient)
    optimizer.step()


class MastersTest(JoinCase):
    def test_an_average_is_what_the_next_step_goes_on_from(self):
        for name, steps_before in (("master_param", 0), ("master_param", 1), ("fp32_weight", 1), ("copy", 1)):
            with self.subTest(name=name, steps_before=steps_before):
                here, net = self.agent(), half_model()
                optimizer = MasterSGD(net.parameters(), name=name)
                for _ in range(steps_before):
                    train(net, optimizer)
                joined = self.join(net, optimizer)
                train(net, optimizer)
                here.put(WANTED, 1)
                self.assertTrue(joined.step(samples=1).published)
                masters = numpy.concatenate([optimizer.state[p][name].reshape(-1).numpy() for p in net.parameters()])
                numpy.testing.assert_array_equal(here.outbox, masters, "the snapshot has the bits that 16 bits have not")
                here.deliver(1, masters + numpy.float32(2 ** -12))
                self.assertTrue(joined.step(samples=1).applied)
                train(net, optimizer, gradient=0.0)
                for p in net.parameters():
                    first = masters[:p.numel()].reshape(p.shape) if p.dim() == 2 else masters[-p.numel():]
                    wanted = torch.tensor(first) + 2 ** -12
                    torch.testing.assert_close(optimizer.state[p][name], wanted, rtol=0, atol=1e-7)
                    self.assertTrue(torch.equal(p, wanted.bfloat16()))
                joined.close()
                here.close()

    def test_a_joiner_goes_on_from_the_average_and_its_copies_stay_wide(self):
        here, net = self.agent(), half_model()
        donor = half_model()
        trained = MasterSGD(donor.parameters())
        train(donor, trained)
        optimizer = MasterSGD(net.parameters())
        train(net, optimizer)
        carried = state.pack({"optimizer": trained.state_dict(), "buffers": {}, "stateful": []})
        joined = self.join(net, optimizer)
        here.offer(numpy.full(here.elements, 1 + 2 ** -12, numpy.float32), carried)
        self.assertTrue(joined.step(samples=1).adopted)
        self.assertEqual(here.get(ADOPTED), 1)
        train(net, optimizer, gradient=0.0)
        for p in net.parameters():
            copy = optimizer.state[p]["master_param"]
            self.assertEqual(copy.dtype, torch.float32)
            self.assertTrue(torch.all(copy == 1 + 2 ** -12))

    def test_copies_that_cannot_be_reached_are_refused_by_name(self):
        net = half_model()
        copies = [p.detach().float().clone() for p in net.parameters()]
        with self.assertRaisesRegex(ValueError, "SGD trains copies of its 16-bit parameters, which join.. cannot reach"):
            crowdsurf.module.ModuleParameters(net, torch.optim.SGD(copies, lr=0.1))
        mixed = torch.nn.Sequential(half_model(), torch.nn.Linear(4, 1))
        copies = [p.detach().float().clone() for p in mixed[0].parameters()] + list(mixed[1].parameters())
        with self.assertRaisesRegex(ValueError, r"SGD trains a float32 copy of 0.weight \(bfloat16\) that join.. cannot reach"):
            crowdsurf.module.ModuleParameters(mixed, torch.optim.SGD(copies, lr=0.1))

    def test_copies_outside_the_state_are_noticed_at_the_next_snapshot(self):
        here, net = self.agent(), half_model()
        optimizer = CopiesOutside(net.parameters(), lr=0.0)
        joined = self.join(net, optimizer)
        train(net, optimizer)
        here.put(WANTED, 1)
        with self.assertRaisesRegex(ValueError, "CopiesOutside trains a float32 copy of weight"):
            joined.step(samples=1)

    def test_other_wide_state_of_16_bit_parameters_is_no_copy(self):
        """Moments in float32 stay what they are, also where they begin as zeros like the parameter."""
        here, net = self.agent(), half_model()
        torch.nn.init.zeros_(net.bias)
        optimizer = MasterSGD(net.parameters(), name="exp_avg")
        for p in net.parameters():
            optimizer.state[p]["exp_avg"] = torch.zeros(p.shape)
        joined = self.join(net, optimizer)
        before = torch.cat([p.detach().float().reshape(-1) for p in net.parameters()]).numpy()
        here.put(WANTED, 1)
        joined.step(samples=1)
        numpy.testing.assert_array_equal(here.outbox, before)
        here.deliver(1, before + 1)
        joined.step(samples=1)
        self.assertTrue(all(torch.all(optimizer.state[p]["exp_avg"] == 0) for p in net.parameters()))

    def test_averaged_moments_leave_the_copies_out(self):
        here, net = self.agent(roles=("Parameter", "OptimizerState")), half_model()
        optimizer = MasterSGD(net.parameters())
        train(net, optimizer)
        for p in net.parameters():
            optimizer.state[p]["momentum"] = torch.ones(p.shape)
        self.join(net, optimizer)
        self.assertEqual([t["name"] for t in here.tensors], ["weight", "bias", "optimizer.momentum.weight", "optimizer.momentum.bias"])


if __name__ == "__main__":
    unittest.main()
