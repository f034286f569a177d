"""What becomes of each sample that job.shard() deals: in jobs that lose workers, and for 1 to 16 clients without a job.

A job's model has numbers for each worker and sample (marking_trainer.py). The notes of the scripts say what was trained, the
checkpoint's ledger what the job believes to have trained, and the model what is in it: three witnesses of one run.
"""
import collections
import pathlib
import random
import sys

import crowdsurf
from crowdsurf.shard import Shard
from ledger import Ledger

WORKERS, LIVES, SAMPLES, EPOCHS = 4, 8, 100, 10   # of a worker, a data set, a job; the last three at most
CHUNKS, STEP_SECONDS = 8, 0.2
JOB = """apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: dealt}
spec:
  replicas: WORKERS
  averaging: {strategy: Moshpit, groupSize: 4, interval: {steps: 5}, compression: None}
  target: {samples: 1000000000}
  template: {spec: {containers: [{name: trainer, image: none, command: [COMMAND]}]}}
"""
TRAINER = pathlib.Path(__file__).resolve().parent / "marking_trainer.py"


def manifest(notes):
    command = ["python3", TRAINER, "--notes", notes, "--workers", WORKERS, "--lives", LIVES, "--samples", SAMPLES,
               "--epochs", EPOCHS, "--chunks", CHUNKS, "--step-seconds", STEP_SECONDS]
    return JOB.replace("WORKERS", str(WORKERS)).replace("COMMAND", ", ".join(f"'{word}'" for word in command))


class Account:
    """Of a job that has ended: sets of (epoch, index) by worker, a number as in the model's first axis."""

    def __init__(self, state, notes):
        import torch
        self.trained, self.ended = {}, set()
        for file in notes.iterdir():
            index, incarnation = map(int, file.name.rsplit("-", 2)[1:])
            worker = index + WORKERS * (incarnation - 1)
            lines = [line.split() for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if ["over"] in lines:
                self.ended.add(worker)
            self.trained[worker] = {(int(epoch), int(at)) for epoch, *indices in lines if indices for at in indices}
        marks = crowdsurf.load_model(state / "checkpoint" / "model.safetensors")["marks"]
        marks = marks[:, :WORKERS * LIVES * EPOCHS * SAMPLES].unflatten(1, (WORKERS * LIVES, EPOCHS, SAMPLES))
        self.inside, self.touched = collections.defaultdict(set), set()   # in all chunks, by worker; in any
        for worker, epoch, at in torch.nonzero(marks.all(0)).tolist():
            self.inside[worker].add((epoch, at))
        for _, epoch, at in torch.nonzero(marks.any(0)).tolist():
            self.touched.add((epoch, at))
        self.ledger = Ledger(max((state / "checkpoint").glob("*.crowdsurf")))

    def lost(self):
        """Samples that the job believes to have trained, and that are not in all of its model."""
        return len(self.ledger.committed - set().union(*self.inside.values()))

    def partly(self):
        """Those of them that are in some chunks of it."""
        return len(self.ledger.committed & self.touched - set().union(*self.inside.values()))

    def again(self, excused=frozenset()):
        """How often samples were trained beyond their first time; what `excused` workers trained in vain does not count."""
        times = collections.Counter()
        for worker, samples in self.trained.items():
            times.update(samples & self.inside[worker] if worker in excused else samples)
        return sum(count - 1 for count in times.values() if count > 1)

    def dead(self):
        return set(self.trained) - self.ended

    def replaced(self):
        """All but those that are there at the end, whose last samples no averaging has come to yet."""
        return {worker for worker in self.trained if any(worker + WORKERS * more in self.trained for more in range(1, LIVES))}

    def in_vain(self, workers):
        """What these workers trained and the model does not have of them."""
        return sum(len(self.trained[worker] - self.inside[worker]) for worker in workers)

    def say(self, report):
        print(f"  {report['preemptions']} workers taken, {self.ledger.count} samples committed in {self.ledger.epoch} epochs: "
              f"{self.lost()} lost, {self.partly()} of them in a part of the model; "
              f"{self.again()} trained again, {self.again(self.dead())} of them not for a dead worker's; "
              f"{self.ledger.returned} returned, {self.ledger.void} void claims", file=sys.stderr, flush=True)


class Dealer:
    """The job's part for clients without an agent. Their leases come in any order, and some are broken off."""

    alone = False

    def __init__(self, seed, lease, batches):
        self.seed, self._leases, self._batches, self.trained = seed, [lease], batches, 0

    def _begin_loop(self, shard, loop):
        return self.seed

    def _check_loop(self, loop):
        pass

    def _end_loop(self, loop):
        pass

    def _next_lease(self):
        return self._leases.pop() if self._leases else None

    def _handed(self, samples):
        self.trained += samples

    def _lease_is_void(self):
        self._batches -= 1
        return self._batches == 0


def epochs_of(clients, samples, unit, seed):
    """A Counter of the indices for each of two epochs, dealt to so many clients, of which some leave within a lease."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from crowdsurf.leases import Lease
    draw, found = random.Random(seed), [collections.Counter(), collections.Counter()]
    loaders = [DataLoader(TensorDataset(torch.arange(samples)), batch_size=unit) for _ in range(clients)]
    waiting = [Lease(epoch, 0, samples) for epoch in (0, 1)]
    while waiting:
        lease = waiting.pop(draw.randrange(len(waiting)))
        count = unit * draw.randint(1, 8)
        if lease.samples > count:   # the rest is for another one
            waiting.append(Lease(lease.epoch, lease.begin + count, lease.samples - count))
            lease = lease._replace(samples=count)
        dealer = Dealer(seed, lease, draw.choice((1, 2, -1)))
        for (indices,) in Shard(dealer, draw.choice(loaders), 1):
            found[lease.epoch].update(indices.tolist())
        if dealer.trained < lease.samples:
            waiting.append(Lease(lease.epoch, lease.begin + dealer.trained, lease.samples - dealer.trained))
    return found


def equal_epochs(most=16):
    """For 1 to `most` clients: 1 where each epoch has each sample once, in data sets of several lengths, else 0."""
    return [int(all(epoch == collections.Counter(range(samples)) for samples in (1, 31, 1437)
                    for epoch in epochs_of(clients, samples, 8, seed=clients))) for clients in range(1, most + 1)]
