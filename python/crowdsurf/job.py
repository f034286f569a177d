"""A PyTorch training loop in a job: join(), and Job.step() after every optimizer step."""

from __future__ import annotations

import array
import atexit
import contextlib
import faulthandler
import logging
import math
import operator
import os
import signal
import sys
import threading
import time
import weakref
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, Optional, Sequence, Type, TypeVar

from .agent import PATIENCE, Agent
from .connection import AgentError
from .platforms import client_only
from .tensor import Notice, Outcome

if TYPE_CHECKING:
    import torch

    from .leases import Lease, Leases
    from .module import ModuleParameters, Stateful
    from .optimizers import Given
    from .shard import Loop, Shard

Batch = TypeVar("Batch")
_LOSS_EVERY = 0.25   # seconds: reading a loss from a GPU waits for it, so not at every step
_HANGS = 60.0        # seconds without a step: an end by SIGTERM then shows where the script is
_HAND_IN = 8.0       # seconds: Google gives a pod 15 s
_AGAIN = 0.05        # seconds: an exception in the end of a generator would be lost
_NO_FILE = (AttributeError, OSError, RuntimeError, ValueError)   # stderr is none, as in a notebook

log = logging.getLogger("crowdsurf")


def join(model: torch.nn.Module, optimizer: Given = None, *, init: str = "job", metrics: Sequence[str] = (),
         on_notice: Optional[Callable[[Notice], None]] = None, stateful: Sequence[Stateful] = (),
         frozen_differ: bool = False) -> Job:
    """Registers the model's parameters with the agent beside this script, and takes the job's state.

    Before the job's first averaging that is the model of the job's first worker, as it was given. init: "local" keeps
    the model's own parameters in any case. metrics: names for Job.report(). on_notice: called on a thread of its own
    soon after the platform says that it takes this worker. stateful: schedules, a GradScaler, whatever has state_dict()
    and load_state_dict() and must go to joiners with the optimizer's state. optimizer: one, or a list. frozen_differ: the
    workers' frozen parameters may differ; else a worker whose frozen parameters are not the others' gets no seat.

    In a job the random numbers of `random`, numpy and torch are the worker's own from here on: workers with the same
    seed would shuffle the same way, and a resumed job would draw its first batches again. SIGTERM ends the script like
    sys.exit(143). Without an agent (CROWDSURF_DIR is not set) the script trains alone, and says so once.

    ValueError, TypeError: the model cannot be averaged. AgentError: the agent refuses, is of another version, or never
    came; or this process has joined already.
    """
    try:
        from .module import ModuleParameters
    except ImportError as error:
        raise ImportError(f"crowdsurf.join() needs PyTorch ({error}); for anything else there is crowdsurf.Agent") from error
    joined = _joined() if _joined is not None else None
    if joined is not None and not joined.closed:
        raise AgentError("this process has joined already: close() that job first (two models are one in a ModuleList)")
    return Job(ModuleParameters(model, optimizer, stateful, frozen_differ), init, metrics, on_notice)


class Job:
    """What join() returns. One thread calls step(). `with` closes it at the end of the block; so does the process's end."""

    def __init__(self, parameters: ModuleParameters, init: str, metrics: Sequence[str],
                 on_notice: Optional[Callable[[Notice], None]]) -> None:
        global _joined
        self._samples, self._loss_at, self._lost, self._ended_by_signal = 0, -1.0, False, False
        self._metrics, self._process = list(metrics), os.getpid()
        self._agent: Optional[Agent] = None
        self._parameters, self._finite = parameters, True   # of the last loss
        self._gradient: Any = None   # of the last batch, flat
        self._leases: Optional[Leases] = None
        self._loop: Optional[Loop] = None   # over shard(), under way
        self._ending = False   # SIGTERM: what is trained of the leases is handed in first
        self._said_fixed = False
        self.alone = not os.environ.get("CROWDSURF_DIR")   # no agent: this script trains by itself
        self.closed = False
        self.done = False                                  # the job's target is met
        self.last = Outcome()                              # what the last step brought
        self.seed: Optional[int] = None                    # of this worker's random numbers; None: the script's own
        if self.alone:
            _say_alone()
            return
        parameters.refuse_group()
        self._agent = Agent(parameters.declare, metrics=metrics, state=parameters, gradients=True)
        parameters.place(self._agent.tensors)
        try:
            if on_notice is not None:
                self._agent.on_notice(on_notice)
            self.last = self._agent.start(parameters, init=init)
        except BaseException:
            self._agent.close()
            raise
        self.done = self.last.stop
        from .loader import seed_worker   # it needs PyTorch, which a script has that is here


        _joined = weakref.ref(self)
        self.seed = seed_worker(f"{self._agent.seed}/{self._agent.worker}/{self.last.averaging}")
        self._stepped_at = time.monotonic()
        _show_stacks_of_crashes()
        self._take_sigterm()
        atexit.register(self._at_exit)

    def step(self, *, samples: int, loss: Any = None) -> Outcome:
        """After optimizer.step(): counts `samples`, takes a snapshot or adds an average where it is time.

        loss: a number or a tensor of one. With gradient accumulation, call it once for all parts of a step.
        """
        if self.closed:
            raise AgentError("step() after close()")
        if self._agent is not None and self._agent.averages_gradients:
            raise AgentError("this job averages gradients (spec.averaging.what): call optimize() in place of "
                             "optimizer.step() and step()")
        self._samples += operator.index(samples)
        if self._agent is None:
            self.last = Outcome(job_samples=self._samples)
            return self.last
        self._stepped_at = time.monotonic()
        return self._stepped(self._agent.step(samples, self._number(loss)))

    def optimize(self, *, samples: int, loss: Any = None) -> Outcome:
        """After loss.backward(), in place of optimizer.step() and step(): for jobs that average gradients, and any other.

        Where gradients are averaged, the optimizer steps when all workers have met: the outcome then has `applied`, and
        the gradients are those of the large batch. Elsewhere it steps at once. Call optimizer.zero_grad() before each
        batch. ValueError: join() was given no optimizer.
        """
        optimizers = self._parameters.optimizers
        if not optimizers:
            raise ValueError("optimize() needs the optimizer: give it to join()")
        if self._agent is None or not self._agent.averages_gradients:
            optimizers.step()
            return self.step(samples=samples, loss=loss)
        if self.closed:
            raise AgentError("optimize() after close()")
        self._samples += operator.index(samples)
        if self._gradient is None:
            self._gradient = array.array("f", bytes(4 * self._agent.elements))
        self._parameters.read_gradients(self._gradient)
        self._stepped_at = time.monotonic()
        return self._stepped(self._agent.gradient(samples, self._gradient, self._parameters.optimize, self._number(loss)))

    def _stepped(self, outcome: Outcome) -> Outcome:
        self.last = outcome
        self.done = self.done or outcome.stop
        self._parameters.optimizers.set_rate(outcome.lr_scale)
        if outcome.agent_lost != self._lost:
            self._lost = outcome.agent_lost
            log.warning("crowdsurf: the agent is %s", "lost: this worker trains on alone and looks for it"
                        if self._lost else "back: this worker's training counts again")
        return outcome

    def batches(self, loader: Iterable[Batch], epochs: int = 1) -> Iterator[Batch]:
        """The loader's batches, pass after pass, until the job's target is met. Alone: `epochs` passes.

        Every worker draws from all of the loader's data, in an order of its own. ValueError: a pass has no batch, or
        epochs is negative.
        """
        epochs = _passes(epochs)
        first = None
        if self.seed is not None:
            from .loader import FirstBatches, draw_apart

            draw_apart(loader, self.seed)
            self._say_fixed_order(loader)
            first = FirstBatches()
        epoch = 0
        while not (self.done or (self.alone and epoch == epochs)):
            set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
            empty = True
            for batch in loader:
                empty = False
                if first is not None:
                    self._note_order(first.take(batch))
                yield batch
                if self.done:
                    return
            if empty:
                raise ValueError("the loader has no batch" if epoch == 0 else
                                 "the loader has no batch in its second pass: give a DataLoader, not an iterator")
            epoch += 1

    def _say_fixed_order(self, loader: Any) -> None:
        from .loader import fixed_order

        sampler = fixed_order(loader)
        if sampler is not None and not self._said_fixed:
            self._said_fixed = True
            log.warning("crowdsurf: the loader's order is fixed (%s): workers with the same data train on the same batches. Take "
                        "shuffle=True, or job.shard(loader), which deals each sample to one worker", sampler)

    def _note_order(self, order: Optional[int]) -> None:
        """Gives the agent a hash of a loop's first batches: the run names two workers with equal ones."""
        if self._agent is not None and order is not None:
            self._agent.note_order(order)

    def shard(self, loader: Any, epochs: int = 1) -> Shard:
        """The loader's batches, of which every worker gets others: in the job each sample of an epoch is trained once.

        An iterable that ends when the job's target is met, or this worker leaves. The order is the job's own for each
        epoch, whatever the number of workers. loader: a DataLoader of a map-style data set with a batch_size; its
        order, batch sampler and drop_last do not count. epochs: alone, a loop makes so many. TypeError, ValueError: it
        cannot be dealt, and why. ValueError while it runs: another worker's data set has another length.

        A batch counts as trained at the next step(). A loop that begins after another one was left gives again what no
        step has counted; one at a time.
        """
        from .shard import Shard

        return Shard(self, loader, _passes(epochs))

    @property
    def samples(self) -> float:
        """Samples that all workers of the job have trained on, as of its last averaging; alone: this script's."""
        return self.last.job_samples

    def report(self, **metrics: float) -> None:
        """Reports numbers under names that join() was given, for the job's status and its target."""
        for name, value in metrics.items():
            if name not in self._metrics:
                raise ValueError(f"{name!r} is none of the metrics that join() was given: {self._metrics}")
            if self._agent is not None:
                self._agent.set_metric(name, value)

    def metrics(self, prefix: str = "") -> Dict[str, float]:
        """For a logger: the job's samples, averagings and members, and the seconds that this trainer waited.

        prefix: of each name, such as "crowdsurf/".
        """
        totals = {"samples": self._samples, "averagings": 0, "members": 1, "stall_seconds": 0.0} if self._agent is None else \
            self._agent.totals()
        return {prefix + name: value for name, value in totals.items()}

    def busy(self, seconds: float) -> None:
        """Before a pause of up to so many seconds without a step: an evaluation, a compilation, a slow checkpoint.

        Else a trainer that makes no step for `spec.agent.hangAfterSeconds` is ended as one that hangs. The next step ends
        it. Alone it does nothing. ValueError: less than 0, or more than a week.
        """
        if self._agent is not None:
            self._agent.busy(seconds)

    def checkpoint(self) -> None:
        """Asks for a checkpoint of the job. Alone there is none."""
        if self._agent is not None:
            self._agent.checkpoint()

    def finish(self) -> None:
        """close() where the training ends by itself: says so where it ends before the job's target is met."""
        if not (self.closed or self.alone or self.done or self.last.leaving):
            log.warning("crowdsurf: the script ends before the job's target is met: the worker will be replaced")
        self.close()

    def close(self) -> None:
        """Leaves: the agent gives the seat back at once, and peers do not wait. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        if self._agent is not None:
            self._agent.close()
            atexit.unregister(self._at_exit)
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    # --- for Shard ---

    def _begin_loop(self, shard: Shard, loop: Loop) -> int:
        """The seed of the job's orders."""
        if self.closed:
            raise AgentError("a loop over job.shard() after close()")
        if self._agent is not None:
            self._leases = self._agent.draw(shard.length, shard.unit)
        self._loop = loop
        return self._agent.seed if self._agent is not None else 0

    def _check_loop(self, loop: Loop) -> None:
        if self._loop is not loop:
            raise RuntimeError("another loop over job.shard() has begun since this one gave its last batch: one at a time")

    def _end_loop(self, loop: Loop) -> None:
        if self._loop is not loop:
            return
        self._loop = None
        if self._agent is None or os.getpid() != self._process:
            return
        if not self.closed:
            self._agent.stop_waiting()
        if self._ending and not self._ended_by_signal:   # the loop was left: SIGTERM, which has waited for it, comes again
            again = threading.Timer(_AGAIN, os.kill, (self._process, signal.SIGTERM))
            again.daemon = True
            again.start()

    def _next_lease(self) -> Optional[Lease]:
        """Waits for one. None: the job is over, or this worker leaves it. AgentError: the agent has gone."""
        assert self._agent is not None and self._leases is not None
        seen = time.monotonic()
        while not (self.done or self.closed):
            self._hand_in_if_asked()
            self._agent.look()
            lease = self._agent.next_lease()
            if lease is not None:
                return lease
            self._stepped_at = time.monotonic()
            self.last = outcome = self._agent.pause()
            self.done = self.done or outcome.stop
            if not outcome.agent_lost:
                seen = time.monotonic()
            elif self._leases.closed or time.monotonic() - seen > PATIENCE:
                if self._leases.closed:
                    return None
                raise AgentError("the agent has gone, and with it the leases of this worker")
        return None

    def _handed(self, samples: int) -> None:
        assert self._leases is not None
        self._leases.hand(samples)

    def _lease_is_void(self) -> bool:
        """After a batch: its lease was taken back, or nothing more is to be trained."""
        assert self._agent is not None
        self._hand_in_if_asked()
        return self.done or self.closed or self._agent.look()

    def _hand_in_if_asked(self) -> None:
        if not self._ending or self.closed:
            return
        assert self._agent is not None
        leaving = threading.Thread(target=_leave, args=(self._agent,), daemon=True)
        leaving.start()
        until = time.monotonic() + _HAND_IN
        while leaving.is_alive() and time.monotonic() < until:
            self._agent.look()   # the agent says that nothing more is to be trained
            self._agent.pause()
        self._ended_by_signal = True
        sys.exit(128 + signal.SIGTERM)

    def _number(self, loss: Any) -> Optional[float]:
        if loss is None:
            return None
        if not isinstance(loss, (int, float)):
            now = time.monotonic()
            if now - self._loss_at < _LOSS_EVERY:
                return None
            self._loss_at = now
            loss = loss.detach() if hasattr(loss, "detach") else loss
        number = float(loss)
        if math.isfinite(number) != self._finite:
            self._finite = not self._finite
            if not self._finite:
                log.warning("crowdsurf: the loss is %s: averages leave this worker out while its parameters are not finite, and it "
                            "takes the job's average in their place", number)
        return number

    # PID 1 of a container ignores a SIGTERM without a handler, and would be killed at the end of the grace period.
    def _take_sigterm(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Optional[FrameType]) -> None:
        if os.getpid() != self._process:   # a forked child ends as it would without us
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self._loop is not None and not (self._ending or self.done):
            self._ending = True   # at the next batch
            return
        self._ended_by_signal = True
        if time.monotonic() - self._stepped_at > _HANGS:   # kubelet ends a trainer that hangs
            with contextlib.suppress(*_NO_FILE):
                faulthandler.dump_traceback()
        sys.exit(128 + number)

    def _at_exit(self) -> None:
        if os.getpid() != self._process:
            return
        failed = hasattr(sys, "last_type")   # an exception that nobody caught
        if failed or self._ended_by_signal:
            self.close()
        else:
            self.finish()


_joined: Optional[weakref.ref[Job]] = None   # one agent has one trainer
_said_alone = False


def _passes(epochs: int) -> int:
    count = operator.index(epochs)
    if count < 0:
        raise ValueError(f"epochs is {count}, it must not be negative")
    return count


def _leave(agent: Agent) -> None:
    with contextlib.suppress(AgentError):
        agent.leave("SIGTERM")


def _say_alone() -> None:
    global _said_alone
    if not _said_alone:
        _said_alone = True
        why = client_only() or "CROWDSURF_DIR is not set"
        log.warning("crowdsurf: no agent is beside this script (%s): it trains alone", why)


# SIGABRT ends a trainer that hangs: its stacks are then the end of its output.
def _show_stacks_of_crashes() -> None:
    with contextlib.suppress(*_NO_FILE):
        if not faulthandler.is_enabled():
            faulthandler.enable()
