"""Crowdsurf for Python trainers: average a model's parameters with the crowd, over the trainer link.

    link = crowdsurf.Link([crowdsurf.Tensor("w", (4, 8))])
    params = first_parameters(link.seed)        # float32, the averaged tensors one after the other
    link.start(params)
    while True:
        loss = train_one_step(params)
        if link.step(samples=8, loss=loss, params=params).stop:
            link.acknowledge_stop()
            break

For PyTorch see crowdsurf.module. Nothing here is compiled; numpy is used where it is installed.
"""

from .connection import LinkError
from .agent import Link, Outcome, Tensor, UnitAxis
from .subnet import Subnet

__all__ = ["Link", "LinkError", "Outcome", "Subnet", "Tensor", "UnitAxis"]
