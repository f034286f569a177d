#!/usr/bin/env python3
"""What averaged moments do for Adam on the digits: four workers in one process, exact averages. Needs PyTorch and
scikit-learn, else skipped.

Usage: moments_digits_test.py [--table]     --table prints the figures of docs/pytorch.md, of three seeds.
"""
import sys
import unittest
import unittest.mock

import client_case  # noqa: F401  (the path of the package)

try:
    import numpy
    import torch
    from sklearn.datasets import load_digits
except ImportError as error:
    print(f"skipped: needs PyTorch and scikit-learn ({error})")
    sys.exit(77)
from crowdsurf import module, moments

WORKERS, STEPS, HELD_OUT = 4, 400, 360
ROLES = {"parameters": ("Parameter",), "and moments": ("Parameter", "OptimizerState")}


def as_float16(vector):
    return vector.astype(numpy.float16).astype(numpy.float32)


def as_bfloat16(vector):
    return torch.from_numpy(vector).bfloat16().float().numpy()


COMPRESSION = {"None": lambda vector: vector, "Float16": as_float16, "BFloat16": as_bfloat16}


class Worker:
    def __init__(self, roles, seed, number):
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.port, self.elements = module.ModuleParameters(self.net, self.optimizer), 0
        for tensor in self.port.declare(roles):
            if tensor.role in roles:
                tensor.offset, self.elements = 4 * self.elements, self.elements + tensor.elements
        self.port.place(self.port.tensors)
        self.draws = torch.Generator().manual_seed(100 * seed + number)

    def step(self, images, labels):
        rows = torch.randint(len(images), (32,), generator=self.draws)
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.net(images[rows]), labels[rows]).backward()
        self.optimizer.step()

    def snapshot(self):
        vector = numpy.zeros(self.elements, numpy.float32)
        self.port.read(vector)
        return vector


def train(averaged, alike, every, compression, seed):
    """(loss, accuracy) on held-out digits of the average, `alike`: each worker draws from all ten digits, else from its own."""
    images, labels = load_digits(return_X_y=True)
    order = numpy.random.default_rng(0).permutation(len(labels))
    images, labels = torch.tensor(images[order] / 16).float(), torch.tensor(labels[order])
    own = torch.arange(HELD_OUT, len(labels))
    own = own if alike else own[torch.argsort(labels[own], stable=True)]
    parts = [(images[part], labels[part]) for part in own.chunk(WORKERS)]
    workers = [Worker(ROLES[averaged], seed, number) for number in range(WORKERS)]
    through = COMPRESSION[compression]
    for step in range(1, STEPS + 1):
        for worker, part in zip(workers, parts):
            worker.step(*part)
        if step % every == 0:
            snapshots = [worker.snapshot() for worker in workers]
            mean = through(sum(through(each) for each in snapshots) / numpy.float32(WORKERS))
            for worker, snapshot in zip(workers, snapshots):
                worker.port.add(mean, snapshot)
    with torch.no_grad():
        out = workers[0].net(images[:HELD_OUT])
    return float(torch.nn.functional.cross_entropy(out, labels[:HELD_OUT])), float((out.argmax(1) == labels[:HELD_OUT]).float().mean())


class DigitsTest(unittest.TestCase):
    def test_moments_help_where_each_worker_has_digits_of_its_own(self):
        without, _ = train("parameters", False, 10, "None", 0)
        averaged, _ = train("and moments", False, 10, "BFloat16", 0)
        print(f"loss {averaged:.3f} with averaged moments, {without:.3f} without")
        self.assertLess(averaged, 0.7 * without)

    def test_float16_harms_no_step_though_it_makes_zeros_of_small_moments(self):
        loss, _ = train("and moments", True, 10, "Float16", 0)
        self.assertLess(loss, 0.5)
        with unittest.mock.patch.object(moments, "_least", lambda *_: None):   # zero is then the least
            loss, _ = train("and moments", True, 10, "Float16", 0)
        self.assertGreater(loss, 10)


def print_table():
    for alike, every in ((True, 10), (False, 10), (False, 50)):
        for averaged, compression in (("parameters", "None"), ("and moments", "None"), ("and moments", "BFloat16"),
                                      ("parameters", "Float16"), ("and moments", "Float16")):
            found = [train(averaged, alike, every, compression, seed) for seed in range(3)]
            losses, accuracies = zip(*found)
            print(f"{'all digits' if alike else 'its own digits'}, every {every}, {averaged}, {compression}: "
                  f"loss {min(losses):.3f} to {max(losses):.3f}, accuracy {min(accuracies):.3f} to {max(accuracies):.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--table"]:
        print_table()
    else:
        unittest.main()
