"""Accelerate in a job: LocalSGD of accelerate, with another import (docs/frameworks.md):

    with LocalSGD(accelerator, model, optimizer=optimizer) as local_sgd:
        for batch in local_sgd.batches(loader):      # ends when the job's target is met
            with accelerator.accumulate(model):
                loss = train_one_part(batch)
                local_sgd.step(loss=loss)
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Type, TypeVar

from accelerate import Accelerator, DistributedType
from accelerate.state import GradientState

from .connection import AgentError
from .job import Job, join
from .loader import draw_apart
from .module import Stateful
from .platforms import refuse_spread
from .tensor import Notice, Outcome

Batch = TypeVar("Batch")


class LocalSGD:
    """Joins at the beginning of the block, and leaves at its end. Put it around all epochs.

    The job's manifest says how often the workers average, so `local_sgd_steps` is not used. Not `enabled`: no job.
    """

    def __init__(self, accelerator: Accelerator, model: Any, local_sgd_steps: Optional[int] = None, enabled: bool = True, *,
                 optimizer: Any = None, stateful: Sequence[Stateful] = (), init: str = "job", metrics: Sequence[str] = (),
                 on_notice: Optional[Callable[[Notice], None]] = None) -> None:
        """optimizer, stateful (schedules), init, metrics, on_notice: as crowdsurf.join(). What prepare() returned may be given.

        ValueError: the accelerator spreads the model over processes or devices.
        """
        kind = accelerator.distributed_type
        refuse_spread([f"{kind} with {accelerator.num_processes} processes"] if kind != DistributedType.NO else [])
        self._accelerator, self._enabled, self._samples = accelerator, enabled, 0
        scaler = getattr(accelerator, "scaler", None)
        states = [*stateful, *([] if scaler is None else [scaler])]
        self._join: Callable[[], Job] = functools.partial(join, model, optimizer, init=init, metrics=metrics, on_notice=on_notice,
                                                          stateful=states)
        self.job: Optional[Job] = None   # within the block, where it is enabled

    def __enter__(self) -> LocalSGD:
        """Raises what crowdsurf.join() does."""
        if self._enabled:
            self._samples, self.job = 0, self._join()
            if self.job.seed is not None:
                for loader in getattr(self._accelerator, "_dataloaders", []):   # for loops without batches()
                    draw_apart(loader, self.job.seed)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if self.job is not None:
            if kind is None:
                self.job.finish()
            else:
                self.job.close()

    def step(self, samples: Optional[int] = None, loss: Any = None) -> Outcome:
        """After each batch, or after each optimizer step with the samples of all its parts.

        While gradients accumulate it counts alone. samples: those of the batch from a prepared loader where it is None.
        ValueError: no prepared loader says how many.
        """
        if self.job is None:
            if self._enabled:
                raise AgentError("step() comes within the block of LocalSGD")
            return Outcome()
        if samples is None:
            samples = batch_size()
            if samples is None:
                raise ValueError("step() needs samples=: no loader that prepare() returned says how many the batch has")
        self._samples += samples
        if not self._accelerator.sync_gradients:
            return self.job.last
        samples, self._samples = self._samples, 0
        return self.job.step(samples=samples, loss=loss)

    def batches(self, loader: Iterable[Batch], epochs: int = 1) -> Iterator[Batch]:
        """The loader's batches, pass after pass, until the job's target is met. Alone, or not enabled: `epochs` passes."""
        if self.job is not None:
            yield from self.job.batches(loader, epochs)
            return
        for _ in range(epochs):
            yield from loader

    @property
    def done(self) -> bool:
        """The job's target is met."""
        return self.job is not None and self.job.done


# --- what Accelerate, which Hugging Face's Trainer uses too, knows of the batch in work ---

def batch_size() -> Optional[int]:
    """Samples of the batch in work. None: accelerate did not prepare its loader, or its batches have no one size."""
    size = _full_batch()
    return None if size is None else size - missing_samples()


def missing_samples() -> int:
    """How many samples the last batch of a pass lacks, while that batch is in work; else 0."""
    loader: Any = GradientState().active_dataloader
    size = _full_batch()
    if size is None or not loader.end_of_dataloader or loader.remainder <= 0:
        return 0
    return size - int(loader.remainder)


def _full_batch() -> Optional[int]:
    loader: Any = GradientState().active_dataloader
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None
