#!/usr/bin/env python3
"""No manifest, label or foreign object ends the operator or stops another job's service.

Usage: hostile_jobs_test.py BIN [TestCase.test ...]     Needs KUBECONFIG, helm, the images.
"""
import json
import pathlib
import sys
import unittest

import kube
from kube import JOBS, job, kubectl, ready, wait

pathlib.Path(sys.argv.pop(1)).resolve()   # as every test of this folder: BIN comes first
SERVICES = "/api/v1/namespaces/default/services"
MANY = 3000   # pods, of 20 KB each: more than the chart's memory limit holds as JSON


def operators_memory():
    """VmHWM in MiB of every operator, whose nodes are this machine."""
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # it has just ended
            continue
        if lines["Name"].strip() == "crowdsurf-operator"[:15]:
            yield int(lines["VmHWM"].split()[0]) / 1024


class HostileJobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kube.prepare(cls)

    def setUp(self):
        self.operators = self.kube.operators()

    def tearDown(self):
        self.assertEqual(self.kube.operators(), self.operators, "an operator crashed")
        for name in ("hostile", "other"):
            self.kube.delete(f"{JOBS}/{name}", propagationPolicy="Foreground")
            wait("it is gone", lambda: self.kube.count_pods(name) == 0 and self.kube.find(f"{JOBS}/{name}") is None, 300)

    def says(self, kind, reason, *words):
        """The job's condition `kind` has that reason, and a message with all of `words`."""
        def holds():
            condition = self.kube.condition("hostile", kind)
            return condition.get("reason") == reason and all(word in condition["message"] for word in words)
        wait(f"{kind} {reason}", holds, 60, lambda: json.dumps(self.kube.status("hostile").get("conditions")))
        print(f"{kind} {reason}: {self.kube.condition('hostile', kind)['message']}")

    def another_job_is_served(self):
        self.kube.create(JOBS, job("other"))
        # Beside a thousand pods that fit nowhere the scheduler takes its time: 41 s were seen, and more on a busy machine.
        seconds = wait("another job's worker", lambda: any(map(ready, self.kube.pods("other").values())), 120, kube.events)
        print(f"another job's worker is ready after {seconds:.1f} s")

    def test_text_that_no_cut_may_split(self):
        self.kube.create(JOBS, job("hostile", discovery={"bootstrapPeers": ["a" + "\u20ac" * 30]}))
        self.says("Accepted", "InvalidSpec", "bootstrapPeers")
        self.another_job_is_served()

    def test_a_label_leaves_the_status_alive(self):
        self.kube.create(JOBS, job("hostile", replicas=2))
        step = lambda: self.kube.status("hostile").get("progress", {}).get("step", 0)
        wait("it trains", lambda: step() > 0, 60)
        kubectl("label", "tj", "hostile", "team=x")
        before = step()
        wait("more steps are told", lambda: step() > before, 30)
        name = next(iter(self.kube.pods("hostile")))
        kubectl("delete", "pod", name, "--wait=false")
        count = lambda: self.kube.status("hostile").get("disruptions", {}).get("total", 0)
        wait("the disruption is counted", lambda: count() == 1, 60, lambda: json.dumps(self.kube.status("hostile")))

    def test_more_pods_than_memory_would_hold_as_json(self):
        wide = {"resources": {"requests": {"cpu": "1000"}}, "env": [{"name": "TEXT", "value": "x" * 18_000}]}
        self.kube.create(JOBS, job("hostile", replicas=MANY, container=wide))
        count = lambda: self.kube.count_pods("hostile")
        wait("a thousand pods", lambda: count() >= 1000, 120)
        self.another_job_is_served()
        seconds = wait("all pods", lambda: count() >= MANY, 180, lambda: str(count()))
        print(f"{MANY} pods {seconds:.0f} s later")
        self.assertEqual(self.kube.operators(), self.operators, "an operator crashed")
        for megabytes in operators_memory():
            print(f"an operator's highest memory: {megabytes:.0f} MiB")
            self.assertLess(megabytes, 192)
        self.assertEqual(count(), MANY)
        self.kube.delete(f"{JOBS}/hostile", propagationPolicy="Foreground")
        seconds = wait("they go", lambda: count() < MANY, 60)
        print(f"the first pod of a deleted job is gone after {seconds:.1f} s")

    def test_a_service_of_somebody_else_under_its_name(self):
        self.addCleanup(self.kube.delete, f"{SERVICES}/hostile-peers")
        theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hostile-peers"}, "spec": {"ports": [{"port": 80}]}}
        for spec in ({}, {"clusterIP": "None", "selector": {"app": "theirs"}}):
            theirs["spec"].update(spec)
            self.kube.create(SERVICES, theirs)
            service = self.kube.get(f"{SERVICES}/hostile-peers")
            self.kube.create(JOBS, job("hostile"))
            self.says("Degraded", "NameTaken", "Service/hostile-peers")
            self.assertEqual(self.kube.pods("hostile"), {})
            self.assertEqual(self.kube.get(f"{SERVICES}/hostile-peers"), service, "theirs to the last field")
            self.kube.delete(f"{SERVICES}/hostile-peers")
            seconds = wait("it starts", lambda: "hostile-0-1" in self.kube.pods("hostile"), 60)
            print(f"starts {seconds:.1f} s after the name is free")
            self.kube.delete(f"{JOBS}/hostile", propagationPolicy="Foreground")
            wait("it is gone", lambda: self.kube.find(f"{JOBS}/hostile") is None, 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
