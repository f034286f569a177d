#!/usr/bin/env python3
"""An agent is killed under a PyTorch script that lives, at any moment, and its supervisor starts another: the script trains on,
its training counts again, and no parameter is wrong. Needs Debian's PyTorch, else skipped.

Usage: agent_dies_test.py BIN     BIN is the folder of the built programs.
"""
import os
import pathlib
import random
import re
import sys
import time
import unittest
import urllib.error

from equal_bits import AVERAGING, EqualBitsCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]
try:
    import crowdsurf
    import torch
except ImportError as error:
    print(f"skipped: needs Debian's python3-torch ({error})")
    sys.exit(77)

SEED = 5
DEATHS = 6           # a supervisor gives up at the tenth in a minute
ELEMENTS = 200_000   # several chunks of an averaging
# Each worker adds its steps to a pattern that all know. An average is the pattern and a number of steps, one for each chunk, as
# the workers in a chunk may be others. No snapshot gets two.
SCRIPT = f"""
import os, pathlib, sys, time
import torch
import crowdsurf

torch.set_num_threads(1)
torch.manual_seed(1)
pattern = torch.randint(-8, 8, ({ELEMENTS},)).float()
model = torch.nn.Module()
model.w = torch.nn.Parameter(pattern.clone())
job = crowdsurf.join(model)
notes = pathlib.Path(sys.argv[1])
(notes / f"{{os.environ['CROWDSURF_WORKER']}}.{{os.getpid()}}").touch()
blocking, held, steps = sys.argv[2] == "Blocking", None, 0

def wrong(words):
    (notes / "wrong").write_text(f"step {{steps}}: {{words}}")
    sys.exit(1)

def check(values, what):
    moved = values - pattern
    kinds, low, high = len(torch.unique(moved.round(decimals=2))), float(moved.min()), float(moved.max())
    if not (kinds <= 64 and low > -0.1 and high < 100 + 2 * steps):
        wrong(f"{{what}}: {{kinds}} kinds, from {{low}} to {{high}}")

for batch in job.batches([8]):
    with torch.no_grad():
        model.w += 1
    steps += 1
    time.sleep(0.01)   # what a step takes
    before = model.w.detach().clone()
    outcome = job.step(samples=batch)
    if blocking and outcome.published:
        held = before
    if outcome.applied:
        if held is None:
            wrong("an average without a snapshot")
        check(held + model.w.detach() - before, "the average")
        held = None
    if not blocking and outcome.published:   # after the average of the snapshot before
        held = model.w.detach().clone()
    if outcome.adopted:
        held = None
    check(model.w.detach(), "the parameters")
"""
# The gradient of a bowl whose bottom is a pattern.
GRADIENTS = """
import os, pathlib, sys, time
import torch
import crowdsurf

torch.set_num_threads(1)
torch.manual_seed(1)
goal = torch.randn(1000)
model = torch.nn.Module()
model.w = torch.nn.Parameter(torch.zeros(1000))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
job = crowdsurf.join(model, optimizer)
notes = pathlib.Path(sys.argv[1])
(notes / f"{os.environ['CROWDSURF_WORKER']}.{os.getpid()}").touch()
for batch in job.batches([256]):
    optimizer.zero_grad()
    (model.w - goal).square().sum().backward()
    time.sleep(0.01)   # what a batch takes
    job.optimize(samples=batch)
"""
ENVIRONMENT = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}


class AgentDiesTest(EqualBitsCase):
    def begin(self, script, overlap="", **replace):
        path, self.notes, self.rng = self.path / "script.py", self.path / "notes", random.Random(SEED)
        path.write_text(script)
        self.notes.mkdir()
        self.write_endless(f"python3, {path}, {self.notes}, {overlap or 'Blocking'}", **replace)
        process = self.start(env=ENVIRONMENT)
        return process, self.wait_for_all(process)

    def kill_agent(self, worker):
        """At some moment of an averaging or between; returns when another one is there."""
        ((before, _),) = self.agents(worker).items()
        time.sleep(self.rng.uniform(0, 0.5))   # the moment is what the seed draws
        os.kill(before, 9)
        self.wait_until(lambda: self.agents(worker) and before not in self.agents(worker))

    def counter(self, worker, name):
        """Of the agent that there is now; 0 while it begins."""
        try:
            return self.metric(worker, name)
        except (OSError, ValueError, urllib.error.URLError):
            return 0

    def averages(self, worker, times):
        """A new agent counts from 0."""
        def enough():
            self.nothing_is_wrong()
            return self.counter(worker, "crowdsurf_averaging_delivered_total") >= times
        self.wait_until(enough)

    def nothing_is_wrong(self):
        self.assertEqual([file.read_text() for file in self.notes.glob("wrong")], [])

    def all_live(self):
        """Each script is the one that began."""
        self.nothing_is_wrong()
        self.assertEqual(sorted(file.name.split(".")[0] for file in self.notes.iterdir()), [f"e2e-{i}-1" for i in range(4)])
        for file in self.notes.iterdir():
            os.kill(int(file.suffix[1:]), 0)

    def said(self, worker, log):
        """What its agents or its script have printed; there is no log where that is nothing."""
        path = self.state / "workers" / worker / f"{log}.log"
        return path.read_text() if path.exists() else ""

    def dies(self, times, overlap):
        replace = {"interval: {steps: 20}": f"overlap: {overlap}, interval: {{steps: 10}}"}
        process, seen = self.begin(SCRIPT, overlap, **replace)
        for _ in range(times):
            self.averages("e2e-1-1", 2)
            self.kill_agent("e2e-1-1")
        self.averages("e2e-1-1", 5)
        self.all_live()
        again = re.findall(r".*trainer registered.*session.*fresh.{0,3}false.*", self.said("e2e-1-1", "agent"))
        print(f"{overlap}: {times} agents killed, seed {SEED}; the script came to another one {len(again)} times")
        self.assertEqual(len(again), times)
        output = self.end_job(process, seen)
        said = self.said("e2e-1-1", "trainer")
        self.assertNotIn("Traceback", said)
        self.assertEqual(said.count("the agent is lost"), said.count("the agent is back"), said)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0, output)
        torch.manual_seed(1)
        pattern = torch.randint(-8, 8, (ELEMENTS,)).float()
        model = crowdsurf.load_model(self.state / "checkpoint" / "model.safetensors")["w"]
        self.assertLessEqual(len(torch.unique((model - pattern).round(decimals=2))), 64, "steps that the model has of its chunks")
        self.nothing_is_left()

    def test_averages_go_on_beside_steps(self):
        self.dies(DEATHS, "Delayed")

    def test_steps_that_wait_for_averages_go_on(self):
        self.dies(DEATHS // 2, "Blocking")

    def test_all_workers_take_equal_steps_again(self):
        process, seen = self.begin(GRADIENTS, **AVERAGING)
        workers = self.names([1, 1, 1, 1])
        last = self.expect_equal_bits(workers)
        for _ in range(DEATHS // 2):
            self.kill_agent("e2e-1-1")
            before, last = last, self.expect_equal_bits(workers)
            self.assertGreater(last, before)
        self.all_live()
        output = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0, output)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
