"""Master weights: wider copies of 16-bit parameters that an optimizer keeps and trains in their place.

Optimizers with mixed precision of their own have them: TransformerEngine's FusedAdam, Apex, DeepSpeed. Each of their
steps writes the copy over the parameter. So an average must reach the copy: one that reaches the parameter alone is lost.
"""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

import torch

_NAMED = re.compile(r"master|fp32|float32")
_DEPTH = 4   # of lists and dicts within an optimizer's attributes: Apex keeps a list of groups of lists


class Masters:
    """The copies in the optimizers' state. A copy may come at the first step, so they are looked for each time."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], parameters: Sequence[Tuple[str, torch.Tensor]]) -> None:
        """ValueError: an optimizer keeps copies where join() cannot reach them; the message names it."""
        self._optimizers = list(optimizers)
        self._half = [(name, p) for name, p in parameters if p.element_size() < 4]
        self._model = {id(p) for _, p in parameters}
        self._none: Dict[int, FrozenSet[str]] = {}   # the state in which a parameter had no copy
        self.check()

    def check(self) -> None:
        """ValueError: as in the constructor; at a snapshot, since an optimizer may make its copies late. O(its attributes)"""
        if not self._half:
            return
        for optimizer in self._optimizers:
            for value in _outside(optimizer):
                if id(value) in self._model:
                    continue
                for name, parameter in self._half:
                    if _wider(value, parameter) and rounds_to(value, parameter):
                        raise ValueError(
                            f"{type(optimizer).__name__} trains a {_type(value)} copy of {name} ({_type(parameter)}) that join() cannot "
                            "reach, so an average would be lost: keep the parameters in float32 (torch.autocast computes in 16 "
                            "bits), or choose an optimizer that keeps its copies in its state")

    def find(self, parameter: torch.Tensor) -> torch.Tensor:
        """The copy that the optimizer trains, or the parameter where there is none."""
        copy = self._copy(parameter) if parameter.element_size() < 4 else None
        return parameter if copy is None else copy

    def settle(self) -> None:
        """After an average: the parameters are those of their copies."""
        with torch.no_grad():
            for _, parameter in self._half:
                copy = self._copy(parameter)
                if copy is not None:
                    parameter.copy_(copy)

    def _copy(self, parameter: torch.Tensor) -> Optional[torch.Tensor]:
        for optimizer in self._optimizers:
            state = optimizer.state.get(parameter) or {}
            keys = frozenset(state)
            if not keys or self._none.get(id(parameter)) == keys:
                continue
            for key, value in state.items():
                if is_master(key, value, parameter):
                    found: torch.Tensor = value
                    return found
            if bool(parameter.any()):   # zeros are also what moments begin with
                self._none[id(parameter)] = keys
        return None


def is_master(key: Any, value: Any, parameter: torch.Tensor) -> bool:
    """A state tensor is a wider copy of its parameter: by its name, or because it rounds to the parameter's values."""
    if not _wider(value, parameter):
        return False
    return bool(_NAMED.search(str(key).lower())) or rounds_to(value, parameter)


def rounds_to(value: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Not for zeros, which many tensors are at first."""
    with torch.no_grad():
        return bool(parameter.any()) and torch.equal(value.detach().to(device=parameter.device, dtype=parameter.dtype), parameter.detach())


def _wider(value: Any, parameter: torch.Tensor) -> bool:
    return (isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == parameter.shape and
            value.element_size() > parameter.element_size())


def _outside(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Tensors that an optimizer holds beside its state: in its groups, and in other attributes."""
    for group in optimizer.param_groups:
        yield from _tensors(group["params"], _DEPTH)
    for name, value in vars(optimizer).items():
        if name not in ("state", "param_groups", "defaults"):
            yield from _tensors(value, _DEPTH)


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > 0 and isinstance(value, dict):
        for each in list(value.values()):
            yield from _tensors(each, depth - 1)
    elif depth > 0 and isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each, depth - 1)
    elif depth > 0 and type(value).__name__ == "AmpOptimizerState":   # Apex keeps its copies in one
        yield from _tensors(vars(value), depth - 1)


def _type(value: torch.Tensor) -> str:
    return str(value.dtype)[6:]


def load(optimizer: torch.optim.Optimizer, state: Dict[str, Any]) -> None:
    """load_state_dict() that keeps the types of the donor's state.

    PyTorch's own turns each float tensor into its parameter's type, so that a float32 copy would have 16 bits.
    """
    optimizer.load_state_dict(state)
    for parameter, index in numbered(optimizer, state):
        own = optimizer.state.get(parameter) or {}
        for key, theirs in state["state"].get(index, {}).items():
            mine = own.get(key)
            if _wider(theirs, parameter) and isinstance(mine, torch.Tensor) and mine.element_size() < theirs.element_size():
                own[key] = theirs.to(mine.device)


def numbered(optimizer: torch.optim.Optimizer, state: Dict[str, Any]) -> List[Tuple[torch.Tensor, int]]:
    """The optimizer's parameters, each with its number in that state_dict."""
    return [(parameter, index) for own, packed in zip(optimizer.param_groups, state["param_groups"])
            for parameter, index in zip(own["params"], packed["params"])]
