#!/usr/bin/env python3
"""job.shard(): which batches a script gets, what an agent hears of them, and what is refused. Needs PyTorch, else skipped."""
import threading
import unittest

from torch_case import JoinCase, model, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from crowdsurf.epoch_order import EpochOrder
from stand_in import (LEASES_POSITION, LEASES_STREAM, LEASES_WAITS, PUBLISHED, RELEASED, STOP, WANTED)

SEED = 42   # that the stand-in gives


def numbers(count):
    return TensorDataset(torch.arange(count))


class OrderTest(unittest.TestCase):
    def test_is_a_permutation_and_that_of_the_agents(self):   # tests/unit/worker_core/shard/epoch_order_test.cc
        self.assertEqual([EpochOrder(10, 42, 0).at(i) for i in range(10)], [2, 3, 8, 0, 9, 6, 1, 4, 5, 7])
        self.assertEqual([EpochOrder(10, 42, 1).at(i) for i in range(10)], [8, 2, 1, 4, 3, 7, 0, 9, 6, 5])
        self.assertEqual(EpochOrder(1 << 40, 7, 3).at(123456789), 896074019422)
        for count in (1, 2, 5, 64, 1797):
            self.assertEqual(sorted(EpochOrder(count, 3, 1).at(i) for i in range(count)), list(range(count)))


class AloneTest(JoinCase):
    def test_goes_over_all_samples_in_another_order_each_epoch(self):
        job = self.join(model())
        seen = [batch for (batch,) in job.shard(DataLoader(numbers(10), batch_size=4), epochs=2)]
        self.assertEqual([len(batch) for batch in seen], [4, 4, 2] * 2)
        epochs = [torch.cat(seen[:3]).tolist(), torch.cat(seen[3:]).tolist()]
        self.assertNotEqual(*epochs)
        for epoch in epochs:
            self.assertEqual(sorted(epoch), list(range(10)))

    def test_goes_on_where_its_state_was_taken(self):
        job = self.join(model())
        first = job.shard(DataLoader(numbers(10), batch_size=4))
        whole = [batch.tolist() for (batch,) in first]
        again = job.shard(DataLoader(numbers(10), batch_size=4))
        turns = iter(again)
        next(turns)
        state = again.state_dict()
        self.assertEqual(state, {"_num_yielded": 1, "length": 10, "epoch": 0, "position": 4})
        resumed = job.shard(DataLoader(numbers(10), batch_size=4))
        resumed.load_state_dict(state)
        self.assertEqual([batch.tolist() for (batch,) in resumed], whole[1:])
        with self.assertRaisesRegex(ValueError, "10 samples, this one has 9"):
            job.shard(DataLoader(numbers(9), batch_size=4)).load_state_dict(state)


class RefusedTest(JoinCase):
    def test_says_what_cannot_be_dealt_and_why(self):
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(3))

        class Endless(Dataset):
            def __getitem__(self, index):
                return index

        job = self.join(model())
        data = numbers(4)
        cases = [([1, 2], TypeError, "needs a torch DataLoader, not list"),
                 (DataLoader(Stream()), TypeError, "map-style"),
                 (DataLoader(Endless(), sampler=torch.utils.data.SequentialSampler(data)), TypeError, "has no __len__"),
                 (DataLoader(data, batch_size=None), TypeError, "batch_size"),
                 (DataLoader(data, sampler=WeightedRandomSampler([1.0] * 4, 4)), TypeError, "WeightedRandomSampler"),
                 (DataLoader(numbers(0)), ValueError, "empty")]
        for loader, error, words in cases:
            with self.assertRaisesRegex(error, words):
                job.shard(loader)


class GrantedTest(JoinCase):
    def start(self, count=100, batch=4, **options):
        here = self.agent()
        job = self.join(model())
        return here, job, iter(job.shard(DataLoader(numbers(count), batch_size=batch, **options)))

    def in_order(self, epoch, begin, end, count=100):
        return [EpochOrder(count, SEED, epoch).at(i) for i in range(begin, end)]

    def test_trains_its_leases_and_says_how_far_it_is(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 8, 10], [1, 0, 4]])
        got = []
        for expected in ((0, 8, 12), (0, 12, 16), (0, 16, 18), (1, 0, 4)):
            (batch,) = next(turns)
            self.assertEqual(batch.tolist(), self.in_order(*expected))
            got += batch.tolist()
            self.assertEqual(here.get(LEASES_POSITION), len(got) - len(batch), "before its step")
            job.step(samples=len(batch))
            self.assertEqual((here.get(LEASES_STREAM), here.get(LEASES_POSITION)), (3, len(got)))
        self.assertEqual(here.data, [{"samples": 100, "unit": 4}])

    def test_a_snapshot_says_what_is_in_it(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        here.put(WANTED, 1)
        self.assertTrue(job.step(samples=4).published)
        self.assertEqual((here.get(PUBLISHED + 24), here.get(PUBLISHED + 32)), (3, 4))

    def test_waits_for_leases_and_answers_the_agent_meanwhile(self):
        here, job, turns = self.start()

        def agent():
            here.until(lambda: here.get(LEASES_WAITS), lambda: None)
            here.put(WANTED, 1)
            here.agent_bell().ring()
            here.until(lambda: here.get(PUBLISHED) == 1, lambda: None)
            here.put(RELEASED, 1)
            here.grant(stream=5, begin=0, leases=[[0, 0, 4]])
        thread = threading.Thread(target=agent)
        thread.start()
        (batch,) = next(turns)
        thread.join()
        self.assertEqual(batch.tolist(), self.in_order(0, 0, 4))
        self.assertEqual(here.get(LEASES_WAITS), 0)

    def test_takes_what_is_added_and_drops_what_was_taken_back(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 8]])
        next(turns)
        job.step(samples=4)
        here.grant(begin=4, leases=[[0, 4, 4], [0, 20, 4]])   # four are committed, four more granted
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 4, 8))
        job.step(samples=4)
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 20, 24))
        job.step(samples=4)
        here.grant(stream=9, begin=0, leases=[[2, 0, 4]])
        self.assertEqual(next(turns)[0].tolist(), self.in_order(2, 0, 4))
        self.assertEqual((here.get(LEASES_STREAM), here.get(LEASES_POSITION)), (9, 0))

    def test_an_adoption_ends_the_stream(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 8]])
        next(turns)
        here.offer(0.5)
        self.assertTrue(job.step(samples=4).adopted)
        self.assertEqual(here.get(LEASES_STREAM), 0)
        here.grant(stream=6, begin=0, leases=[[0, 40, 4]])
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 40, 44))

    def test_ends_with_the_job_and_where_the_leases_are_closed(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        here.put(STOP, 1, "I")
        job.step(samples=4)
        self.assertEqual(list(turns), [])

    def test_another_data_set_is_an_error_that_names_both(self):
        here, job, turns = self.start()
        here.grant(other={"samples": 99, "unit": 4, "seed": 42})
        with self.assertRaisesRegex(ValueError, "99 samples in batches of 4; this worker has 100"):
            next(turns)

    def test_workers_of_the_loader_live_from_lease_to_lease(self):
        here, job, turns = self.start(num_workers=1)
        here.grant(stream=3, begin=0, leases=[[0, 0, 8], [0, 12, 4]])
        got = []
        for _ in range(3):
            (batch,) = next(turns)
            got += batch.tolist()
            job.step(samples=len(batch))
        self.assertEqual(got, self.in_order(0, 0, 8) + self.in_order(0, 12, 16))
        turns.close()


if __name__ == "__main__":
    unittest.main()
