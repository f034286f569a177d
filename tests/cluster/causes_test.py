#!/usr/bin/env python3
"""What cannot work says why: in a condition of the job, in words that name the cause; the operator lives on.

Usage: causes_test.py BIN [TestCase.test ...]     Needs KUBECONFIG, helm, the images.
"""
import copy
import json
import pathlib
import sys
import unittest

import kube
from kube import JOBS, kubectl, ready, wait

pathlib.Path(sys.argv.pop(1)).resolve()   # as every test of this folder: BIN comes first
OPERATORS = "/api/v1/namespaces/crowdsurf-system/pods"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/crowdsurf-operator"
IMAGE = "localhost/crowdsurf-worker:0.1.0"
TRAIN = ["crowdsurf-trainer", "charlm", "--text", "/usr/share/games/fortunes", "--hidden", "16", "--step-time", "50ms"]


def job(name, container, replicas=1, volumes=(), **spec):
    container = {"name": "trainer", "image": IMAGE, "command": TRAIN, **container}
    return {"apiVersion": "crowdsurf.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"replicas": replicas, "target": {"samples": 1_000_000_000}, **spec,
                     "disruption": {"graceSeconds": 5},
                     "template": {"spec": {"containers": [container], "volumes": list(volumes)}}}}


class CausesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kube.prepare(cls)

    def setUp(self):
        self.operators = self.lives()

    def tearDown(self):
        self.assertEqual(self.lives(), self.operators, "an operator crashed")
        for name in ("cause", "after"):
            if self.kube.find(JOBS) is not None:
                self.kube.delete(f"{JOBS}/{name}", propagationPolicy="Foreground")
            wait("it is gone", lambda: not self.kube.pods(name) and self.kube.find(f"{JOBS}/{name}") is None, 60)

    def lives(self):
        """Of every operator: its pod and how often it has been started."""
        return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"]
                for pod in self.kube.get(OPERATORS)["items"]}

    def logs(self):
        names = [pod["metadata"]["name"] for pod in self.kube.get(OPERATORS)["items"]]
        return "".join(kubectl("logs", "-n", "crowdsurf-system", name) for name in names)

    def says(self, kind, reason, *words, within=60, event=True):
        """The condition `kind` comes with `reason` and a message that has all of `words`; and an event of that reason."""
        show = lambda: json.dumps(self.kube.status("cause").get("conditions"), indent=1) + \
            kubectl("get", "pods", check=False)

        def holds():
            condition = self.kube.condition("cause", kind)
            return condition.get("reason") == reason and all(word in condition["message"] for word in words)
        wait(f"{kind} {reason} {words}", holds, within, show)
        print(f"{kind} {reason}: {self.kube.condition('cause', kind)['message']}")
        path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=cause"
        told = lambda: reason in [event["reason"] for event in self.kube.get(path)["items"]]
        if event:
            wait("an event of it", told, 30)

    def test_an_image_that_is_not_there(self):
        self.kube.create(JOBS, job("cause", {"image": "localhost/nobody:1", "imagePullPolicy": "IfNotPresent"}))
        self.says("Degraded", "ImagePull", "localhost/nobody:1")

    def test_a_secret_of_the_environment_that_is_not_there(self):
        env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nothing", "key": "key"}}}]
        self.kube.create(JOBS, job("cause", {"env": env}))
        self.says("Degraded", "CannotStart", 'secret "nothing" not found')

    def test_a_secret_of_a_volume_that_is_not_there(self):
        mount = {"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}
        self.kube.create(JOBS, job("cause", mount, volumes=[{"name": "keys", "secret": {"secretName": "nothing"}}]))
        self.says("Degraded", "CannotStart", 'secret "nothing" not found')

    def test_a_claim_that_is_not_there(self):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nothing"}}
        self.kube.create(JOBS, job("cause", {}, volumes=[volume]))
        self.says("Degraded", "Unschedulable", 'persistentvolumeclaim "nothing" not found')

    def test_more_than_any_machine_has(self):
        self.kube.create(JOBS, job("cause", {"resources": {"requests": {"cpu": "1000"}}}))
        self.says("Degraded", "NoSpotCapacity", "Insufficient cpu")

    def test_a_command_that_is_not_there(self):
        self.kube.create(JOBS, job("cause", {"command": ["nobody"]}, runPolicy={"backoffLimit": 0}))
        self.says("Failed", "BackoffLimitExceeded", "cause-0-1", "exit code")
        self.assertIn("nobody", self.kube.status("cause")["failures"]["last"]["output"])

    def test_a_trainer_that_ends_badly_at_once(self):
        command = ["crowdsurf-trainer", "charlm", "--text", "/nowhere"]
        self.kube.create(JOBS, job("cause", {"command": command}, runPolicy={"backoffLimit": 1}))
        self.says("Degraded", "BackingOff", "ExitCode", event=False)
        self.says("Failed", "BackoffLimitExceeded", "exit code 2", "/nowhere")
        self.assertIn("/nowhere", self.kube.status("cause")["failures"]["last"]["message"])

    def test_rights_that_are_taken_away_and_given_back(self):  # pod-lifecycle 7.4
        role = self.kube.get(ROLE)
        less = copy.deepcopy(role["rules"])
        for rule in less:
            if "pods" in rule["resources"]:
                rule["verbs"].remove("create")
        self.kube.patch(ROLE, {"rules": less})
        try:
            self.kube.create(JOBS, job("cause", {}))
            self.says("Degraded", "Forbidden", "cannot create resource \"pods\"")
        finally:
            self.kube.patch(ROLE, {"rules": role["rules"]})
        wait("it starts after all", lambda: any(map(ready, self.kube.pods("cause").values())), 90)

    def test_the_kind_deleted_under_the_operator_and_made_again(self):
        self.kube.create(JOBS, job("cause", {}, replicas=2))
        wait("it trains", lambda: self.kube.status("cause").get("readyReplicas") == 2, 60)
        kubectl("delete", "crd", "trainingjobs.crowdsurf.io")
        try:
            wait("its pods gone", lambda: not self.kube.pods("cause"), 60)
            wait("the log names the kind", lambda: "trainingjobs" in self.logs(), 60, self.logs)
        finally:
            kubectl("apply", "-f", "deploy/crd/trainingjobs.yaml")
        wait("the kind is served", lambda: self.kube.find(JOBS) is not None, 30)
        self.kube.create(JOBS, job("after", {}))
        seconds = wait("a new job trains", lambda: any(map(ready, self.kube.pods("after").values())), 90)
        print(f"kind made again to a worker that trains: {seconds:.0f} s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
