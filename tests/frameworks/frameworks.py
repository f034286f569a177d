"""What the tests of the frameworks share: the stand-in of the agent, and a model small enough to compute by hand."""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", PYTHONWARNINGS="ignore")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch  # noqa: E402
import numpy  # noqa: E402
from torch_case import JoinCase, flat  # noqa: E402, F401  (finds the client and what follows)
from stand_in import OPAQUE_GIVEN, OPAQUE_WANTED, WANTED  # noqa: E402
from crowdsurf import job, moments  # noqa: E402

torch.set_num_threads(1)   # two threads on tiny tensors wait for each other


class FrameworkCase(JoinCase):
    """What a framework joined ends with its test, also where that fails."""

    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: (joined := job._joined and job._joined()) and joined.close())


class MomentsTests:
    """Jobs that average the moments of Adam, too. A test case of each framework has these tests, and fit()."""

    ROLES = ("Parameter", "OptimizerState")

    def fit(self, net, begun, stepped):
        """Trains six steps with AdamW. begun(optimizer) comes after the join, stepped(number) after each step of the job."""
        raise NotImplementedError

    @staticmethod
    def vector(net, optimizer):
        """What the agent should have: parameters, then first moments, then second ones."""
        parameters, states = list(net.parameters()), moments.unwrapped(optimizer).state
        tensors = parameters + [states[p][key] for key in ("exp_avg", "exp_avg_sq") for p in parameters]
        return torch.cat([each.detach().float().reshape(-1) for each in tensors]).numpy()

    def test_moments_are_in_the_snapshot_and_a_result_is_added_to_them(self):
        here, net, after_optimizer, parts = self.agent(roles=self.ROLES), Line(), [], {}

        def begun(optimizer):
            parts["optimizer"] = optimizer
            moments.unwrapped(optimizer).register_step_post_hook(lambda *_: after_optimizer.append(self.vector(net, optimizer)))

        def stepped(number):
            if number == 2:
                here.put(WANTED, 5)
            if number == 3:
                numpy.testing.assert_array_equal(here.outbox, after_optimizer[2])
                here.deliver(5, here.outbox + 0.25)
            if number == 4:
                numpy.testing.assert_allclose(self.vector(net, parts["optimizer"]), after_optimizer[3] + 0.25, rtol=1e-6)
                parts["applied"] = True

        self.fit(net, begun, stepped)
        self.assertTrue(parts["applied"])
        self.assertEqual(len(after_optimizer), 6)
        self.assertTrue(after_optimizer[1][4:].all(), "gradients have reached all moments")

    def test_a_joiner_has_the_moments_of_the_average_and_its_donors_counters(self):
        here, net, donor = self.agent(roles=self.ROLES), Line(), {}

        def stepped(number):
            if number == 4:
                here.put(OPAQUE_WANTED, 1)
            if number == 5:
                donor.update(given=here.given, vector=self.vector(net, donor["optimizer"]))

        self.fit(net, lambda optimizer: donor.update(optimizer=optimizer), stepped)
        self.assertEqual(here.get(OPAQUE_GIVEN), 1)
        average = donor["vector"] + 1
        here.offer(average, donor["given"])
        joiner, seen = Line(), []

        def begun(optimizer):
            states = moments.unwrapped(optimizer).state
            seen.append((self.vector(joiner, optimizer), [float(states[p]["step"]) for p in joiner.parameters()]))

        self.fit(joiner, begun, lambda number: None)
        numpy.testing.assert_array_equal(seen[0][0], average)
        self.assertEqual(seen[0][1], [5, 5])


class Line(torch.nn.Module):
    """Learns y = 2x; what Hugging Face's Trainer asks of a model: a dict with the loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.linear = torch.nn.Linear(1, 1)
        self.seen = []   # the inputs of each batch that it was trained on

    def forward(self, x, labels):
        if self.training:
            self.seen.append(x.detach().reshape(-1).tolist())
        return {"loss": torch.nn.functional.mse_loss(self.linear(x), labels)}


class Points(torch.utils.data.Dataset):
    """x = 0, 1, 2, ... / 100, each of them once."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        if at >= self.count:
            raise IndexError(at)
        x = torch.tensor([at / 100])
        return {"x": x, "labels": 2 * x}


class Stream(torch.utils.data.IterableDataset):
    """The same, of a length that nobody knows."""

    def __init__(self, count):
        self.points = Points(count)

    def __iter__(self):
        return iter(self.points)
