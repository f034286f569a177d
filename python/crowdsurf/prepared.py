"""What Accelerate, which Hugging Face's Trainer uses too, knows of the batch in work."""

from __future__ import annotations

from typing import Any, Optional

from accelerate.state import GradientState


def batch_size() -> Optional[int]:
    """Samples of the batch in work. None: accelerate did not prepare its loader, or its batches have no one size."""
    size = _full_batch()
    return None if size is None else size - missing_samples()


def missing_samples() -> int:
    """How many samples the last batch of a pass lacks, while that batch is in work; else 0."""
    loader: Any = GradientState().active_dataloader
    size = _full_batch()
    if size is None or not loader.end_of_dataloader or loader.remainder <= 0:
        return 0
    return size - int(loader.remainder)


def _full_batch() -> Optional[int]:
    loader: Any = GradientState().active_dataloader
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None
