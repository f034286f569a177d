#!/usr/bin/env python3
"""The example in PyTorch as a user runs it: it meets its target although a worker is killed, and its model is as good as one
that a single process trains on as many samples. Needs Debian's PyTorch and scikit-learn, else skipped.

Usage: pytorch_test.py BIN     BIN is the folder of the built programs.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from runs import BIN, MARK, PATIENCE, RunCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES)]
try:
    import crowdsurf
    import digits
    import torch
except ImportError as error:
    print(f"skipped: needs Debian's python3-torch and python3-sklearn ({error})")
    sys.exit(77)

SAMPLES = 60000   # that the job trains on: 42 passes over the data
LOST = 0.02       # accuracy that it may be below a single process, of 360 pictures and one seed
ENVIRONMENT = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}
MODEL = {name: value.shape for name, value in digits.network().state_dict().items()}


def load(path):
    """The tensors of a safetensors file (its format's page: u64 length, JSON of dtype, shape and offsets, the bytes)."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:start])
    tensors.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[start + t["data_offsets"][0] : start + t["data_offsets"][1]]),
                                   dtype={"F32": torch.float32}[t["dtype"]]).reshape(t["shape"])
            for name, t in tensors.items()}


class PytorchTest(RunCase):
    def alone(self, samples):
        """The accuracy of a single process that trained on at least as many samples."""
        (images, _), _ = digits.digits()
        epochs = -(-samples // len(images))
        run = subprocess.run([sys.executable, EXAMPLES / "digits.py", "--epochs", str(epochs)], env=ENVIRONMENT,
                             capture_output=True, text=True, timeout=10 * PATIENCE)
        self.assertEqual(run.returncode, 0, run.stderr)
        return float(re.search(r"held-out accuracy ([\d.]+)", run.stdout).group(1))

    def test_digits_meet_their_target_although_a_worker_is_killed(self):
        manifest = (EXAMPLES / "digits-pytorch.yaml").read_text().replace("{name: digits}", "{name: e2e}")
        self.job.write_text(re.sub(r"samples: \d+", "samples: 1000000000", manifest))
        process = self.start(env=ENVIRONMENT, cwd=ROOT)
        seen = self.wait_for_all(process)
        self.wait_until(lambda: self.metric("e2e-0-1", "crowdsurf_averaging_delivered_total") >= 1)
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains, with state")
        self.wait_until(lambda: self.metric("e2e-0-1", "crowdsurf_averaging_job_samples") >= SAMPLES)
        output = self.end_job(process, seen)
        report = self.report()
        self.assertEqual(report["rounds"]["hash_mismatches"], 0, output)
        self.assertGreater(report["rounds"]["completed"], 0)
        self.nothing_is_left()

        model = digits.network()
        tensors = load(self.state / "checkpoint" / "model.safetensors")
        self.assertEqual({name: value.shape for name, value in tensors.items()}, MODEL)
        model.load_state_dict(crowdsurf.load_model(self.state / "checkpoint" / "model.safetensors"))
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, tensors[name]), name)
        reached = digits.accuracy(model, *digits.digits()[1])
        single = self.alone(int(report["samples"]))
        print(f"accuracy {reached:.4f}, of a single process {single:.4f}, {report['samples']:.0f} samples")
        self.assertGreaterEqual(reached, single - LOST)

    def test_workers_that_draw_the_same_batches_are_named(self):
        script = self.path / "same.py"
        script.write_text("""
import time
import torch
import crowdsurf

model = torch.nn.Linear(2, 1)
job = crowdsurf.join(model, torch.optim.SGD(model.parameters(), lr=0.1))
for batch in job.batches([torch.tensor([1.0, i]) for i in range(8)]):
    time.sleep(0.005)
    job.step(samples=1)
""")
        self.write_endless(f"python3, {script}")
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for(process, r"e2e-\d-1 trains on the same batches in the same order as e2e-\d-1: shuffle")
        seen = self.end_job(process, seen)
        self.assertEqual(len(re.findall("trains on the same batches", seen)), 1, "once a job, with four workers")
        self.nothing_is_left()

    def test_a_worker_with_another_frozen_base_gets_no_seat_and_is_told_why(self):
        script = self.path / "bases.py"
        script.write_text("""
import os, time
import torch
import crowdsurf

torch.manual_seed(int(os.environ["CROWDSURF_WORKER"].startswith("e2e-1-")))
model = torch.nn.Sequential(torch.nn.Linear(4, 4).requires_grad_(False), torch.nn.Linear(4, 1))
job = crowdsurf.join(model, torch.optim.SGD(model[1].parameters(), lr=0.1))
for batch in job.batches([8]):
    time.sleep(0.005)
    job.step(samples=batch)
""")
        self.write_endless(f"python3, {script}")
        process = self.start(env=ENVIRONMENT)
        seen = self.wait_for(process, r"gets no seat: the frozen parameters are not those of e2e-\d-1: load the same values")
        self.end_job(process, seen)
        self.nothing_is_left()

    def test_workers_of_different_seeds_start_from_one_model_but_for_init_local(self):
        """Each makes a model of its own, and trains when all have said what they start from."""
        script, said = self.path / "apart.py", self.path / "said"
        said.mkdir()
        script.write_text(f"""
import hashlib, os, pathlib, time, zlib
import torch
import crowdsurf

worker = os.environ["CROWDSURF_WORKER"]
torch.manual_seed(zlib.crc32(worker.encode()))
model = torch.nn.Sequential(torch.nn.Linear(50, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 3))

def digest():
    values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()

own = digest()
local = worker.startswith("e2e-2-")
job = crowdsurf.join(model, torch.optim.SGD(model.parameters(), lr=0.1), init="local" if local else "job")
said = pathlib.Path({str(said)!r})
(said / (worker + ".new")).write_text(own + " " + digest())
(said / (worker + ".new")).rename(said / worker)
end = time.monotonic() + {PATIENCE}
while len(list(said.glob("e2e-*-1"))) < 4 and time.monotonic() < end:
    time.sleep(0.02)   # between two looks for files of others
for batch in job.batches([8]):
    time.sleep(0.005)
    job.step(samples=batch)
""")
        self.write_endless(f"python3, {script}")
        process = self.start(env=ENVIRONMENT)
        self.wait_until(lambda: len(list(said.glob("e2e-?-1"))) == 4)
        self.wait_until(lambda: all(self.metric(f"e2e-{i}-1", "crowdsurf_averaging_delivered_total") >= 2 for i in range(4)))
        output = self.end_job(process)
        own, began = zip(*(said.joinpath(f"e2e-{i}-1").read_text().split() for i in range(4)))
        self.assertEqual(len(set(own)), 4, "the models differ")
        self.assertEqual(len({began[0], began[1], began[3]}), 1, output)
        self.assertIn(began[0], own, "that of the first worker, whichever it is")
        self.assertEqual(began[2], own[2], "init=local")
        self.nothing_is_left()

    def test_a_script_without_a_manifest_runs_as_a_job_and_gets_one(self):
        (self.path / "digits.py").write_text((EXAMPLES / "digits.py").read_text())
        flags = ("--state-dir", self.state, "--workers", "2", "--samples", "4000", "--", "python3", "digits.py", "--seed", "3")
        run = subprocess.run([BIN / "crowdsurf", "run", *flags], env={**ENVIRONMENT, MARK: str(self.state)}, cwd=self.path,
                             capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertGreaterEqual(self.report()["samples"], 4000)
        # A worker that has not begun when the other meets the target ends without a word, and has no log.
        said = "".join(log.read_text() for log in (self.state / "workers").glob("*/trainer.log"))
        self.assertIn("held-out accuracy", said)
        self.nothing_is_left()
        for code in (0, 2):   # the second time it would overwrite the first
            run = subprocess.run([BIN / "crowdsurf", "init", "digits.py"], cwd=self.path, capture_output=True, text=True)
            self.assertEqual(run.returncode, code, run.stderr)
        self.assertIn('command: ["python3","digits.py"]', (self.path / "digits.yaml").read_text())

    def test_an_exception_of_the_script_reaches_the_terminal_and_fails_the_job(self):
        script = self.path / "broken.py"
        script.write_text("import torch, crowdsurf\nmodel = torch.nn.Linear(2, 1)\njob = crowdsurf.join(model)\n"
                          "for batch in job.batches([1]):\n    job.step(samples=batch)\n    {}['no such key']\n")
        self.write(f"python3, {script}", **{"replicas: 4": "replicas: 1", "backoffLimit: 2": "backoffLimit: 0"})
        process = self.start(env=ENVIRONMENT)
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("KeyError: 'no such key'", output)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
