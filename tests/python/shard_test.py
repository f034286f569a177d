#!/usr/bin/env python3
"""job.shard(): which batches a script gets, what an agent hears of them, and what is refused. Needs PyTorch, else skipped."""
import os
import threading
import unittest
import unittest.mock

from torch_case import JoinCase, model, torch
from torch.utils.data import (DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, TensorDataset,
                              WeightedRandomSampler)

import crowdsurf
from crowdsurf.epoch_order import EpochOrder
from stand_in import (ACKNOWLEDGED, BEAT, LEASES_POSITION, LEASES_STREAM, LEASES_WAITS, PUBLISHED, RELEASED, RUNG, STOP,
                      WANTED)

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
        for wrong in ({}, {**state, "position": 11}, {**state, "epoch": "last"}):
            with self.assertRaisesRegex(ValueError, "no state of job.shard"):
                resumed.load_state_dict(wrong)

    def test_a_loop_that_was_left_goes_on_and_one_that_is_over_begins_anew(self):
        job = self.join(model())
        shard, seen = job.shard(DataLoader(numbers(10), batch_size=4)), []
        for (batch,) in shard:
            seen.append(batch)
            break
        seen += [batch for (batch,) in shard]
        self.assertEqual(sorted(torch.cat(seen).tolist()), list(range(10)))
        again = torch.cat([batch for (batch,) in shard])
        self.assertEqual(sorted(again.tolist()), list(range(10)))
        self.assertNotEqual(again.tolist(), torch.cat(seen).tolist(), "the next epoch has an order of its own")

    def test_passes_over_the_data_are_a_count(self):
        job, loader = self.join(model()), DataLoader(numbers(3))
        self.assertEqual(list(job.shard(loader, epochs=0)), [])
        self.assertEqual(list(job.batches(loader, epochs=0)), [])
        for draw in (job.shard, job.batches):
            self.assertRaisesRegex(ValueError, "epochs is -1", lambda: list(draw(loader, epochs=-1)))
            self.assertRaises(TypeError, lambda: list(draw(loader, epochs=1.5)))


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
                 (DataLoader(data, sampler=RandomSampler(data, replacement=True)), TypeError, "the sampler RandomSampler"),
                 (DataLoader(data, sampler=RandomSampler(range(2))), TypeError, "the sampler RandomSampler"),
                 (DataLoader(data, sampler=DistributedSampler(data, 2, 0)), TypeError, "leave the DistributedSampler out"),
                 (DataLoader(numbers(0)), ValueError, "empty")]
        for loader, error, words in cases:
            with self.assertRaisesRegex(error, words):
                job.shard(loader)
        self.assertEqual(self.said, self.said[:1], "and of what is taken nothing is said")

    def test_says_what_of_a_loader_is_left_out(self):
        class Moving(DataLoader):
            def __iter__(self):
                return map(len, super().__iter__())

        job = self.join(model())
        job.shard(Moving(numbers(4)))
        self.assertIn("the __iter__ of Moving", self.said[-1])


class GrantedTest(JoinCase):
    def start(self, count=100, batch=4, **options):
        here = self.agent()
        job = self.join(model())
        return here, job, iter(job.shard(DataLoader(numbers(count), batch_size=batch, **options)))

    def beside(self, act):
        """What the agent does while the trainer waits for leases."""
        thread = threading.Thread(target=act)
        thread.start()
        self.addCleanup(thread.join)

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
        self.beside(agent)
        (batch,) = next(turns)
        self.assertEqual(batch.tolist(), self.in_order(0, 0, 4))
        self.assertEqual(here.get(LEASES_WAITS), 0)

    def test_says_nothing_after_it_has_acknowledged_the_stop(self):
        here, job, turns = self.start()
        here.put(STOP, 1, "I")
        rung = here.get(RUNG, "I")
        self.assertEqual(list(turns), [])
        self.assertEqual(here.get(ACKNOWLEDGED), 1)
        self.assertEqual(here.get(RUNG, "I"), rung + 1)

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

    def test_a_jobs_state_is_of_the_last_batch_and_can_be_loaded_at_the_end_of_an_epoch(self):
        here, job = self.agent(), self.join(model())
        shard = job.shard(DataLoader(numbers(8), batch_size=4))
        here.grant(stream=3, begin=0, leases=[[0, 4, 4]])
        next(iter(shard))
        state = shard.state_dict()
        self.assertEqual(state, {"_num_yielded": 1, "length": 8, "epoch": 0, "position": 8})
        shard.load_state_dict(state)
        self.assertEqual(shard.state_dict(), {**state, "epoch": 1, "position": 0})

    def test_an_adoption_ends_the_stream(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 8]])
        next(turns)
        here.offer(0.5)
        self.assertTrue(job.step(samples=4).adopted)
        self.assertEqual(here.get(LEASES_STREAM), 0)
        here.grant(stream=6, begin=0, leases=[[0, 40, 4]])
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 40, 44))

    def test_after_an_adoption_nothing_of_the_lease_in_hand_is_trained(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        here.offer(0.5)
        job.step(samples=4)

        def agent():
            here.until(lambda: here.get(LEASES_WAITS), lambda: None)
            here.grant(stream=6, begin=0, leases=[[0, 40, 4]])
        self.beside(agent)
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 40, 44))

    def test_a_loop_after_one_that_was_left_gives_what_was_not_trained(self):
        here = self.agent()
        job = self.join(model())
        shard = job.shard(DataLoader(numbers(100), batch_size=4))
        here.grant(stream=3, begin=0, leases=[[0, 0, 16]])
        for (batch,) in shard:
            job.step(samples=4)
            break
        with self.assertRaises(KeyError):
            for (batch,) in shard:   # its batch is in no step
                raise KeyError
        for (batch,) in shard:
            break
        self.assertEqual(batch.tolist(), self.in_order(0, 4, 8))
        job.step(samples=4)   # after the loop; it counts
        turns = iter(shard)
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 8, 12))
        self.assertEqual(here.get(LEASES_POSITION), 8)
        self.assertEqual(here.data, [{"samples": 100, "unit": 4}])

    def test_one_loop_at_a_time(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        newer = iter(job.shard(DataLoader(numbers(100), batch_size=4)))
        self.assertEqual(next(newer)[0].tolist(), self.in_order(0, 0, 4))
        self.assertRaisesRegex(RuntimeError, "one at a time", next, turns)
        job.step(samples=4)
        self.assertEqual(next(newer)[0].tolist(), self.in_order(0, 4, 8))
        job.close()
        self.assertEqual(list(newer), [])
        self.assertRaisesRegex(crowdsurf.AgentError, "after close", list, job.shard(DataLoader(numbers(100))))

    def test_a_forked_child_draws_nothing(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        child = os.fork()
        if child == 0:
            refused = 0
            for loop in (turns, iter(job.shard(DataLoader(numbers(100), batch_size=4)))):
                try:
                    next(loop)
                except crowdsurf.AgentError:
                    refused += 1
            os._exit(refused)
        self.assertEqual(os.waitpid(child, 0)[1] >> 8, 2)
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 4, 8))

    def test_a_data_set_that_changes_its_length_is_an_error(self):
        class Growing(list, Dataset):
            pass

        here, job, data = self.agent(), self.join(model()), Growing(range(100))
        shard = job.shard(DataLoader(data, batch_size=4))
        here.grant(stream=3, begin=0, leases=[[0, 0, 4], [0, 8, 4]])
        turns = iter(shard)
        next(turns)
        data.append(100)
        self.assertRaisesRegex(ValueError, "had 100 samples when job.shard.. took it, and has 101 now", next, turns)
        self.assertRaisesRegex(ValueError, "of 100 samples in batches of 4 already, not 101 in batches of 4",
                               next, iter(job.shard(DataLoader(data, batch_size=4))))

    def test_ends_where_the_leases_are_closed(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        job.step(samples=4)
        here.grant(closed=True)

        def agent():   # takes what was trained, and goes
            here.until(lambda: here.get(LEASES_WAITS), lambda: None)
            here.put(WANTED, 1)
            here.agent_bell().ring()
            here.until(lambda: here.get(PUBLISHED) == 1, lambda: None)
            here.close()
            here.put(BEAT, here.get(BEAT) + 1)
        self.beside(agent)
        self.assertEqual(list(turns), [])
        self.assertEqual((here.get(PUBLISHED + 24), here.get(PUBLISHED + 32)), (3, 4))
        self.assertFalse(job.done)

    def test_an_agent_that_comes_back_deals_other_leases(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        job.step(samples=4)
        here.put(BEAT, 1)   # a beat makes the trainer look at its connection
        here.close()
        again = self.agent()

        def agent():
            again.until(lambda: again.data, lambda: None)
            again.grant(stream=9, begin=0, leases=[[0, 60, 4]])
        self.beside(agent)
        again.until(lambda: again.fresh, lambda: job.step(samples=0))
        self.assertEqual(next(turns)[0].tolist(), self.in_order(0, 60, 64))
        self.assertEqual(again.data, [{"samples": 100, "unit": 4}])

    def test_an_agent_that_is_gone_for_good_is_an_error(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 4]])
        next(turns)
        job.step(samples=4)
        here.put(BEAT, 1)
        here.close()
        with unittest.mock.patch("crowdsurf.job.PATIENCE", 0.05):
            self.assertRaisesRegex(crowdsurf.AgentError, "has gone, and with it the leases", next, turns)

    def test_ends_with_the_job(self):
        here, job, turns = self.start()
        here.grant(stream=3, begin=0, leases=[[0, 0, 40]])
        next(turns)
        here.put(STOP, 1, "I")
        job.step(samples=4)
        self.assertEqual(list(turns), [])

    def test_another_data_set_is_an_error_that_names_both(self):
        here, job, turns = self.start()
        here.grant(other={"samples": 99, "unit": 4, "seed": 42})
        for loop in (turns, iter(job.shard(DataLoader(numbers(100), batch_size=4)))):
            with self.assertRaisesRegex(ValueError, "99 samples in batches of 4; this worker has 100.*the checkpoint"):
                next(loop)

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
