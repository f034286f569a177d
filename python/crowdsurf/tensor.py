"""What a trainer declares to its agent, and what a step boundary brings back."""

from __future__ import annotations

import dataclasses
import math
from typing import List, NamedTuple, Optional, Tuple


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
    shape: Tuple[int, ...]
    role: str = "Parameter"            # Parameter, OptimizerState, Buffer, Gradient
    group_out: int = -1                # short for UnitAxis(0, group_out)
    group_in: int = -1                 # short for UnitAxis(last axis, group_in)
    units: Tuple[UnitAxis, ...] = ()   # of every other axis with a unit group
    offset: Optional[int] = None       # bytes from the start of the averaged vector; None: not averaged in this job

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def unit_axes(self) -> List[UnitAxis]:
        """Every axis with a unit group, the short ones written out."""
        short = [(0, self.group_out), (len(self.shape) - 1, self.group_in)]
        return [UnitAxis(axis, group) for axis, group in short if group >= 0] + list(self.units)


class Counted(NamedTuple):
    """What a trainer has counted since it registered."""

    steps: int
    samples: int


@dataclasses.dataclass
class Outcome:
    """What a step boundary brought."""

    published: bool = False    # a snapshot was taken
    applied: bool = False      # a result was added to the parameters
    adopted: bool = False      # the parameters were replaced, and the trainer's state loaded
    stop: bool = False         # the job's target is met: leave the loop, exit 0
    leaving: bool = False      # this worker is about to be taken
    agent_lost: bool = False   # no agent for now: training goes on alone
    lr_scale: float = 1.0      # multiply the learning rate by this
    averaging: int = 0         # number of the result applied or adopted
    job_samples: float = 0.0   # samples of the whole job


@dataclasses.dataclass(frozen=True)
class Notice:
    """The platform is about to take this worker."""

    reason: str                 # the platform's word, such as SpotInterruption
    deadline: Optional[float]   # Unix seconds; None: the platform does not say when
