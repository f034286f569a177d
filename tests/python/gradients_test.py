"""Jobs that average gradients, as a Python trainer sees them: docs/trainer-link.md, section 11, with a stand-in agent."""
import array
import threading
import unittest

import numpy

from client_case import ClientCase  # noqa: I001  (it sets the path)
import crowdsurf
from stand_in import (ADOPT, ADOPTED, APPLIED, BEAT, GATHERED, OPAQUE_WANTED, PARAMETERS_STEP, PATIENCE, PUBLISHED,
                      PUBLISHED_GATHERED, RELEASED, SHARE, SHARES, STOP, WANTED)

try:
    import torch
except ImportError:
    torch = None


class State:
    def __init__(self):
        self.taken = None

    def get(self):
        return b"moments"

    def set(self, data):
        self.taken = data


class GradientsTest(ClientCase):
    def begin(self, share, **options):
        self.stand_in = self.agent(gradients=True, **options)
        self.params, self.state, self.steps = numpy.full(4, 10, numpy.float32), State(), []
        agent = crowdsurf.Agent([crowdsurf.Tensor("w", (4,))], state=self.state, gradients=True)
        self.addCleanup(agent.close)
        self.stand_in.put(SHARE, share)
        agent.start(self.params)
        return agent

    def optimize(self, mean):
        self.steps.append(numpy.array(mean))
        self.params -= mean

    def batch(self, agent, samples, value):
        return agent.gradient(samples, numpy.full(4, value, numpy.float32), self.optimize)

    def meet(self, agent, samples, value, act, until=lambda outcome: True):
        """The last batch of a share, again and again, while `act` plays the agent."""
        failed = []

        def beside():
            try:
                act()
            except BaseException as error:
                failed.append(error)
                self.stand_in.put(STOP, 1, "I")
                self.stand_in.agent_bell().ring()

        thread = threading.Thread(target=beside)
        thread.start()
        outcome = self.batch(agent, samples, value)
        while not (until(outcome) or failed):
            outcome = self.batch(agent, samples, value)
        thread.join(PATIENCE)
        if failed:
            raise failed[0]
        return outcome

    def when(self, true):
        pause = threading.Event()
        self.stand_in.until(true, lambda: pause.wait(0.001))

    def say(self, word, value):
        self.stand_in.put(word, value)
        self.stand_in.agent_bell().ring()

    def test_a_step_has_the_mean_of_the_share(self):
        agent = self.begin(10)
        self.assertFalse(self.batch(agent, 4, 1).published)
        self.assertFalse(self.batch(agent, 4, 3).published)

        def act():
            self.when(lambda: self.stand_in.get(SHARES) == 1)
            self.assertEqual(self.stand_in.get(GATHERED), 10)
            self.say(WANTED, 1)
            self.when(lambda: self.stand_in.get(PUBLISHED) == 1)
            self.assertEqual(self.stand_in.get(PUBLISHED_GATHERED), 10)
            numpy.testing.assert_allclose(self.stand_in.outbox, 0.8, rtol=1e-6)
            self.stand_in.put(0x2C8, 7)   # the averaging's number
            self.stand_in.deliver(1, 2)
            self.when(lambda: self.stand_in.get(APPLIED) == 1)

        outcome = self.meet(agent, 2, -4, act)
        self.assertTrue(outcome.applied)
        self.assertEqual(outcome.averaging, 7)
        self.assertEqual(len(self.steps), 1)
        numpy.testing.assert_array_equal(self.params, 8)
        numpy.testing.assert_array_equal(self.stand_in.inbox(0), 8)
        self.assertEqual((self.stand_in.get(GATHERED), self.stand_in.get(PARAMETERS_STEP)), (0, 7))

    def test_a_wait_for_an_agent_that_dies_ends_and_the_next_agent_gets_the_gradient(self):
        agent = self.begin(4)

        def dies():
            self.when(lambda: self.stand_in.get(SHARES) == 1)
            self.stand_in.put(BEAT, 1)   # a beat makes the trainer look at its connection
            self.stand_in.close()
        outcome = self.meet(agent, 4, 1, dies)
        self.assertEqual((outcome.agent_lost, outcome.applied, self.steps), (True, False, []))
        self.stand_in = self.agent(gradients=True)

        def act():
            self.assertTrue(self.stand_in.registered.wait(PATIENCE))
            self.say(WANTED, 1)
            self.when(lambda: self.stand_in.get(PUBLISHED) == 1)
            numpy.testing.assert_array_equal(self.stand_in.outbox, 1)
            self.stand_in.deliver(1, 5)
        outcome = self.meet(agent, 0, 0, act, lambda outcome: outcome.applied)
        self.assertEqual((outcome.agent_lost, self.stand_in.fresh), (False, [False]))
        numpy.testing.assert_array_equal(self.params, 5)

    def test_a_gradient_that_nobody_took_is_given_again(self):
        agent = self.begin(4)

        def act():
            self.when(lambda: self.stand_in.get(SHARES) == 1)
            self.say(WANTED, 1)
            self.when(lambda: self.stand_in.get(PUBLISHED) == 1)
            self.say(RELEASED, 1)
            self.say(WANTED, 2)
            self.when(lambda: self.stand_in.get(PUBLISHED) == 2)
            numpy.testing.assert_array_equal(self.stand_in.outbox, 3)
            self.stand_in.deliver(2, 1)

        self.assertTrue(self.meet(agent, 4, 3, act).applied)
        numpy.testing.assert_array_equal(self.params, 9)

    def test_who_missed_a_step_takes_the_state_and_drops_its_gradient(self):
        agent = self.begin(4)

        def act():
            self.when(lambda: self.stand_in.get(SHARES) == 1)
            self.stand_in.offer(5, b"theirs", averaging=12)
            self.stand_in.agent_bell().ring()
            self.when(lambda: self.stand_in.get(ADOPTED) == self.stand_in.get(ADOPT) >> 1)

        self.assertTrue(self.meet(agent, 4, 3, act).adopted)
        self.assertEqual((self.steps, self.state.taken), ([], b"theirs"))
        numpy.testing.assert_array_equal(self.params, 5)
        numpy.testing.assert_array_equal(self.stand_in.inbox(0), 5)
        self.assertEqual((self.stand_in.get(GATHERED), self.stand_in.get(PARAMETERS_STEP)), (0, 12))
        self.stand_in.put(OPAQUE_WANTED, 1)
        self.batch(agent, 1, 1)
        self.assertEqual(self.stand_in.paths, ["/v1/opaque?sequence=1&step=12"])
        self.assertEqual(self.stand_in.given, b"moments")

    def test_a_batch_that_is_not_finite_is_left_out(self):
        agent = self.begin(4)
        self.batch(agent, 4, numpy.nan)
        self.batch(agent, 4, numpy.inf)
        self.assertEqual(self.stand_in.get(GATHERED), 0)

    def test_step_and_a_wrong_length_are_refused(self):
        agent = self.begin(4)
        with self.assertRaisesRegex(crowdsurf.AgentError, "averages gradients"):
            agent.step(1)
        with self.assertRaisesRegex(ValueError, "3 values, the job averages 4"):
            agent.gradient(1, array.array("f", [1, 2, 3]), self.optimize)

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_a_module_takes_the_step_of_all_workers(self):
        self.stand_in = stand_in = self.agent(gradients=True)
        model = torch.nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        with crowdsurf.join(model, optimizer) as job:
            stand_in.put(SHARE, 4)
            with self.assertRaisesRegex(crowdsurf.AgentError, "optimize"):
                job.step(samples=1)

            def batch(agent, samples, value):
                optimizer.zero_grad()
                model(torch.full((1, 2), float(value))).sum().backward()
                return job.optimize(samples=samples)

            self.batch = batch

            def act():
                self.when(lambda: stand_in.get(SHARES) == 1)
                self.say(WANTED, 1)
                self.when(lambda: stand_in.get(PUBLISHED) == 1)
                numpy.testing.assert_array_equal(stand_in.outbox, 3)
                stand_in.deliver(1, 0.5)

            self.assertTrue(self.meet(None, 4, 3, act).applied)
            self.assertTrue(torch.equal(model.weight, torch.full((1, 2), 0.5)))

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_elsewhere_optimize_is_the_optimizers_step(self):
        model = torch.nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        before = model.weight.detach().clone()
        with crowdsurf.join(model, optimizer) as job:   # alone
            model(torch.ones(1, 2)).sum().backward()
            self.assertEqual(job.optimize(samples=3).job_samples, 3)
        self.assertTrue(torch.equal(model.weight, before - 1))


if __name__ == "__main__":
    unittest.main()
