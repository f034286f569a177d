"""A PyTorch module's parameters, as the agent averages them.

The averaged vector is float32 on the CPU. Parameters of other types and devices are converted when a snapshot is taken
or a result comes; between averagings nothing is copied. On a CUDA device they go through staging.py.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, Iterator, List, Optional, Protocol, Sequence, Set, Tuple

import torch

from .cuda import staging_on
from .memory import CHUNK, Floats
from .moments import Find, Moments
from .parameters import Filled
from .rate import ScaledRate
from .staging import Place, Staging
from .state import pack, unpack
from .tensor import Tensor

_WRAPPERS = ("DataParallel", "DistributedDataParallel")
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

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None,
                 stateful: Sequence[Stateful] = ()) -> None:
        """ValueError, TypeError: a parameter cannot be averaged; the message names it, and says what to do."""
        self._model, self._optimizer, self._stateful = model, optimizer, list(stateful)
        self.rate = ScaledRate(optimizer) if optimizer is not None else None
        parameters = trainable(model)
        check_optimizer(optimizer, parameters)
        self._trained, self._averaged = parameters, {id(p): name for name, p in parameters}
        self._moments: Optional[Moments] = None   # where the job averages them
        self._buffers = buffers(model)
        floats = [(name, find) for name, find in self._buffers.items()
                  if find().is_floating_point() and find().numel() > 0]
        self._finds: List[Find] = [functools.partial(_itself, p) for _, p in parameters] + [find for _, find in floats]
        self.tensors = ([Tensor(name, tuple(p.shape)) for name, p in parameters] +
                        [Tensor(name, tuple(find().shape), role="Buffer") for name, find in floats])
        self._parts: List[Tuple[Find, Tensor]] = []
        self._staged: Optional[torch.device] = None   # the device that `_staging` is of
        self._staging: Optional[Staging] = None
        self._unfrozen: Set[str] = set()
        pack(self._state())   # a state that cannot travel is refused here, not at a joiner's first question

    def declare(self, roles: Sequence[str]) -> List[Tensor]:
        """The tensors of a job that averages these roles. ValueError: the optimizer's state cannot be; says what to do."""
        if "OptimizerState" in roles and self._moments is None:
            self._moments = Moments(self._optimizer, self._trained)
            self._finds += self._moments.finds
            self.tensors += self._moments.tensors
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
        if self._moments is not None:
            self._moments.repair()

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
        if self._moments is not None:
            self._moments.repair()

    # --- gradients -----------------------------------------------------------------------------------

    def read_gradients(self, region: Floats) -> None:
        """Copies the parameters' gradients. A parameter without one has zeros."""
        self._check_model()
        with torch.no_grad():
            gradients = [Place(torch.zeros_like(own) if own.grad is None else own.grad, part) for own, part in self._places()]
            rest = self._begin_copy(gradients, region, _untold)
        if rest is not None:
            rest()

    def optimize(self, mean: Floats) -> None:
        """One step of the optimizer with these gradients."""
        assert self._optimizer is not None
        gradients = []
        with torch.no_grad():
            for own, part in self._places():
                if own.grad is None:
                    own.grad = torch.zeros_like(own)
                gradients.append(Place(own.grad, part))
            self._write(gradients, mean)
        self._optimizer.step()

    @property
    def optimizer(self) -> Optional[torch.optim.Optimizer]:
        return self._optimizer

    def _places(self) -> List[Place]:
        """Each averaged tensor. ValueError: one has another shape by now."""
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
        optimizer = self._optimizer.state_dict() if self._optimizer is not None else None
        if optimizer is not None and self._moments is not None:
            optimizer = self._moments.without(optimizer)
        return {"optimizer": optimizer, "buffers": {name: find() for name, find in self._buffers.items()},
                "stateful": [each.state_dict() for each in self._stateful]}

    def get(self) -> bytes:
        try:
            return pack(self._state())
        except TypeError as error:
            log.warning("crowdsurf: the trainer's state stays here: %s", error)
            return b""

    def set(self, data: bytes) -> None:
        state = unpack(data) if data else {}
        try:
            if self._optimizer is not None and state.get("optimizer") is not None:
                optimizer = state["optimizer"]
                self._optimizer.load_state_dict(self._moments.completed(optimizer) if self._moments is not None else optimizer)
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


# --- what can be averaged ------------------------------------------------------------------------------------------------


def clean(model: torch.nn.Module, name: str) -> str:
    """A tensor's name in the model, without the wrappers of torch.compile, DataParallel and DistributedDataParallel."""
    parts, at = [], model
    for part in name.split("."):
        wraps = part == "_orig_mod" or (part == "module" and type(at).__name__ in _WRAPPERS)
        if not wraps:
            parts.append(part)
        at = getattr(at, part)
    return ".".join(parts)


def buffers(model: torch.nn.Module) -> Dict[str, Find]:
    """How to find each persistent buffer: model.to() replaces them."""
    kept = model.state_dict().keys()
    found: Dict[str, Find] = {}
    owners = dict(model.named_modules())
    for name, _ in model.named_buffers():
        if name in kept:
            path, _, key = name.rpartition(".")
            found[clean(model, name)] = functools.partial(getattr, owners[path], key)
    return found


def trainable(model: torch.nn.Module) -> List[Tuple[str, torch.Tensor]]:
    """Names and values of the parameters that are averaged. Tied ones come once, under their first name."""
    named: List[Tuple[str, torch.Tensor]] = [(clean(model, name), p) for name, p in model.named_parameters() if p.requires_grad]
    for name, parameter in named:
        _check(name, parameter)
    named = [(name, p) for name, p in named if p.numel() > 0]
    if not named:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to average")
    _check_overlap(named)
    return named


def check_optimizer(optimizer: Optional[torch.optim.Optimizer], parameters: List[Tuple[str, torch.Tensor]]) -> None:
    if optimizer is None:
        return
    own = {id(p) for _, p in parameters}
    if not any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("the optimizer trains none of the model's parameters: make it from model.parameters()")


def _check(name: str, parameter: torch.Tensor) -> None:
    if torch.nn.parameter.is_lazy(parameter):
        raise ValueError(f"the parameter {name} has no shape yet: run the model once before join()")
    if parameter.layout != torch.strided:
        raise TypeError(f"the parameter {name} is {parameter.layout}: only dense parameters can be averaged "
                        "(sparse gradients of dense parameters can)")
    if not parameter.is_floating_point():
        raise TypeError(f"the parameter {name} is {parameter.dtype}: only floating-point parameters can be averaged "
                        "(torch.view_as_real makes two numbers of a complex one)")
    if parameter.device.type == "meta":
        raise ValueError(f"the parameter {name} is on the meta device: give it values before join()")
    if parameter.numel() > _span(parameter):
        raise ValueError(f"values of the parameter {name} share memory (it was made by expand()): clone() it first")


def _span(parameter: torch.Tensor) -> int:
    """The distance of its first and last value in memory, plus one. Less than its values where they share memory."""
    return 1 + sum(int((size - 1) * stride) for size, stride in zip(parameter.shape, parameter.stride()))


def _check_overlap(named: List[Tuple[str, torch.Tensor]]) -> None:
    """Two parameters in the same memory would get each average twice."""
    dense = [(name, p) for name, p in named if p.numel() == _span(p)]
    ends: Dict[Any, Tuple[int, str]] = {}
    for name, parameter in sorted(dense, key=lambda item: int(item[1].data_ptr())):
        begin = parameter.data_ptr()
        end, other = ends.get(parameter.device, (0, ""))
        if begin < end:
            raise ValueError(f"the parameters {other} and {name} share memory but are two parameters: "
                             "tie them by assigning one Parameter to both places")
        ends[parameter.device] = (begin + parameter.numel() * parameter.element_size(), name)
