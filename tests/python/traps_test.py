#!/usr/bin/env python3
"""What would go wrong in silence: parts of a model, bases that differ, equal orders, states too large. Needs PyTorch."""
import os
import unittest
import unittest.mock
import warnings

import numpy
from torch_case import JoinCase, flat, model, torch

import crowdsurf
import crowdsurf.exchange
import crowdsurf.module
from crowdsurf import layout
from stand_in import OPAQUE_GIVEN, OPAQUE_WANTED, WANTED

data = torch.utils.data


class PartsOfAModelTest(JoinCase):
    def refused(self, words, net):
        with self.assertRaisesRegex(ValueError, words):
            crowdsurf.module.ModuleParameters(net)

    def test_sharded_models_and_stages_are_refused_by_name(self):
        for name, words in (("FullyShardedDataParallel", "FSDP1"), ("FSDPModule", "FSDP2"), ("DeepSpeedEngine", "DeepSpeed"),
                            ("PipelineStage", "a pipeline stage")):
            kind = type(name, (torch.nn.Module,), {})
            inner = kind()
            inner.add_module("linear", torch.nn.Linear(2, 2))
            self.refused(f"the model is a {name}: {words}", inner)
            outer = torch.nn.Sequential(torch.nn.Linear(2, 2), inner)
            self.refused(f"the model at 1 is a {name}", outer)

    def test_a_shard_of_a_parameter_is_refused_by_name(self):
        kind = type("DTensor", (torch.nn.Parameter,), {})
        net = torch.nn.Module()
        net.register_parameter("weight", torch.nn.Parameter(torch.ones(2)))
        net.weight.__class__ = kind
        self.refused(r"the parameter weight is a shard \(DTensor\)", net)

    def test_one_of_several_processes_is_refused(self):
        here = self.agent()
        with unittest.mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}):
            with self.assertRaisesRegex(ValueError, "rank 1 of 2 .* without torchrun's --nproc-per-node 2"):
                self.join(model())
        self.assertEqual(here.tensors, [], "before the agent hears of it")
        with unittest.mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "1"}):
            self.join(model())

    def test_a_group_that_is_made_after_the_join_is_noticed_at_the_next_snapshot(self):
        here = self.agent()
        joined = self.join(model())
        here.put(WANTED, 1)
        with unittest.mock.patch.multiple(torch.distributed, is_initialized=lambda: True, get_world_size=lambda: 4, get_rank=lambda: 0):
            with self.assertRaisesRegex(ValueError, "rank 0 of 4"):
                joined.step(samples=1)

    def test_a_script_without_an_agent_may_have_a_group(self):
        os.environ.pop("CROWDSURF_DIR", None)
        with unittest.mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": "2"}):
            self.assertTrue(self.join(model()).alone)

    def test_a_model_of_inference_mode_is_refused_by_name(self):
        with torch.inference_mode():
            net = torch.nn.Linear(2, 2)
        self.refused("the parameter weight was made in torch.inference_mode", net)


class FrozenTest(JoinCase):
    def mark(self, seed=1, change=None, frozen_differ=False):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(300, 300).requires_grad_(False), torch.nn.Linear(300, 2))
        with torch.no_grad():
            if change is not None:
                change(net[0])
        parameters = crowdsurf.module.ModuleParameters(net, frozen_differ=frozen_differ)
        return [t.name for t in parameters.tensors if t.role == "Frozen"]

    def test_workers_with_equal_bases_have_equal_rows_and_others_not(self):
        (mark,) = self.mark()
        self.assertRegex(mark, "^frozen.[0-9a-f]{32}$")
        self.assertEqual(self.mark(), [mark])
        self.assertNotEqual(self.mark(seed=2), [mark], "an unseeded start")
        self.assertNotEqual(self.mark(change=lambda base: base.weight.mul_(1.001)), [mark], "another revision")
        self.assertNotEqual(self.mark(change=lambda base: base.bias[3].add_(1)), [mark], "one value of a small tensor")
        self.assertNotEqual(self.mark(change=lambda base: base.half()), [mark], "another type")
        self.assertEqual(self.mark(frozen_differ=True), [], "where the script says so")

    def test_the_row_has_no_place_in_the_vector(self):
        here = self.agent()
        net = torch.nn.Sequential(torch.nn.Linear(2, 2).requires_grad_(False), torch.nn.Linear(2, 2))
        joined = self.join(net)
        self.assertEqual([(t["role"], t["offset"]) for t in here.placed], [("Parameter", 0), ("Parameter", 16), ("Frozen", None)])
        here.put(WANTED, 1)
        joined.step(samples=1)
        numpy.testing.assert_array_equal(here.outbox, flat(net[1]))


class OrderTest(JoinCase):
    """Which loaders give every worker the same batches."""

    class Stream(data.IterableDataset):
        def __iter__(self):
            yield from torch.randperm(64, generator=torch.Generator().manual_seed(42)).float()

    class OwnSeed(data.Sampler):
        def __init__(self):
            self.epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __len__(self):
            return 64

        def __iter__(self):
            return iter(torch.randperm(64, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def orders(self, make):
        """The words that two workers tell their agents."""
        told = []
        for worker in ("digits-0-1", "digits-1-1"):
            here = self.agent(worker=worker)
            joined = self.join(model())
            batches = joined.batches(make())
            for _ in range(3):
                next(batches)
            batches.close()
            told.append(here.get(layout.ORDER))
            joined.close()
            here.close()
        self.assertTrue(all(told))
        return told

    def test_equal_orders_have_equal_hashes(self):
        values = torch.arange(64).float()
        for name, make in {
                "shuffle=False": lambda: data.DataLoader(values, 8),
                "a stream with a seed": lambda: data.DataLoader(self.Stream(), 8),
                "a stream with a seed, two processes": lambda: data.DataLoader(self.Stream(), 8, num_workers=2),
                "a sampler with a seed": lambda: data.DataLoader(values, 8, sampler=self.OwnSeed()),
                "DistributedSampler(1, 0)": lambda: data.DataLoader(values, 8, sampler=data.DistributedSampler(values, 1, 0)),
                "a list of dicts": lambda: [{"text": "a", "ids": torch.tensor([i, 2])} for i in range(8)],
                "numpy": lambda: [numpy.arange(i, i + 3) for i in range(8)]}.items():
            with self.subTest(name):
                first, second = self.orders(make)
                self.assertEqual(first, second)

    def test_other_orders_have_other_hashes(self):
        values = torch.arange(64).float()
        for name, make in {
                "shuffle=True": lambda: data.DataLoader(values, 8, shuffle=True),
                "a generator": lambda: data.DataLoader(values, 8, shuffle=True, generator=torch.Generator().manual_seed(7)),
                "weights": lambda: data.DataLoader(values, 8, sampler=data.WeightedRandomSampler(torch.ones(64), 64))}.items():
            with self.subTest(name):
                first, second = self.orders(make)
                self.assertNotEqual(first, second)

    def test_a_fixed_order_is_said_once_where_it_is_known(self):
        self.agent()
        joined = self.join(model())
        for _ in range(2):
            next(joined.batches(data.DataLoader(torch.arange(64).float(), 8)))
        fixed = [words for words in self.said if "the loader's order is fixed (SequentialSampler)" in words]
        self.assertEqual(len(fixed), 1, self.said)

    def test_an_agent_that_comes_back_hears_it_again(self):
        here = self.agent()
        joined = self.join(model())
        joined._agent.note_order(77)
        here.close()
        here = self.agent()
        here.until(lambda: here.registered.is_set() and here.get(layout.ORDER) == 77, lambda: joined.step(samples=1))


class LargeStateTest(JoinCase):
    class Big:
        def __init__(self, mebibytes):
            self.values = torch.arange(mebibytes * 2 ** 18, dtype=torch.float32)

        def state_dict(self):
            return {"values": self.values}

        def load_state_dict(self, state):
            self.values = state["values"]

    def test_a_large_state_goes_while_the_script_trains_on(self):
        here, big = self.agent(), self.Big(20)
        here.slow_puts.clear()   # the agent takes nothing yet
        joined = self.join(model(), stateful=[big])
        here.put(OPAQUE_WANTED, 1)
        joined.step(samples=1)
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        for _ in range(3):
            self.assertFalse(joined.step(samples=1).agent_lost)
        self.assertIsNone(here.given, "the steps did not wait for it")
        big.values.zero_()   # training goes on: what is sent is the state as it was
        here.slow_puts.set()
        here.until(lambda: here.given is not None, lambda: joined.step(samples=1))
        other = self.Big(1)
        crowdsurf.module.ModuleParameters(model(), stateful=[other]).set(here.given)
        self.assertTrue(torch.equal(other.values, torch.arange(20 * 2 ** 18, dtype=torch.float32)))

    def test_a_state_that_the_agent_refuses_is_no_lost_agent(self):
        for mebibytes in (1, 20):
            with self.subTest(mebibytes):
                here = self.agent()
                here.refuses_put = (507, "no room for this trainer's state: raise spec.agent.sharedMemory")
                joined = self.join(model(), stateful=[self.Big(mebibytes)])
                self.said.clear()
                for wanted in (1, 2, 3):
                    here.put(OPAQUE_WANTED, wanted)
                    here.until(lambda: here.get(OPAQUE_GIVEN) == wanted, lambda: joined.step(samples=1))
                    here.until(lambda: self.said, lambda: joined.step(samples=1))
                self.assertFalse(joined.last.agent_lost)
                self.assertEqual(len(self.said), 1, self.said)
                self.assertIn("raise spec.agent.sharedMemory. Joiners get the average without it", self.said[0])
                self.assertEqual(here.puts, 1, "it is not copied again for nothing")
                joined.close()
                here.close()


class StumblingTest(JoinCase):
    def test_a_list_of_optimizers_trains_and_travels(self):
        def two():
            torch.manual_seed(3)
            net = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
            return net, [torch.optim.Adam(net[0].parameters(), lr=0.1), torch.optim.SGD(net[1].parameters(), lr=0.2, momentum=0.9)]
        here = self.agent(roles=("Parameter", "OptimizerState"))
        net, optimizers = two()
        for each in optimizers:
            for group in each.param_groups:
                for p in group["params"]:
                    p.grad = torch.ones_like(p)
            each.step()
        joined = self.join(net, optimizers)
        self.assertEqual({t["name"] for t in here.tensors if t["role"] == "OptimizerState"},
                         {f"optimizer.{key}.{name}" for key, names in (
                             ("exp_avg", ("0.weight", "0.bias")), ("exp_avg_sq", ("0.weight", "0.bias")),
                             ("momentum_buffer", ("1.weight", "1.bias"))) for name in names})
        here.put(OPAQUE_WANTED, 1)
        joined.step(samples=1)
        other, fresh = two()
        parameters = crowdsurf.module.ModuleParameters(other, fresh)
        parameters.declare(["OptimizerState"])
        parameters.set(here.given)
        self.assertEqual(float(fresh[0].state[other[0].weight]["step"]), 1.0)
        with self.assertRaisesRegex(ValueError, "another optimizer"):
            crowdsurf.module.ModuleParameters(other, fresh[:1]).set(here.given)
        with self.assertRaisesRegex(ValueError, "two optimizers train the parameter 0.weight"):
            crowdsurf.module.ModuleParameters(net, [optimizers[0], optimizers[0]])

    def test_a_loss_with_its_graph_makes_no_warning(self):
        self.agent()
        net = model()
        joined = self.join(net)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss = net(torch.ones(3)).sum()
            self.assertTrue(loss.requires_grad)
            seen = []
            with unittest.mock.patch.object(torch.Tensor, "__float__", lambda value: seen.append(value.requires_grad) or 1.0):
                joined.step(samples=1, loss=loss)
        self.assertEqual(seen, [False], "PyTorch 2.15 warns of a number that is taken from a graph")

    def test_a_loss_that_is_no_number_is_said_at_once_and_again_after_it_was_one(self):
        self.agent()
        joined = self.join(model())
        for loss in (1.0, float("nan"), float("nan"), 1.0, float("inf")):
            joined.step(samples=1, loss=loss)
        self.assertEqual([words.split(":")[1] for words in self.said if "the loss is" in words], [" the loss is nan", " the loss is inf"])

    def test_a_schedule_that_no_joiner_gets_is_said(self):
        def parts():
            net = model()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 10)
        net, optimizer, schedule = parts()
        crowdsurf.module.ModuleParameters(net, optimizer)
        self.assertEqual(len(self.said), 1, self.said)
        self.assertIn("a learning-rate schedule steps SGD, and would begin anew at each joiner", self.said[0])
        crowdsurf.module.ModuleParameters(net, optimizer, [schedule])
        crowdsurf.module.ModuleParameters(model(), None)
        self.assertEqual(len(self.said), 1)


if __name__ == "__main__":
    unittest.main()
