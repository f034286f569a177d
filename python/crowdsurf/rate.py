"""The learning rate that a strategy scales (RelaySum), whatever schedule sets it."""

from __future__ import annotations

import functools
import types
from typing import Any, List

import torch


class ScaledRate:
    """Multiplies the learning rates of `optimizer` by `scale` within its step(), and only there.

    Schedules read and write the rates between steps, and see their own. The optimizer is not touched before the first
    scale other than 1.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer, self._scale, self._wrapped = optimizer, 1.0, False

    def set(self, scale: float) -> None:
        self._scale = scale
        if scale != 1 and not self._wrapped:
            self._wrapped = True
            self._wrap()

    def _wrap(self) -> None:
        inner = self._optimizer.step

        @functools.wraps(inner)   # schedules look for a mark that they have put on it
        def step(optimizer: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
            rates: List[Any] = [group["lr"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * self._scale
            try:
                return inner(*arguments, **options)
            finally:
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate

        # A method, as schedules expect: they ask it for its object and its function.
        setattr(self._optimizer, "step", types.MethodType(step, self._optimizer))
