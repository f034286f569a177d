"""What of a model can be averaged: its trainable parameters and its buffers, and what is refused by name."""

from __future__ import annotations

import functools
import os
from typing import Any, Dict, List, Sequence, Set, Tuple

import torch

from .moments import Find

_WRAPPERS = ("DataParallel", "DistributedDataParallel")
_ONE_PROCESS = "a Crowdsurf worker is one training process, and the job is the group: start one process a worker"
# Classes whose parameters are shards or stages: each process holds a part of the model alone. By name: importing
# torch.distributed.fsdp takes seconds, and DeepSpeed may not be there.
_SHARDED = {
    "FullyShardedDataParallel": "FSDP1 keeps flat shards of the parameters",
    "FSDPModule": "FSDP2 (fully_shard) keeps a shard of each parameter",
    "DeepSpeedEngine": "DeepSpeed keeps float32 copies of the parameters that join() cannot reach",
    "PipelineStage": "a pipeline stage is a part of the model",
    "Pipe": "a pipeline splits the model over devices",
}


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


def refuse_sharded(model: torch.nn.Module) -> None:
    """ValueError: this process has a part of the model alone. Names the module or the parameter."""
    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _SHARDED:
                raise ValueError(f"the model{' at ' + path if path else ''} is a {kind.__name__}: {_SHARDED[kind.__name__]}. join() "
                                 f"averages whole models: {_ONE_PROCESS}")
    for name, parameter in model.named_parameters():
        if any(kind.__name__ in ("DTensor", "FlatParameter") for kind in type(parameter).__mro__):
            raise ValueError(f"the parameter {name} is a shard ({type(parameter).__name__}): join() averages whole models: {_ONE_PROCESS}")


def refuse_group() -> None:
    """ValueError: this process trains the model together with others, which an average would not reach."""
    size, rank = 1, 0
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        size, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    elif os.environ.get("LOCAL_WORLD_SIZE", "").isdigit():   # torchrun's children, before they have made their group
        size, rank = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK") or 0)
    if size > 1:
        raise ValueError(f"this process is rank {rank} of {size} that train one model, and an average would reach one rank alone: "
                         f"{_ONE_PROCESS}, without torchrun's --nproc-per-node {size}")


def frozen(model: torch.nn.Module) -> List[Tuple[str, torch.Tensor]]:
    """Names and values of the parameters that no worker trains."""
    return [(clean(model, name), p) for name, p in model.named_parameters() if not p.requires_grad]


def trainable(model: torch.nn.Module) -> List[Tuple[str, torch.Tensor]]:
    """Names and values of the parameters that are averaged. Tied ones come once, under their first name."""
    refuse_sharded(model)
    named: List[Tuple[str, torch.Tensor]] = [(clean(model, name), p) for name, p in model.named_parameters() if p.requires_grad]
    for name, parameter in named:
        _check(name, parameter)
    named = [(name, p) for name, p in named if p.numel() > 0]
    if not named:
        raise ValueError("the model has no parameter that requires a gradient: there is nothing to average")
    _check_overlap(named)
    return named


def check_optimizers(optimizers: Sequence[torch.optim.Optimizer], parameters: List[Tuple[str, torch.Tensor]]) -> None:
    """ValueError: one trains none of these parameters, or two train the same."""
    names = {id(p): name for name, p in parameters}
    seen: Set[int] = set()
    for optimizer in optimizers:
        trained = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        if not any(key in names for key in trained):
            copies = any(p.is_floating_point() and p.element_size() > 2 for p in trained.values()) and \
                any(p.element_size() < 4 for _, p in parameters)
            raise ValueError("the optimizer trains none of the model's parameters: " + (
                f"{type(optimizer).__name__} trains copies of its 16-bit parameters, which join() cannot reach. Keep the parameters in "
                "float32 (torch.autocast computes in 16 bits)" if copies else "make it from model.parameters()"))
        for key in trained:
            if key in seen and key in names:
                raise ValueError(f"two optimizers train the parameter {names[key]}")
        seen.update(trained)


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
    if parameter.is_inference():
        raise ValueError(f"the parameter {name} was made in torch.inference_mode(), which forbids to change it: make the model outside")
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
