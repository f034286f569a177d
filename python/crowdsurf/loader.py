"""Random numbers of the worker's own, also for loaders with a seed of their own; and a hash of what a worker draws first."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import sys
from collections.abc import Mapping
from typing import Any, Iterator, Optional

import torch

_PARTS = ("batch_sampler", "sampler")
_BATCHES = 2       # a first batch may be a header, or short
_VALUES = 1024     # of each array, evenly spread: equal batches are equal everywhere
_DEPTH = 6         # of lists and dicts in a batch


def draw_apart(loader: Any, seed: int) -> None:
    """Gives the samplers of `loader` the worker's seed where they have one of their own.

    A loader without one needs nothing: it draws from torch's random numbers, which join() has seeded. Two kinds have
    one: those with a torch.Generator, and Accelerate's, which Hugging Face's Trainer uses.
    """
    for part in _parts(loader):
        if isinstance(getattr(part, "initial_seed", None), int):
            part.initial_seed = seed
        generator = getattr(part, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)


def _parts(loader: Any) -> Iterator[Any]:
    """The loader, and the samplers within it."""
    yield loader
    for name in _PARTS:
        part = getattr(loader, name, None)
        if part is not None:
            yield from _parts(part)


def seed_worker(words: str) -> int:
    """Seeds the random numbers of `random`, torch and numpy (where it is imported) by `words`. The seed."""
    seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "little")   # 32 bits: numpy takes no more
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    return seed


def fixed_order(loader: Any) -> Optional[str]:
    """The sampler whose order is the same at every worker, whatever its random numbers are. None: none is known."""
    import torch.utils.data as data

    for part in _parts(loader):
        if isinstance(part, (data.SequentialSampler, data.DistributedSampler)):
            return type(part).__name__
    return None


class FirstBatches:
    """A hash of the first batches that this worker draws. Workers with equal hashes train on the same data in the same order."""

    def __init__(self) -> None:
        self._digest, self._left = hashlib.blake2b(digest_size=8), _BATCHES

    def take(self, batch: Any) -> Optional[int]:
        """The hash, once, when enough batches have come; never 0."""
        if self._left == 0:
            return None
        _feed(self._digest, batch, _DEPTH)
        self._left -= 1
        return int.from_bytes(self._digest.digest(), "little") or 1 if self._left == 0 else None


def _feed(digest: Any, value: Any, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        _feed_tensor(digest, value.detach())
    elif isinstance(value, (int, float, str, bytes, bool, type(None))):
        digest.update(repr(value).encode())
    elif depth == 0:
        pass
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _feed(digest, vars(value), depth - 1)
    elif isinstance(value, Mapping):
        for key in value:
            digest.update(repr(key).encode())
            _feed(digest, value[key], depth - 1)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _feed(digest, each, depth - 1)
    elif hasattr(value, "__array__"):   # numpy's, and what behaves like it
        _feed_tensor(digest, torch.as_tensor(value.__array__()))


def _feed_tensor(digest: Any, value: torch.Tensor) -> None:
    digest.update(repr((tuple(value.shape), str(value.dtype))).encode())
    if value.layout == torch.strided and value.numel() > 0:
        flat = value.reshape(-1)
        part = flat[::max(1, -(-flat.numel() // _VALUES))].contiguous()
        digest.update(part.view(torch.uint8).cpu().numpy().tobytes())
