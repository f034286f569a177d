"""The order of an epoch's samples: the permutation of worker/core/shard/epoch_order.h, index by index."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15   # SplitMix64's increment
_ROUNDS = 6


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class EpochOrder:
    """A Feistel network, walked until the result is an index: a bijection that nobody has to hold."""

    def __init__(self, samples: int, seed: int, epoch: int) -> None:
        self._samples = samples
        self._half = max(1, ((samples - 1).bit_length() + 1) // 2)
        start = _mix(seed ^ _mix((epoch + _GOLDEN) & _MASK))
        self._keys = [_mix((start + (number + 1) * _GOLDEN) & _MASK) for number in range(_ROUNDS)]

    def at(self, position: int) -> int:
        """The index in the data set. position: below the number of samples."""
        mask, index = (1 << self._half) - 1, position
        while True:
            left, right = index >> self._half, index & mask
            for key in self._keys:
                left, right = right, left ^ (_mix((right + key) & _MASK) & mask)
            index = left << self._half | right
            if index < self._samples:
                return index
