"""Lightning's Trainer in a job, with a strategy (docs/frameworks.md):

    trainer = Trainer(max_epochs=-1, strategy=CrowdsurfStrategy())     # or "crowdsurf", after this import
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, List, Optional, Sequence

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from lightning.pytorch.utilities.data import extract_batch_size

from .job import Job, join
from .loader import draw_apart
from .platforms import refuse_spread
from .rate import ScaledRate
from .tensor import Notice

_PREFIX = "crowdsurf_"   # of job.metrics() in the loggers


class CrowdsurfStrategy(SingleDeviceStrategy):
    """Joins when the training's data are first wanted, steps after each optimizer step, and ends the training at the target.

    Schedules, further optimizers and a GradScaler go to joiners with the state of the first optimizer. The loggers get
    job.metrics() every `log_every_n_steps`. A batch that steps several optimizers is one step of the job.
    """

    strategy_name = "crowdsurf"

    def __init__(self, *, init: str = "job", metrics: Sequence[str] = (), on_notice: Optional[Callable[[Notice], None]] = None,
                 samples: Callable[[Any], int] = extract_batch_size, **options: Any) -> None:
        """init, on_notice: as crowdsurf.join(). metrics: names that the module logs in validation.

        samples: how many a batch has; the length of its first tensor. options: checkpoint_io and precision_plugin, as
        other strategies take them.
        """
        super().__init__(**options)
        self._init, self._metrics, self._on_notice, self._samples_of = init, list(metrics), on_notice, samples
        self._trainer: Any = None
        self._devices: List[Any] = []
        self._rates: List[ScaledRate] = []       # of the optimizers after the first
        self._samples, self._loss = 0, None      # since the last step of the job
        self.job: Optional[Job] = None           # None before training begins

    # --- one process, one device: Lightning sets both ---------------------------------------------------

    @property
    def parallel_devices(self) -> List[Any]:
        return self._devices

    @parallel_devices.setter
    def parallel_devices(self, devices: List[Any]) -> None:
        refuse_spread([f"devices={len(devices)}"] if len(devices) > 1 else [])
        self._devices, self._root_device = devices, devices[0]

    @property
    def num_nodes(self) -> int:
        return 1

    @num_nodes.setter
    def num_nodes(self, count: int) -> None:
        refuse_spread([f"num_nodes={count}"] if count > 1 else [])

    # --- the training -------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer) -> None:
        self._trainer = trainer
        super().setup(trainer)

    def process_dataloader(self, dataloader: Any) -> Any:
        """Raises what crowdsurf.join() does. Lightning draws the first order of the data right after it."""
        if self._trainer.training:
            if self.job is None or self.job.closed:
                self._begin()
            if self.job is not None and self.job.seed is not None:
                draw_apart(dataloader, self.job.seed + self._trainer.current_epoch)   # a loader may be made anew each epoch
        return super().process_dataloader(dataloader)

    def _begin(self) -> None:
        first, others = next(iter(self.optimizers), None), self.optimizers[1:]
        scaler = getattr(self.precision_plugin, "scaler", None)
        stateful = [*others, *(config.scheduler for config in self.lr_scheduler_configs), *([] if scaler is None else [scaler])]
        self.job = join(self.lightning_module, first, init=self._init, metrics=self._metrics, on_notice=self._on_notice,
                        stateful=stateful)
        self._rates, self._samples, self._loss = [ScaledRate(each) for each in others], 0, None

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._samples += self._samples_of(batch)

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        output = super().training_step(*arguments, **named)
        loss = output.get("loss") if isinstance(output, Mapping) else output
        self._loss = loss.detach() if hasattr(loss, "detach") else loss
        return output

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **options: Any) -> Any:
        result = super().optimizer_step(optimizer, closure, model, **options)
        if self.job is None or self._samples == 0:
            return result
        outcome = self.job.step(samples=self._samples, loss=self._loss)
        self._samples, self._loss = 0, None
        for rate in self._rates:
            rate.set(outcome.lr_scale)
        trainer = self._trainer
        if self.job.done:
            trainer.should_stop = True
        if (trainer.global_step + 1) % trainer.log_every_n_steps == 0:
            for logger in trainer.loggers:
                logger.log_metrics(self.job.metrics(prefix=_PREFIX), step=trainer.global_step)
        return result

    def on_validation_end(self) -> None:
        logged = self._trainer.callback_metrics
        if self.job is not None and not self.job.closed:   # in a training
            self.job.report(**{name: float(logged[name]) for name in self._metrics if name in logged})

    def on_train_end(self) -> None:
        if self.job is not None:
            self.job.finish()

    def on_exception(self, exception: BaseException) -> None:
        if self.job is not None:
            self.job.close()


CrowdsurfStrategy.register_strategies(StrategyRegistry)
