"""Jobs that average gradients: what is gathered of a step, and when the step is taken. docs/trainer-link.md, section 11."""

from __future__ import annotations

import math
from typing import Any, Callable

from . import layout
from .memory import Floats, Memory, numpy

Optimize = Callable[[Floats], None]   # takes the optimizer's step with that gradient, equal to the bit at all workers


class Gathered:
    """The mean gradient of the samples since the last step."""

    def __init__(self) -> None:
        self.samples = 0
        self.step = 0          # the averaging that the parameters are of
        self._mean: Any = None
        self._told = False     # that the share is there

    def add(self, memory: Memory, samples: int, gradient: Floats) -> None:
        """A batch's mean gradient. One that is not finite is left out."""
        if samples == 0 or not _finite(gradient):
            return
        part = samples / (self.samples + samples)
        if self._mean is None:
            self._mean = numpy.zeros(len(gradient), numpy.float32) if numpy is not None else [0.0] * len(gradient)
        if numpy is not None:
            self._mean += (gradient - self._mean) * numpy.float32(part)
        else:
            self._mean = [mean + (value - mean) * part for mean, value in zip(self._mean, gradient)]
        self.samples += samples
        memory.set(layout.GATHERED, self.samples)

    def take(self, memory: Memory, averaging: int) -> None:
        """The parameters are those of another step: what was gathered before is dropped."""
        self._mean, self.samples, self.step, self._told = None, 0, averaging, False
        memory.set(layout.GATHERED, 0)
        memory.set(layout.PARAMETERS_STEP, averaging)

    def has_share(self, memory: Memory) -> bool:
        """True where nothing more is to be gathered. Says so, once."""
        there = 0 < self.samples >= memory.get(layout.SHARE)
        if there and not self._told:
            memory.set(layout.SHARES, memory.get(layout.SHARES) + 1)
            memory.trainer_bell.ring()
        self._told = there
        return there

    def publish(self, memory: Memory) -> None:
        """Into the outbox, with what is said of it."""
        if numpy is not None:
            memory.outbox[:] = self._mean
        else:
            for i, value in enumerate(self._mean):
                memory.outbox[i] = value
        memory.set(layout.PUBLISHED_GATHERED, self.samples)


def _finite(gradient: Floats) -> bool:
    if numpy is not None:
        return bool(numpy.isfinite(gradient).all())
    return all(math.isfinite(value) for value in gradient)


def checked(gradient: Floats, elements: int) -> Floats:
    """ValueError: it is of other parameters."""
    if len(gradient) != elements:
        raise ValueError(f"gradient has {len(gradient)} values, the job averages {elements}")
    return gradient
