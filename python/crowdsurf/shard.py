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
    if loader.batch_size is None or type(loader.batch_sampler) is not data.BatchSampler:
        raise TypeError("job.shard() makes the batches itself: give the DataLoader a batch_size, and no batch_sampler")
    if not isinstance(loader.sampler, (data.SequentialSampler, data.RandomSampler)):
        raise TypeError(f"job.shard() has an order of its own: the sampler {type(loader.sampler).__name__} would be left out; "
                        "take a Subset of the data set instead")
    try:
        length = len(cast(Sized, loader.dataset))
    except (TypeError, NotImplementedError) as error:
        raise TypeError(f"job.shard() needs to know the length of the data set: {type(loader.dataset).__name__} has no "
                        "__len__") from error
    if length < 1:
        raise ValueError("the data set is empty: there is nothing to train")
    if loader.drop_last:
        log.warning("crowdsurf: job.shard() leaves no sample out: the last batch of an epoch may be short (drop_last)")
    return length


class Shard:
    """What job.shard() returns: an iterable of batches, with the state of a StatefulDataLoader."""

    def __init__(self, job: Job, loader: Any, epochs: int) -> None:
        self.length = check(loader)
        self.unit: int = loader.batch_size
        self._job, self._epochs, self._turns = job, epochs, _Turns()
        self._loader = _like(loader, self._turns)
        self._seed = 0
        self._at: Dict[str, int] = {"epoch": 0, "position": 0}   # alone; in a job: of the last batch
        self._yielded = 0

    def __iter__(self) -> Iterator[Any]:
        return self._alone() if self._job.alone else self._granted()

    def state_dict(self) -> Dict[str, Any]:
        """Where it is, after the last batch that it gave: {"_num_yielded", "epoch", "position", "length"}."""
        return {"_num_yielded": self._yielded, "length": self.length, **self._at}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Alone: goes on there. In a job the job's checkpoint says which samples are left, and this changes nothing."""
        if state["length"] != self.length:
            raise ValueError(f"the state is of a data set of {state['length']} samples, this one has {self.length}")
        self._yielded = int(state["_num_yielded"])
        self._at = {"epoch": int(state["epoch"]), "position": int(state["position"])}

    def _alone(self) -> Iterator[Any]:
        while self._at["epoch"] < self._epochs and not self._job.done:
            epoch, begin = self._at["epoch"], self._at["position"]
            for batch, count in self._batches(epoch, begin, self.length - begin):
                position = self._at["position"] + count
                self._yielded += 1
                self._at = {"epoch": epoch, "position": position}
                if position == self.length:
                    self._at = {"epoch": epoch + 1, "position": 0}
                yield batch
                if self._job.done:
                    return

    def _granted(self) -> Iterator[Any]:
        job = self._job
        self._seed = job._begin_leases(self)
        try:
            lease = job._next_lease()
            while lease is not None:
                yield from self._of(lease)
                lease = job._next_lease()
        finally:
            job._drawing = False

    def _of(self, lease: Lease) -> Iterator[Any]:
        position = lease.begin
        for batch, count in self._batches(*lease):
            position += count
            self._yielded += 1
            self._at = {"epoch": lease.epoch, "position": position}
            self._job._handed(count)
            yield batch
            if self._job._lease_is_void():
                return

    def _batches(self, epoch: int, begin: int, count: int) -> Iterator[Any]:
        """Batches of one run of samples with their sizes; what is loaded ahead stays inside the run."""
        order = EpochOrder(self.length, self._seed, epoch)
        ends = range(begin, begin + count, self.unit)
        self._turns.batches = [range(at, min(at + self.unit, begin + count)) for at in ends]
        self._turns.order = order
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
    if loader.num_workers > 0:
        options.update(prefetch_factor=loader.prefetch_factor, persistent_workers=True)
    return data.DataLoader(loader.dataset, batch_sampler=turns, **options)
