"""What the tests of the frameworks share: the stand-in of the agent, and a model small enough to compute by hand."""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", PYTHONWARNINGS="ignore")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch  # noqa: E402
from torch_case import JoinCase, flat  # noqa: E402, F401
from crowdsurf import job  # noqa: E402

torch.set_num_threads(1)   # two threads on tiny tensors wait for each other


class FrameworkCase(JoinCase):
    """What a framework joined ends with its test, also where that fails."""

    def setUp(self):
        super().setUp()
        self.addCleanup(lambda: (joined := job._joined and job._joined()) and joined.close())


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
