"""The trainer's side of the trainer link (docs/trainer-link.md), in pure Python."""

import dataclasses
import hashlib
import json
import math
import os
import time

from . import layout
from .connection import Agent, LinkError
from .memory import Memory, add_change, as_floats

_PATIENCE = 5.0   # seconds: an agent without a sign of life for so long is looked for again
_SLICE = 0.1      # seconds between two tries
_LOOK = 0.001     # seconds between two looks at a result that a blocking step waits for


@dataclasses.dataclass(frozen=True)
class UnitAxis:
    """An axis that runs over a group of hidden units, for sub-network strategies.

    Unit u has, in each of the blocks, the `size` positions from (block * units + u) * size on: `size` for the rows of
    a head, `blocks` for the gates of a recurrent layer.
    """

    axis: int
    group: int
    size: int = 1
    blocks: int = 1


@dataclasses.dataclass
class Tensor:
    """A tensor as the trainer declares it: float32, row-major."""

    name: str
    shape: tuple
    role: str = "Parameter"   # Parameter, OptimizerState, Buffer, Gradient
    group_out: int = -1       # short for UnitAxis(0, group_out)
    group_in: int = -1        # short for UnitAxis(last axis, group_in)
    units: tuple = ()         # UnitAxis of every other axis with a unit group
    offset: int = None        # bytes from the start of the averaged vector; None: not averaged in this job

    @property
    def elements(self):
        return math.prod(self.shape)

    def unit_axes(self):
        """Every axis with a unit group, the short ones written out."""
        short = [(0, self.group_out), (len(self.shape) - 1, self.group_in)]
        return [UnitAxis(axis, group) for axis, group in short if group >= 0] + list(self.units)


@dataclasses.dataclass
class Outcome:
    """What a step boundary brought."""

    published: bool = False    # a snapshot was taken
    applied: bool = False      # a result was added to the parameters
    adopted: bool = False      # the parameters were replaced, and the opaque state loaded
    stop: bool = False         # target met: leave the loop, acknowledge_stop(), exit 0
    leaving: bool = False      # this worker is about to be taken
    agent_lost: bool = False   # no agent for now: training goes on alone
    lr_scale: float = 1.0      # multiply the learning rate by this
    averaging: int = 0         # number of the result applied or adopted
    job_samples: float = 0.0   # job-wide sample count


class Link:
    """Registers tensors with the agent; then one call to step() after every optimizer step. One thread.

    opaque_get() -> bytes and opaque_set(bytes): state that travels to a joiner beside the parameters.
    """

    def __init__(self, tensors, directory=None, metrics=(), opaque_get=None, opaque_set=None, patience=60.0):
        self._directory = directory or os.environ.get("CROWDSURF_DIR")
        if not self._directory:
            raise LinkError("not a worker of a Crowdsurf job: CROWDSURF_DIR is not set")
        self._declared = list(tensors)
        self._metrics = list(metrics)
        self._opaque_get, self._opaque_set = opaque_get, opaque_set
        self._training = self._lost = False
        self._steps = self._samples = self._voided = self._sequence = 0
        self._retry_at = 0.0
        self._inode = None
        self._agent = Agent.wait_for(self._directory, patience)
        self._register()

    # --- registration ------------------------------------------------------------------------------

    def _register(self):
        body = {"tensors": [{"name": t.name, "shape": list(t.shape), "role": t.role,
                             "units": [dataclasses.asdict(cut) for cut in t.unit_axes()]} for t in self._declared],
                "metrics": self._metrics, "fresh": not self._training}
        answer = self._agent.call_json("POST", "/v1/register", body)
        path = os.path.join(self._directory, "tensors")
        inode = os.stat(path).st_ino
        if inode != self._inode:
            self._memory, self._inode = Memory(path, answer), inode
            # A new file beside a living trainer: it has counted before.
            self._memory.set(layout.STEPS, self._steps)
            self._memory.set(layout.SAMPLES, self._samples)
        self.seed, self.job, self.worker = answer["seed"], answer["job"], answer["worker"]
        self.elements = answer["elements"]   # length of the averaged vector
        self.tensors = [dataclasses.replace(t, offset=placed["offset"])
                        for t, placed in zip(self._declared, answer["tensors"])]
        self._epoch = self._memory.get(layout.AGENT_EPOCH)
        self._beat, self._beat_at = None, time.monotonic()
        self._lost = False

    def _watch(self):
        """True while the agent is the one we registered with; else looks for it, at most every 100 ms."""
        now, beat = time.monotonic(), self._memory.get(layout.AGENT_BEAT)
        if beat != self._beat:
            self._beat, self._beat_at = beat, now
            # Our sign of life may have ended though the agent lives: one look a beat.
            self._lost = self._lost or not self._agent.alive()
        same = self._memory.get(layout.AGENT_EPOCH) == self._epoch
        if same and not self._lost and (now - self._beat_at < _PATIENCE or self._agent.alive()):
            return True
        self._lost = True
        if now < self._retry_at:
            return False
        self._retry_at = now + _SLICE
        try:
            connected = Agent(self._directory)
            self._agent.close()
            self._agent = connected
            self._register()
        except (LinkError, OSError):
            pass
        return False

    # --- training ----------------------------------------------------------------------------------

    def start(self, params, patience=60.0):
        """Before the first step: waits while the agent fetches the job's state, and adopts it."""
        params, outcome = self._check(params), Outcome()
        alive = time.monotonic()
        while self._memory.get(layout.HOLD, "u32") and not self._memory.get(layout.STOP, "u32"):
            if self._watch():
                alive = time.monotonic()
            elif time.monotonic() - alive > patience:
                raise LinkError(f"the agent at {self._directory} has gone")
            time.sleep(0.01)
        self._adopt(params, outcome, with_opaque=True)
        self._training = True
        return self._finish(outcome, None)

    def step(self, samples, loss, params):
        """After an optimizer step: counts, then publishes, applies or adopts what the agent asks for."""
        params, outcome, began = self._check(params), Outcome(), time.monotonic()
        self._count(samples, loss)
        self._watch()
        memory = self._memory
        # Wanted before result: a result must be in before the next snapshot overwrites its outbox.
        wanted = memory.get(layout.PUBLISH_WANTED)
        touched = self._apply(params, outcome)
        if memory.get(layout.ADOPT_REQUEST) >> 1 > memory.get(layout.ADOPTED):
            touched = True
            try:
                self._adopt(params, outcome, with_opaque=True)
            except OSError:
                self._lost = True    # tried again at the next boundary
            except (LinkError, ValueError):
                self._adopt(params, outcome, with_opaque=False)
        published, cadence = memory.get(layout.PUBLISHED), memory.get(layout.CADENCE_STEPS, "u32")
        due = wanted > published or (cadence and self._steps % cadence == 0)
        if due and published <= max(memory.get(layout.RELEASED), memory.get(layout.APPLIED)):
            self._publish(max(wanted, published + 1), params)
            outcome.published = touched = True
            if memory.get(layout.OVERLAP, "u32") == 1:
                self._wait_for_result(params, outcome)
        self._give_opaque()
        return self._finish(outcome, began if touched else None)

    def set_metric(self, name, value):
        """Reports a number under one of the names given as `metrics`."""
        self._memory.set(layout.METRICS + 8 * self._metrics.index(name), float(value), "f64")
        self._note_progress()

    def index_sets(self):
        """The active indices of every unit group, {group: (index, ...)}, or None when they have not changed.

        For sub-network strategies: train these rows and columns alone from here on. Taking them lets the agent write others.
        """
        version = self._memory.get(layout.INDEX_VERSION)
        if version == self._memory.get(layout.INDEX_TAKEN):
            return None
        words, sets, at = self._memory.index_sets.cast("I"), {}, 0
        while at + 2 <= len(words) and words[at + 1] > 0:  # no group is active without an index: the rest is not in use
            group, count = words[at], words[at + 1]
            if group in sets or at + 2 + count > len(words):
                raise LinkError("the index sets are garbled")
            sets[group] = tuple(words[at + 2 : at + 2 + count])
            at += 2 + count
        self._memory.set(layout.INDEX_TAKEN, version)
        return sets

    def acknowledge_stop(self):
        self._memory.set(layout.STOP_ACKNOWLEDGED, 1, "u32")

    def leave(self, reason=""):
        """Asks the agent to leave the job; returns when it has."""
        self._agent.call("POST", "/v1/leave", json.dumps({"reason": reason}).encode())

    def close(self):
        self._agent.close()

    # --- the parts of a step -------------------------------------------------------------------------

    def _check(self, params):
        params = as_floats(params)
        if len(params) != self.elements:
            raise ValueError(f"params has {len(params)} values, the job averages {self.elements}")
        return params

    def _note_progress(self):
        self._sequence += 1
        self._memory.set(layout.PROGRESS_SEQUENCE, self._sequence)

    def _count(self, samples, loss):
        self._training = True
        self._steps += 1
        self._samples += samples
        self._memory.set(layout.SAMPLES, self._samples)
        self._memory.set(layout.STEPS, self._steps)
        if loss is not None and math.isfinite(loss):
            self._memory.set(layout.LOSS, float(loss), "f64")
            self._note_progress()

    def _apply(self, params, outcome):
        memory = self._memory
        ready = memory.get(layout.RESULT_READY)
        ticket = ready >> 1
        if ticket == 0 or ticket != memory.get(layout.PUBLISHED) or ticket == memory.get(layout.APPLIED):
            return False
        if ticket != self._voided:
            is_change = memory.get(layout.INBOX_IS_CHANGE, "u32")
            add_change(params, memory.inboxes[ready & 1], None if is_change else memory.outbox)
            outcome.applied, outcome.averaging = True, memory.get(layout.RESULT_AVERAGING)
        memory.set(layout.APPLIED, ticket)
        return True

    def _adopt(self, params, outcome, with_opaque):
        memory = self._memory
        request = memory.get(layout.ADOPT_REQUEST)
        if request >> 1 <= memory.get(layout.ADOPTED):
            return
        if with_opaque and self._opaque_set and memory.get(layout.ADOPT_HAS_OPAQUE, "u32"):
            headers, state = self._agent.call("GET", "/v1/opaque")
            if hashlib.sha256(state).hexdigest() != headers["x-sha256"]:
                raise LinkError("the adopted trainer state does not match its hash")
            self._opaque_set(state)
        params[:] = memory.inboxes[request & 1]
        outcome.adopted, outcome.averaging = True, memory.get(layout.ADOPT_AVERAGING)
        self._voided = memory.get(layout.PUBLISHED)   # its result belongs to the old parameters
        memory.set(layout.ADOPTED, request >> 1)

    def _publish(self, ticket, params):
        memory = self._memory
        memory.outbox[:] = params
        memory.set(layout.PUBLISHED_STEPS, self._steps)
        memory.set(layout.PUBLISHED_SAMPLES, self._samples)
        memory.set(layout.PUBLISHED, ticket)

    def _wait_for_result(self, params, outcome):
        ticket = self._memory.get(layout.PUBLISHED)
        while True:
            # Released first: a result is stored before anything else releases its snapshot.
            released = self._memory.get(layout.RELEASED) >= ticket
            if self._apply(params, outcome) or released or self._memory.get(layout.STOP, "u32"):
                return
            if not self._watch() or time.monotonic() - self._beat_at >= _PATIENCE:
                return
            time.sleep(_LOOK)

    def _give_opaque(self):
        memory = self._memory
        wanted = memory.get(layout.OPAQUE_WANTED)
        if wanted == memory.get(layout.OPAQUE_GIVEN):
            return
        memory.set(layout.OPAQUE_GIVEN, wanted)   # once, also when it fails
        if self._opaque_get is None:
            return
        try:
            self._agent.call("PUT", f"/v1/opaque?sequence={wanted}", self._opaque_get())
        except LinkError:
            self._lost = not self._agent.alive()

    def _finish(self, outcome, began):
        memory = self._memory
        outcome.stop = bool(memory.get(layout.STOP, "u32"))
        outcome.leaving = bool(memory.get(layout.NOTICE, "u32"))
        outcome.agent_lost = self._lost
        outcome.lr_scale = memory.get(layout.LR_SCALE, "f64")
        outcome.job_samples = memory.get(layout.JOB_SAMPLES, "f64")
        if began is not None:
            stall = int((time.monotonic() - began) * 1e9)
            memory.set(layout.STALL_NS, memory.get(layout.STALL_NS) + stall)
        return outcome
