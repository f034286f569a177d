"""The trainer's registration with the agent: docs/trainer-link.md, section 3."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Callable, Dict, Iterable, List, Sequence, Union

from . import bells, layout
from .connection import Connection, Refusal
from .tensor import Tensor
from .version import __version__

Declare = Callable[[Sequence[str]], Iterable[Tensor]]   # gets the roles that the job averages
Tensors = Union[Iterable[Tensor], Declare]

log = logging.getLogger("crowdsurf")


def declared(tensors: Tensors, connection: Connection) -> List[Tensor]:
    """What the trainer declares; where that depends on the job's roles, the agent is asked for them first."""
    if not callable(tensors):
        return list(tensors)
    try:
        roles = connection.call_json("GET", "/v1/state").get("roles", [])
    except Refusal:   # of another version: the registration says so
        roles = []
    return list(tensors(roles))


def register(connection: Connection, tensors: Sequence[Tensor], metrics: Sequence[str], *, fresh: bool,
             gradients: bool) -> Dict[str, Any]:
    """The agent's answer. Refusal: it does not take this trainer, or is of another version. AgentError: it has gone.

    fresh: the trainer has not trained yet. gradients: it can hand over gradients in place of parameters.
    """
    body = {"tensors": [{"name": t.name, "shape": list(t.shape), "role": t.role,
                         "units": [dataclasses.asdict(axis) for axis in t.unit_axes()]} for t in tensors],
            "metrics": list(metrics), "fresh": fresh, "first": any(t.role == "Parameter" for t in tensors),
            "bells": bells.system_call() is not None, "gradients": gradients}
    try:
        answer = connection.call_json("POST", "/v1/register", body)
    except Refusal as refusal:
        if refusal.code == 404:
            raise _other_version("another version") from refusal
        raise
    if answer.get("version") != layout.VERSION:
        raise _other_version(f"version {answer.get('version')}")
    return answer


def _other_version(theirs: str) -> Refusal:
    return Refusal(f"the agent speaks {theirs} of the trainer link, crowdsurf {__version__} speaks version "
                   f"{layout.VERSION}: install the crowdsurf of the agent's release")


class LastingRefusal:
    """Says why an agent that came back does not take this trainer, once, where that lasts.

    One that has just come back may still take this trainer for its predecessor.
    """

    def __init__(self) -> None:
        self._since, self._said = 0.0, ""

    def note(self, words: str, now: float, patience: float) -> None:
        """patience: seconds for which it must last."""
        self._since = self._since or now
        if now - self._since >= patience and words != self._said:
            self._said = words
            log.warning("crowdsurf: the agent that came back does not take this trainer: %s", words)

    def end(self) -> None:
        self._since = 0.0
