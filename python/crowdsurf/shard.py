"""Batches of a worker's leases: each sample of an epoch is trained once in the whole job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sized, cast

from .epoch_order import EpochOrder

if TYPE_CHECKING:
    from .job import Job
    from .leases import Lease

log = logging.getLogger("crowdsurf")


def check(loader: Any) -> int:
    """The length of the loader's data set. TypeError, ValueError: it cannot be dealt, and why."""
    import torch.utils.data as data

    if not isinstance(loader, data.DataLoader):
        raise TypeError(f"job.shard() needs a torch DataLoader, not {type(loader).__name__}: it draws other batches of the "
                        "same data set; job.batches() takes any iterable")
    if isinstance(loader.dataset, data.IterableDataset):
        raise TypeError("job.shard() needs a map-style data set: leases name samples by their index, and an IterableDataset "
                        "has none; job.batches() takes it")
    if isinstance(loader.sampler, data.DistributedSampler):
        raise TypeError("job.shard() deals the samples itself: leave the DistributedSampler out")
    if loader.batch_size is None or type(loader.batch_sampler) is not data.BatchSampler:
        raise TypeError("job.shard() makes the batches itself: give the DataLoader a batch_size, and no batch_sampler")
    length = length_of(loader.dataset)
    if not _takes_each_once(loader.sampler, length):
        raise TypeError(f"job.shard() has an order of its own: the sampler {type(loader.sampler).__name__} would be left out; "
                        "take a Subset of the data set instead")
    if length < 1:
        raise ValueError("the data set is empty: there is nothing to train")
    if loader.drop_last:
        log.warning("crowdsurf: job.shard() leaves no sample out: the last batch of an epoch may be short (drop_last)")
    if type(loader).__iter__ is not data.DataLoader.__iter__:
        log.warning("crowdsurf: job.shard() makes a DataLoader of its own: what the __iter__ of %s does besides is left out",
                    type(loader).__name__)
    return length


def length_of(dataset: Any) -> int:
    try:
        return len(cast(Sized, dataset))
    except (TypeError, NotImplementedError) as error:
        raise TypeError(f"job.shard() needs to know the length of the data set: {type(dataset).__name__} has no "
                        "__len__") from error


def _takes_each_once(sampler: Any, length: int) -> bool:
    import torch.utils.data as data

    if isinstance(sampler, data.RandomSampler) and sampler.replacement:
        return False
    return isinstance(sampler, (data.SequentialSampler, data.RandomSampler)) and len(sampler) == length


class Shard:
    """What job.shard() returns: an iterable of batches, with the state of a StatefulDataLoader."""

    def __init__(self, job: Job, loader: Any, epochs: int) -> None:
        self.length = check(loader)
        self.unit: int = loader.batch_size
        self._job, self._loader, self._epochs = job, loader, epochs
        self._until, self._over = epochs, False                  # alone: the loop ends before this epoch; it has
        self._at: Dict[str, int] = {"epoch": 0, "position": 0}   # alone; in a job: of the last batch
        self._yielded = 0

    def __iter__(self) -> Iterator[Any]:
        loop = Loop(self._loader, self.length)
        loop.seed = self._job._begin_loop(self, loop)
        try:
            yield from self._alone(loop) if self._job.alone else self._granted(loop)
        finally:
            self._job._end_loop(loop)

    def state_dict(self) -> Dict[str, Any]:
        """Where it is, after the last batch that it gave: {"_num_yielded", "epoch", "position", "length"}."""
        return {"_num_yielded": self._yielded, "length": self.length, **self._at}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Alone: goes on there. In a job the job's checkpoint says which samples are left, and this changes nothing.

        ValueError: it is the state of another data set, or of something else.
        """
        try:
            length, yielded = int(state["length"]), int(state["_num_yielded"])
            at = {"epoch": int(state["epoch"]), "position": int(state["position"])}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no state of job.shard(): {state!r}") from error
        if length != self.length:
            raise ValueError(f"the state is of a data set of {length} samples, this one has {self.length}")
        if at["epoch"] < 0 or not 0 <= at["position"] <= length:
            raise ValueError(f"this is no state of job.shard(): {state!r}")
        self._yielded = yielded
        self._note(**at)

    def _note(self, epoch: int, position: int) -> None:
        self._at = {"epoch": epoch, "position": position} if position < self.length else {"epoch": epoch + 1, "position": 0}

    def _alone(self, loop: Loop) -> Iterator[Any]:
        if self._over:   # as a DataLoader gives another pass
            self._until, self._over = self._at["epoch"] + self._epochs, False
        while self._at["epoch"] < self._until and not self._job.done:
            epoch, begin = self._at["epoch"], self._at["position"]
            for batch, count in loop.batches(epoch, begin, self.length - begin):
                self._yielded += 1
                self._note(epoch, self._at["position"] + count)
                yield batch
                self._job._check_loop(loop)
                if self._job.done:
                    return
        self._over = True

    def _granted(self, loop: Loop) -> Iterator[Any]:
        lease = self._job._next_lease()
        while lease is not None:
            yield from self._of(lease, loop)
            lease = self._job._next_lease()

    def _of(self, lease: Lease, loop: Loop) -> Iterator[Any]:
        position = lease.begin
        for batch, count in loop.batches(*lease):
            position += count
            self._yielded += 1
            self._at = {"epoch": lease.epoch, "position": position}
            self._job._handed(count)
            yield batch
            self._job._check_loop(loop)
            if self._job._lease_is_void():
                return


class Loop:
    """One loop over a shard: the script's loader with batches of its leases. Its workers live on from lease to lease."""

    def __init__(self, loader: Any, length: int) -> None:
        self._length, self._unit, self._turns = length, loader.batch_size, _Turns()
        self._loader = _like(loader, self._turns)
        self.seed = 0   # of the job's orders

    def batches(self, epoch: int, begin: int, count: int) -> Iterator[Any]:
        """Batches of one run of samples with their sizes; what is loaded ahead stays inside the run."""
        length = length_of(self._loader.dataset)
        if length != self._length:
            raise ValueError(f"the data set had {self._length} samples when job.shard() took it, and has {length} now: leases "
                             "name samples by their index, so it must stay as it is")
        ends = range(begin, begin + count, self._unit)
        self._turns.batches = [range(at, min(at + self._unit, begin + count)) for at in ends]
        self._turns.order = EpochOrder(length, self.seed, epoch)
        for number, batch in enumerate(self._loader):
            yield batch, len(self._turns.batches[number])


class _Turns:
    """A batch sampler whose batches are those of the lease in hand."""

    def __init__(self) -> None:
        self.batches: List[range] = []
        self.order: Optional[EpochOrder] = None

    def __iter__(self) -> Iterator[List[int]]:
        order = self.order
        assert order is not None
        for positions in self.batches:
            yield [order.at(position) for position in positions]

    def __len__(self) -> int:
        return len(self.batches)


def _like(loader: Any, turns: _Turns) -> Any:
    """The same loader with other batches. Its workers live on from lease to lease."""
    import torch.utils.data as data

    options = {"num_workers": loader.num_workers, "collate_fn": loader.collate_fn, "pin_memory": loader.pin_memory,
               "timeout": loader.timeout, "worker_init_fn": loader.worker_init_fn, "generator": loader.generator,
               "multiprocessing_context": loader.multiprocessing_context}
    if getattr(loader, "pin_memory_device", ""):
        options["pin_memory_device"] = loader.pin_memory_device
    if loader.num_workers > 0:
        options.update(prefetch_factor=loader.prefetch_factor, persistent_workers=True)
    return data.DataLoader(loader.dataset, batch_sampler=turns, **options)
