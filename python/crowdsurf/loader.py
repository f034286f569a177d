"""Random numbers of the worker's own, also for loaders that shuffle by a seed which is the same at every worker."""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any, Iterator

import torch

_PARTS = ("batch_sampler", "sampler")


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
