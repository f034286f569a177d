"""The leases of a trainer: which samples it may train, and how far it is. docs/trainer-link.md, section 10."""

from __future__ import annotations

from collections import deque
from typing import Deque, NamedTuple, Optional

from . import layout
from .connection import AgentError, Connection, Refusal
from .memory import Memory


class Lease(NamedTuple):
    """Positions [begin, begin + samples) of an epoch's order."""

    epoch: int
    begin: int
    samples: int


class Leases:
    """What the agent grants, and the words that say what became of it. Used at step boundaries alone."""

    def __init__(self, samples: int, unit: int) -> None:
        self.data = samples, unit
        self._version = -1                  # of what was read last; -1: nothing
        self._stream = self._left = 0       # 0: none; the one that an adoption has ended
        self._queue: Deque[Lease] = deque()
        self._end = 0                       # position in the stream after the leases that were taken
        self._trained = 0                   # position: in the parameters
        self._handed = 0                    # samples that the script has and that no step has counted
        self._void = False                  # the lease in hand was taken back, or an adoption has ended its stream
        self.closed = False                 # this worker leaves: nothing more is to be trained

    def refuse_other(self, samples: int, unit: int) -> None:
        """ValueError: these are of another data set."""
        if self.data != (samples, unit):
            had, batch = self.data
            raise ValueError(f"a job deals one data set: this worker draws from one of {had} samples in batches of {batch} "
                             f"already, not {samples} in batches of {unit}; for another, as in an evaluation, loop over its loader")

    def declare(self, memory: Memory, connection: Connection) -> None:
        """After each registration. AgentError: it cannot be said."""
        self._version = -1
        try:
            connection.call_json("POST", "/v1/data", {"samples": self.data[0], "unit": self.data[1]})
        except Refusal as refusal:
            if refusal.code == 404:
                raise Refusal("the agent deals no leases: install the crowdsurf of its release") from refusal
            raise
        self.write(memory)

    def look(self, memory: Memory, connection: Connection) -> bool:
        """Takes what is new. True where the lease in hand is void. ValueError: the job's data set is another."""
        if self.changed(memory):
            self._read(memory, connection)
        return self._void

    def _read(self, memory: Memory, connection: Connection) -> None:
        version = memory.get(layout.LEASES_VERSION)
        answer = connection.call_json("GET", "/v1/leases")
        self._version = version   # read before the answer: what changed since is looked at again
        other = answer.get("other")
        if other:
            raise ValueError(f"the job's leases are of a data set of {other['samples']} samples in batches of {other['unit']}; "
                             f"this worker has {self.data[0]} in batches of {self.data[1]}: it must be the same at all workers, "
                             "and as in the checkpoint that the job resumes from")
        stream = 0 if answer["stream"] == self._left else answer["stream"]
        self.closed = answer["closed"]
        self._void = self._void or stream != self._stream or self.closed
        leases = deque(Lease(*lease) for lease in answer["leases"] if stream)
        if stream != self._stream:
            self._stream, self._trained, self._end, self._handed = stream, answer["begin"], answer["begin"], 0
        self._queue = _after(leases, self._end - answer["begin"])
        if self.closed:
            self._queue.clear()
        self.write(memory)

    def take(self) -> Optional[Lease]:
        """The next lease, to be trained from its first sample to its last."""
        if not self._queue:
            return None
        lease = self._queue.popleft()
        self._end += lease.samples
        self._void = False
        return lease

    def put_back(self) -> None:
        """No lease is in hand: all that no step has counted is to be taken again, after the next look()."""
        self._handed, self._end, self._version, self._void = 0, self._trained, -1, False
        self._queue.clear()

    def drop(self, memory: Memory) -> None:
        """An adoption has replaced all that was trained: the stream is over."""
        self._left = self._stream or self._left
        self._stream, self._trained, self._end, self._handed = 0, 0, 0, 0
        self._void = True
        self._queue.clear()
        self.write(memory)

    def hand(self, samples: int) -> None:
        """The script gets so many samples of the lease in hand."""
        self._handed += samples

    def step(self, memory: Memory) -> None:
        """They are trained."""
        self._trained += self._handed
        self._handed = 0
        self.write(memory)

    def changed(self, memory: Memory) -> bool:
        return memory.get(layout.LEASES_VERSION) != self._version

    def wait(self, memory: Memory, waits: bool) -> None:
        """Says whether the trainer waits for other leases than those that it has read."""
        seen = max(self._version, 0)
        if (memory.get(layout.LEASES_WAITS), memory.get(layout.LEASES_SEEN)) == (int(waits), seen):
            return
        memory.set(layout.LEASES_SEEN, seen)
        memory.set(layout.LEASES_WAITS, int(waits))
        if waits:
            memory.trainer_bell.ring()

    def write(self, memory: Memory) -> None:
        """At a step boundary, before a snapshot: how far the parameters are."""
        if memory.get(layout.LEASES_STREAM) != self._stream:
            memory.set(layout.LEASES_STREAM, 0)
        memory.set(layout.LEASES_POSITION, self._trained)
        memory.set(layout.LEASES_STREAM, self._stream)

    def snapshot(self, memory: Memory) -> None:
        """The snapshot that is about to be published has this in it."""
        memory.set(layout.PUBLISHED_STREAM, self._stream)
        memory.set(layout.PUBLISHED_POSITION, self._trained)


def _after(leases: Deque[Lease], skip: int) -> Deque[Lease]:
    """Without the first `skip` samples, which are trained or in hand."""
    while leases and skip > 0:
        first = leases.popleft()
        known = min(skip, first.samples)
        skip -= known
        if known < first.samples:
            leases.appendleft(Lease(first.epoch, first.begin + known, first.samples - known))
    return leases
