"""What a trainer has counted, and its loss and metrics, in the words of the mapped file."""

from __future__ import annotations

import math
import operator
from typing import Optional

from . import layout
from .memory import Memory
from .tensor import Counted


class Progress:
    """Counts from the first step on, also when the agent beside the trainer is another one."""

    def __init__(self) -> None:
        self.counted = Counted(0, 0)
        self._reports = 0
        self._rung_at = 0, 0   # the marks that were rung for

    def step(self, memory: Memory, samples: int, loss: Optional[float]) -> None:
        """samples: trained since the last step. ValueError: less than none."""
        samples = operator.index(samples)
        if samples < 0:
            raise ValueError(f"samples is {samples}, it must not be negative")
        self.counted = Counted(self.counted.steps + 1, self.counted.samples + samples)
        self.write(memory)
        if loss is not None and math.isfinite(loss):
            memory.set(layout.LOSS, float(loss), "f64")
            self._note(memory)
        self._ring_at_mark(memory)

    def write(self, memory: Memory) -> None:
        memory.set(layout.SAMPLES, self.counted.samples)
        memory.set(layout.STEPS, self.counted.steps)

    def set_metric(self, memory: Memory, slot: int, value: float) -> None:
        memory.set(layout.METRICS + 8 * slot, float(value), "f64")
        self._note(memory)

    def _note(self, memory: Memory) -> None:
        self._reports += 1
        memory.set(layout.PROGRESS_SEQUENCE, self._reports)

    def _ring_at_mark(self, memory: Memory) -> None:
        """Once a mark: the agent sleeps until the trainer has done as many steps or samples as it waits for."""
        marks = memory.get(layout.WAKE_AT_STEPS), memory.get(layout.WAKE_AT_SAMPLES)
        counted = self.counted.steps, self.counted.samples
        if any(mark and mark != rung and count >= mark for mark, rung, count in zip(marks, self._rung_at, counted)):
            self._rung_at = marks
            memory.trainer_bell.ring()
