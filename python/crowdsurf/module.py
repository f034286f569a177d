"""A PyTorch module's parameters, as the agent averages them.

The averaged vector is float32 on the CPU. Parameters of other types and devices are converted when a snapshot is taken
or a result comes; between averagings nothing is copied. On a CUDA device they go through staging.py.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, Iterator, List, Optional, Protocol, Sequence, Set, Tuple, Union

import torch

from .cuda import staging_on
from .frozen import frozen_mark
from .memory import CHUNK, Floats
from .moments import Find
from .optimizers import Given, Optimizers
from .parameters import Filled
from .staging import Place, Staging
from .state import pack, pieces, size, unpack
from .tensor import Tensor
from .trainable import buffers, clean, frozen, refuse_group, trainable

_AGAIN = "close() the job before such a change, and join() again after it"

log = logging.getLogger("crowdsurf")


class Stateful(Protocol):
    """Anything with the two methods of a schedule or a GradScaler. Its state is numbers, strings, lists, dicts, tensors."""

    def state_dict(self) -> Dict[str, Any]: ...

    def load_state_dict(self, state_dict: Dict[str, Any]) -> Any: ...


class ModuleParameters:
    """Parameters and State of a module and its optimizer.

    Averaged are the parameters that require a gradient, and where the job averages the role Buffer, the floating-point
    buffers, and with OptimizerState the optimizer's moments. The other buffers go to joiners with the optimizer's state.
    Frozen parameters stay out: every worker has them from the same file. What `stateful` holds (schedules, a GradScaler)
    goes to joiners, too.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Given = None, stateful: Sequence[Stateful] = (),
                 frozen_differ: bool = False) -> None:
        """ValueError, TypeError: a parameter cannot be averaged; the message names it, and says what to do."""
        self._model, self._stateful = model, list(stateful)
        parameters = trainable(model)
        self.optimizers = Optimizers(optimizer, parameters)
        self._averaged = {id(p): name for name, p in parameters}
        self._buffers = buffers(model)
        floats = [(name, find) for name, find in self._buffers.items()
                  if find().is_floating_point() and find().numel() > 0]
        self._finds: List[Find] = [functools.partial(_itself, p) for _, p in parameters] + [find for _, find in floats]
        self.tensors = ([Tensor(name, tuple(p.shape)) for name, p in parameters] +
                        [Tensor(name, tuple(find().shape), role="Buffer") for name, find in floats])
        mark = None if frozen_differ else frozen_mark(frozen(model))
        if mark is not None:   # it has no place in the vector
            self._finds.append(functools.partial(_itself, torch.empty(())))
            self.tensors.append(mark)
        self._parts: List[Tuple[Find, Tensor]] = []
        self._staged: Optional[torch.device] = None   # the device that `_staging` is of
        self._staging: Optional[Staging] = None
        self._unfrozen: Set[str] = set()
        size(self._state())   # a state that cannot travel is refused here, not at a joiner's first question
        self.optimizers.warn_of_schedules(stateful)

    def refuse_group(self) -> None:
        """ValueError: this process trains the model together with others."""
        refuse_group()

    def declare(self, roles: Sequence[str]) -> List[Tensor]:
        """The tensors of a job that averages these roles. ValueError: the optimizer's state cannot be; says what to do."""
        if "OptimizerState" in roles:
            tensors, finds = self.optimizers.declare_moments()
            self._finds += finds
            self.tensors += tensors
        return self.tensors

    def place(self, tensors: List[Tensor]) -> None:
        """Takes the offsets that the agent gave."""
        self._parts = [(find, t) for find, t in zip(self._finds, tensors) if t.offset is not None]
        averaged = {t.name for t in tensors if t.offset is not None}
        self._buffers = {name: find for name, find in self._buffers.items() if name not in averaged}

    # --- Parameters ----------------------------------------------------------------------------------

    def read(self, outbox: Floats) -> None:
        """ValueError: the model has another parameter in the place of one that was registered."""
        rest = self.begin_read(outbox, _untold)
        if rest is not None:
            rest()

    def begin_read(self, outbox: Floats, filled: Filled) -> Optional[Callable[[], None]]:
        self._check_model()
        with torch.no_grad():
            return self._begin_copy(self._places(), outbox, filled)

    def add(self, inbox: Floats, outbox: Optional[Floats]) -> None:
        self._add(inbox, outbox)
        self.optimizers.settle()

    def _add(self, inbox: Floats, outbox: Optional[Floats]) -> None:
        places, new, old = self._places(), _flat(inbox), None if outbox is None else _flat(outbox)

        def change(to: torch.Tensor, part: slice) -> None:
            if old is None:
                to.copy_(new[part])
            else:
                torch.sub(new[part], old[part], out=to)

        with torch.no_grad():
            staging = self._stage(places)
            there = staging.send(change) if staging is not None else None
            if staging is not None and there is not None:
                staging.add(places, there)
                return
            for own, part in places:
                _add(own, new[part].view(own.shape), None if old is None else old[part].view(own.shape))

    def write(self, inbox: Floats) -> None:
        with torch.no_grad():
            self._write(self._places(), inbox)
        self.optimizers.settle()

    # --- gradients -----------------------------------------------------------------------------------

    def read_gradients(self, region: Floats) -> None:
        """Copies the parameters' gradients. A parameter without one has zeros."""
        self._check_model()
        with torch.no_grad():
            gradients = [Place(torch.zeros_like(own) if own.grad is None else own.grad, part) for own, part in self._own_places()]
            rest = self._begin_copy(gradients, region, _untold)
        if rest is not None:
            rest()

    def optimize(self, mean: Floats) -> None:
        """One step of the optimizer with these gradients."""
        gradients = []
        with torch.no_grad():
            for own, part in self._own_places():
                if own.grad is None:
                    own.grad = torch.zeros_like(own)
                gradients.append(Place(own.grad, part))
            self._write(gradients, mean)
        self.optimizers.step()

    def _places(self) -> List[Place]:
        """Each averaged tensor; where an optimizer trains a copy of a parameter, the copy. ValueError: as _own_places."""
        return [Place(self.optimizers.masters.find(own), part) for own, part in self._own_places()]

    def _own_places(self) -> List[Place]:
        """Each averaged tensor of the model. ValueError: one has another shape by now."""
        places = []
        for find, t in self._parts:
            own, first = find(), (t.offset or 0) // 4
            if own.shape != t.shape:
                raise ValueError(f"{t.name} had the shape {list(t.shape)} at join() and has {list(own.shape)} now: {_AGAIN}")
            places.append(Place(own, slice(first, first + t.elements)))
        return places

    def _stage(self, places: List[Place]) -> Optional[Staging]:
        """None: the tensors are here, or on more than one device."""
        devices = {own.device for own, _ in places}
        if len(devices) != 1:
            return None
        (device,) = devices
        if device != self._staged:   # as at first, and after model.to()
            self._staged, self._staging = device, staging_on(device, sum(own.numel() for own, _ in places))
        return self._staging

    def _begin_copy(self, places: List[Place], region: Floats, filled: Filled) -> Optional[Callable[[], None]]:
        """region = the tensors, as of now. None: it is done. Else a call, from any thread, does the rest.

        The places lie one after the other.
        """
        staging, flat = self._stage(places), _flat(region)
        take = staging.hold(places) if staging is not None else None
        if take is not None:
            return functools.partial(take, flat, filled)
        for own, part in places:
            flat[part].view(own.shape).copy_(own)
            filled(part.stop)
        return None

    def _write(self, places: List[Place], region: Floats) -> None:
        """The tensors = region"""
        staging, flat = self._stage(places), _flat(region)

        def fill(to: torch.Tensor, part: slice) -> None:
            to.copy_(flat[part])

        there = staging.send(fill) if staging is not None else None
        if staging is not None and there is not None:
            staging.copy(places, there)
            return
        for own, part in places:
            own.copy_(flat[part].view(own.shape))

    def _check_model(self) -> None:
        """At a snapshot: what the script has done to the model since join(), which nobody would notice otherwise."""
        self.refuse_group()
        self.optimizers.masters.check()
        gone, late = dict(self._averaged), []
        for name, parameter in self._model.named_parameters():
            if gone.pop(id(parameter), None) is None and parameter.requires_grad and parameter.numel() > 0:
                late.append(clean(self._model, name))
        if gone:
            raise ValueError(f"{', '.join(gone.values())} of the model was replaced since join(): {_AGAIN}")
        if late and not self._unfrozen.issuperset(late):
            self._unfrozen.update(late)
            log.warning("crowdsurf: %s is not averaged, it did not require a gradient at join(): %s", ", ".join(late), _AGAIN)

    # --- State -----------------------------------------------------------------------------------------

    def _state(self) -> Dict[str, Any]:
        return {"optimizer": self.optimizers.state(), "buffers": {name: find() for name, find in self._buffers.items()},
                "stateful": [each.state_dict() for each in self._stateful]}

    def get(self) -> bytes:
        try:
            return pack(self._state())
        except TypeError as error:
            log.warning("crowdsurf: the trainer's state stays here: %s", error)
            return b""

    def size(self) -> int:
        try:
            return size(self._state())
        except TypeError:   # get() says why
            return 0

    def pieces(self) -> List[Union[bytes, bytearray]]:
        return pieces(self._state())

    def set(self, data: bytes) -> None:
        state = unpack(data) if data else {}
        try:
            self.optimizers.load(state.get("optimizer"))
            with torch.no_grad():
                for name, value in state.get("buffers", {}).items():
                    self._buffers[name]().copy_(value)
            for each, theirs in zip(self._stateful, state.get("stateful", [])):
                each.load_state_dict(theirs)
        except (AttributeError, KeyError, TypeError, RuntimeError, IndexError) as error:
            raise ValueError(f"it is of another optimizer or model: {error}") from error


def _add(own: torch.Tensor, place: torch.Tensor, old: Optional[torch.Tensor]) -> None:
    """own += place - old. On the CPU piece by piece, four times as fast: a piece's difference stays in the cache."""
    piece = own.numel()
    if own.is_contiguous():
        own, place, old = own.view(-1), place.view(-1), None if old is None else old.view(-1)
        piece = CHUNK if own.device.type == "cpu" else piece
    for first in range(0, len(own), piece):
        part = slice(first, first + piece)
        change = place[part] if old is None else place[part] - old[part]
        own[part].add_(change.to(device=own.device, dtype=own.dtype))


def _untold(elements: int) -> None:
    """How far a copy is that nobody takes values from yet."""


def _flat(region: Floats) -> torch.Tensor:
    return torch.frombuffer(region, dtype=torch.float32)


def _itself(parameter: torch.Tensor) -> torch.Tensor:
    return parameter
