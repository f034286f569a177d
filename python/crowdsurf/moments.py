"""The optimizer's state in the averaged vector, for jobs whose averaging.roles has OptimizerState.

PyTorch's optimizers make their state at the first step. Here it is made before, as the first step would find it: the
tensors are registered at join(), and are the same at all workers.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch

from .masters import is_master, numbered
from .tensor import Tensor

Find = Callable[[], torch.Tensor]
Named = Sequence[Tuple[str, torch.Tensor]]

# Of these the state after a step without a gradient is known: moments of zero, and counters.
_KNOWN = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax,
          torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta)
_UNSOUND = ((torch.optim.LBFGS, "its state is a history of steps, of a length of its own at each worker"),
            (torch.optim.Rprop, "its state is the sign of the last gradient, and step sizes that belong to it"),
            (torch.optim.SparseAdam, "its moments are those of the rows that have had a gradient"))
_COUNTERS = {"step": 0.0, "mu_product": 1.0, "eta": 0.0, "mu": 1.0}   # by name, for a parameter may be a scalar, too
# Means of squares and the like, of which an optimizer takes the root or by which it divides.
_NEVER_NEGATIVE = frozenset(("exp_avg_sq", "max_exp_avg_sq", "exp_avg_var", "exp_inf", "square_avg", "acc_delta", "sum"))
_CHOOSE = "take OptimizerState out of averaging.roles"

log = logging.getLogger("crowdsurf")


class Moments:
    """The state tensors of an optimizer that have their parameter's shape: averaged as float32, under names of their own."""

    def __init__(self, optimizer: Optional[torch.optim.Optimizer], parameters: Named) -> None:
        """Makes the state that is not there yet. State that is there stays as it is.

        parameters: those that the job averages. ValueError: it cannot be made, or cannot be averaged; says what to do.
        """
        if optimizer is None:
            raise ValueError(f"this job averages the optimizer's state: give the optimizer to join(), or {_CHOOSE}")
        self._optimizer = unwrapped(optimizer)
        _check_class(self._optimizer)
        self._groups = {id(p): group for group in self._optimizer.param_groups for p in group["params"]}
        trained = [(name, p) for name, p in parameters if id(p) in self._groups]
        self._keys: Dict[int, List[str]] = {}   # of each parameter's state, what is averaged
        for name, parameter in trained:
            self._make(name, parameter)
            self._keys[id(parameter)] = _averaged(self._optimizer.state[parameter], parameter)
        self.tensors: List[Tensor] = []
        self.finds: List[Find] = []
        for key in sorted({key for keys in self._keys.values() for key in keys}):   # loaded state may have another order
            for name, parameter in trained:
                if key in self._keys[id(parameter)]:
                    label = f"optimizer.{key}.{name}"
                    self.tensors.append(Tensor(label, tuple(parameter.shape), role="OptimizerState"))
                    self.finds.append(functools.partial(self._find, parameter, key, label))
        if not self.tensors:
            self._say_none()

    def _make(self, name: str, parameter: torch.Tensor) -> None:
        own = self._optimizer.state.get(parameter) or {}
        if any(isinstance(value, torch.Tensor) for value in own.values()):
            return
        if type(self._optimizer) not in _KNOWN:
            kind = type(self._optimizer).__name__
            raise ValueError(f"this job averages the optimizer's state, and {kind} has none of {name} yet. How it begins is known of "
                             f"PyTorch's own optimizers alone: call {kind}.step() once before join(), with a gradient of each "
                             f"parameter, or {_CHOOSE}")
        own = {key: value for key, value in own.items() if value is not None}
        self._optimizer.state[parameter] = {**_first_state(self._optimizer, self._groups[id(parameter)], parameter), **own}

    def _find(self, parameter: torch.Tensor, key: str, label: str) -> torch.Tensor:
        """The tensor of now: load_state_dict() replaces it."""
        value = (self._optimizer.state.get(parameter) or {}).get(key)
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{label} is gone since join(): the optimizer's state was cleared. close() the job before that, "
                             "and join() again after it")
        return value

    def _say_none(self) -> None:
        kind = type(self._optimizer).__name__
        if type(self._optimizer) not in _KNOWN:
            raise ValueError(f"this job averages the optimizer's state, and {kind} has no floating-point tensor of a parameter's "
                             f"shape: {_CHOOSE}")
        log.warning("crowdsurf: averaging.roles has OptimizerState, and %s as it is set keeps none: parameters alone are averaged", kind)

    def repair(self) -> None:
        """After an average was added or taken: no moment is less than a training can leave it.

        A result is the change of the average, added to moments that have moved on since the snapshot. Where a second
        moment has fallen in both, the sum can be negative, and its root is no number. Compression may round one to zero:
        then the step, which divides by it, is huge. So each is at least what its first moment proves.
        """
        with torch.no_grad():
            for group in self._optimizer.param_groups:
                for parameter in group["params"]:
                    state = self._optimizer.state.get(parameter) or {}
                    for key in self._keys.get(id(parameter), ()):
                        if key in _NEVER_NEGATIVE and isinstance(state.get(key), torch.Tensor):
                            _lift(state[key], _least(key, group, state))

    # --- the trainer's state, which goes to joiners beside the vector -----------------------------------------

    def without(self, state: Dict[str, Any]) -> Dict[str, Any]:
        """A state_dict without what the vector has."""
        parameters = self._indices(state)
        kept = {index: {key: value for key, value in each.items() if key not in self._keys_of(parameters.get(index))}
                for index, each in state["state"].items()}
        return {**state, "state": kept}

    def completed(self, state: Dict[str, Any]) -> Dict[str, Any]:
        """A state_dict from without(), with this worker's tensors in the gaps: the vector is written over them."""
        states = dict(state["state"])
        for index, parameter in self._indices(state).items():
            if self._keys_of(parameter):
                states[index] = {**self._optimizer.state[parameter], **states.get(index, {})}
        return {**state, "state": states}

    def _indices(self, state: Dict[str, Any]) -> Dict[int, torch.Tensor]:
        """The parameters by their number in a state_dict."""
        return {index: parameter for parameter, index in numbered(self._optimizer, state)}

    def _keys_of(self, parameter: Optional[torch.Tensor]) -> Sequence[str]:
        return () if parameter is None else self._keys.get(id(parameter), ())


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Without the wrappers of Accelerate and Lightning."""
    seen: Set[int] = set()
    while id(optimizer) not in seen:
        seen.add(id(optimizer))
        inner = getattr(optimizer, "optimizer", None)
        optimizer = inner if isinstance(inner, torch.optim.Optimizer) else optimizer
    return optimizer


def _check_class(optimizer: torch.optim.Optimizer) -> None:
    for kind, why in _UNSOUND:
        if isinstance(optimizer, kind):
            raise ValueError(f"this job averages the optimizer's state, and that of {type(optimizer).__name__} cannot be averaged, "
                             f"for {why}: {_CHOOSE}")


def _first_state(optimizer: torch.optim.Optimizer, group: Dict[str, Any], parameter: torch.Tensor) -> Dict[str, Any]:
    """The state of a parameter as the optimizer's first step will find it.

    A second optimizer steps a stand-in of the parameter. So the real one's parameters, gradients, hooks and schedules see
    nothing of it, and the state has the form of this PyTorch, device, type and group, whatever it is.
    """
    stand_in = torch.zeros_like(parameter.detach())
    stand_in.grad = torch.zeros_like(stand_in)
    make: Any = type(optimizer)
    options = {key: value for key, value in group.items() if key != "param_names"}
    twin = make([{**options, "params": [stand_in]}])
    twin.step()
    state: Dict[str, Any] = dict(twin.state[stand_in])
    for key, value in state.items():
        begin = _COUNTERS.get(key, 0.0)
        if isinstance(value, torch.Tensor):
            value.fill_(begin)
        elif value is not None:
            state[key] = type(value)(begin)
    return state


def _averaged(state: Dict[str, Any], parameter: torch.Tensor) -> List[str]:
    """What of a parameter's state is averaged. It is dense: join() refuses other state in any job."""
    return [key for key, value in state.items() if key not in _COUNTERS and isinstance(value, torch.Tensor) and
            value.shape == parameter.shape and value.is_floating_point() and not is_master(key, value, parameter)]


def _least(key: str, group: Dict[str, Any], state: Dict[str, Any]) -> Optional[torch.Tensor]:
    """What a moment is at least, in any training. None: zero.

    By Cauchy and Schwarz: both moments are sums of the same gradients, with weights that the betas say. What fulfils the
    bounds is a convex set, so a plain average never leaves it.
    """
    first, betas = state.get("grad_avg" if key == "square_avg" else "exp_avg"), group.get("betas")
    if not isinstance(first, torch.Tensor):
        return None
    if key == "square_avg":   # a centred RMSprop takes the root of their difference; the last bits are for rounding
        return first.float().square() * (1 + 1e-6)
    if key not in ("exp_avg_sq", "exp_inf") or betas is None or len(betas) != 2:
        return None
    beta1, beta2 = float(betas[0]), float(betas[1])
    if not (0 <= beta1 < 1 and beta1 * beta1 < beta2 < 1):
        return None
    if key == "exp_avg_sq":
        return first.float().square() * ((1 - beta2) * (1 - beta1 * beta1 / beta2) / (1 - beta1) ** 2)
    return first.float().abs() * ((1 - beta1 / beta2) / (1 - beta1)) if beta1 < beta2 else None


def _lift(value: torch.Tensor, least: Optional[torch.Tensor]) -> None:
    if least is None:
        value.clamp_(min=0)
    else:
        value.copy_(torch.maximum(value.float(), least))
