#!/usr/bin/env python3
"""crowdsurf.lightning with the real Trainer and a stand-in of the agent. tests/frameworks/inside has the library."""
import logging
import os
import signal
import unittest
import warnings

import numpy
from frameworks import FrameworkCase, Line, MomentsTests, Points, Stream, flat, torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger

import crowdsurf
from crowdsurf import job
from crowdsurf.lightning import CrowdsurfStrategy
from stand_in import (ACKNOWLEDGED, LOSS, LR_SCALE, METRICS, OPAQUE_GIVEN, OPAQUE_WANTED, PATIENCE, PUBLISHED, SAMPLES, STEPS,
                      STOP, WANTED)

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class LineModule(LightningModule):
    def __init__(self, rate=0.1):
        super().__init__()
        self.line, self.rate = Line(), rate

    def training_step(self, batch, at):
        return self.line(batch["x"], batch["labels"])["loss"]

    def validation_step(self, batch, at):
        self.log("val_loss", self.line(batch["x"], batch["labels"])["loss"])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.5)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 100), "interval": "step"}]


class TwoOptimizers(LineModule):
    automatic_optimization = False

    def training_step(self, batch, at):
        loss = super().training_step(batch, at)
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        return [torch.optim.SGD([p], lr=self.rate) for p in self.parameters()]


class AtBatch(Callback):
    """Calls `act` with the number of batches after each one."""

    def __init__(self, act):
        self.act, self.number = act, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, at):
        self.number += 1
        self.act(self.number)


class Begun(Callback):
    """What a training begins with: parameters, steps of the schedule, parameters with a state in the optimizer."""

    def __init__(self):
        self.seen = []

    def on_train_start(self, trainer, module):
        self.seen.append((flat(module).copy(), trainer.lr_scheduler_configs[0].scheduler.last_epoch,
                          len(trainer.optimizers[0].state_dict()["state"])))


class LightningCase(FrameworkCase):
    def trainer(self, *callbacks, strategy=None, **options):
        options = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
                   "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": self.folder.name, **options}
        return Trainer(strategy=strategy or CrowdsurfStrategy(), callbacks=list(callbacks), **options)

    @staticmethod
    def loader(count=16, data=None, **options):
        data = Points(count) if data is None else data
        return torch.utils.data.DataLoader(data, batch_size=4, **options)


class TrainingTest(LightningCase):
    def test_a_snapshot_is_the_module_and_a_result_is_added_to_it(self):
        here, module = self.agent(), LineModule(rate=0.0)
        first = flat(module)

        def act(number):
            if number == 1:
                here.put(WANTED, 5)
            if number == 2:
                numpy.testing.assert_array_equal(here.outbox, first)
                here.deliver(5, first + 0.25)

        self.trainer(AtBatch(act)).fit(module, self.loader())
        numpy.testing.assert_allclose(flat(module), first + 0.25, rtol=1e-6)
        self.assertEqual((here.get(STEPS), here.get(SAMPLES), here.get(PUBLISHED)), (4, 16, 5))
        self.assertGreater(here.get(LOSS, "d"), 0)
        self.assertEqual([t["name"] for t in here.tensors], ["line.linear.weight", "line.linear.bias"])

    def test_the_jobs_target_ends_a_training_without_an_end(self):
        here, ends = self.agent(), AtBatch(lambda number: here.put(STOP, int(number == 6), "I"))
        trainer = self.trainer(ends, max_epochs=-1, strategy="crowdsurf")
        trainer.fit(LineModule(), self.loader())
        self.assertEqual((ends.number, here.get(STEPS), here.get(ACKNOWLEDGED, "I")), (7, 7, 1))
        self.assertTrue(here.gone.wait(PATIENCE))
        self.assertEqual(self.said, [])

    def test_a_training_that_ends_before_the_target_says_so_and_may_be_followed_by_another(self):
        here, trainer, module = self.agent(), self.trainer(), LineModule()
        for epochs in (1, 2):
            trainer.fit_loop.max_epochs = epochs
            trainer.fit(module, self.loader())
            self.assertRegex(self.said[-1], "before the job's target is met")
        self.assertEqual(here.fresh, [True, True])

    def test_samples_are_counted_exactly_with_accumulation_short_batches_and_streams(self):
        for data, accumulated in ((Points(10), 1), (Points(10), 2), (Points(22), 4), (Stream(10), 1)):
            with self.subTest(data=data, accumulated=accumulated):
                here = self.agent()
                trainer = self.trainer(max_epochs=2, accumulate_grad_batches=accumulated)
                trainer.fit(LineModule(), self.loader(data=data))
                self.assertEqual((here.get(SAMPLES), here.get(STEPS)), (2 * 10 if data.__class__ is Stream else 2 * len(data),
                                                                      trainer.global_step))
                here.close()

    def test_several_optimizers_are_one_step_of_the_job_and_a_strategy_scales_all_their_rates(self):
        here, module, moved = self.agent(), TwoOptimizers(), []

        def act(number):
            here.put(LR_SCALE, 0.0, "d")   # for both from the third batch on
            moved.append(flat(module))

        self.trainer(AtBatch(act)).fit(module, self.loader())
        self.assertEqual((here.get(STEPS), here.get(SAMPLES)), (4, 16))
        numpy.testing.assert_array_equal(moved[2], moved[3])
        self.assertFalse(numpy.array_equal(moved[0], moved[1]))

    def test_workers_draw_different_batches_from_the_first_one_on(self):
        for seeded in (False, True):   # the loader's generator has a seed, which is the same at every worker
            drawn = []
            for worker in ("digits-0-1", "digits-1-1"):
                here, module = self.agent(worker=worker), LineModule()
                torch.manual_seed(5)
                generator = torch.Generator().manual_seed(3) if seeded else None
                self.trainer(max_epochs=2).fit(module, self.loader(shuffle=True, generator=generator))
                drawn.append(module.line.seen)
                here.close()
            self.assertNotEqual(drawn[0][:4], drawn[1][:4])
            self.assertNotEqual(drawn[0][4:], drawn[1][4:])

    def test_joiners_take_the_jobs_parameters_and_the_states_of_optimizer_and_schedule(self):
        here, donor = self.agent(), LineModule()
        trainer = self.trainer(AtBatch(lambda number: here.put(OPAQUE_WANTED, int(number >= 3))))
        trainer.fit(donor, self.loader())
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        here.offer(flat(donor) + 1, here.given)
        begun = Begun()
        self.trainer(begun).fit(LineModule(), self.loader())
        ((parameters, passed, states),) = begun.seen
        numpy.testing.assert_allclose(parameters, flat(donor) + 1)
        self.assertEqual((passed, states), (3, 2))

    def test_a_resumed_training_takes_the_jobs_parameters_and_begins_where_its_checkpoint_ends(self):
        here, checkpoint = self.agent(), self.folder.name + "/a.ckpt"
        trainer = self.trainer()
        trainer.fit(LineModule(), self.loader())
        trainer.save_checkpoint(checkpoint)
        here.offer([5.0, 6.0])
        module, begun = LineModule(), Begun()
        trainer = self.trainer(begun, max_epochs=2)
        trainer.fit(module, self.loader(), ckpt_path=checkpoint)
        self.assertEqual((trainer.global_step, len(module.line.seen)), (8, 4))
        self.assertEqual(begun.seen[0][0].tolist(), [5, 6])

    def test_what_is_logged_in_validation_reaches_the_job_and_the_jobs_numbers_the_loggers(self):
        here = self.agent()
        trainer = self.trainer(strategy=CrowdsurfStrategy(metrics=["val_loss"]), logger=CSVLogger(self.folder.name), log_every_n_steps=2)
        trainer.fit(LineModule(), self.loader(), self.loader(4))
        self.assertAlmostEqual(here.get(METRICS, "d"), float(trainer.callback_metrics["val_loss"]), places=6)
        with open(trainer.logger.log_dir + "/metrics.csv") as file:
            self.assertIn("crowdsurf_averagings", file.readline())
        self.assertEqual(here.fresh, [True], "no validation joins")

    def test_mixed_precision_averages_the_full_parameters(self):
        here, module = self.agent(), LineModule()
        self.trainer(AtBatch(lambda number: here.put(WANTED, int(number == 3))), precision="bf16-mixed").fit(module, self.loader())
        self.assertEqual(here.get(PUBLISHED), 1)
        numpy.testing.assert_array_equal(here.outbox, flat(module))


class Joined(Callback):
    """Tells `tell` the optimizer when the training begins."""

    def __init__(self, tell):
        self.tell = tell

    def on_train_start(self, trainer, module):
        self.tell(trainer.optimizers[0])


class MomentsTest(MomentsTests, LightningCase):
    def fit(self, net, begun, stepped):
        module = LineModule()
        module.line = net
        module.configure_optimizers = lambda: torch.optim.AdamW(net.parameters(), lr=0.1)
        self.trainer(Joined(begun), AtBatch(stepped)).fit(module, self.loader(24))


class WrongTest(LightningCase):
    def test_several_devices_or_nodes_are_refused_when_the_trainer_is_made(self):
        self.assertRaisesRegex(ValueError, "devices=2: a worker of a job is one process", self.trainer, devices=2)
        self.assertRaisesRegex(ValueError, "num_nodes=3: a worker", self.trainer, num_nodes=3)

    def test_an_exception_in_the_loop_is_the_users_and_the_worker_leaves(self):
        here = self.agent()

        def act(number):
            raise KeyError("lost")

        with self.assertRaisesRegex(KeyError, "lost"):
            self.trainer(AtBatch(act)).fit(LineModule(), self.loader())
        self.assertTrue(here.gone.wait(PATIENCE))
        self.assertEqual(self.said, [], "the end came by itself")
        self.trainer().fit(LineModule(), self.loader())
        self.assertEqual(here.fresh, [True, True])

    def test_sigterm_ends_the_training_after_the_batch_in_work_and_the_worker_leaves(self):
        here = self.agent()
        ends = AtBatch(lambda number: os.kill(os.getpid(), signal.SIGTERM))
        self.assertRaises(SystemExit, self.trainer(ends, max_epochs=-1).fit, LineModule(), self.loader())
        self.assertTrue(here.gone.wait(PATIENCE))
        self.assertLessEqual(ends.number, 2)
        self.assertEqual(self.said, [], "the end came by itself")

    def test_a_second_training_in_one_process_is_refused_while_the_first_trains(self):
        self.agent()
        nested = AtBatch(lambda number: self.trainer().fit(LineModule(), self.loader()))
        with self.assertRaisesRegex(crowdsurf.AgentError, "has joined already"):
            self.trainer(nested).fit(LineModule(), self.loader())

    def test_a_batch_of_a_kind_of_its_own_is_counted_by_the_users_function(self):
        class Batch:
            x, count = torch.ones(3, 1), 3

        class Own(LineModule):
            def training_step(self, batch, at):
                return self.line(batch.x, batch.x)["loss"]

        here = self.agent()
        strategy = CrowdsurfStrategy(samples=lambda batch: batch.count)
        self.trainer(strategy=strategy).fit(Own(), torch.utils.data.DataLoader([0, 1], collate_fn=lambda _: Batch()))
        self.assertEqual((here.get(STEPS), here.get(SAMPLES)), (2, 6))

    def test_without_an_agent_it_trains_alone_and_says_so_once(self):
        os.environ.pop("CROWDSURF_DIR", None)
        job._said_alone = False
        module, strategy = LineModule(), CrowdsurfStrategy()
        self.trainer(strategy=strategy, max_epochs=2).fit(module, self.loader())
        self.trainer().validate(module, self.loader())
        self.assertEqual((len(module.line.seen), strategy.job.samples), (8, 32))
        self.assertEqual(len(self.said), 1)
        self.assertRegex(self.said[0], "trains alone")


if __name__ == "__main__":
    unittest.main()
