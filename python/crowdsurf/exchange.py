"""The parts of a step boundary: apply, adopt, publish, in the order of docs/trainer-link.md, section 6."""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from typing import Callable, List, Optional, Union

from . import layout
from .connection import AgentError, Connection, Refusal
from .gradients import Gathered, Optimize
from .leases import Leases
from .memory import Memory
from .parameters import LargeState, Parameters, SlowParameters, State
from .tensor import Counted, Outcome

log = logging.getLogger("crowdsurf")


class Flight:
    """A snapshot that is on its way into the outbox: copies on a thread of its own, and then announces what was copied."""

    def __init__(self, copy: Callable[[], None], announce: Callable[[], None]) -> None:
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._fly, args=(copy, announce), name="crowdsurf-snapshot", daemon=True)
        self._thread.start()

    def _fly(self, copy: Callable[[], None], announce: Callable[[], None]) -> None:
        try:
            copy()
            announce()
        except BaseException as error:   # of the device: it is the script's, and land() tells it
            self._error = error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()

    def land(self) -> None:
        """Waits for its end. Raises what has gone wrong."""
        self.wait()
        if self._error is not None:
            raise self._error


class Upload:
    """A large trainer's state on its way to the agent, over a connection of its own: steps go on meanwhile."""

    AT_ONCE = 16 << 20   # bytes: a smaller state is sent within the step, some 10 ms

    def __init__(self, connection: Connection, target: str, pieces: List[Union[bytes, bytearray]]) -> None:
        """AgentError: the agent does not answer."""
        self.refusal: Optional[Refusal] = None
        self._connection, self._target, self._pieces = connection.again(), target, pieces
        self._thread = threading.Thread(target=self._send, name="crowdsurf-state", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        try:
            self._connection.call("PUT", self._target, self._pieces)
        except Refusal as refusal:
            self.refusal = refusal
        except AgentError:
            pass   # it has gone: the next one asks again
        finally:
            self._pieces = []
            self._connection.close()

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()


class Filling:
    """Tells the agent how far a snapshot is copied: so much goes out while the rest is copied."""

    STRIDE = 1 << 20   # values: 4 MiB, some 32 chunks. The agent is woken for each

    def __init__(self, memory: Memory, ticket: int) -> None:
        self._memory, self._told = memory, 0
        memory.set(layout.FILLING_ELEMENTS, 0)
        memory.set(layout.FILLING_TICKET, ticket)

    def up_to(self, elements: int) -> None:
        """So many values are there, from the first on. The last ones come with the ticket."""
        if elements - self._told < self.STRIDE or elements >= len(self._memory.outbox):
            return
        self._told = elements
        self._memory.set(layout.FILLING_ELEMENTS, elements)
        self._memory.trainer_bell.ring()


class Exchange:
    """The handshake over the words of the mapped file. It has no clock and keeps no connection."""

    def __init__(self, parameters: Parameters, state: Optional[State]) -> None:
        self._parameters, self._state = parameters, state
        self.leases: Optional[Leases] = None
        self.gathered: Optional[Gathered] = None   # where the job averages gradients
        self._voided = 0   # the ticket whose result belongs to parameters that an adoption replaced
        self._flight: Optional[Flight] = None   # of a snapshot that is not announced yet
        self._upload: Optional[Upload] = None   # of a large state
        self._too_large = 0                     # bytes of a state that the agent has refused; 0: none

    def settle(self) -> None:
        """Waits until no snapshot is on its way. Raises what has gone wrong there."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.land()

    def close(self) -> None:
        if self._flight is not None:
            self._flight.wait()
        if self._upload is not None:
            self._upload.wait()

    def _flies(self) -> bool:
        """The outbox is being written."""
        if self._flight is not None and not self._flight.is_over():
            return True
        self.settle()
        return False

    def _take_result(self, memory: Memory, outcome: Outcome, take: Callable[[int], None]) -> bool:
        """Calls `take` with the inbox of a result that has come, of the snapshot in the outbox alone. True: there was one."""
        if self._flies():
            return False
        ready = memory.get(layout.RESULT_READY)
        ticket = ready >> 1
        if ticket == 0 or ticket != memory.get(layout.PUBLISHED) or ticket == memory.get(layout.APPLIED):
            return False
        if ticket != self._voided:
            outcome.averaging = memory.get(layout.RESULT_AVERAGING)
            take(ready & 1)
            outcome.applied = True
        memory.set(layout.APPLIED, ticket)
        memory.trainer_bell.ring()
        return True

    def apply(self, memory: Memory, outcome: Outcome) -> bool:
        """Adds a result that has come. True where there was one."""
        def add(inbox: int) -> None:
            is_change = memory.get(layout.INBOX_IS_CHANGE, "u32")
            self._parameters.add(memory.inboxes[inbox], None if is_change else memory.outbox)

        return self._take_result(memory, outcome, add)

    def adopt(self, memory: Memory, connection: Connection, outcome: Outcome) -> bool:
        """Replaces the parameters where the agent asks for it. True where it did. AgentError: no connection."""
        request = memory.get(layout.ADOPT_REQUEST)
        if request >> 1 <= memory.get(layout.ADOPTED):
            return False
        self.settle()   # it is of parameters that are replaced here
        if self._state is not None and memory.get(layout.ADOPT_HAS_OPAQUE, "u32"):
            self._adopt_state(connection, self._state)
        self._parameters.write(memory.inboxes[request & 1])
        self._keep(memory, memory.get(layout.ADOPT_AVERAGING))
        self._acknowledge(memory, request, outcome)
        return True

    def decline(self, memory: Memory) -> None:
        """Keeps the trainer's own parameters where the agent asks to replace them."""
        request = memory.get(layout.ADOPT_REQUEST)
        if request >> 1 > memory.get(layout.ADOPTED):
            self.settle()
            self._acknowledge(memory, request, Outcome())

    def _keep(self, memory: Memory, averaging: int) -> None:
        """Where gradients are averaged, the parameters lie in inbox 0, as of that step."""
        if self.gathered is not None:
            self._parameters.read(memory.inboxes[0])
            self.gathered.take(memory, averaging)

    def optimize(self, memory: Memory, optimize: Optimize, outcome: Outcome) -> bool:
        """Takes the step of all workers where its gradient has come. True where there was one."""
        def take(inbox: int) -> None:
            optimize(memory.inboxes[inbox])
            self._keep(memory, outcome.averaging)

        return self._take_result(memory, outcome, take)

    def waits(self, memory: Memory) -> bool:
        """The snapshot in the outbox is in use."""
        return self._flies() or memory.get(layout.PUBLISHED) > max(memory.get(layout.RELEASED), memory.get(layout.APPLIED))

    def publish_gradient(self, memory: Memory, counted: Counted) -> bool:
        """Gives what is gathered where the agent asks for it. True where it did."""
        wanted = memory.get(layout.PUBLISH_WANTED)
        if self.gathered is None or self.gathered.samples == 0:
            return False
        if wanted <= memory.get(layout.PUBLISHED) or self.waits(memory):
            return False
        self.gathered.publish(memory)
        memory.set(layout.PUBLISHED_STEPS, counted.steps)
        memory.set(layout.PUBLISHED_SAMPLES, counted.samples)
        memory.set(layout.PUBLISHED, wanted)
        memory.trainer_bell.ring()
        return True

    def _acknowledge(self, memory: Memory, request: int, outcome: Outcome) -> None:
        outcome.adopted, outcome.averaging = True, memory.get(layout.ADOPT_AVERAGING)
        self._voided = memory.get(layout.PUBLISHED)
        if self.leases is not None:
            self.leases.drop(memory)
        memory.set(layout.ADOPTED, request >> 1)
        memory.trainer_bell.ring()

    def _adopt_state(self, connection: Connection, state: State) -> None:
        try:
            headers, data = connection.call("GET", "/v1/opaque")
            if hashlib.sha256(data).hexdigest() != headers.get("x-sha256"):
                raise ValueError("it does not match its hash")
            state.set(b"" if self.gathered is not None and data == b"\0" else data)
        except AgentError:
            if not connection.alive():
                raise   # the adoption is tried again at the next boundary, with the next connection
            log.warning("crowdsurf: the agent has no trainer state to adopt: the trainer keeps its own")
        except ValueError as error:
            log.warning("crowdsurf: the adopted trainer state is not used: %s", error)

    def publish(self, memory: Memory, wanted: int, counted: Counted, asked_only: bool = False) -> bool:
        """Takes the snapshot of ticket `wanted`, or the one that the cadence asks for. True where it did.

        One of slow parameters is announced later, by another thread.
        """
        if self.waits(memory):
            return False
        published, cadence = memory.get(layout.PUBLISHED), memory.get(layout.CADENCE_STEPS, "u32")
        due = wanted > published or (cadence and counted.steps % cadence == 0 and not asked_only)
        if not due:
            return False
        # What the snapshot is of comes before its first values.
        memory.set(layout.PUBLISHED_STEPS, counted.steps)
        memory.set(layout.PUBLISHED_SAMPLES, counted.samples)
        if self.leases is not None:
            self.leases.snapshot(memory)
        ticket, rest = max(wanted, published + 1), None
        if isinstance(self._parameters, SlowParameters):
            rest = self._parameters.begin_read(memory.outbox, Filling(memory, ticket).up_to)
        else:
            self._parameters.read(memory.outbox)
        if rest is None:
            _announce(memory, ticket)
        else:
            self._flight = Flight(rest, functools.partial(_announce, memory, ticket))
        return True

    def wait_for_result(self, memory: Memory, outcome: Outcome, wait: Callable[[int], bool]) -> None:
        """Blocking steps: until the result of the snapshot is in, or none will come.

        `wait` gets how often the agent's bell had been rung, and returns when it is rung again, or sooner; False: give up.
        """
        self.settle()
        ticket = memory.get(layout.PUBLISHED)
        while True:
            rung = memory.agent_bell.rung()   # before the words: a bell between the look and the wait ends the wait at once
            # Released first: a result is stored before anything else releases its snapshot.
            released = memory.get(layout.RELEASED) >= ticket
            if self.apply(memory, outcome) or released or memory.get(layout.STOP, "u32") or not wait(rung):
                return

    def give_state(self, memory: Memory, connection: Connection) -> None:
        """Sends the trainer's state where the agent asks for it. AgentError: it could not be sent."""
        self._end_upload()
        wanted = memory.get(layout.OPAQUE_WANTED)
        if wanted == memory.get(layout.OPAQUE_GIVEN) or self._upload is not None:
            return
        memory.set(layout.OPAQUE_GIVEN, wanted)   # once, also when it fails
        target = f"/v1/opaque?sequence={wanted}"
        if self.gathered is not None:   # it goes with the parameters, so there is one: an empty one is a byte
            target += f"&step={self.gathered.step}"
        elif self._state is None:
            return
        size = self._state.size() if isinstance(self._state, LargeState) else 0
        if self._too_large and size >= self._too_large:
            return
        try:
            if size > Upload.AT_ONCE and isinstance(self._state, LargeState):
                self._upload = Upload(connection, target, self._state.pieces())
            else:
                state = self._state.get() if self._state is not None else b""
                connection.call("PUT", target, state or (b"\0" if self.gathered is not None else b""))
        except Refusal as refusal:
            self._say_refused(refusal, size)

    def _end_upload(self) -> None:
        """Takes note of an upload that has ended."""
        if self._upload is None or not self._upload.is_over():
            return
        upload, self._upload = self._upload, None
        if upload.refusal is not None:
            self._say_refused(upload.refusal, self._state.size() if isinstance(self._state, LargeState) else 0)

    def _say_refused(self, refusal: Refusal, size: int) -> None:
        """The agent lives and does not take the state: joiners begin with the average alone."""
        if refusal.code in (413, 507):
            self._too_large = max(size, 1)
        log.warning("crowdsurf: the agent does not take this trainer's state%s: %s. Joiners get the average without it",
                    f" of {size / 2**20:.0f} MiB" if size else "", refusal)


def _announce(memory: Memory, ticket: int) -> None:
    """The snapshot of that ticket is in the outbox."""
    memory.set(layout.PUBLISHED, ticket)
    memory.trainer_bell.ring()
