#!/usr/bin/env python3
"""Each manifest of deploy/examples/strategies as a job of eight pods, of which one dies without notice every 12 s: training goes on.

Usage: strategies_test.py BIN [StrategiesTest.test_NAME ...]     On our own test cluster: processes on its nodes are killed.
Not in `./dev test cluster`, since it takes a quarter of an hour: `./dev test cluster strategies`.
"""
import pathlib
import random
import re
import shutil
import sys
import time
import unittest
import urllib.request

import kube
from kube import JOBS, PODS, Node, Refused, kubectl, leaving, ready, wait

pathlib.Path(sys.argv.pop(1)).resolve()   # as every test of this folder: BIN comes first
MANIFESTS = sorted(pathlib.Path("deploy/examples/strategies").glob("*.yaml"))
WORKERS = 8
EVERY = 12    # s between two deaths, as issues and the benches of local jobs have it
DEATHS = 6
SEED = 1      # of whose turn it is


class StrategiesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kube.prepare(cls)

    def judge(self, manifest):
        job, self.counted = manifest.stem, {}
        self.addCleanup(self.remove, job)
        kubectl("apply", "-f", str(manifest))
        agents = kube.Agents(self.kube, job)
        self.addCleanup(agents.stop)
        show = lambda: kubectl("get", "tj,pods", "-o", "wide", check=False) + kube.events()
        wait("eight workers that average", lambda: self.kube.status(job).get("readyReplicas") == WORKERS and
             self.averaged(agents) > 0, 120, show)
        loss, rng = self.loss(agents), random.Random(SEED)
        for death in range(DEATHS):
            before = self.averaged(agents), self.samples(agents)
            self.die(job, rng)
            # Time itself is tested: what eight workers do in the twelve seconds after a death.
            time.sleep(EVERY)
            now = self.averaged(agents), self.samples(agents)
            if now[0] <= before[0] or now[1] <= before[1]:
                raise kube.told(f"death {death + 1}: averages and samples were {before}, and are {now}", show())
        wait("eight workers again", lambda: self.kube.status(job).get("readyReplicas") == WORKERS, 60, show)
        status = self.kube.status(job)
        print(f"\n{job}: {DEATHS} pods died; {agents.rounds('completed')} rounds completed, {agents.rounds('repaired')} of them "
              f"repaired, {agents.failed()} failed; {self.exchanges(agents)} exchanges committed; "
              f"loss {loss:.3f} to {self.loss(agents):.3f}; {self.samples(agents)} samples; seed {SEED}")
        self.assertEqual(agents.twice, [], "two members under one id")
        self.assertLess(self.loss(agents), loss)
        if status["disruptions"]["total"] != DEATHS:
            log = "\n".join(line for line in kube.operators_log().splitlines() if f"{job}-" in line)
            raise kube.told(f"{DEATHS} pods died, and the status counts {status['disruptions']}", f"{show()}\n{log}")
        self.assertEqual(status["failures"]["total"], 0)

    def die(self, job, rng):
        """The pod goes from the API server, and its processes with it: none of them says a word."""
        pods = {name: pod for name, pod in self.kube.pods(job).items() if ready(pod) and not leaving(pod)}
        name = rng.choice(sorted(pods))
        pod, node = pods[name], Node(pods[name]["spec"]["nodeName"])
        pids = [node.pid(pod, container) for container in ("crowdsurf-agent", "trainer")]
        self.kube.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
        for pid in pids:
            try:
                kube.kill(pid)
            except ProcessLookupError:
                pass  # kubelet was quicker

    @staticmethod
    def samples(agents):
        return max(summary["job_samples"] for summary in agents.seen.values())

    @staticmethod
    def loss(agents):
        losses = [summary["loss"] for summary in agents.summaries() if summary["loss"] is not None]
        return sum(losses) / len(losses)

    def averaged(self, agents):
        """Averages that any worker took: rounds of groups, or exchanges with neighbours."""
        return agents.rounds("completed") + self.exchanges(agents)

    def exchanges(self, agents):
        """Committed exchanges of all that there ever were: a dead pod's last count stays."""
        for uid, (_, ip) in list(agents.targets.items()):
            try:
                with urllib.request.urlopen(f"http://{ip}:7948/metrics", timeout=2) as answer:
                    counts = re.findall(r'^crowdsurf_mix_exchanges_total\{[^}]*outcome="committed"[^}]*\} (\S+)',
                                        answer.read().decode(), re.MULTILINE)
            except OSError:
                continue  # it died
            self.counted[uid] = sum(int(float(count)) for count in counts)
        return sum(self.counted.values())

    def remove(self, job):
        try:
            self.kube.delete(f"{JOBS}/{job}", propagationPolicy="Foreground")
        except Refused as refusal:
            print(refusal)
        kubectl("delete", "pvc", job, "--ignore-not-found", "--wait=false")
        wait("its pods gone", lambda: not self.kube.pods(job), 60)
        # There are fewer volumes than strategies: this one is emptied, and free for the next claim.
        for volume in self.kube.get("/api/v1/persistentvolumes")["items"]:
            if volume["spec"].get("claimRef", {}).get("name") == job:
                for entry in pathlib.Path(volume["spec"]["local"]["path"]).iterdir():
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                self.kube.patch(f"/api/v1/persistentvolumes/{volume['metadata']['name']}", {"spec": {"claimRef": None}})


def add_tests():
    for manifest in MANIFESTS:
        setattr(StrategiesTest, f"test_{manifest.stem}", lambda self, manifest=manifest: self.judge(manifest))


if __name__ == "__main__":
    add_tests()
    unittest.main(verbosity=2)
