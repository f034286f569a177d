"""A CUDA device, as staging.py sees it."""

from __future__ import annotations

import logging
from typing import Any, Optional

import torch

from .staging import Device, Event, Staging, Stream

log = logging.getLogger("crowdsurf")
_cuda: Any = torch.cuda   # PyTorch 1.13 says no types of most of it


class CudaEvent:
    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self) -> None:
        self.event.synchronize()


class CudaStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        with _cuda.stream(self._stream), torch.no_grad():
            to.copy_(source, non_blocking=True)

    def add(self, to: torch.Tensor, change: torch.Tensor) -> None:
        with _cuda.stream(self._stream), torch.no_grad():
            to.add_(change.to(to.dtype))

    def record(self) -> CudaEvent:
        return CudaEvent(self._stream.record_event(_cuda.Event(blocking=True)))

    def follow(self, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        self._stream.wait_event(event.event)


class CudaDevice:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.side: Stream = CudaStream(_cuda.Stream(device))

    def current(self) -> CudaStream:
        return CudaStream(_cuda.current_stream(self._device))

    def empty(self, elements: int) -> Optional[torch.Tensor]:
        try:
            return torch.empty(elements, dtype=torch.float32, device=self._device)
        except _cuda.OutOfMemoryError:
            return None

    def pinned(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, dtype=torch.float32, pin_memory=True)


def staging_on(device: torch.device, elements: int) -> Optional[Staging]:
    """For an averaged vector of so many elements. None: copies on that device go without."""
    if device.type != "cuda" or elements == 0:
        return None
    try:
        opened: Device = CudaDevice(device)
        return Staging(opened, elements)
    except RuntimeError as error:
        log.warning("crowdsurf: no pinned memory for the averages, so each copy waits for the device: %s", error)
        return None
