"""The mapped file: single words, and regions of float32. With numpy when it is there, else slowly without."""

import mmap
import struct
import threading

from . import layout
from .connection import LinkError

try:
    import numpy
except ImportError:
    numpy = None

_barrier = threading.Lock()


def fence():
    """Orders the stores before it before those after it: taking a lock is a barrier on every processor."""
    with _barrier:
        pass


class Memory:
    """Words are naturally aligned and written by one store, so the other side never sees half of one."""

    _FORMATS = {"u32": "I", "u64": "Q", "i64": "q", "f64": "d"}

    def __init__(self, path, answer):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), answer["file_bytes"])
        view = memoryview(self._map)
        if bytes(view[:8]) != layout.MAGIC:
            raise LinkError(f"{path} is no trainer link of version 1")
        self._words = {kind: view[: layout.CONTROL_BYTES].cast(code) for kind, code in self._FORMATS.items()}
        elements = answer["elements"]
        self.outbox = self._region(view, answer["outbox"], elements)
        sets = answer["index_sets"]
        self.index_sets = view[sets["offset"] : sets["offset"] + sets["bytes"]]
        self.inboxes = [self._region(view, at, elements) for at in answer["inbox"]]

    @staticmethod
    def _region(view, offset, elements):
        floats = view[offset : offset + 4 * elements].cast("f")
        return numpy.frombuffer(floats, numpy.float32) if numpy else floats

    def get(self, offset, kind="u64"):
        value = self._words[kind][offset // struct.calcsize(self._FORMATS[kind])]
        fence()  # what the word announces is read after it
        return value

    def set(self, offset, value, kind="u64"):
        fence()  # what the word announces is written before it
        self._words[kind][offset // struct.calcsize(self._FORMATS[kind])] = value


def as_floats(params):
    """`params` as a writable flat view of float32 that shares its memory. TypeError when it cannot be one."""
    if numpy is not None and isinstance(params, numpy.ndarray):
        if params.dtype != numpy.float32 or not params.flags.c_contiguous or not params.flags.writeable:
            raise TypeError("params must be a writable, contiguous numpy array of float32")
        return params.reshape(-1)
    view = memoryview(params)
    if view.readonly or view.format != "f" or not view.contiguous:
        raise TypeError("params must be a writable, contiguous buffer of float32")
    view = view.cast("B").cast("f")
    return numpy.frombuffer(view, numpy.float32) if numpy else view


def add_change(params, inbox, outbox):
    """params += inbox - outbox, or params += inbox where outbox is None."""
    if numpy is not None:
        params += inbox if outbox is None else inbox - outbox
        return
    for i, value in enumerate(inbox):
        params[i] += value if outbox is None else value - outbox[i]
