#!/usr/bin/env python3
"""job.shard() with real agents: each sample of an epoch is in the job's model once, though workers die, leave or start anew.

What was trained the scripts note themselves, before they count a step; what is committed is in a checkpoint's ledger.
Needs Debian's PyTorch, else skipped.

Usage: shard_test.py BIN     BIN is the folder of the built programs.
"""
import collections
import os
import pathlib
import signal
import sys
import unittest

from runs import RunCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "support")]
from ledger import Ledger
try:
    import torch  # noqa: F401 -- the scripts need it
except ImportError as error:
    print(f"skipped: needs Debian's python3-torch ({error})")
    sys.exit(77)

SAMPLES = 2000   # of the data set
SCRIPT = f"""
import os, sys, time
import torch
import crowdsurf
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.arange({SAMPLES}), torch.randn({SAMPLES}, 4))
job = crowdsurf.join(model, optimizer)
notes = open(os.path.join(sys.argv[1], os.environ["CROWDSURF_WORKER"] + "." + str(os.getpid())), "a", buffering=1)
shard = job.shard(DataLoader(data, batch_size=10), epochs=1)
for indices, rows in shard:
    optimizer.zero_grad()
    (loss := model(rows).square().mean()).backward()
    time.sleep(0.015)   # what a batch takes
    optimizer.step()
    print(shard.state_dict()["epoch"], *indices.tolist(), file=notes)
    job.step(samples=len(indices), loss=loss)
"""
ENVIRONMENT = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}


class ShardTest(RunCase):
    def setUp(self):
        super().setUp()
        script, self.notes = self.path / "script.py", self.path / "notes"
        script.write_text(SCRIPT)
        self.notes.mkdir()
        self.write_endless(f"python3, {script}, {self.notes}",
                           **{"groupSize: 2": "groupSize: 4", "interval: {steps: 20}": "interval: {steps: 10}"})

    def trained(self, *workers):
        """How often the scripts of these workers, or of all, trained each (epoch, index). Half a line is left out."""
        counts = collections.Counter()
        for file in self.notes.iterdir():
            if not workers or file.name.split(".")[0] in workers:
                for line in file.read_text().splitlines(keepends=True):
                    epoch, *indices = map(int, line.split())
                    if line.endswith("\n"):
                        counts.update((epoch, index) for index in indices)
        return counts

    def twice(self, counts):
        return {sample for sample, count in counts.items() if count > 1}

    def committed(self):
        return self.metric("e2e-0-1", "crowdsurf_leases_committed_samples")

    def wait_for_samples(self, count):
        self.wait_until(lambda: self.committed() >= count)

    def ledger(self):
        """Of the newest checkpoint; it holds together by itself."""
        ledger = Ledger(max((self.state / "checkpoint").glob("*.crowdsurf")))
        self.assertEqual((ledger.version, ledger.data), (4, [SAMPLES, 10]))
        self.assertEqual(ledger.count, len(ledger.committed))
        return ledger

    def agrees(self, ledger, counts):
        """All that is committed was trained; all that was trained is committed, or held, or to be granted again."""
        self.assertEqual(ledger.committed - set(counts), set(), "committed, and nobody trained it")
        self.assertEqual(set(counts) - ledger.committed - ledger.open, set(), "trained, and never granted")

    def test_a_killed_workers_samples_are_trained_by_others_and_no_sample_is_left_out(self):
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for_all(process)
        self.wait_until(lambda: self.committed() >= SAMPLES and 400 < self.committed() % SAMPLES < 1600)
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains")
        self.wait_until(lambda: self.trained("e2e-1-2"))
        self.wait_for_samples(self.committed() + 1.5 * SAMPLES)
        committed, returned = self.committed(), self.metric("e2e-0-1", "crowdsurf_leases_returned_samples")
        self.assertLessEqual(committed, len(self.trained()))
        output = self.end_job(process, seen)
        ledger, counts, dead = self.ledger(), self.trained(), self.trained("e2e-1-1")
        again = self.twice(counts)
        print(f"{ledger.count} committed in {ledger.epoch} epochs, {ledger.returned} returned, {len(again)} trained again, "
              f"{len(counts)} trained, {self.report()['samples']:.0f} in the job's count")
        self.agrees(ledger, counts)
        self.assertGreaterEqual(ledger.count, committed)
        self.assertGreater(returned, 0, "the dead worker held leases")
        self.assertEqual(ledger.returned, returned, "nobody else lost any")
        self.assertEqual(self.twice(dead), set())
        self.assertEqual(self.twice(counts - dead), set(), output)
        self.assertLessEqual(again, set(dead), output)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0, output)
        self.nothing_is_left()

    def test_workers_that_are_told_to_leave_train_nothing_in_vain(self):
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for_all(process)
        self.wait_for_samples(0.5 * SAMPLES)
        ((agent, _),) = self.agents("e2e-1-1").items()
        os.kill(agent, signal.SIGTERM)
        seen += self.wait_for(process, "e2e-1-2 trains")
        (notes,) = self.notes.glob("e2e-2-1.*")
        os.kill(int(notes.suffix[1:]), signal.SIGTERM)   # the script itself
        seen += self.wait_for(process, "e2e-2-2 trains")
        self.wait_for_samples(self.committed() + 1.5 * SAMPLES)
        output = self.end_job(process, seen)
        ledger, counts = self.ledger(), self.trained()
        print(f"{ledger.count} committed, {ledger.returned} returned, {len(self.twice(counts))} trained again")
        self.agrees(ledger, counts)
        self.assertEqual(self.twice(counts), set(), output)
        left = set(self.trained("e2e-1-1", "e2e-2-1"))
        self.assertEqual(left - ledger.committed, set(), "trained by who left, and not in the model")
        self.assertEqual(ledger.void, 0)
        self.nothing_is_left()

    def test_a_worker_that_stands_still_for_a_while_is_dealt_leases_again(self):
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for_all(process)
        self.wait_for_samples(0.5 * SAMPLES)
        (notes,) = self.notes.glob("e2e-1-1.*")
        script = int(notes.suffix[1:])
        os.kill(script, signal.SIGSTOP)
        self.wait_until(lambda: self.metric("e2e-1-1", "crowdsurf_worker_trainer_silences_total") == 1)
        self.wait_for_samples(self.committed() + 0.2 * SAMPLES)   # the others go on, and its leases are taken back
        before = self.trained("e2e-1-1")
        os.kill(script, signal.SIGCONT)
        self.wait_until(lambda: self.trained("e2e-1-1").total() > before.total() + 200)
        self.wait_for_samples(self.committed() + 1.5 * SAMPLES)
        output = self.end_job(process, seen)
        ledger, counts = self.ledger(), self.trained()
        again = self.twice(counts)
        print(f"{ledger.count} committed, {ledger.returned} returned, {len(again)} trained again")
        self.agrees(ledger, counts)
        self.assertLessEqual(again, set(self.trained("e2e-1-1")), output)
        self.nothing_is_left()

    def test_a_script_whose_agent_is_killed_trains_on_and_is_dealt_leases_by_the_next(self):
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for_all(process)
        for _ in range(3):
            self.wait_for_samples(self.committed() + 0.3 * SAMPLES)
            ((agent, _),) = self.agents("e2e-1-1").items()
            os.kill(agent, signal.SIGKILL)
            before = self.trained("e2e-1-1").total()
            self.wait_until(lambda: self.trained("e2e-1-1").total() > before + 200)
        self.wait_for_samples(self.committed() + 1.5 * SAMPLES)
        self.assertEqual(len(list(self.notes.glob("e2e-1-*"))), 1, "the same script")
        output = self.end_job(process, seen)
        ledger, counts = self.ledger(), self.trained()
        again = self.twice(counts)
        print(f"{ledger.count} committed, {ledger.returned} returned, {len(again)} trained again")
        self.agrees(ledger, counts)
        self.assertLessEqual(again, set(self.trained("e2e-1-1")), output)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0, output)
        self.nothing_is_left()

    def test_a_resumed_run_goes_on_in_the_middle_of_its_epoch(self):
        process = self.start(env=ENVIRONMENT)
        self.wait_for_all(process)
        self.wait_for_samples(1.3 * SAMPLES)
        self.wait_until(lambda: list((self.state / "checkpoint").glob("*.crowdsurf")))
        self.interrupt(process)
        before = self.ledger()   # of up to a second before the end
        self.assertEqual(before.committed - set(self.trained()), set())
        for file in self.notes.iterdir():
            file.unlink()
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for_all(process)
        self.wait_for_samples(before.count + 1.5 * SAMPLES)
        output = self.end_job(process, seen)
        self.assertIn("resuming from the checkpoint", output)
        after, counts = self.ledger(), self.trained()
        print(f"{before.count} committed at first, {after.count} then; from epoch {min(counts)[0]} on")
        self.assertEqual(before.committed - after.committed, set())
        self.assertEqual(set(counts) & before.committed, set(), "in the checkpoint's model, and trained again")
        self.assertEqual(after.committed - before.committed - set(counts), set(), "committed, and nobody trained it")
        self.assertEqual(min(counts)[0], min(before.open | {(before.epoch, 0)})[0])
        self.assertEqual(self.twice(counts), set(), output)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
