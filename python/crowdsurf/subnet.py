"""The part of a model that index sets leave active, gathered into smaller tensors (docs/trainer-link.md, section 8).

    sets = agent.index_sets() or sets            # at a step boundary, after start() and step()
    subnet = crowdsurf.Subnet(agent.tensors, sets)
    parts = subnet.gather(params)                # {name: values of the smaller tensor}, subnet.shapes[name]
    ...                                          # train these alone, hidden activations times subnet.scale(group)
    subnet.scatter(parts, params)                # before the next agent.step()
"""

from __future__ import annotations

import array
import itertools
import math
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from .memory import numpy
from .parameters import as_floats
from .tensor import Tensor


class Subnet:
    """Of each averaged tensor the product of the positions along its axes. A group without a set is active whole.

    Momentum and other state of an optimizer must start anew with other sets: it is of units that another trained.
    """

    def __init__(self, tensors: Iterable[Tensor], sets: Mapping[int, Sequence[int]]) -> None:
        self._units: Dict[int, int] = {}
        self._active: Dict[int, int] = {}
        self._places: Dict[str, Any] = {}
        self.shapes: Dict[str, Tuple[int, ...]] = {}
        for tensor in tensors:
            if tensor.offset is None:
                continue
            positions = self._positions(tensor, sets)
            self.shapes[tensor.name] = tuple(len(p) for p in positions)
            self._places[tensor.name] = _places(tensor.offset // 4, tensor.shape, positions)

    def scale(self, group: int) -> float:
        """Multiply the activations of the layer of `group` by this in training, by 1 in evaluation."""
        return self._units[group] / self._active[group]

    def gather(self, flat: Any) -> Dict[str, Any]:
        """The sub-network's values of the averaged vector by tensor: numpy arrays in shape, else flat array.array."""
        if numpy is not None:
            flat = numpy.asarray(flat)
            return {name: flat[at].reshape(self.shapes[name]) for name, at in self._places.items()}
        return {name: array.array("f", (flat[i] for i in at)) for name, at in self._places.items()}

    def scatter(self, parts: Mapping[str, Any], flat: Any) -> None:
        """Puts the values of `parts` back where gather found them; nothing else of `flat` changes."""
        if numpy is not None:
            flat = numpy.asarray(as_floats(flat))
        for name, at in self._places.items():
            if numpy is not None:
                flat[at] = numpy.asarray(parts[name], numpy.float32).reshape(-1)
            else:
                if len(parts[name]) != len(at):   # zip's `strict` came with Python 3.10
                    raise ValueError(f"the part {name} has {len(parts[name])} values, not {len(at)}")
                for i, value in zip(at, parts[name]):
                    flat[i] = value

    def _positions(self, tensor: Tensor, sets: Mapping[int, Sequence[int]]) -> List[Sequence[int]]:
        """The active positions along each axis."""
        positions: List[Sequence[int]] = [range(length) for length in tensor.shape]
        for cut in tensor.unit_axes():
            units = tensor.shape[cut.axis] // (cut.size * cut.blocks)
            active = sets.get(cut.group, range(units))
            self._units[cut.group], self._active[cut.group] = units, len(active)
            positions[cut.axis] = [(block * units + unit) * cut.size + i
                                   for block in range(cut.blocks) for unit in active for i in range(cut.size)]
        return positions


def _places(begin: int, shape: Sequence[int], positions: Sequence[Sequence[int]]) -> Any:
    """The elements of the flat vector with these positions, in the smaller tensor's order."""
    strides = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
    if numpy is not None:
        places = numpy.full((1,) * len(shape), begin, numpy.int64)
        for axis, (stride, own) in enumerate(zip(strides, positions)):
            along = [1] * len(shape)
            along[axis] = len(own)
            places = places + stride * numpy.array(own, numpy.int64).reshape(along)
        return places.reshape(-1)
    return array.array("Q", (begin + sum(stride * p for stride, p in zip(strides, at))
                             for at in itertools.product(*positions)))
