"""Models as files in the format safetensors: read, and written as Hugging Face's libraries read them. PyTorch is needed
for load_model() alone.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import os
from typing import IO, TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Tuple, Union

if TYPE_CHECKING:
    import torch

_HEADER_MOST = 100 << 20   # bytes; the format's own bound
_VALUES_MOST = 1 << 20     # in a header; as many as 65,536 tensors of eight dimensions have, and more than any model
_DTYPES = {"F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2), "I64": ("int64", 8),
           "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1), "BOOL": ("bool", 1)}   # bytes each
MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"   # of a folder; the index where there are several files

Path = Union[str, "os.PathLike[str]"]


class Stored(NamedTuple):
    """A tensor of a file: its type in the format's words, such as F32, and its bytes, row-major, little-endian."""

    dtype: str
    shape: List[int]
    data: memoryview


def load_model(path: Path) -> Dict[str, torch.Tensor]:
    """The tensors of a model by name, for model.load_state_dict().

    path: a safetensors file; a folder with model.safetensors, such as a job's checkpoint volume, or with Hugging Face's
    index of several files; or a URL of a file, which fsspec opens.
    A job writes what it averages: without `roles: [Parameter, Buffer]` buffers are not in it (then strict=False).
    ValueError: the file is none, or is cut short. Executes nothing that the file says.
    """
    return {name: tensor_of(stored) for name, stored in read_model(path).items()}


def read_model(path: Path) -> Dict[str, Stored]:
    """As load_model(), without PyTorch."""
    where = os.fspath(path)
    if "://" in where or not os.path.isdir(where):
        return _read_file(where)
    index = os.path.join(where, INDEX)
    if os.path.exists(os.path.join(where, MODEL)) or not os.path.exists(index):
        return _read_file(os.path.join(where, MODEL))
    tensors: Dict[str, Stored] = {}
    for file in _files_of(index):
        tensors.update(_read_file(os.path.join(where, file)))
    return tensors


def write_model(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Writes a file that Hugging Face's libraries read, under another name first."""
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}   # transformers reads no other
    at = 0
    for name, stored in tensors.items():
        header[name] = {"dtype": stored.dtype, "shape": stored.shape, "data_offsets": [at, at + len(stored.data)]}
        at += len(stored.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)   # so that the data are aligned
    new = f"{os.fspath(path)}.new"
    with open(new, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for stored in tensors.values():
            file.write(stored.data)
    os.replace(new, path)


def tensor_of(stored: Stored) -> torch.Tensor:
    """On the CPU, in the file's memory. ValueError: PyTorch has no such type."""
    import torch

    if stored.dtype not in _DTYPES:
        raise ValueError(f"tensors of the type {stored.dtype} cannot be read")
    dtype = getattr(torch, _DTYPES[stored.dtype][0])
    flat = torch.frombuffer(stored.data, dtype=dtype) if len(stored.data) else torch.empty(0, dtype=dtype)
    return flat.reshape(stored.shape)


def _read_file(where: str) -> Dict[str, Stored]:
    with _opened(where) as (file, size):
        length = int.from_bytes(file.read(8), "little")
        if length > min(_HEADER_MOST, size - 8):
            raise ValueError(f"{where} is no safetensors file, or is cut short")
        try:
            header = _json_of(file.read(length))
            header.pop("__metadata__", None)
            data = memoryview(bytearray(file.read()))
            return {name: _stored(entry, data) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{where} is no safetensors file, or is cut short: {error}") from error


def _json_of(text: bytes) -> Any:
    """A value takes many times the bytes that it has in the text: they are counted first. ValueError: there are too many."""
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > _VALUES_MOST:
        raise ValueError("it has too many values for a model")
    return json.loads(text)


@contextlib.contextmanager
def _opened(where: str) -> Iterator[Tuple[IO[bytes], int]]:
    """The file, and its size in bytes."""
    if "://" in where:
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError as error:
            raise ImportError(f"{where} is a URL, which needs the package fsspec ({error})") from error
        with fsspec.open(where, "rb") as remote:
            content: bytes = remote.read()
        yield io.BytesIO(content), len(content)
        return
    with open(where, "rb") as file:
        yield file, os.fstat(file.fileno()).st_size


def _stored(entry: Dict[str, Any], data: memoryview) -> Stored:
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= len(data):
        raise ValueError("a tensor lies outside of it")
    dtype, shape = str(entry["dtype"]), [int(n) for n in entry["shape"]]
    if dtype in _DTYPES and (min(shape, default=0) < 0 or math.prod(shape) * _DTYPES[dtype][1] != end - begin):
        raise ValueError(f"{end - begin} bytes are no {shape} of {dtype}")
    return Stored(dtype, shape, data[begin:end])


def _files_of(index: str) -> List[str]:
    try:
        with open(index, "rb") as file:
            files = sorted(set(_json_of(file.read(_HEADER_MOST))["weight_map"].values()))
        if any(os.path.basename(name) != name for name in files):
            raise ValueError("a file lies outside of its folder")
        return files
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{index} is no index of safetensors files: {error}") from error
