"""Crowdsurf for PyTorch: a worker that averages a module's parameters with the crowd.

    torch.manual_seed(0)                                  # the same first parameters at every worker
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    worker = crowdsurf.module.Worker(model, optimizer)     # joins with the job's state where there is one
    for inputs, labels in batches:
        loss = train_one_step(model, optimizer, inputs, labels)
        if worker.step(samples=len(inputs), loss=float(loss)).stop:
            break
    worker.close()

Outside a job (CROWDSURF_DIR not set) every call does nothing, so that one script serves both.
"""

import json
import os

import torch

from .agent import Link, Outcome, Tensor
from .memory import numpy

if numpy is None:
    raise ImportError("crowdsurf.module needs numpy")


class Worker:
    """Averages the parameters of `module` that are floating point; the optimizer's state goes to joiners.

    The averaged vector is float32 on the CPU: parameters of other types and devices are converted at
    snapshots and results, and their copies on the device change only when an average arrives. One thread.
    """

    def __init__(self, module, optimizer=None, metrics=(), directory=None, patience=60.0):
        self._module, self._optimizer = module, optimizer
        directory = directory or os.environ.get("CROWDSURF_DIR")
        self._link = None
        if not directory:
            return
        named = [(n, p) for n, p in module.named_parameters() if p.is_floating_point()]
        self._link = Link([Tensor(name, tuple(p.shape)) for name, p in named], directory, metrics,
                          self._get_opaque, self._set_opaque, patience)
        self._parts = [(p, t.offset // 4, t.offset // 4 + t.elements)
                       for (_, p), t in zip(named, self._link.tensors) if t.offset is not None]
        self._flat = numpy.zeros(self._link.elements, numpy.float32)
        self._read()
        if self._link.start(self._flat, patience).adopted:
            self._write()

    def step(self, samples, loss=None):
        """After optimizer.step(). Returns the Outcome; its `stop` means: leave the loop, call close()."""
        if self._link is None:
            return Outcome()
        self._read()
        outcome = self._link.step(samples, loss, self._flat)
        if outcome.applied or outcome.adopted:
            self._write()
        if outcome.stop:
            self._link.acknowledge_stop()
        return outcome

    def set_metric(self, name, value):
        if self._link is not None:
            self._link.set_metric(name, value)

    def close(self):
        if self._link is not None:
            self._link.close()

    def _read(self):
        for parameter, first, last in self._parts:
            source = parameter.detach().to(device="cpu", dtype=torch.float32)
            self._flat[first:last] = source.reshape(-1).numpy()

    def _write(self):
        with torch.no_grad():
            for parameter, first, last in self._parts:
                parameter.copy_(torch.from_numpy(self._flat[first:last].copy()).reshape(parameter.shape))

    def _get_opaque(self):
        return pack(self._optimizer.state_dict()) if self._optimizer is not None else b""

    def _set_opaque(self, state):
        if self._optimizer is not None and state:
            self._optimizer.load_state_dict(unpack(state))


# A state_dict as bytes: u64 length of a JSON text, the text, the tensors' bytes. Not a pickle: it comes from a
# peer, and unpickling runs what it is told to (torch.load's weights_only cannot read plain numbers before 2.0).

_DTYPES = {str(t)[6:]: t for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                                   torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)}


def pack(state):
    """`state` (dicts, lists, numbers, strings, None, tensors) as bytes. TypeError for anything else."""
    blobs = []

    def plain(value):
        if isinstance(value, torch.Tensor):
            flat = value.detach().to("cpu").contiguous().reshape(-1)
            blobs.append(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
            return {"tensor": [str(value.dtype)[6:], list(value.shape), len(blobs[-1])]}
        if isinstance(value, dict):
            return {"items": [[key, plain(item)] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"the optimizer's state holds a {type(value).__name__}")

    text = json.dumps(plain(state)).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *blobs])


def unpack(data):
    """What `pack` was given, tuples as lists, tensors on the CPU. ValueError when `data` is not from it."""
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        root = json.loads(data[8:start])
        blobs = memoryview(data)[start:]

        def rich(value):
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
    except (KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise ValueError(f"no optimizer state: {error}") from error
