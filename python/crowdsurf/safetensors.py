"""The model that a job leaves behind: model.safetensors as a state_dict. Needs PyTorch."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Dict, Union

if TYPE_CHECKING:
    import torch

_HEADER_MOST = 100 << 20   # bytes; the format's own bound
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
           "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


def load_model(path: Union[str, os.PathLike[str]]) -> Dict[str, torch.Tensor]:
    """The tensors of a safetensors file by name, for model.load_state_dict().

    A job writes what it averages: without `roles: [Parameter, Buffer]` buffers are not in it (then strict=False).
    ValueError: the file is none, or is cut short. Executes nothing that the file says.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(_HEADER_MOST, size - 8):
            raise ValueError(f"{os.fspath(path)} is no safetensors file, or is cut short")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            data = memoryview(bytearray(file.read()))
            return {name: _tensor(entry, data) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
            raise ValueError(f"{os.fspath(path)} is no safetensors file, or is cut short: {error}") from error


def _tensor(entry: Dict[str, Any], data: memoryview) -> torch.Tensor:
    import torch

    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= len(data):
        raise ValueError("a tensor lies outside of it")
    dtype = getattr(torch, _DTYPES[entry["dtype"]])
    flat = torch.frombuffer(data[begin:end], dtype=dtype) if begin < end else torch.empty(0, dtype=dtype)
    return flat.reshape(entry["shape"])
