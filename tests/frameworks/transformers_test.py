#!/usr/bin/env python3
"""crowdsurf.transformers with the real Trainer and a stand-in of the agent. tests/frameworks/inside has the libraries."""
import copy
import os
import unittest

import numpy
from frameworks import FrameworkCase, Line, MomentsTests, Points, Stream, flat, torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import crowdsurf
from crowdsurf import job
from crowdsurf.transformers import CrowdsurfCallback
from stand_in import (ACKNOWLEDGED, LOSS, METRICS, OPAQUE_GIVEN, OPAQUE_WANTED, PATIENCE, PUBLISHED, SAMPLES, STEPS, STOP, WANTED)


class AtStep(TrainerCallback):
    """Calls `act` with the step's number after each step."""

    def __init__(self, act):
        self.act = act

    def on_step_end(self, args, state, control, **_):
        self.act(state.global_step)


class TrainerCase(FrameworkCase):
    def arguments(self, **options):
        options = {"max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 0.1, "optim": "sgd", "logging_steps": 1,
                   "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True, **options}
        return TrainingArguments(self.folder.name + "/out", **options)

    def trainer(self, callbacks, model=None, data=None, evaluated=None, **options):
        return Trainer(model or Line(), self.arguments(**options), train_dataset=data or Points(16), eval_dataset=evaluated,
                       callbacks=callbacks)


class TrainingTest(TrainerCase):
    def test_a_snapshot_is_the_model_and_a_result_is_added_to_it(self):
        here, net, callback, before = self.agent(), Line(), CrowdsurfCallback(), []

        def act(step):
            if step == 1:
                here.put(WANTED, 5)
            if step == 2:   # the snapshot was taken just before, at the end of this step
                numpy.testing.assert_array_equal(here.outbox, flat(net))
                here.deliver(5, here.outbox + 0.25)
            before.append(flat(net))

        self.trainer([callback, AtStep(act)], net, lr_scheduler_type="constant_with_warmup", warmup_steps=100000).train()
        numpy.testing.assert_allclose(before[2] - before[1], 0.25, atol=1e-4)   # the learning rate is nearly 0
        self.assertEqual((here.get(STEPS), here.get(SAMPLES), here.get(PUBLISHED)), (6, 24, 5))

    def test_the_jobs_target_ends_the_training_whatever_the_arguments_say(self):
        here, callback = self.agent(), CrowdsurfCallback()
        trainer = self.trainer([AtStep(lambda step: here.put(STOP, int(step == 3), "I")), callback], max_steps=10**9)
        trainer.train()
        self.assertEqual((trainer.state.global_step, here.get(STEPS), here.get(ACKNOWLEDGED, "I")), (3, 3, 1))
        self.assertTrue(callback.job.closed)
        self.assertTrue(here.gone.wait(PATIENCE))
        self.assertEqual(self.said, [])

    def test_a_training_that_ends_before_the_target_says_so_and_may_be_followed_by_another(self):
        here, callback = self.agent(), CrowdsurfCallback()
        trainer = self.trainer([callback])
        trainer.train()
        self.assertRegex(self.said[-1], "before the job's target is met")
        trainer.train()
        self.assertEqual(here.fresh, [True, True])

    def test_samples_are_counted_exactly_with_accumulation_and_a_last_batch_that_is_short(self):
        for count, accumulated, epochs in ((10, 1, 2), (10, 2, 2), (22, 4, 1), (16, 2, 1), (3, 1, 2)):
            with self.subTest(count=count, accumulated=accumulated):
                here, net = self.agent(), Line()
                self.trainer([CrowdsurfCallback()], net, Points(count), max_steps=-1, num_train_epochs=epochs,
                             gradient_accumulation_steps=accumulated).train()
                self.assertEqual(here.get(SAMPLES), sum(len(batch) for batch in net.seen))
                self.assertEqual(here.get(SAMPLES), count * epochs)
                here.close()

    def test_a_stream_of_unknown_length_counts_its_batches(self):
        here = self.agent()
        net = Line()
        self.trainer([CrowdsurfCallback()], net, Stream(10), max_steps=6).train()
        self.assertEqual((here.get(STEPS), here.get(SAMPLES)), (6, 20))
        self.assertEqual(sum(len(batch) for batch in net.seen), 20)

    def test_what_the_trainer_logs_reaches_the_job_and_the_jobs_numbers_its_history(self):
        here = self.agent()
        trainer = self.trainer([CrowdsurfCallback(metrics=["eval_loss"])], evaluated=Points(4), eval_strategy="steps", eval_steps=2)
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        self.assertIn(here.get(LOSS, "d"), logged)
        evaluated = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
        self.assertEqual(here.get(METRICS, "d"), evaluated[-1])
        self.assertEqual(trainer.state.log_history[0]["crowdsurf_averagings"], 0)

    def test_in_front_of_the_others_it_gives_a_logger_the_jobs_numbers(self):
        class Logger(TrainerCallback):
            logged = {}

            def on_log(self, args, state, control, logs=None, **_):
                self.logged.update(logs)

        self.agent()
        trainer = self.trainer([Logger()])
        trainer.callback_handler.callbacks.insert(0, CrowdsurfCallback())
        trainer.train()
        self.assertIn("crowdsurf_stall_seconds", Logger.logged)

    def test_workers_draw_different_batches_though_their_scripts_have_one_seed(self):
        drawn = []
        for worker in ("digits-0-1", "digits-1-1"):
            here, net = self.agent(worker=worker), Line()
            self.trainer([CrowdsurfCallback()], net).train()
            drawn.append(net.seen)
            here.close()
        self.assertNotEqual(*drawn)

    def test_joiners_take_the_jobs_parameters_and_the_state_of_optimizer_and_schedule(self):
        here = self.agent()
        donor = self.trainer([AtStep(lambda step: here.put(OPAQUE_WANTED, int(step >= 4))), CrowdsurfCallback()], optim="adamw_torch")
        donor.train()
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        here.offer(flat(donor.model) + 1, here.given)
        seen = []
        newcomer = self.trainer([CrowdsurfCallback(), Begun(lambda **parts: seen.append(parts))], optim="adamw_torch")
        newcomer.train()
        (parts,) = seen
        self.assertEqual(parts["schedule"]["last_epoch"], 4)
        self.assertEqual([float(each["step"]) for each in parts["optimizer"]["state"].values()], [4, 4])
        numpy.testing.assert_allclose(parts["flat"], flat(donor.model) + 1)

    def test_a_resumed_training_takes_the_jobs_parameters_and_begins_where_its_checkpoint_ends(self):
        here = self.agent()
        self.trainer([CrowdsurfCallback()], max_steps=3, save_strategy="steps", save_steps=3).train()
        here.offer([5.0, 6.0])
        begun, net = [], Line()
        trainer = self.trainer([CrowdsurfCallback(), Begun(lambda **parts: begun.append(parts["flat"]))], net, max_steps=5)
        trainer.train(resume_from_checkpoint=True)
        self.assertEqual(trainer.state.global_step, 5)
        self.assertEqual(begun[0].tolist(), [5, 6])

    def test_workers_that_share_a_folder_for_checkpoints_are_warned(self):
        self.agent()
        os.environ["CROWDSURF_WORKER"] = "digits-0-1"
        self.trainer([CrowdsurfCallback()], save_strategy="steps").train()
        self.assertRegex(self.said[0], 'every worker writes checkpoints to .*save_strategy="no"')


class Begun(TrainerCallback):
    """Tells `tell` what the training begins with."""

    def __init__(self, tell):
        self.tell = tell

    def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **_):
        self.tell(**copy.deepcopy({"optimizer": optimizer.state_dict(), "schedule": lr_scheduler.state_dict(), "flat": flat(model)}))


class Joined(TrainerCallback):
    """Tells `tell` the optimizer, after the callbacks before it."""

    def __init__(self, tell):
        self.tell = tell

    def on_train_begin(self, args, state, control, optimizer=None, **_):
        self.tell(optimizer)


class FusedMomentsTest(MomentsTests, TrainerCase):
    OPTIMIZER = "adamw_torch_fused"   # the Trainer's default

    def fit(self, net, begun, stepped):
        self.trainer([CrowdsurfCallback(), Joined(begun), AtStep(stepped)], net, optim=self.OPTIMIZER).train()


class MomentsTest(FusedMomentsTest):
    OPTIMIZER = "adamw_torch"


class ModelsTest(TrainerCase):
    def test_mixed_precision_averages_the_full_parameters(self):
        here, net = self.agent(), Line()
        self.trainer([AtStep(lambda step: here.put(WANTED, int(step == 6))), CrowdsurfCallback()], net, bf16=True).train()
        self.assertEqual(here.get(PUBLISHED), 1)
        numpy.testing.assert_array_equal(here.outbox, flat(net))
        self.assertFalse(numpy.array_equal(flat(net), torch.tensor(flat(net)).bfloat16().float().numpy()), "full numbers")

    def language_model(self):
        torch.manual_seed(3)
        return GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))

    def test_a_language_model_with_tied_embeddings_and_one_with_an_adapter(self):
        data = [{"input_ids": torch.arange(i, i + 6) % 16, "labels": torch.arange(i, i + 6) % 16} for i in range(8)]
        adapted = get_peft_model(self.language_model(), LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
        for net, names in ((self.language_model(), r"^transformer\."), (adapted, r"\.lora_[AB]\.default\.weight$")):
            here = self.agent()
            self.trainer([CrowdsurfCallback()], net, data, gradient_checkpointing=True).train()
            for tensor in here.tensors:
                self.assertRegex(tensor["name"], names)
            self.assertEqual((here.get(STEPS), here.get(SAMPLES)), (6, 24))
            here.close()


class WrongTest(TrainerCase):
    def test_options_that_spread_the_model_are_refused_before_anything_begins(self):
        def two_gpus(arguments):
            arguments._n_gpu = 2

        def sharded(arguments):
            arguments.fsdp = True

        def deep(arguments):
            arguments.deepspeed = "zero.json"

        for spread, words in ((two_gpus, "n_gpu=2"), (sharded, "fsdp"), (deep, "deepspeed")):
            arguments = self.arguments()
            spread(arguments)
            with self.assertRaisesRegex(ValueError, f"{words}: a worker of a job is one process"):
                CrowdsurfCallback().on_init_end(arguments, None, None)
            with self.assertRaisesRegex(ValueError, words):
                CrowdsurfCallback().on_train_begin(arguments, None, None)

    def test_an_exception_in_the_loop_is_the_users_and_a_later_training_joins_again(self):
        here, wrong = self.agent(), [KeyError("lost")]

        def act(step):
            if wrong and step == 2:
                raise wrong.pop()

        trainer = self.trainer([CrowdsurfCallback(), AtStep(act)])
        self.assertRaisesRegex(KeyError, "lost", trainer.train)
        trainer.train()
        self.assertEqual(here.fresh, [True, True])
        self.assertEqual(here.get(STEPS), 6, "of the second trainer")

    def test_a_second_trainer_in_one_process_is_refused_while_the_first_trains(self):
        self.agent()
        other = self.trainer([CrowdsurfCallback()])
        first = self.trainer([CrowdsurfCallback(), AtStep(lambda step: other.train())])
        self.assertRaisesRegex(crowdsurf.AgentError, "has joined already", first.train)
        first.callback_handler.callbacks[1].job.close()

    def test_a_model_without_anything_to_train_is_named(self):
        self.agent()
        net = Line()
        net.requires_grad_(False)
        self.assertRaisesRegex(ValueError, "nothing to average", self.trainer([CrowdsurfCallback()], net).train)

    def test_an_agent_that_refuses_is_an_exception_with_its_words(self):
        self.agent().refuses = (409, "another trainer is registered")
        self.assertRaisesRegex(crowdsurf.AgentError, "another trainer is registered", self.trainer([CrowdsurfCallback()]).train)

    def test_an_agent_that_goes_does_not_end_the_training(self):
        here, net = self.agent(), Line()
        self.trainer([CrowdsurfCallback(), AtStep(lambda step: here.close())], net).train()
        self.assertEqual(len(net.seen), 6)

    def test_without_an_agent_it_trains_alone_and_says_so_once(self):
        os.environ.pop("CROWDSURF_DIR", None)
        job._said_alone = False
        trainer = self.trainer([CrowdsurfCallback(metrics=["loss"])])
        trainer.train()
        trainer.train()
        self.assertEqual(len(self.said), 1)
        self.assertRegex(self.said[0], "trains alone")
        self.assertEqual(trainer.state.log_history[-1]["crowdsurf_samples"], 24)


if __name__ == "__main__":
    unittest.main()
