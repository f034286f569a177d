#!/usr/bin/env python3
"""A PyTorch job that averages Adam's moments: a worker that takes a killed one's place, and a job that goes on from a
checkpoint, have the moments of the average and the counter of a donor; the model has no moments. Needs Debian's PyTorch,
else skipped.

Usage: moments_test.py BIN     BIN is the folder of the built programs.
"""
import os
import pathlib
import sys
import unittest

from runs import RunCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
try:
    import crowdsurf
    import torch
except ImportError as error:
    print(f"skipped: needs Debian's python3-torch ({error})")
    sys.exit(77)

ENVIRONMENT = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}
AVERAGING = {"groupSize: 2, interval: {steps: 20}":
             "groupSize: 2, interval: {steps: 20}, roles: [Parameter, OptimizerState], compression: BFloat16"}
TASK = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
inputs = torch.randn(512, 8)
wanted = (inputs @ torch.randn(8, 4)).tanh().sum(dim=1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
"""
SCRIPT = TASK + """
import os, pathlib, sys, time
import crowdsurf

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
job = crowdsurf.join(model, optimizer)
own = [optimizer.state[p] for p in model.parameters()]
said = pathlib.Path(sys.argv[1], os.environ["CROWDSURF_WORKER"])
text = f"{float(own[0]['step'])} {sum(float(each['exp_avg_sq'].sum()) for each in own)}"
said.with_suffix(".new").write_text(text)
said.with_suffix(".new").rename(said)
for batch in job.batches([32]):
    rows = torch.randint(len(inputs), (batch,))
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[rows]), wanted[rows])
    loss.backward()
    optimizer.step()
    outcome = job.step(samples=batch, loss=loss)
    assert all(bool((each["exp_avg_sq"] >= 0).all()) for each in own if outcome.applied)
    own = [optimizer.state[p] for p in model.parameters()]
    time.sleep(0.005)
"""


class MomentsTest(RunCase):
    def begin(self):
        """(process, what it said): a job of four workers that have averaged twice."""
        script, self.said = self.path / "train.py", self.path / "said"
        self.said.mkdir()
        script.write_text(SCRIPT)
        self.write_endless(f"python3, -B, {script}, {self.said}", **AVERAGING)
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for_all(process)
        self.wait_until(lambda: all(self.metric(f"e2e-{i}-1", "crowdsurf_averaging_delivered_total") >= 2 for i in range(4)))
        return process, seen

    def began(self, worker):
        """The step counter and the sum of second moments that it had at join()."""
        self.wait_until((self.said / worker).exists)
        return tuple(float(word) for word in (self.said / worker).read_text().split())

    def test_a_workers_replacement_has_the_moments_of_the_average(self):
        process, seen = self.begin()
        self.assertIn((0, 0), [self.began(f"e2e-{i}-1") for i in range(4)], "the job's first worker begins with none")
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains, with state")
        step, squares = self.began("e2e-1-2")
        self.assertGreater(step, 20)
        self.assertGreater(squares, 0)
        before = self.metric("e2e-1-2", "crowdsurf_averaging_delivered_total")
        self.wait_until(lambda: self.metric("e2e-1-2", "crowdsurf_averaging_delivered_total") >= before + 3)
        output = self.end_job(process, seen)
        report = self.report()
        self.assertEqual(report["rounds"]["hash_mismatches"], 0, output)
        self.nothing_is_left()

        task = {}
        exec(TASK, task)
        task["model"].load_state_dict(crowdsurf.load_model(self.state / "checkpoint" / "model.safetensors"))   # strictly
        loss = float(torch.nn.functional.mse_loss(task["model"](task["inputs"]), task["wanted"]))
        print(f"loss {loss:.4f} of {float(task['wanted'].var()):.4f}, {report['samples']:.0f} samples, step {step:.0f} at the join")
        self.assertLess(loss, 0.3 * float(task["wanted"].var()))

    def test_all_go_on_from_a_checkpoint(self):
        process, seen = self.begin()
        self.wait_until(lambda: any((self.state / "checkpoint").glob("*.crowdsurf")))
        for worker in range(4):
            self.kill_worker(f"e2e-{worker}-1")
        seen += self.wait_for_each(process, [f"e2e-{worker}-2 trains" for worker in range(4)])
        for worker in range(4):
            step, squares = self.began(f"e2e-{worker}-2")
            self.assertGreater(step, 0, worker)
            self.assertGreater(squares, 0, worker)
        self.end_job(process, seen)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
