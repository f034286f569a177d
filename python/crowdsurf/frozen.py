"""The frozen part of a model, in a few bytes that peers can compare.

Frozen parameters do not travel. Workers whose frozen parameters differ would average parts of different models.
"""

from __future__ import annotations

import hashlib
from typing import List, Optional, Tuple

import torch

from .tensor import Tensor

_PROBES = 65_536   # values of a tensor that are compared: another revision or seed differs nearly everywhere


def frozen_mark(named: List[Tuple[str, torch.Tensor]]) -> Optional[Tensor]:
    """A row of the registration that is equal where the frozen parameters are. None: there are none.

    It compares names, shapes, types, and up to 65,536 evenly spread values of each. Cost: one read of those values.
    """
    digest, values = hashlib.sha256(), 0
    for name, parameter in named:
        if parameter.numel() == 0:
            continue
        values += parameter.numel()
        digest.update(repr((name, tuple(parameter.shape), str(parameter.dtype))).encode())
        digest.update(_probe(parameter))
    return Tensor("frozen." + digest.hexdigest()[:32], (), role="Frozen") if values else None


def _probe(parameter: torch.Tensor) -> bytes:
    flat = parameter.detach()
    if flat.layout != torch.strided or flat.device.type == "meta" or flat.dtype.is_complex:
        return b""
    flat = flat.reshape(-1)
    step = max(1, -(-flat.numel() // _PROBES))
    return bytes(flat[::step].contiguous().view(torch.uint8).cpu().numpy().tobytes())
