#!/usr/bin/env python3
"""Each script of docs/frameworks.md as a job of three workers with real agents: they average, one is killed with its agent,
its replacement takes the job's state, and the job's target ends the training. Once more with averaged moments.

Usage: jobs_test.py BIN     BIN is the folder of the built programs. On the machine itself; the trainers run in the root.
"""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "end-to-end"), str(ROOT / "tests" / "frameworks")]
from page_test import SCRIPTS  # noqa: E402
from runs import BIN, MARK, RunCase, processes  # noqa: E402

from crowdsurf.safetensors import read_model  # noqa: E402

INSIDE = ROOT / "tests" / "frameworks" / "inside"
PATIENCE = 300   # seconds: three trainers import their libraries at once, which takes 20 s of two cores
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
MOMENTS = {"interval: {steps: 20}": "interval: {steps: 20}, roles: [Parameter, OptimizerState], compression: BFloat16"}
TENSORS = {"Hugging Face's Trainer": "transformer.wte.weight", "Accelerate": "0.weight", "Lightning": "net.0.weight"}


class JobsTest(RunCase):
    def delivered(self, worker):
        """Averages that its agent, which may just be starting, has given to its trainer."""
        try:
            return self.metric(worker, "crowdsurf_averaging_delivered_total")
        except OSError:
            return 0

    def begin(self, text, **replace):
        """(process, what it said): a job of three workers that have averaged twice. replace: in the manifest."""
        script = self.path / "train.py"
        script.write_text(text)
        self.write_endless(f"{INSIDE}, python3, -B, {script}", **{"replicas: 4": "replicas: 3", **replace})
        process = self.start(env=ENVIRONMENT, cwd=self.path)
        seen = self.wait_for_each(process, [f"e2e-{worker}-1 trains" for worker in range(3)])
        self.wait_until(lambda: self.delivered("e2e-0-1") >= 2, PATIENCE)
        return process, seen

    def lose_a_worker(self, title, text, **replace):
        process, seen = self.begin(text, **replace)
        self.kill_worker("e2e-1-1")
        seen += self.wait_for(process, "e2e-1-2 trains, with state", PATIENCE)
        delivered = self.delivered("e2e-0-1")
        self.wait_until(lambda: self.delivered("e2e-0-1") >= delivered + 2, PATIENCE)
        output = self.end_job(process, seen)
        report = self.report()
        self.assertEqual(report["rounds"]["hash_mismatches"], 0, output)
        self.assertGreater(report["rounds"]["completed"], 0)
        self.nothing_is_left()
        self.assertIn(TENSORS[title], read_model(self.state / "checkpoint"))
        checkpoints = list((self.state / "checkpoint").glob("*.crowdsurf"))
        self.assertTrue(checkpoints)
        for checkpoint in checkpoints:   # its table names what the job averages
            self.assertEqual(f"optimizer.exp_avg_sq.{TENSORS[title]}".encode() in checkpoint.read_bytes(), replace == MOMENTS)
        self.no_trainer_complains()
        print(f"{title}: {report['samples']:.0f} samples, {report['rounds']['completed']} rounds, loss {report.get('loss')}")

    def no_trainer_complains(self):
        workers = list((self.state / "workers").iterdir())
        self.assertTrue(workers)
        for log in (worker / "trainer.log" for worker in workers if (worker / "trainer.log").exists()):   # a silent one has none
            self.assertNotRegex(log.read_text(), "Traceback|before the job's target", log)

    def test_hugging_faces_trainer_loses_a_worker(self):
        self.lose_a_worker(*SCRIPTS[0])

    def test_accelerate_loses_a_worker(self):
        self.lose_a_worker(*SCRIPTS[1])

    def test_lightning_loses_a_worker(self):
        self.lose_a_worker(*SCRIPTS[2])

    def test_hugging_faces_trainer_averages_moments(self):
        self.lose_a_worker(*SCRIPTS[0], **MOMENTS)

    def test_accelerate_averages_moments(self):
        self.lose_a_worker(*SCRIPTS[1], **MOMENTS)

    def test_lightning_averages_moments(self):
        self.lose_a_worker(*SCRIPTS[2], **MOMENTS)

    def test_an_agent_that_dies_under_its_trainer_comes_back_and_the_trainer_never_stops(self):
        process, seen = self.begin(SCRIPTS[2][1])
        link, agent = self.link("e2e-1-1"), next(iter(self.agents("e2e-1-1")))
        trainers = self.trainers(link)
        self.assertEqual(len(trainers), 1)
        os.kill(agent, signal.SIGKILL)
        self.wait_until(lambda: self.agents("e2e-1-1").keys() - {agent}, PATIENCE)
        self.wait_until(lambda: self.delivered("e2e-1-1") >= 2, PATIENCE)   # counted by the second agent
        self.assertEqual(self.trainers(link), trainers)
        output = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0, output)
        self.no_trainer_complains()
        self.nothing_is_left()

    def trainers(self, link):
        """The pids of the scripts beside the agent of this folder."""
        return [pid for pid, words in processes(self.state).items() if "train.py" in words and "crowdsurf" not in words.split()[0] and
                f"CROWDSURF_DIR={link}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]

    def test_without_a_manifest_each_ends_by_itself_at_the_target(self):
        for (title, text), samples in zip(SCRIPTS, (2000, 20000, 20000)):
            with self.subTest(title):
                (self.path / "train.py").write_text(text)
                flags = ("--state-dir", self.state, "--fresh", "--workers", "4", "--samples", str(samples))
                run = subprocess.run([BIN / "crowdsurf", "run", *flags, "--", INSIDE, "python3", "-B", "train.py"], cwd=self.path,
                                     env={**ENVIRONMENT, MARK: str(self.state)}, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                self.assertGreaterEqual(self.report()["samples"], samples)
                self.no_trainer_complains()
                self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
