"""Parameters on a device: how the averaged vector moves between there and here, beside the script's own work.

A device works off queues, its streams. What is put into one is done later and in order. Between two streams there is no
order but that of events. The script's work is in the current stream. Copies over the bus have a stream of their own, and
pinned memory at this end: any other memory makes each copy wait for all that the device has to do.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Protocol, Sequence

import torch

from .parameters import Filled

PIECE = 1 << 22   # elements of a copy: 16 MiB of pinned memory, of which there are two


class Event(Protocol):
    """A place in a stream."""

    def wait(self) -> None:
        """Returns once the device has come to it."""


class Stream(Protocol):
    """Each method returns at once; the device does what it says later."""

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """to = source, in the type of `to`."""

    def add(self, to: torch.Tensor, change: torch.Tensor) -> None:
        """to += change, which is rounded to the type of `to` first."""

    def record(self) -> Event:
        """An event after all that is in the stream."""

    def follow(self, event: Event) -> None:
        """What is put in from now on is done after the event of another stream."""


class Device(Protocol):
    """Where the parameters are. PyTorch's is in cuda.py."""

    side: Stream   # for the copies

    def current(self) -> Stream:
        """The script's, as of now."""

    def empty(self, elements: int) -> Optional[torch.Tensor]:
        """A flat float32 vector there, of any values. The current stream may use it at once. None: no memory is left."""

    def pinned(self, elements: int) -> torch.Tensor:
        """A flat float32 vector here. RuntimeError: no memory is left."""


class Place(NamedTuple):
    """A tensor of the model, and its part of the averaged vector."""

    own: torch.Tensor
    part: slice


class Staging:
    """One transfer at a time, from any thread. The script's stream waits for none that goes from there to here."""

    def __init__(self, device: Device, elements: int, piece: int = PIECE) -> None:
        """elements: of the averaged vector. piece: of a copy. RuntimeError: no pinned memory is left."""
        self._device, self._elements = device, elements
        self._parts = [slice(first, min(first + piece, elements)) for first in range(0, elements, piece)]
        self._slots = [device.pinned(min(piece, elements)) for _ in self._parts[:2]]
        self._sent: List[Optional[Event]] = [None, None]   # when a slot's values have gone to the device

    def hold(self, places: Sequence[Place]) -> Optional[Callable[[torch.Tensor, Filled], None]]:
        """Keeps the tensors' values of now in a copy on the device. None: it has no memory for that.

        The script may change the tensors at once. The function that is returned copies the values into a vector here,
        says how far it is, and waits for the end. Call it once, from any thread.
        """
        held = self._device.empty(self._elements)
        if held is None:
            return None
        current = self._device.current()
        for own, part in places:
            current.copy(held[part].view(own.shape), own)
        ready, copies = current.record(), held

        def take(here: torch.Tensor, filled: Filled) -> None:
            self._device.side.follow(ready)
            self._fetch(copies, here, filled)

        return take

    def _fetch(self, there: torch.Tensor, here: torch.Tensor, filled: Filled) -> None:
        """Piece by piece: while one is on the bus, the one before it goes from pinned memory to its place."""
        side, last = self._device.side, None
        for i, part in enumerate(self._parts):
            slot = self._slots[i % 2][: part.stop - part.start]
            side.copy(slot, there[part])
            came = side.record()
            if last is not None:
                self._put(here, *last)
                filled(last[2].stop)
            last = came, slot, part
        if last is not None:
            self._put(here, *last)
            filled(last[2].stop)

    @staticmethod
    def _put(here: torch.Tensor, came: Event, slot: torch.Tensor, part: slice) -> None:
        came.wait()
        here[part].copy_(slot)

    def send(self, fill: Callable[[torch.Tensor, slice], None]) -> Optional[torch.Tensor]:
        """A vector on the device that the current stream may use. None: there is no memory for it.

        fill: writes a part of the vector into the memory that it is given. All calls are over when this returns, the
        copies are not.
        """
        there = self._device.empty(self._elements)
        if there is None:
            return None
        current, side = self._device.current(), self._device.side
        side.follow(current.record())   # the memory may be that of a vector which the current stream is still to use
        for i, part in enumerate(self._parts):
            slot, sent = self._slots[i % 2][: part.stop - part.start], self._sent[i % 2]
            if sent is not None:
                sent.wait()
            fill(slot, part)
            side.copy(there[part], slot)
            self._sent[i % 2] = side.record()
        current.follow(side.record())
        return there

    def copy(self, places: Sequence[Place], there: torch.Tensor) -> None:
        """Each tensor becomes its part of a vector that send() gave."""
        for own, part in places:
            self._device.current().copy(own, there[part].view(own.shape))

    def add(self, places: Sequence[Place], there: torch.Tensor) -> None:
        for own, part in places:
            self._device.current().add(own, there[part].view(own.shape))
