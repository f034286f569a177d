"""The optimizers of a model, as averaging sees them: their rates, their copies of parameters, their moments, their state."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch

from .masters import Masters, load
from .moments import Find, Moments, unwrapped
from .rate import ScaledRate
from .tensor import Tensor
from .trainable import check_optimizers

Given = Union[None, torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]

log = logging.getLogger("crowdsurf")


class Optimizers:
    """None, one, or several, such as those of a GAN's two networks."""

    def __init__(self, given: Given, parameters: List[Tuple[str, torch.Tensor]]) -> None:
        """parameters: names and values of those that are averaged. ValueError: an optimizer does not fit them; says why."""
        self._several = not (given is None or isinstance(given, torch.optim.Optimizer))
        self._all: List[torch.optim.Optimizer] = [] if given is None else [given] if isinstance(given, torch.optim.Optimizer) else list(given)
        check_optimizers(self._all, parameters)
        self._parameters = parameters
        self._rates = [ScaledRate(each) for each in self._all]
        self._moments: List[Moments] = []   # where the job averages them
        self.masters = Masters([unwrapped(each) for each in self._all], parameters)

    def __bool__(self) -> bool:
        return bool(self._all)

    def step(self) -> None:
        for each in self._all:
            each.step()

    def set_rate(self, scale: float) -> None:
        """Multiplies the learning rates by `scale` within each step()."""
        for rate in self._rates:
            rate.set(scale)

    def declare_moments(self) -> Tuple[List[Tensor], List[Find]]:
        """Makes the state that is to be averaged. ValueError: it cannot be; says what to do."""
        if self._moments:
            return [], []
        options: List[Optional[torch.optim.Optimizer]] = [*self._all]
        self._moments = [Moments(each, self._parameters) for each in options or [None]]
        return ([t for moments in self._moments for t in moments.tensors],
                [find for moments in self._moments for find in moments.finds])

    def settle(self) -> None:
        """After an average was added or taken: moments are in their bounds, parameters are those of their copies."""
        for moments in self._moments:
            moments.repair()
        self.masters.settle()

    def warn_of_schedules(self, stateful: Sequence[Any]) -> None:
        """A schedule that counts its own steps begins anew at a joiner, whose optimizer has the donor's state."""
        carried = {id(getattr(each, "optimizer", None)) for each in stateful}
        for each in self._all:
            scheduled = getattr(each.step, "_with_counter", False) or getattr(each.step, "_wrapped_by_lr_sched", False)
            if scheduled and id(each) not in carried:
                log.warning("crowdsurf: a learning-rate schedule steps %s, and would begin anew at each joiner: give it to "
                            "join(stateful=[...]), or let the rate be a function of job.samples", type(each).__name__)

    # --- what goes to joiners --------------------------------------------------------------------------

    def state(self) -> Any:
        """Of one optimizer its state_dict, of several a list; without what the averaged vector has."""
        states = [self._without(i, each.state_dict()) for i, each in enumerate(self._all)]
        return states if self._several else states[0] if states else None

    def load(self, state: Any) -> None:
        """What state() gave at a donor. KeyError, TypeError, ValueError ...: it is of other optimizers."""
        if state is None or not self._all:
            return
        states = state if self._several else [state]
        if len(states) != len(self._all):
            raise KeyError(f"{len(states)} optimizers")
        for i, (each, theirs) in enumerate(zip(self._all, states)):
            load(each, self._moments[i].completed(theirs) if self._moments else theirs)

    def _without(self, i: int, state: Dict[str, Any]) -> Dict[str, Any]:
        return self._moments[i].without(state) if self._moments else state


