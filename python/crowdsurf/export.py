"""`python3 -m crowdsurf export`: the model that a job leaves, as a folder that Hugging Face's libraries open."""

from __future__ import annotations

import os
import shutil
from typing import Dict, Optional

from .safetensors import MODEL, Path, Stored, read_model, tensor_of, write_model

_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".h5", ".msgpack", ".pt", ".pth")


def export_model(model: Path, out: Path, *, like: Optional[Path] = None) -> None:
    """Writes `out`/model.safetensors from what a job left (a file, a folder or a URL, as load_model() takes).

    like: the folder that save_pretrained() wrote of the model which the job began with. Its configuration and tokenizer
    are copied. Tensors that the job did not average (frozen ones, buffers) come from it, and each tensor gets its type,
    for which PyTorch is needed.
    ValueError: a file is none, or the job's model is not `like`; names the tensor. `out` may be there, but without a model.
    """
    tensors = read_model(model)
    target = os.path.join(os.fspath(out), MODEL)
    if os.path.exists(target):
        raise ValueError(f"{target} is there already")
    if like is not None:
        tensors = _completed(tensors, read_model(like), os.fspath(like))
    os.makedirs(out, exist_ok=True)
    if like is not None:
        for name in sorted(os.listdir(like)):
            source = os.path.join(os.fspath(like), name)
            if os.path.isfile(source) and not name.endswith(_WEIGHTS):
                shutil.copy(source, out)
    write_model(target, tensors)


def _completed(trained: Dict[str, Stored], base: Dict[str, Stored], where: str) -> Dict[str, Stored]:
    for name, stored in trained.items():
        if name not in base:
            raise ValueError(f"the job's model has a tensor {name}, which {where} has not")
        if stored.shape != base[name].shape:
            raise ValueError(f"{name} is {stored.shape} in the job's model and {base[name].shape} in {where}")
    return {name: _as_type(trained[name], old.dtype) if name in trained else old for name, old in base.items()}


def _as_type(stored: Stored, dtype: str) -> Stored:
    if stored.dtype == dtype:
        return stored
    import torch

    values = tensor_of(stored).to(tensor_of(Stored(dtype, [0], memoryview(b""))).dtype)
    data = bytearray(values.numel() * values.element_size())
    if data:
        torch.frombuffer(data, dtype=torch.uint8).copy_(values.reshape(-1).view(torch.uint8))
    return Stored(dtype, stored.shape, memoryview(data))
