#!/usr/bin/env python3
"""crowdsurf.Agent where something is wrong: no agent, one of another version, garbage, a restart, forks. No PyTorch."""
import array
import os
import sys
import threading
import unittest
import unittest.mock

import client_case
import numpy

import crowdsurf
from crowdsurf import agent
from stand_in import BEAT, FILLED, FILLING, NOTICE, OVERLAP, PATIENCE, PUBLISHED, RELEASED, STEPS, WANTED

TENSORS = [crowdsurf.Tensor("w", (2, 3))]


class AgentCase(client_case.ClientCase):
    def setUp(self):
        super().setUp()
        self.patience = agent.PATIENCE
        self.addCleanup(setattr, agent, "PATIENCE", self.patience)

    def started(self, **options):
        trainer = crowdsurf.Agent(TENSORS, **options)
        self.addCleanup(trainer.close)
        trainer.start(array.array("f", [0.0] * 6))
        return trainer


class StartTest(AgentCase):
    def test_outside_of_a_job_it_says_what_is_missing(self):
        os.environ.pop("CROWDSURF_DIR", None)
        self.assertRaisesRegex(crowdsurf.AgentError, "CROWDSURF_DIR is not set", crowdsurf.Agent, TENSORS)

    def test_an_agent_that_never_comes_is_an_error_after_a_while(self):
        agent.PATIENCE = 0.05
        os.environ["CROWDSURF_DIR"] = self.folder.name
        self.assertRaisesRegex(crowdsurf.AgentError, "no agent answers at .*agent.sock", crowdsurf.Agent, TENSORS)

    def test_an_agent_of_another_version_is_named(self):
        here = self.agent(version=2)
        self.assertRaisesRegex(crowdsurf.AgentError, "version 2 .*speaks version 1: install", crowdsurf.Agent, TENSORS)
        self.assertTrue(here.gone.wait(PATIENCE), "its connection has ended")

    def test_a_file_that_cannot_be_mapped_is_named(self):
        self.agent().wrong = {"file_bytes": 1 << 40}
        self.assertRaisesRegex(crowdsurf.AgentError, "tensors cannot be mapped", crowdsurf.Agent, TENSORS)

    def test_an_agent_without_the_page_of_this_version_is_of_another_one(self):
        self.agent().refuses = (404, "no such path")
        self.assertRaisesRegex(crowdsurf.AgentError, "another version .*speaks version 1: install", crowdsurf.Agent, TENSORS)

    def test_a_table_that_is_not_that_of_the_file_is_refused_in_the_agents_words(self):
        self.agent().refuses = (409, "the tensors differ from those of the file: w")
        self.assertRaisesRegex(crowdsurf.AgentError, "differ from those of the file: w", crowdsurf.Agent, TENSORS)

    def test_an_answer_that_cannot_be_used_is_an_error(self):
        here = self.agent()
        for wrong in ({"seed": None}, {"inbox": 3}, {"tensors": [{}]}, {"file_bytes": "many"}, {"outbox": 1 << 30}, {"elements": 0.5}):
            with self.subTest(wrong):
                here.wrong = wrong
                self.assertRaises(crowdsurf.AgentError, crowdsurf.Agent, TENSORS)
        here.wrong = {}
        self.started().step(samples=1)

    def test_where_no_agent_can_be_the_package_says_client_only(self):
        here = self.agent()
        for platform, name in (("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")):
            with unittest.mock.patch.object(sys, "platform", platform):
                self.assertRaisesRegex(crowdsurf.AgentError, f"client only on {name}.*train alone", crowdsurf.Agent, TENSORS)
        self.assertEqual(here.requests, [])

    def test_an_agent_that_goes_before_the_first_step_is_an_error(self):
        here = self.agent(hold=True)
        trainer = crowdsurf.Agent(TENSORS)
        self.addCleanup(trainer.close)
        here.put(BEAT, 1)   # a beat makes the trainer look at its connection
        here.close()
        agent.PATIENCE = 0.05
        self.assertRaisesRegex(crowdsurf.AgentError, "has gone", trainer.start, array.array("f", [0.0] * 6))

    def test_an_agent_that_is_replaced_before_the_first_step_lets_it_start(self):
        here = self.agent(hold=True)
        trainer, params, started = crowdsurf.Agent(TENSORS), array.array("f", [0.0] * 6), []
        self.addCleanup(trainer.close)
        thread = threading.Thread(target=lambda: started.append(trainer.start(params)))
        thread.start()
        here.put(BEAT, 1)   # a beat makes the trainer look at its connection
        here.close()
        again = self.agent(hold=True)
        self.assertTrue(again.registered.wait(PATIENCE))
        again.let_start(adopt=2.0)
        thread.join(PATIENCE)
        self.assertTrue(started[0].adopted)
        self.assertEqual((list(params), again.fresh), ([2.0] * 6, [True]))

    def test_parameters_of_another_size_or_type_are_refused(self):
        self.agent()
        trainer = crowdsurf.Agent(TENSORS)
        self.addCleanup(trainer.close)
        self.assertRaisesRegex(ValueError, "5 values, the job averages 6", trainer.start, array.array("f", [0.0] * 5))
        self.assertRaisesRegex(TypeError, "float32", trainer.start, array.array("d", [0.0] * 6))
        self.assertRaisesRegex(ValueError, "'mine'", trainer.start, array.array("f", [0.0] * 6), init="mine")


class StepTest(AgentCase):
    def test_steps_before_the_start_and_negative_samples_are_refused(self):
        self.agent()
        trainer = crowdsurf.Agent(TENSORS)
        self.addCleanup(trainer.close)
        self.assertRaisesRegex(crowdsurf.AgentError, "after start", trainer.step, 1)
        trainer.start(array.array("f", [0.0] * 6))
        self.assertRaisesRegex(ValueError, "negative", trainer.step, -1)
        self.assertRaisesRegex(TypeError, "integer", trainer.step, 0.5)

    def test_an_agent_that_comes_back_with_another_file_is_told_what_was_counted(self):
        here = self.agent()
        trainer = self.started()
        trainer.step(samples=4)
        here.put(BEAT, 1)   # a beat makes the trainer look at its connection
        here.close()
        self.assertTrue(trainer.step(samples=4).agent_lost)
        again = self.agent()
        again.until(lambda: not trainer.step(samples=4).agent_lost, lambda: None)
        self.assertEqual(again.fresh, [False])
        self.assertGreaterEqual(again.get(STEPS), 3)

    def test_an_agent_that_comes_back_and_refuses_is_said_once_and_training_goes_on(self):
        here = self.agent()
        trainer = self.started()
        here.put(BEAT, 1)
        here.close()
        trainer.step(samples=4)
        again = self.agent()
        again.refuses = (409, "another trainer is registered")
        self.addCleanup(setattr, agent, "_SILENCE", agent._SILENCE)
        agent._SILENCE = 0.1
        again.until(lambda: self.said, lambda: trainer.step(samples=4))
        tries = len(again.requests)
        again.until(lambda: len(again.requests) > tries + 2, lambda: trainer.step(samples=4))
        self.assertEqual(self.said, ["crowdsurf: the agent that came back does not take this trainer: "
                                     "another trainer is registered"])

    def test_a_blocking_step_ends_when_nothing_comes_of_its_snapshot(self):
        here = self.agent()
        trainer = self.started()
        here.put(OVERLAP, 1, "I")
        here.put(RELEASED, 9)
        here.put(WANTED, 3)
        self.assertTrue(trainer.step(samples=1).published)
        self.assertEqual(here.get(PUBLISHED), 3)

    def test_a_large_snapshot_is_told_of_in_parts_that_are_there(self):
        agent, part = self.agent(), 1 << 20
        values = numpy.arange(3 * part + 5, dtype=numpy.float32)
        trainer = crowdsurf.Agent([crowdsurf.Tensor("w", values.shape)])
        self.addCleanup(trainer.close)
        trainer.start(values)
        told = []

        class Watched(type(trainer._memory.trainer_bell)):
            def ring(bell):
                told.append((agent.get(FILLING), agent.get(FILLED), agent.get(PUBLISHED), agent.get(PUBLISHED + 8), agent.get(PUBLISHED + 16)))
                there = told[-1][1]
                self.assertTrue(numpy.array_equal(agent.outbox[:there], values[:there]))
                super().ring()

        trainer._memory.trainer_bell.__class__ = Watched
        agent.put(WANTED, 1)
        trainer.step(8)
        # Before the ticket: of which snapshot, and how much of it; the steps and samples are known from the first part on.
        self.assertEqual(told, [(1, n * part, 0, 1, 8) for n in (1, 2, 3)] + [(1, 3 * part, 1, 1, 8)])
        agent.put(RELEASED, 1)
        agent.put(WANTED, 2)
        del told[:]
        trainer.step(8)
        self.assertEqual(told[0], (2, part, 1, 2, 16))

    def test_a_small_snapshot_is_told_of_at_its_end_alone(self):
        agent, values = self.agent(), numpy.ones(100, numpy.float32)
        trainer = crowdsurf.Agent([crowdsurf.Tensor("w", values.shape)])
        self.addCleanup(trainer.close)
        trainer.start(values)
        agent.put(WANTED, 1)
        trainer.step(8)
        self.assertEqual((agent.get(FILLING), agent.get(FILLED), agent.get(PUBLISHED)), (1, 0, 1))

    def test_the_state_and_a_checkpoint_are_asked_for_by_http(self):
        here = self.agent()
        trainer = self.started()
        self.assertEqual(trainer.state()["tensors"][0]["name"], "w")
        trainer.checkpoint()
        trainer.leave("done")
        self.assertEqual(here.requests, ["/v1/register", "/v1/checkpoint", "/v1/leave"])

    def test_ctrl_c_within_a_request_breaks_its_connection_and_the_next_step_makes_another(self):
        here = self.agent()
        trainer = self.started()
        with unittest.mock.patch.object(trainer._connection._http, "getresponse", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, trainer.checkpoint)
        self.assertRaisesRegex(crowdsurf.AgentError, "the connection is closed", trainer.state)
        here.put(BEAT, 1)   # a beat makes the trainer look at its connection
        here.until(lambda: here.fresh == [True, False], lambda: trainer.step(samples=1))
        self.assertEqual(trainer.state()["tensors"][0]["name"], "w", "and not the answer to the first")

    def test_a_callback_that_fails_is_reported(self):
        here = self.agent()
        trainer, called = self.started(), threading.Event()

        def callback(notice):
            called.set()
            raise KeyError("lost")

        trainer.on_notice(callback)
        here.put(NOTICE, 1, "I")
        self.assertTrue(called.wait(PATIENCE))
        trainer._notices._thread.join(PATIENCE)
        self.assertIn("callback for a notice failed", self.said[-1])


class ForkTest(AgentCase):
    def test_a_forked_child_cannot_step_and_keeps_no_connection_open(self):
        here = self.agent()
        trainer = self.started()
        told, tell = os.pipe()
        stay, go = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                trainer.step(samples=1)
            except crowdsurf.AgentError as error:
                os.write(tell, str(error).encode())
            os.close(go)
            os.read(stay, 1)   # until the parent closes its end
            os._exit(0)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.close, go)
        self.assertIn(b"is a fork", os.read(told, 1000))
        self.assertEqual(here.get(STEPS), 0)
        trainer.step(samples=1)
        self.assertFalse(here.gone.is_set(), "the child closed its copy alone")
        trainer.close()
        self.assertTrue(here.gone.wait(PATIENCE), "the child, which lives, does not hold the sign of life")


if __name__ == "__main__":
    unittest.main()
