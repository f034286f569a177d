#!/usr/bin/env python3
"""The README's path on a real cluster: install the chart, apply deploy/examples/charlm.yaml, wait for the model.

Usage: pods_test.py BIN [TestCase.test ...]     BIN: the folder of the built programs. Needs KUBECONFIG, helm, the images.
"""
import json
import pathlib
import subprocess
import sys
import time
import unittest
import urllib.request

import kube
from kube import JOBS, kubectl, wait

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
# `spec.disruption.podDisruptionBudget` and `spec.network.policy` make one of each.
GUARDS = ("/apis/policy/v1/namespaces/default/poddisruptionbudgets/charlm-workers",
          "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/charlm-workers")
TRIGRAM_BITS = 3.064  # held-out bits per character of a counted trigram on the same text (docs/trainer.md)


class PodsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kube = kube.Kube()
        cls.installed = kube.install()
        cls.addClassCleanup(cls.kube.close)

    def test_charlm_trains_in_pods_to_its_target_and_leaves_a_model(self):
        print(f"\nhelm install to Ready: {self.installed:.1f} s")
        begun = time.monotonic()
        kubectl("apply", "-f", "deploy/examples/charlm.yaml")
        agents = kube.Agents(self.kube, "charlm")
        self.addCleanup(agents.stop)
        story = lambda: kubectl("get", "tj", "charlm", "-o", "wide") + kubectl("get", "pods", "-o", "wide")
        first = wait("a first step", lambda: any(s["step"] > 0 for s in agents.summaries()), 60, story)
        print(f"kubectl apply to the first training step: {first:.1f} s")
        wait("eight workers", lambda: self.kube.status("charlm").get("readyReplicas") == 8, 60, story)
        line = kubectl("get", "tj", "charlm").splitlines()
        print("\n".join(line))
        self.assertEqual(line[0].split(), "NAME STATE READY DESIRED SPOT DISRUPTIONS STEP PROGRESS AGE".split())
        self.assertEqual(line[1].split()[:4], ["charlm", "Running", "8", "8"])
        self.metrics_are_few(agents)
        self.guards_follow_the_spec()
        wait("Succeeded", lambda: self.kube.condition("charlm", "Succeeded").get("status") == "True", 420, story)
        print(f"kubectl apply to Succeeded: {time.monotonic() - begun:.0f} s")
        print(kubectl("get", "tj", "charlm", "-o", "wide"))
        status = self.kube.status("charlm")
        self.assertEqual(status["state"], "Succeeded")
        self.assertEqual(status["progress"]["percent"], "100%")
        # These workers take all the cores they get, so rates follow the load: nodes_test compares goodput, with paced ones.
        told, _ = kube.goodput(status, agents, 8)
        self.assertTrue(0 < told <= 1, told)
        self.assertGreaterEqual(status["progress"]["samples"], 6_000_000)
        self.assertEqual(status["failures"]["total"], 0)
        self.assertEqual(status["agentImage"], "localhost/crowdsurf-worker:0.1.0", "pod-lifecycle 8.3")
        self.assertEqual(agents.twice, [], "two members under one id")
        self.assertEqual(agents.failed(), 0, "rounds failed")
        self.judge_model()
        self.assertEqual([bool(self.kube.find(guard)) for guard in GUARDS], [True, True])
        self.kube.delete(f"{JOBS}/charlm", propagationPolicy="Foreground")
        wait("the guards gone with the job", lambda: not any(map(self.kube.find, GUARDS)), 60)
        self.nothing_was_forbidden()

    def metrics_are_few(self, agents):
        """pod-lifecycle 8.12: plain, on a port of their own, at most 250 series a worker."""
        for name, ip in list(agents.targets.values()):
            with urllib.request.urlopen(f"http://{ip}:7948/metrics", timeout=10) as answer:
                series = [line for line in answer.read().decode().splitlines() if line and line[0] != "#"]
            self.assertLessEqual(len(series), 250, f"{name}: {series}")
            self.assertIn("crowdsurf_worker_ready 1", series, name)
        print(f"series of a worker: {len(series)}")

    def guards_follow_the_spec(self):
        """Made, taken away and made again by edits of a job that trains: every right of the chart's that guards need."""
        def exist(*wanted):
            wait(f"guards {wanted}", lambda: tuple(bool(self.kube.find(guard)) for guard in GUARDS) == wanted, 20,
                 kube.operators_log)
        wanted = {"disruption": {"podDisruptionBudget": {"maxUnavailable": "25%"}}, "network": {"policy": "Managed"}}
        self.kube.patch(f"{JOBS}/charlm", {"spec": wanted})
        exist(True, True)
        print(kubectl("get", "pdb,networkpolicy"))
        # What the budget's controller makes of it: eight workers are counted, a quarter of them may be away.
        counted = lambda: self.kube.get(GUARDS[0])["status"]
        wait("the budget covers the workers", lambda: (counted()["expectedPods"], counted()["desiredHealthy"]) == (8, 6), 20,
             lambda: json.dumps(counted()))
        self.kube.patch(f"{JOBS}/charlm", {"spec": {"disruption": None, "network": None}})
        exist(False, False)
        self.kube.patch(f"{JOBS}/charlm", {"spec": wanted})
        exist(True, True)

    def nothing_was_forbidden(self):
        """The chart's own rights are enough for all that the operator asked for."""
        log = kube.operators_log()
        self.assertIn("leading", log, "the operators' log")
        self.assertEqual([line for line in log.splitlines() if "forbidden" in line.lower()], [])

    def judge_model(self):
        """The model on the job's volume says more about held-out text than counting does."""
        claim = self.kube.get("/api/v1/namespaces/default/persistentvolumeclaims/charlm")
        volume = self.kube.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        model = pathlib.Path(volume["spec"]["local"]["path"]) / "model.safetensors"
        told = subprocess.run([BIN / "crowdsurf-trainer", "evaluate", "--model", model,
                               "--text", "/usr/share/games/fortunes"], check=True, capture_output=True, text=True)
        judged = json.loads(told.stdout)
        print(f"the model: {judged}")
        self.assertLess(judged["heldout_bits_per_char"], TRIGRAM_BITS)

    def tearDown(self):
        self.kube.delete(f"{JOBS}/charlm", propagationPolicy="Foreground")
        kubectl("delete", "pvc", "charlm", "--ignore-not-found", "--wait=false")
        wait("its pods gone", lambda: not self.kube.pods("charlm"), 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
