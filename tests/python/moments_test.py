#!/usr/bin/env python3
"""Jobs that average the optimizer's state, too: what is registered, averaged, repaired and sent. Needs PyTorch, else skipped."""
import copy
import unittest
import unittest.mock

import numpy
from torch_case import JoinCase, flat, model, torch

import crowdsurf
from crowdsurf import module, moments, state
from stand_in import ADOPTED, OPAQUE_GIVEN, OPAQUE_WANTED, WANTED

BOTH = ("Parameter", "OptimizerState")
INPUTS = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
ADAM = [f"optimizer.{key}.{name}" for key in ("exp_avg", "exp_avg_sq") for name in ("0.weight", "0.bias", "1.weight", "1.bias")]


def port(net, optimizer, roles=BOTH):
    """The module's side of a job, with its tensors placed one after the other; and the length of the vector."""
    made, at = module.ModuleParameters(net, optimizer), 0
    for tensor in made.declare(roles):
        if tensor.role in roles:
            tensor.offset, at = 4 * at, at + tensor.elements
    made.place(made.tensors)
    return made, at


def train(net, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        net(INPUTS).square().sum().backward()
        optimizer.step()


class RegistrationTest(JoinCase):
    def names(self, net, optimizer):
        return [t.name for t in module.ModuleParameters(net, optimizer).declare(BOTH) if t.role == "OptimizerState"]

    def test_the_agent_hears_of_the_moments_where_the_job_averages_them(self):
        net = model()
        here = self.agent(roles=BOTH)
        self.join(net, torch.optim.Adam(net.parameters()))
        self.assertEqual([t["name"] for t in here.tensors if t["role"] == "OptimizerState"], ADAM)
        self.assertEqual([t["shape"] for t in here.tensors], 3 * [[4, 3], [4], [2, 4], [2]])
        self.assertEqual(here.elements, 3 * flat(net).size)

    def test_nothing_is_registered_or_made_where_it_does_not_or_the_agent_says_nothing(self):
        for said in ({"roles": ["Parameter", "Buffer"]}, {}):
            with self.subTest(said):
                net = model()
                optimizer = torch.optim.Adam(net.parameters())
                here = self.agent()
                here.said = said
                joined = self.join(net, optimizer)
                self.assertEqual([t["name"] for t in here.tensors], ["0.weight", "0.bias", "1.weight", "1.bias"])
                self.assertFalse(optimizer.state)
                joined.close()
                here.close()

    def test_frozen_tied_and_untrained_parameters_have_none_or_one(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        net[1].weight = net[0].weight
        net[1].bias.requires_grad_(False)
        optimizer = torch.optim.SGD([*net[0].parameters(), net[1].bias], lr=0.1, momentum=0.9)
        self.assertEqual(self.names(net, optimizer), ["optimizer.momentum_buffer.0.weight", "optimizer.momentum_buffer.0.bias"])

    def test_each_group_has_the_state_of_its_options(self):
        net = model()
        groups = [{"params": net[0].parameters(), "momentum": 0.9}, {"params": net[1].parameters()}]
        self.assertEqual(self.names(net, torch.optim.SGD(groups, lr=0.1)),
                         ["optimizer.momentum_buffer.0.weight", "optimizer.momentum_buffer.0.bias"])

    def test_state_that_is_there_stays_and_gives_the_same_table(self):
        net = model()
        optimizer = torch.optim.Adam(net.parameters())
        train(net, optimizer)
        del optimizer.state[net[1].bias]   # as of a parameter that had no gradient
        before = optimizer.state[net[0].weight]["exp_avg"].clone()
        self.assertEqual(self.names(net, optimizer), ADAM)
        torch.testing.assert_close(optimizer.state[net[0].weight]["exp_avg"], before)
        self.assertEqual((float(optimizer.state[net[0].weight]["step"]), float(optimizer.state[net[1].bias]["step"])), (1, 0))

    def test_a_scalar_parameter_is_not_taken_for_a_counter(self):
        net = torch.nn.Module()
        net.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.assertEqual(self.names(net, torch.optim.NAdam(net.parameters())),
                         ["optimizer.exp_avg.scale", "optimizer.exp_avg_sq.scale"])

    def test_a_wrapped_optimizer_is_looked_through(self):
        class Wrapped(torch.optim.SGD):   # as Accelerate's and Lightning's
            optimizer = None

        net = model()
        wrapped = Wrapped(net.parameters(), lr=0.1)
        wrapped.optimizer = torch.optim.Adam(net.parameters())
        made = moments.Moments(wrapped, list(net.named_parameters()))
        self.assertEqual([t.name for t in made.tensors], ADAM)


class FirstStateTest(unittest.TestCase):
    KINDS = [(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
             (torch.optim.Adam, {}), (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1, "foreach": True}),
             (torch.optim.AdamW, {"maximize": True}), (torch.optim.NAdam, {}), (torch.optim.RAdam, {}), (torch.optim.Adamax, {}),
             (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}), (torch.optim.Adagrad, {}), (torch.optim.Adadelta, {})]

    def test_the_first_steps_are_those_of_an_optimizer_that_made_its_state_itself(self):
        for kind, options in self.KINDS:
            for double in (False, True):
                with self.subTest(f"{kind.__name__} {options} {double}"):
                    ours, plain = model(), model()
                    if double:
                        ours.double(), plain.double()
                    one, other = kind(ours.parameters(), **options), kind(plain.parameters(), **options)
                    made = moments.Moments(one, list(ours.named_parameters()))
                    self.assertTrue(made.tensors)
                    for net, optimizer in ((ours, one), (plain, other)):
                        for _ in range(3):
                            optimizer.zero_grad()
                            net(INPUTS.to(net[0].weight.dtype)).square().sum().backward()
                            optimizer.step()
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters())))
                    self.assertEqual(repr(one.state_dict()), repr(other.state_dict()), "to the type of each counter")

    def test_nothing_else_changes(self):
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.5, weight_decay=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer.step = unittest.mock.Mock()   # as schedules and scalers wrap it
        net[0].weight.grad = torch.ones_like(net[0].weight)
        before, group = flat(net).copy(), copy.deepcopy({**optimizer.param_groups[0], "params": 0})
        port(net, optimizer)
        numpy.testing.assert_array_equal(flat(net), before)
        self.assertEqual({**optimizer.param_groups[0], "params": 0}, group)
        self.assertTrue(torch.all(net[0].weight.grad == 1))
        self.assertIsNone(net[0].bias.grad)
        self.assertEqual((optimizer.step.call_count, schedule.last_epoch), (0, 0))
        for each in optimizer.state.values():
            self.assertEqual((float(each["step"]), float(each["exp_avg"].abs().sum()), float(each["exp_avg_sq"].abs().sum())), (0, 0, 0))

    def test_moments_of_half_precision_are_float32_in_the_vector(self):
        net = model().bfloat16()
        optimizer = torch.optim.Adam(net.parameters())
        made, elements = port(net, optimizer)
        made.write(numpy.full(elements, 0.3, numpy.float32))
        moment = optimizer.state[net[0].weight]["exp_avg_sq"]
        self.assertEqual((moment.dtype, float(moment[0, 0])), (torch.bfloat16, float(torch.tensor(0.3).bfloat16())))
        region = numpy.zeros(elements, numpy.float32)
        made.read(region)
        self.assertTrue(numpy.all(region == float(moment[0, 0])))


class Adam:
    """Written down from arXiv 1412.6980, Algorithm 1, in double precision. The vector is parameters, m, v."""

    def __init__(self, parameters):
        self.vector, self.steps = numpy.concatenate([parameters, numpy.zeros(2 * parameters.size)]), 0

    def step(self, target, rate=0.01, beta1=0.9, beta2=0.999):
        p, m, v = numpy.split(self.vector, 3)
        gradient, self.steps = p - target, self.steps + 1
        m[:] = beta1 * m + (1 - beta1) * gradient
        v[:] = beta2 * v + (1 - beta2) * gradient ** 2
        p -= rate * (m / (1 - beta1 ** self.steps)) / (numpy.sqrt(v / (1 - beta2 ** self.steps)) + 1e-8)


class AveragingTest(JoinCase):
    def test_two_workers_have_the_moments_of_an_average_by_hand(self):
        random = numpy.random.default_rng(5)
        first, targets = random.normal(size=7), random.normal(size=(2, 7))
        hand, workers = [Adam(first) for _ in targets], []
        for _ in targets:
            net = torch.nn.Module()
            net.w = torch.nn.Parameter(torch.tensor(first, dtype=torch.float32))
            optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
            workers.append((net, optimizer, port(net, optimizer)[0]))

        def steps(count):
            for (net, optimizer, _), by_hand, target in zip(workers, hand, targets):
                for _ in range(count):
                    by_hand.step(target)
                    net.w.grad = (net.w - torch.tensor(target, dtype=torch.float32)).detach()
                    optimizer.step()

        for averaging in range(6):
            steps(5)
            outboxes = [numpy.zeros(21, numpy.float32) for _ in workers]
            for (_, _, each), outbox in zip(workers, outboxes):
                each.read(outbox)
            snapshots = [by_hand.vector.copy() for by_hand in hand]
            steps(3)   # while it is averaged
            for (_, _, each), by_hand, outbox, snapshot in zip(workers, hand, outboxes, snapshots):
                each.add((outboxes[0] + outboxes[1]) / 2, outbox)
                by_hand.vector += (snapshots[0] + snapshots[1]) / 2 - snapshot
            for (net, optimizer, _), by_hand in zip(workers, hand):
                own = optimizer.state[net.w]
                ours = torch.cat([net.w.detach(), own["exp_avg"], own["exp_avg_sq"]]).numpy()
                numpy.testing.assert_allclose(ours, by_hand.vector, rtol=2e-4, atol=1e-6, err_msg=f"averaging {averaging}")
                self.assertEqual(float(own["step"]), by_hand.steps)

    def test_a_result_reaches_the_moments_through_the_link(self):
        here, net = self.agent(roles=BOTH), model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
        joined = self.join(net, optimizer)
        net(INPUTS).square().sum().backward()
        joined.optimize(samples=8)   # as elsewhere: this job averages no gradients
        buffers = torch.cat([optimizer.state[p]["momentum_buffer"].reshape(-1) for p in net.parameters()]).numpy().copy()
        here.put(WANTED, 1)
        joined.step(samples=0)
        numpy.testing.assert_array_equal(here.outbox, numpy.concatenate([flat(net), buffers]))
        here.deliver(1, here.outbox - 3)
        self.assertTrue(joined.step(samples=0).applied)
        after = torch.cat([optimizer.state[p]["momentum_buffer"].reshape(-1) for p in net.parameters()]).numpy()
        numpy.testing.assert_allclose(after, buffers - 3, rtol=1e-4)   # a momentum may have any sign

    def test_a_joiner_has_the_moments_of_the_vector_and_the_counters_of_its_donor(self):
        here, donor = self.agent(roles=BOTH), model()
        optimizer = torch.optim.Adam(donor.parameters(), lr=0.5)
        joined = self.join(donor, optimizer)
        train(donor, optimizer, 3)
        here.put(OPAQUE_WANTED, 1)
        joined.step(samples=1)
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        joined.close()
        sent = state.unpack(here.given)["optimizer"]
        self.assertEqual([sorted(each) for each in sent["state"].values()], 4 * [["step"]], "what the vector has does not travel twice")
        newcomer = model()
        fresh = torch.optim.Adam(newcomer.parameters(), lr=0.1)
        here.hold = True
        here.offer(numpy.arange(here.elements), here.given)   # later than the donor's own
        self.join(newcomer, fresh)
        self.assertEqual((here.get(ADOPTED), self.said), (1, []))
        for at, key in ((1, "exp_avg"), (2, "exp_avg_sq")):
            ours = torch.cat([fresh.state[p][key].reshape(-1) for p in newcomer.parameters()]).numpy()
            part = numpy.split(numpy.arange(here.elements, dtype=numpy.float32), 3)[at]
            numpy.testing.assert_allclose(ours, part if at == 1 else numpy.maximum(part, 0), rtol=1e-6)
        self.assertEqual([float(fresh.state[p]["step"]) for p in newcomer.parameters()], 4 * [3.0])
        self.assertEqual(fresh.param_groups[0]["lr"], 0.5)
        train(newcomer, fresh)
        self.assertTrue(numpy.isfinite(flat(newcomer)).all())

    def test_state_that_is_cleared_after_the_join_is_named_and_no_snapshot(self):
        here, net = self.agent(roles=BOTH), model()
        optimizer = torch.optim.Adam(net.parameters())
        joined = self.join(net, optimizer)
        optimizer.state.clear()
        here.put(WANTED, 1)
        self.assertRaisesRegex(ValueError, r"optimizer\.exp_avg\.0\.weight is gone", joined.step, samples=1)


class RepairTest(unittest.TestCase):
    def moved(self, kind, change, **options):
        """Lengths of the next steps in learning rates, after `change` of an optimizer's trained state: (repaired, not)."""
        moves = []
        for repaired in (True, False):
            net = torch.nn.Module()
            net.w = torch.nn.Parameter(torch.zeros(6))
            optimizer = kind(net.parameters(), lr=1e-3, **options)
            made = moments.Moments(optimizer, [("w", net.w)])
            for _ in range(20):
                net.w.grad = torch.ones(6) * 1e-2
                optimizer.step()
            change(optimizer.state[net.w])
            if repaired:
                made.repair()
            before = net.w.detach().clone()
            net.w.grad = torch.zeros(6)
            optimizer.step()
            moves.append(float((net.w.detach() - before).abs().max()) / 1e-3)
        return moves

    def test_a_second_moment_that_is_lost_makes_no_huge_step(self):
        """Zero is what Float16 makes of small ones; less is what a sum leaves of one that has fallen on both sides."""
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam):
            repaired, plain = self.moved(kind, lambda own: own["exp_avg_sq"].zero_(), weight_decay=0)
            self.assertLess(repaired, 8, kind)
            self.assertGreater(plain, 1e3, "and without the repair it would be")
            repaired, plain = self.moved(kind, lambda own: own["exp_avg_sq"].sub_(1), weight_decay=0)
            self.assertLess(repaired, 8, kind)
            self.assertNotEqual(plain, plain, "the root of less than zero is no number")

    def test_other_optimizers_have_no_negative_ones(self):
        for kind, key, options in ((torch.optim.RMSprop, "square_avg", {}), (torch.optim.Adamax, "exp_inf", {}),
                                   (torch.optim.RMSprop, "square_avg", {"centered": True}), (torch.optim.Adadelta, "acc_delta", {}),
                                   (torch.optim.Adagrad, "sum", {}), (torch.optim.Adam, "max_exp_avg_sq", {"amsgrad": True})):
            repaired, _ = self.moved(kind, lambda own: own[key].sub_(1), **options)
            self.assertLess(repaired, 20, f"{kind} {key}")

    def test_an_average_of_trained_moments_stays_as_it_is(self):
        for kind, options in ((torch.optim.Adam, {"betas": (0.9, 0.98)}), (torch.optim.Adamax, {}), (torch.optim.NAdam, {}),
                              (torch.optim.RMSprop, {"centered": True})):
            random, vectors = torch.Generator().manual_seed(11), []
            for worker in range(3):
                net = torch.nn.Module()
                net.w = torch.nn.Parameter(torch.zeros(500))
                optimizer = kind(net.parameters(), lr=1e-3, **options)
                made, elements = port(net, optimizer)
                scale = torch.exp(3 * torch.randn(500, generator=random))
                for step in range(5 * worker + 1):   # the first has one step: the bound is then met to the bit, or nearly
                    net.w.grad = scale * (1 + 0.1 * torch.randn(500, generator=random))
                    optimizer.step()
                vectors.append(numpy.zeros(elements, numpy.float32))
                made.read(vectors[-1])
            mean = sum(vectors) / 3
            made.write(mean)
            after = numpy.zeros(elements, numpy.float32)
            made.read(after)
            numpy.testing.assert_allclose(after, mean, rtol=1e-5, err_msg=str(kind))


class RefusedTest(JoinCase):
    def refused(self, words, net, optimizer):
        here = self.agent(roles=BOTH)
        with self.assertRaisesRegex(ValueError, words):
            crowdsurf.join(net, optimizer)
        self.assertFalse(here.registered.is_set())
        here.close()

    def test_state_that_cannot_be_averaged_is_refused_with_the_remedy(self):
        remedy = ".*take OptimizerState out of averaging.roles"
        net = model()
        parameters = list(net.parameters())
        self.refused("history of steps" + remedy, net, torch.optim.LBFGS(parameters))
        self.refused("sign of the last gradient" + remedy, net, torch.optim.Rprop(parameters))
        self.refused("the rows that have had a gradient" + remedy, net, torch.optim.SparseAdam(parameters))
        self.refused("give the optimizer to join" + remedy, net, None)

    def test_an_optimizer_of_another_class_needs_its_state_before(self):
        class Lion(torch.optim.Optimizer):
            def __init__(self, parameters, lr=0.1, keys=("exp_avg",)):
                super().__init__(parameters, {"lr": lr})
                self.keys = keys

            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    for key in self.keys:
                        self.state[p][key] = torch.ones(p.shape if key == "exp_avg" else (1, 1))

        net = model()
        optimizer = Lion(net.parameters())
        self.refused("Lion has none of 0.weight yet.*call Lion.step.. once before join.., with a gradient", net, optimizer)
        optimizer.step()
        names = [t.name for t in port(net, optimizer)[0].tensors]
        self.assertEqual(names[4:], ADAM[:4])
        factored = Lion(net.parameters(), keys=("row",))
        factored.step()
        self.refused("no floating-point tensor of a parameter's shape", net, factored)

    def test_a_sparse_moment_is_refused(self):
        net = torch.nn.Embedding(5, 2, sparse=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        net(torch.tensor([1])).sum().backward()
        self.assertEqual(len(port(net, optimizer)[0].tensors), 2, "before the first step a dense one is made")
        optimizer.step()   # adds to it
        optimizer.state.clear()
        optimizer.step()
        with self.assertRaisesRegex(TypeError, "sparse_coo, which cannot travel"):
            port(net, optimizer)

    def test_an_optimizer_without_moments_averages_parameters_and_says_so(self):
        here, net = self.agent(roles=BOTH), model()
        self.join(net, torch.optim.SGD(net.parameters(), lr=0.1))
        self.assertEqual(len(here.tensors), 4)
        self.assertRegex(self.said[0], "SGD as it is set keeps none")


if __name__ == "__main__":
    unittest.main()
