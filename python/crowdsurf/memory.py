"""The mapped file: single words, and regions of float32. With numpy when it is there, else slowly without."""

from __future__ import annotations

import importlib
import mmap
import struct
import threading
from typing import Any, Dict, Mapping, Optional, Tuple

from . import layout
from .bells import Bell
from .connection import AgentError

numpy: Any   # None where it is not installed
try:
    numpy = importlib.import_module("numpy")
except ImportError:
    numpy = None

Floats = Any   # a flat float32 numpy array; without numpy, a memoryview of format "f"
CHUNK = 1 << 18   # elements of a pass over several vectors that stay in the cache
_barrier = threading.Lock()


def fence() -> None:
    """Orders the stores before it before those after it: taking a lock is a barrier on every processor."""
    with _barrier:
        pass


class Memory:
    """Words are naturally aligned and written by one store, so the other side never sees half of one."""

    _FORMATS = {"u32": "I", "u64": "Q", "i64": "q", "f64": "d"}

    def __init__(self, path: str, answer: Mapping[str, Any]) -> None:
        try:
            with open(path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), answer["file_bytes"])
        except (OSError, ValueError) as error:
            raise AgentError(f"{path} cannot be mapped: {error}") from error
        view = memoryview(self._map)
        if bytes(view[:8]) != layout.MAGIC or int.from_bytes(view[8:12], "little") != layout.VERSION:
            raise AgentError(f"{path} is no trainer link of version {layout.VERSION}")
        self._words: Dict[str, Any] = {kind: view[: layout.CONTROL_BYTES].cast(code)
                                       for kind, code in self._FORMATS.items()}
        self.trainer_bell = Bell(self._map, layout.TRAINER_BELL)
        self.agent_bell = Bell(self._map, layout.AGENT_BELL)
        elements = answer["elements"]
        self.outbox = self._region(view, answer["outbox"], elements)
        sets = answer["index_sets"]
        self.index_sets = view[sets["offset"] : sets["offset"] + sets["bytes"]]
        self.inboxes = [self._region(view, at, elements) for at in answer["inbox"]]

    @staticmethod
    def _region(view: memoryview, offset: int, elements: int) -> Floats:
        floats = view[offset : offset + 4 * elements].cast("f")
        if len(floats) != elements:
            raise AgentError(f"a region of {elements} values at {offset} lies outside of the mapped file")
        return floats if numpy is None else numpy.frombuffer(floats, numpy.float32)

    def get(self, offset: int, kind: str = "u64") -> int:
        """The word, and a fence: what it announces is read after it."""
        value: int = self._words[kind][offset // struct.calcsize(self._FORMATS[kind])]
        fence()
        return value

    def get_float(self, offset: int) -> float:
        return float(self._words["f64"][offset // 8])

    def set(self, offset: int, value: float, kind: str = "u64") -> None:
        """A fence, and the word: what it announces is written before it."""
        fence()
        self._words[kind][offset // struct.calcsize(self._FORMATS[kind])] = value

    def take_index_sets(self) -> Optional[Dict[int, Tuple[int, ...]]]:
        """Indices by unit group; None when they were taken already. AgentError: they are garbled."""
        version = self.get(layout.INDEX_VERSION)
        if version == self.get(layout.INDEX_TAKEN):
            return None
        words, sets, at = self.index_sets.cast("I"), {}, 0
        while at + 2 <= len(words) and words[at + 1] > 0:  # no group is active without an index: the rest is not in use
            group, count = words[at], words[at + 1]
            if group in sets or at + 2 + count > len(words):
                raise AgentError("the index sets are garbled")
            sets[group] = tuple(words[at + 2 : at + 2 + count])
            at += 2 + count
        self.set(layout.INDEX_TAKEN, version)
        return sets
