"""The agent beside this process, as its trainer sees it: docs/trainer-link.md in pure Python."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import layout
from .connection import AgentError, Connection, Refusal
from .exchange import Exchange
from .gradients import Gathered, Optimize, checked
from .leases import Lease, Leases
from .memory import Memory
from .notices import NoticeWatch, ask
from .parameters import FlatParameters, Parameters, State, as_floats
from .platforms import client_only
from .progress import Progress
from .registration import LastingRefusal, Tensors, declared, register
from .stacks import Stacks
from .tensor import Notice, Outcome, Tensor

PATIENCE = 60.0   # seconds to wait for an agent that is not there yet, or has gone before the first step
_SILENCE = 5.0    # seconds: an agent without a sign of life for so long is looked for again
_RETRY = 0.1      # seconds between two tries to reach a lost agent
_LOOK = 0.001     # seconds between two looks at a result that a blocking step waits for, without bells
_SLICE = 0.1      # seconds of a wait for the agent's bell: one that dies does not ring


class Agent:
    """Registers tensors with the agent; then start(), and one step() after every optimizer step.

    All workers of a job must register equal tensors. One thread calls start() and step(); the other methods may be
    called by any. A child that this process forks cannot use it.
    """

    def __init__(self, tensors: Tensors, directory: Optional[str] = None, metrics: Sequence[str] = (),
                 state: Optional[State] = None, gradients: bool = False) -> None:
        """Waits for the agent, and registers. AgentError: there is none, it refused, or it is of another version; or this
        system can have none.

        tensors: or a function that gets the names of the roles that the job averages, and returns them.
        directory: CROWDSURF_DIR where it is None. metrics: at most 16 names for set_metric(). gradients: the trainer
        can call gradient() in place of step(), and does where averages_gradients says so.
        """
        self._directory: str = directory or os.environ.get("CROWDSURF_DIR") or ""
        if not self._directory:
            raise AgentError("not a worker of a Crowdsurf job: CROWDSURF_DIR is not set")
        if client_only():
            raise AgentError(f"{client_only()}: unset CROWDSURF_DIR to train alone")
        self._metrics, self._state = list(metrics), state
        self._gradients = gradients
        self._exchange: Optional[Exchange] = None
        self._leases: Optional[Leases] = None
        self._notices: Optional[NoticeWatch] = None
        self._training = self._lost = False
        self._progress = Progress()
        self._order = 0   # of note_order(); 0: not known
        self._retry_at, self._refusals = 0.0, LastingRefusal()
        self._inode = -1
        self._stacks = Stacks()
        self._process = os.getpid()
        self._connection = Connection.wait_for(self._directory, PATIENCE)
        try:
            self._declared = declared(tensors, self._connection)
            self._register()
        except BaseException:
            self._connection.close()
            raise

    # --- registration ------------------------------------------------------------------------------

    def _register(self) -> None:
        if self._exchange is not None:
            self._exchange.settle()   # what the last agent asked for
        answer = register(self._connection, self._declared, self._metrics, fresh=not self._training, gradients=self._gradients)
        try:
            self._take(answer)
        except (KeyError, TypeError, IndexError, OSError) as error:
            raise Refusal(f"the agent's answer to the registration cannot be used: {error!r}") from error
        if self._leases is not None:
            self._leases.declare(self._memory, self._connection)

    def _take(self, answer: Dict[str, Any]) -> None:
        path = os.path.join(self._directory, "tensors")
        inode = os.stat(path).st_ino
        if inode != self._inode:
            self._memory, self._inode = Memory(path, answer), inode
            self._progress.write(self._memory)   # of a living trainer, beside which the file is new
            self._memory.set(layout.ORDER, self._order)
        self.seed: int = answer["seed"]   # the same at every worker of the job
        self.job: str = answer["job"]
        self.worker: str = answer["worker"]
        self.averages_gradients = bool(answer.get("gradients", False))   # this job
        self.elements: int = answer["elements"]   # length of the averaged vector
        self.tensors: List[Tensor] = [dataclasses.replace(t, offset=placed["offset"])
                                      for t, placed in zip(self._declared, answer["tensors"])]
        self._epoch = self._memory.get(layout.AGENT_EPOCH)
        self._beat, self._beat_at = -1, time.monotonic()
        self._lost = False
        self._stacks.open(self._directory, float(answer.get("hang_after", 0)))

    def _watch(self) -> bool:
        """True while the agent is the one we registered with; else looks for it, at most every 100 ms."""
        now, beat = time.monotonic(), self._memory.get(layout.AGENT_BEAT)
        if beat != self._beat:
            self._beat, self._beat_at = beat, now
            # Our sign of life may have ended though the agent lives: one look a beat.
            self._lost = self._lost or not self._connection.alive()
        same = self._memory.get(layout.AGENT_EPOCH) == self._epoch
        if same and not self._lost and (now - self._beat_at < _SILENCE or self._connection.alive()):
            return True
        self._lost = True
        if now < self._retry_at:
            return False
        self._retry_at = now + _RETRY
        try:
            connected = Connection(self._directory)
            self._connection.close()
            self._connection = connected
            self._register()
            self._refusals.end()
        except Refusal as refusal:
            self._refusals.note(str(refusal), now, _SILENCE)
        except AgentError:
            pass
        return False

    # --- training ----------------------------------------------------------------------------------

    def start(self, params: Any, *, init: str = "job") -> Outcome:
        """Before the first step: waits while the agent fetches the job's state, and puts it into `params`.

        The first worker of a job keeps its own, and gives them to the others.

        params: a writable flat float32 buffer with the averaged tensors one after the other, which must stay where it
        is, or an object with the methods of Parameters. init: "local" keeps its values and the trainer's state.
        AgentError: the agent has gone.
        """
        if init not in ("job", "local"):
            raise ValueError(f'init is "job" or "local", not {init!r}')
        parameters: Parameters = params if hasattr(params, "read") else FlatParameters(params, self.elements)
        exchange, outcome = Exchange(parameters, self._state), Outcome()
        if self.averages_gradients:
            if init == "local":
                raise ValueError('init="local": this job averages gradients, so all workers have equal parameters')
            exchange.gathered = Gathered()
        seen = time.monotonic()
        while not (self._watch() and self._begin(exchange, outcome, init)):
            if not self._lost:
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE:
                raise AgentError(f"the agent at {self._directory} has gone")
            time.sleep(0.01)
        self._exchange, self._training = exchange, True
        self._stacks.step()
        return self._finish(outcome)

    def _begin(self, exchange: Exchange, outcome: Outcome, init: str) -> bool:
        """True once the trainer may start."""
        memory = self._memory
        wanted = memory.get(layout.PUBLISH_WANTED)   # before hold: what is asked of a trainer that steps is no first snapshot
        held = memory.get(layout.HOLD, "u32") and not memory.get(layout.STOP, "u32")
        try:
            if held:   # the others may be waiting for the first parameters
                exchange.publish(memory, wanted, self._progress.counted, asked_only=True)
                exchange.settle()
                return False
            exchange.give_state(memory, self._connection)
        except AgentError:
            self._lost = not self._connection.alive()
        if init == "local":
            exchange.decline(self._memory)
            return True
        try:
            exchange.adopt(self._memory, self._connection, outcome)
        except AgentError:
            self._lost = True
        return not self._lost

    def step(self, samples: int, loss: Optional[float] = None) -> Outcome:
        """After an optimizer step: counts, then publishes, applies or adopts what the agent asks for.

        samples: trained since the last call. An outcome with `stop` ends the job: its end is acknowledged here.
        """
        exchange = self._begin_step("step()", samples, loss)
        if exchange.gathered is not None:
            raise AgentError("this job averages gradients (spec.averaging.what): gradient() takes the place of step()")
        if self._leases is not None:
            self._leases.step(self._memory)
        return self._boundary(exchange)

    def gradient(self, samples: int, gradient: Any, optimize: Optimize, loss: Optional[float] = None) -> Outcome:
        """After a batch of a job that averages gradients, in place of the optimizer's step and of step().

        gradient: its mean over `samples`, a flat buffer of float32 in the order of the parameters. It is gathered. With
        this worker's share gathered the call waits for the others, and calls `optimize` with the gradient of the large
        batch, once: the outcome then has `applied`. One that is not finite is left out.
        """
        exchange = self._begin_step("gradient()", samples, loss)
        if exchange.gathered is None:
            raise AgentError("this job averages parameters: step() takes the place of gradient()")
        floats = checked(as_floats(gradient), self.elements)
        outcome, began = Outcome(), time.monotonic()
        self._watch()
        try:
            if not exchange.adopt(self._memory, self._connection, outcome):   # else it is of parameters that are no more
                exchange.gathered.add(self._memory, samples, floats)
            self._meet(exchange, exchange.gathered, optimize, outcome)
        except AgentError:
            self._lost = not self._connection.alive()
        if outcome.published or outcome.adopted:
            self._add_stall(began)
        return self._finish(outcome)

    def _meet(self, exchange: Exchange, gathered: Gathered, optimize: Optimize, outcome: Outcome) -> None:
        """Until the step is taken, or there is nothing to wait for: the share is not there."""
        while not (outcome.applied or outcome.adopted):
            memory = self._memory
            rung = memory.agent_bell.rung()   # before the words, as in Exchange.wait_for_result
            exchange.adopt(memory, self._connection, outcome)
            exchange.give_state(memory, self._connection)
            if outcome.adopted or exchange.optimize(memory, optimize, outcome):
                continue
            if exchange.publish_gradient(memory, self._progress.counted):
                outcome.published = True
                continue
            waits = gathered.has_share(memory) or exchange.waits(memory)
            if not waits or memory.get(layout.STOP, "u32") or not self._wait(rung):
                return

    def _begin_step(self, call: str, samples: int, loss: Optional[float]) -> Exchange:
        if self._exchange is None:
            raise AgentError(f"{call} comes after start()")
        self._refuse_forks()
        self._stacks.step()
        self._progress.step(self._memory, samples, loss)
        return self._exchange

    def _refuse_forks(self) -> None:
        if os.getpid() != self._process:
            raise AgentError("this process is a fork of the one that registered: only that one may train")

    def _boundary(self, exchange: Exchange) -> Outcome:
        """All that a step boundary is for, but to count."""
        outcome, began = Outcome(), time.monotonic()
        self._watch()
        memory = self._memory
        # Wanted before result: a result must be in before the next snapshot overwrites its outbox.
        wanted = memory.get(layout.PUBLISH_WANTED)
        touched = exchange.apply(memory, outcome)
        try:
            touched = exchange.adopt(memory, self._connection, outcome) or touched
            if exchange.publish(memory, wanted, self._progress.counted):
                outcome.published = touched = True
                if memory.get(layout.OVERLAP, "u32") == 1:
                    exchange.wait_for_result(memory, outcome, self._wait)
            exchange.give_state(memory, self._connection)
        except AgentError:
            self._lost = not self._connection.alive()   # what is left is done at the next boundary
        if touched:
            self._add_stall(began)
        return self._finish(outcome)

    def _add_stall(self, began: float) -> None:
        stall = int((time.monotonic() - began) * 1e9)
        self._memory.set(layout.STALL_NS, self._memory.get(layout.STALL_NS) + stall)

    def _wait(self, rung: int) -> bool:
        """A blocking step's pause. False: the agent is lost or silent, and nothing will come."""
        if not self._watch() or time.monotonic() - self._beat_at >= _SILENCE:
            return False
        self._memory.agent_bell.wait(rung, _LOOK, _SLICE)
        return True

    def _finish(self, outcome: Outcome) -> Outcome:
        memory = self._memory
        outcome.stop = bool(memory.get(layout.STOP, "u32"))
        if outcome.stop:
            memory.set(layout.STOP_ACKNOWLEDGED, 1, "u32")
            memory.trainer_bell.ring()
        outcome.leaving = bool(memory.get(layout.NOTICE, "u32"))
        outcome.agent_lost = self._lost
        outcome.lr_scale = memory.get_float(layout.LR_SCALE)
        outcome.job_samples = memory.get_float(layout.JOB_SAMPLES)
        return outcome

    # --- leases ------------------------------------------------------------------------------------

    def draw(self, samples: int, unit: int) -> Leases:
        """The trainer draws its samples from a data set of that length, by the leases that the job grants it.

        unit: samples of a batch. A second call gives again what no step has counted. ValueError: it draws from another
        one already. AgentError: the agent deals none.
        """
        if self._exchange is None:
            raise AgentError("draw() comes after start()")
        self._refuse_forks()
        if self._leases is None:
            leases = Leases(samples, unit)
            leases.declare(self._memory, self._connection)
            self._leases = self._exchange.leases = leases
        else:
            self._leases.refuse_other(samples, unit)
        self._leases.put_back()
        return self._leases

    def look(self) -> bool:
        """Reads what was granted since. True where the lease in hand is void. ValueError: the job's data set is another."""
        if self._leases is None:
            return False
        self._refuse_forks()
        try:
            return self._leases.look(self._memory, self._connection)
        except AgentError:
            self._lost = not self._connection.alive()
            return False

    def next_lease(self) -> Optional[Lease]:
        """None: the trainer is to wait; pause() says so."""
        lease = self._leases.take() if self._leases is not None else None
        if lease is not None:
            self.stop_waiting()
        return lease

    def stop_waiting(self) -> None:
        if self._leases is not None:
            self._leases.wait(self._memory, False)

    def pause(self) -> Outcome:
        """A step boundary of a trainer that waits for leases: does what the agent asks for, and sleeps a little."""
        if self._exchange is None or self._leases is None:
            raise AgentError("pause() comes after draw()")
        self._stacks.step()
        rung = self._memory.agent_bell.rung()
        outcome = self._boundary(self._exchange)
        if not outcome.stop:   # its acknowledgement is the last that the agent hears
            self._leases.wait(self._memory, True)
        if not (outcome.stop or outcome.applied or outcome.adopted or self._leases.changed(self._memory)):
            self._memory.agent_bell.wait(rung, 0.01, _SLICE)
        return outcome

    # --- beside the steps ----------------------------------------------------------------------------

    def busy(self, seconds: float) -> None:
        """Before a pause of up to so many seconds without a step: an evaluation, a compilation, a slow checkpoint.

        The agent does not end this trainer as one that hangs before they are over. The next step ends that. 0: not busy
        any more. ValueError: less than 0, or more than a week. AgentError: the agent is gone, or of an older version.
        """
        if not 0 <= seconds <= 604_800:
            raise ValueError(f"seconds must be 0 to 604800, a week, and not {seconds!r}")
        self._connection.call("POST", "/v1/busy", json.dumps({"seconds": seconds}).encode())
        self._stacks.busy(seconds)

    def set_metric(self, name: str, value: float) -> None:
        """Reports a number under one of the names given as `metrics`. ValueError: it is none of them."""
        if name not in self._metrics:
            raise ValueError(f"{name!r} is none of the metrics that were registered: {self._metrics}")
        self._progress.set_metric(self._memory, self._metrics.index(name), value)

    def note_order(self, order: int) -> None:
        """Says a hash of the first batches, 1 to 2^64 - 1. Workers with equal ones are named in the job's status and report."""
        self._order = order
        self._memory.set(layout.ORDER, order)

    def index_sets(self) -> Optional[Dict[int, Tuple[int, ...]]]:
        """The active indices of every unit group, or None when they have not changed.

        For sub-network strategies: train these rows and columns alone from here on. Taking them lets the agent write
        others.
        """
        return self._memory.take_index_sets()

    def totals(self) -> Dict[str, float]:
        """What the agent last said of the job: samples, averagings, members of the view."""
        memory = self._memory
        return {"samples": memory.get_float(layout.JOB_SAMPLES), "averagings": memory.get(layout.JOB_AVERAGING),
                "members": memory.get(layout.JOB_MEMBERS), "stall_seconds": memory.get(layout.STALL_NS) * 1e-9}

    def state(self) -> Dict[str, Any]:
        """Counters, flags, schema and tensors as the agent has them (GET /v1/state)."""
        return self._connection.call_json("GET", "/v1/state")

    def notice(self) -> Optional[Notice]:
        """The platform's notice that it takes this worker; None while there is none."""
        if not self._memory.get(layout.NOTICE, "u32"):
            return None
        return ask(self._directory)

    def on_notice(self, callback: Callable[[Notice], None]) -> None:
        """Calls `callback` once, on a thread of its own, soon after a notice comes (50 ms): not at the next step."""
        self._notices = NoticeWatch(self.notice, callback)

    def checkpoint(self) -> None:
        """Asks for a checkpoint. The agent writes it from its own copy, whatever the trainer does meanwhile."""
        self._connection.call("POST", "/v1/checkpoint")

    def leave(self, reason: str = "") -> None:
        """Asks the agent to leave the job; returns when it has. Other calls may go on meanwhile."""
        asked = Connection(self._directory)
        try:
            asked.call("POST", "/v1/leave", json.dumps({"reason": reason}).encode())
        finally:
            asked.close()

    def close(self) -> None:
        """Ends the connection: the agent gives the worker's seat back at once, and peers do not wait for it."""
        if self._notices is not None:
            self._notices.stop()
        if self._exchange is not None:
            self._exchange.close()
        self._stacks.close()
        self._connection.close()
