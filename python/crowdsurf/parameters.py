"""Where the parameters lie: the port through which the agent's averages reach them."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Protocol, Union, runtime_checkable

from .memory import CHUNK, Floats, numpy


class Parameters(Protocol):
    """A trainer's parameters, for libraries whose tensors are no flat buffer: PyTorch's module, JAX's tree.

    Each method gets flat float32 regions with the averaged tensors one after the other, at Tensor.offset. They are
    called within Agent.start() and Agent.step() alone, and must not keep the regions. SlowParameters may.
    """

    def read(self, outbox: Floats) -> None:
        """Copies the parameters into `outbox`."""

    def add(self, inbox: Floats, outbox: Optional[Floats]) -> None:
        """parameters += inbox - outbox, or parameters += inbox where outbox is None."""

    def write(self, inbox: Floats) -> None:
        """parameters = inbox"""


Filled = Callable[[int], None]   # gets how many values are there, from the first on; cheap, from any thread


@runtime_checkable
class SlowParameters(Parameters, Protocol):
    """Parameters whose way into the outbox takes a while. What is there goes out while the rest is copied."""

    def begin_read(self, outbox: Floats, filled: Filled) -> Optional[Callable[[], None]]:
        """Begins to copy the parameters as they are now into `outbox`. None: that is done.

        Else a call copies the rest, from any thread and at any time, and returns when it is there. Until then no other
        method is called. The trainer may change the parameters meanwhile. `filled` is called any number of times, with
        ever more values, which stay as they are.
        """


class State(Protocol):
    """What travels to a joiner beside the parameters, such as the optimizer's moments."""

    def get(self) -> bytes:
        """The state. It is asked for at a step boundary, when a joiner or a checkpoint needs it."""

    def set(self, data: bytes) -> None:
        """Loads what a donor's get() gave. ValueError: it does not fit; the trainer then goes on with its own."""


@runtime_checkable
class LargeState(State, Protocol):
    """A state that may take long to send: it is copied at a step boundary, and sent by another thread."""

    def size(self) -> int:
        """Bytes that get() would have. Copies nothing."""

    def pieces(self) -> List[Union[bytes, bytearray]]:
        """What get() gives, in pieces, as a copy."""


class FlatParameters:
    """Parameters in one writable flat buffer of float32: a numpy array, an array.array, a memoryview."""

    def __init__(self, buffer: Any, elements: int) -> None:
        self._floats = as_floats(buffer)
        if len(self._floats) != elements:
            raise ValueError(f"params has {len(self._floats)} values, the job averages {elements}")

    def read(self, outbox: Floats) -> None:
        outbox[:] = self._floats

    def begin_read(self, outbox: Floats, filled: Filled) -> Optional[Callable[[], None]]:
        for first in range(0, len(self._floats), CHUNK):
            part = slice(first, first + CHUNK)
            outbox[part] = self._floats[part]
            filled(min(part.stop, len(self._floats)))
        return None

    def add(self, inbox: Floats, outbox: Optional[Floats]) -> None:
        floats = self._floats
        if numpy is not None:
            for first in range(0, len(floats), CHUNK):   # four times as fast as whole: a chunk stays in the cache
                part = slice(first, first + CHUNK)
                floats[part] += inbox[part] if outbox is None else inbox[part] - outbox[part]
            return
        for i, value in enumerate(inbox):
            floats[i] += value if outbox is None else value - outbox[i]

    def write(self, inbox: Floats) -> None:
        self._floats[:] = inbox


def as_floats(params: Any) -> Floats:
    """`params` as a writable flat view of float32 that shares its memory. TypeError when it cannot be one."""
    if numpy is not None and isinstance(params, numpy.ndarray):
        if params.dtype != numpy.float32 or not params.flags.c_contiguous or not params.flags.writeable:
            raise TypeError("params must be a writable, contiguous numpy array of float32")
        return params.reshape(-1)
    view = memoryview(params)
    if view.readonly or view.format != "f" or not view.contiguous:
        raise TypeError("params must be a writable, contiguous buffer of float32")
    view = view.cast("B").cast("f")
    return view if numpy is None else numpy.frombuffer(view, numpy.float32)
