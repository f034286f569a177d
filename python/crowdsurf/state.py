"""A state_dict as bytes: u64 length of a JSON text, the text, the tensors' bytes.

Not a pickle: it comes from a peer, and unpickling runs what it is told to (torch.load's weights_only cannot read plain
numbers before 2.0).
"""

from __future__ import annotations

import json
from typing import Any, Callable, List, Union

import torch

_DTYPES = {str(t)[6:]: t for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                                   torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)}


def pack(state: Any) -> bytes:
    """`state` (dicts, lists, numbers, strings, None, tensors) as bytes. TypeError for anything else."""
    return b"".join(pieces(state))


def pieces(state: Any) -> List[Union[bytes, bytearray]]:
    """pack() without the copy that joins them."""
    blobs: List[bytearray] = []
    text = _text(state, lambda value: blobs.append(_bytes_of(value)))
    return [len(text).to_bytes(8, "little"), text, *blobs]


def size(state: Any) -> int:
    """Bytes that pack() would give. TypeError: it would refuse the state. Copies no tensor."""
    sizes: List[int] = []
    text = _text(state, lambda value: sizes.append(value.numel() * value.element_size()))
    return 8 + len(text) + sum(sizes)


def _text(state: Any, take: Callable[[torch.Tensor], None]) -> bytes:
    """The JSON text. `take` gets each tensor, in their order."""
    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            name = str(value.dtype)[6:]
            if name not in _DTYPES or value.layout != torch.strided:
                raise TypeError(f"it holds a tensor of {value.dtype}, {value.layout}, which cannot travel to a joiner")
            take(value)
            return {"tensor": [name, list(value.shape), value.numel() * value.element_size()]}
        if isinstance(value, dict):
            return {"items": [[key, plain(item)] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"it holds a {type(value).__name__}, which cannot travel to a joiner")

    return json.dumps(plain(state)).encode()


def _bytes_of(value: torch.Tensor) -> bytearray:
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
    blob = bytearray(flat.numel())
    if blob:
        torch.frombuffer(blob, dtype=torch.uint8).copy_(flat)
    return blob


def unpack(data: bytes) -> Any:
    """What `pack` was given, tuples as lists, tensors on the CPU. ValueError when `data` is not from it."""
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        root = json.loads(data[8:start])
        blobs = memoryview(data)[start:]

        def rich(value: Any) -> Any:
            nonlocal blobs
            if isinstance(value, list):
                return [rich(item) for item in value]
            if not isinstance(value, dict):
                return value
            if "items" in value:
                return {key: rich(item) for key, item in value["items"]}
            name, shape, length = value["tensor"]
            blob, blobs = bytearray(blobs[:length]), blobs[length:]
            dtype = _DTYPES[name]
            return (torch.frombuffer(blob, dtype=dtype) if blob else torch.empty(0, dtype=dtype)).reshape(shape)

        return rich(root)
    except (KeyError, TypeError, RuntimeError, OverflowError, RecursionError) as error:
        raise ValueError(f"no trainer state: {error}") from error
