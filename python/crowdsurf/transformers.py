"""Hugging Face's Trainer in a job, with one line (docs/frameworks.md):

    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[CrowdsurfCallback()])
"""

from __future__ import annotations

import logging
import os
from typing import Any, Callable, Dict, Optional, Sequence

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .accelerate import missing_samples
from .job import Job, join
from .loader import draw_apart
from .platforms import refuse_spread
from .tensor import Notice

log = logging.getLogger("crowdsurf")


class CrowdsurfCallback(TrainerCallback):
    """Joins when training begins, steps after each optimizer step, and ends the training when the job's target is met.

    Schedules go to joiners with the optimizer's state. The loss, and each of `metrics`, reach the job when the Trainer
    logs it. What the Trainer logs gets job.metrics() beside it, in its history and for the callbacks after this one.
    """

    def __init__(self, *, init: str = "job", metrics: Sequence[str] = (),
                 on_notice: Optional[Callable[[Notice], None]] = None) -> None:
        """As crowdsurf.join(). metrics: names that the Trainer logs, such as eval_loss."""
        self._init, self._metrics, self._on_notice = init, list(metrics), on_notice
        self._parts, self._loss = 0, None   # of the step in work, before its last one; what was logged since the last step
        self.job: Optional[Job] = None      # None before training begins

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """ValueError: the arguments spread the model over processes or devices."""
        _check(args)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *, model: Any = None,
                       optimizer: Any = None, lr_scheduler: Any = None, train_dataloader: Any = None, **_: Any) -> None:
        """Raises what crowdsurf.join() does."""
        _check(args)   # a callback that was added later
        if self.job is not None:
            self.job.close()   # a training that an exception has ended
        self._parts, self._loss = 0, None
        self.job = join(model, optimizer, init=self._init, metrics=self._metrics, on_notice=self._on_notice,
                        stateful=[] if lr_scheduler is None else [lr_scheduler])
        if self.job.seed is not None:
            draw_apart(train_dataloader, self.job.seed)
            _warn_of_checkpoints(args)

    def on_substep_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._parts += 1

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        assert self.job is not None
        samples = int(state.train_batch_size or args.train_batch_size) * (self._parts + 1) - missing_samples()
        self.job.step(samples=samples, loss=self._loss)
        self._parts, self._loss = 0, None
        if self.job.done:
            control.should_training_stop = True

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, *,
               logs: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        if self.job is None or self.job.closed or logs is None:   # an evaluation before or after the training
            return
        self._loss = logs.get("loss", self._loss)
        self.job.report(**{name: float(logs[name]) for name in self._metrics if name in logs})
        extra = self.job.metrics(prefix="crowdsurf_")
        logs.update(extra)
        if state.log_history:
            state.log_history[-1].update(extra)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.job is not None:
            self.job.finish()


def _check(args: TrainingArguments) -> None:
    options = (("deepspeed", args.deepspeed), ("fsdp", args.fsdp), (f"n_gpu={args.n_gpu}", args.n_gpu > 1),
               (f"world_size={args.world_size}", args.world_size > 1))
    refuse_spread(words for words, given in options if given)


def _warn_of_checkpoints(args: TrainingArguments) -> None:
    if args.save_strategy != "no" and os.environ.get("CROWDSURF_WORKER", "") not in str(args.output_dir):
        log.warning('crowdsurf: every worker writes checkpoints to %s: set save_strategy="no", for the job has its own, or put '
                    "CROWDSURF_WORKER into output_dir", args.output_dir)
