#!/usr/bin/env python3
"""What cannot work says why: in a condition of the job, in words that name the cause; the operator lives on.

Usage: causes_test.py BIN [TestCase.test ...]     Needs KUBECONFIG, helm, the images.
CausesTest makes the jobs of its tests before the first one, so that they are waited for together.
"""
import copy
import datetime
import json
import pathlib
import sys
import unittest

import kube
from kube import IMAGE, JOBS, OPERATORS, job, kubectl, ready, wait

pathlib.Path(sys.argv.pop(1)).resolve()   # as every test of this folder: BIN comes first
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/crowdsurf-operator"
AT_ONCE = {"backoffLimit": 0}
ENDS_BADLY = {"name": "fetch", "image": IMAGE, "command": ["sh", "-c", "echo bucket is gone >&2; exit 3"]}


def volume(name, **source):
    return {"volumes": [{"name": name, **source}]}


# Jobs whose last word does not change any more, by their names after `cause-`.
CAUSES = {
    "image": job("", {"image": "localhost/nobody:1", "imagePullPolicy": "IfNotPresent"}),
    "environment": job("", {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "nothing", "key": "key"}}}]}),
    "secret": job("", {"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]},
                  pod=volume("keys", secret={"secretName": "nothing"})),
    "claim": job("", pod=volume("data", persistentVolumeClaim={"claimName": "nothing"})),
    "capacity": job("", {"resources": {"requests": {"cpu": "1000"}}}),
    "command": job("", {"command": ["nobody"]}, runPolicy=AT_ONCE),
    "signer": job("", pod={"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}),
    "client": job("", {"command": ["sleep", "600"]}),
    "init": job("", pod={"initContainers": [{**ENDS_BADLY, "terminationMessagePolicy": "FallbackToLogsOnError"}]},
                runPolicy=AT_ONCE),
    "init-loop": job("", pod={"restartPolicy": "OnFailure", "initContainers": [ENDS_BADLY]}),
    "refused": job("", {"resources": {"requests": {"cpu": "1000"}}}, pod={"nodeName": "node-1"}),
    "own-limit": job("", {"command": ["sh", "-c", "head -c 30000000 /dev/zero > /scratch/x; sleep 600"],
                          "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
                     pod=volume("scratch", emptyDir={"sizeLimit": "1Mi"}), runPolicy=AT_ONCE),
}


class Causes(unittest.TestCase):
    """What both classes look with."""
    @classmethod
    def setUpClass(cls):
        kube.prepare(cls)
        cls.operators = cls.kube.operators()

    def tearDown(self):
        self.assertEqual(self.kube.operators(), self.operators, "an operator crashed")

    def says(self, name, kind, reason, *words, within=60, event=True):
        """The condition `kind` comes with `reason` and a message that has all of `words`; and an event of that reason."""
        show = lambda: json.dumps(self.kube.status(name).get("conditions"), indent=1) + \
            kubectl("get", "pods", check=False)

        def holds():
            condition = self.kube.condition(name, kind)
            return condition.get("reason") == reason and all(word in condition["message"] for word in words)
        wait(f"{kind} {reason} {words}", holds, within, show)
        print(f"{kind} {reason}: {self.kube.condition(name, kind)['message']}")
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
        told = lambda: reason in [event["reason"] for event in self.kube.get(path)["items"]]
        if event:
            wait("an event of it", told, 30)


class CausesTest(Causes):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.kube.remove, "cause", *(f"cause-{name}" for name in CAUSES))
        for name, body in CAUSES.items():
            body["metadata"]["name"] = f"cause-{name}"
            cls.kube.create(JOBS, body)

    def counts(self, name, failures, disruptions):
        status = self.kube.status(name)
        self.assertEqual((status["failures"]["total"], status["disruptions"]["total"]), (failures, disruptions), status)

    def test_an_image_that_is_not_there(self):
        self.says("cause-image", "Degraded", "ImagePull", "localhost/nobody:1")

    def test_a_secret_of_the_environment_that_is_not_there(self):
        self.says("cause-environment", "Degraded", "CannotStart", 'secret "nothing" not found')

    def test_a_secret_of_a_volume_that_is_not_there(self):
        self.says("cause-secret", "Degraded", "CannotStart", 'secret "nothing" not found')

    def test_a_claim_that_is_not_there(self):
        self.says("cause-claim", "Degraded", "Unschedulable", 'persistentvolumeclaim "nothing" not found')

    def test_more_than_any_machine_has(self):
        self.says("cause-capacity", "Degraded", "NoSpotCapacity", "Insufficient cpu")

    def test_a_command_that_is_not_there(self):
        self.says("cause-command", "Failed", "BackoffLimitExceeded", "cause-command-0-1", "exit code")
        self.assertIn("nobody", self.kube.status("cause-command")["failures"]["last"]["output"])

    def test_a_trainer_that_ends_badly_at_once(self):
        command = ["crowdsurf-trainer", "charlm", "--text", "/nowhere"]
        self.kube.create(JOBS, job("cause", {"command": command}, runPolicy={"backoffLimit": 1}))
        self.says("cause", "Degraded", "BackingOff", "ExitCode", event=False)
        self.says("cause", "Failed", "BackoffLimitExceeded", "exit code 2", "/nowhere")
        self.assertIn("/nowhere", self.kube.status("cause")["failures"]["last"]["message"])

    def test_a_signer_that_the_agent_does_not_reach(self):
        """kubeflow/mpi-operator#427, volcano#778, ray-project/kuberay#1282: no DNS, or a policy in between."""
        self.says("cause-signer", "Degraded", "SignerNotReached", "cause-signer-0-1", "9443")

    def test_a_trainer_that_never_connects(self):
        """NVIDIA/cluster-readiness-engine#310, kubeflow/trainer#1598."""
        self.says("cause-client", "Degraded", "TrainerNotConnected", "cause-client-0-1")

    def test_an_init_container_that_fails_is_named(self):
        """tektoncd/pipeline#5645, dagster#34212, agent-stack-k8s#873: the sidecar beside it is not to blame."""
        self.says("cause-init", "Failed", "BackoffLimitExceeded", "InitContainer, init container fetch", "exit code 3", "bucket is gone")
        self.counts("cause-init", failures=1, disruptions=0)

    def test_an_init_container_that_fails_again_and_again_is_named(self):
        self.says("cause-init-loop", "Degraded", "InitContainer", "fetch", "CrashLoopBackOff", "exit code 3")
        self.counts("cause-init-loop", failures=0, disruptions=0)

    def test_a_pod_that_its_node_refuses_is_made_again_ever_later(self):
        """kubernetes/kubernetes#106419, #108152, #43846: OutOfcpu, NodeAffinity and their like, in a tight loop."""
        made = lambda: self.kube.status("cause-refused").get("incarnations", {}).get("0", 0)
        wait("five pods", lambda: made() >= 5, 60, lambda: json.dumps(self.kube.status("cause-refused")))
        count = made()
        created = self.kube.get(f"{JOBS}/cause-refused")["metadata"]["creationTimestamp"]
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(created)
        # 1 s, doubling to 60 s, each up to a fifth shorter; a timestamp is cut to its second.
        least = sum(0.8 * min(2 ** row, 60) for row in range(count - 1)) - 1
        print(f"{count} pods in {age.total_seconds():.0f} s")
        self.assertGreaterEqual(age.total_seconds(), least)
        self.says("cause-refused", "Degraded", "BackingOff", "OutOfcpu", event=False)

    def test_a_pod_that_outgrows_its_own_limit_is_a_failure(self):
        """kubernetes/kubernetes#93649, #80348: kubelet calls it evicted, and it is nobody's fault but its own."""
        self.says("cause-own-limit", "Failed", "BackoffLimitExceeded", "LimitExceeded", "scratch")
        self.counts("cause-own-limit", failures=1, disruptions=0)


class PowersTest(Causes):
    """What all jobs need is taken away, so these come after the others, one at a time."""
    def tearDown(self):
        super().tearDown()
        self.kube.remove("cause", "after")

    def logs(self):
        names = [pod["metadata"]["name"] for pod in self.kube.get(OPERATORS)["items"]]
        return "".join(kubectl("logs", "-n", "crowdsurf-system", name) for name in names)

    def test_rights_that_are_taken_away_and_given_back(self):  # pod-lifecycle 7.4
        role = self.kube.get(ROLE)
        less = copy.deepcopy(role["rules"])
        for rule in less:
            if "pods" in rule["resources"]:
                rule["verbs"].remove("create")
        self.kube.patch(ROLE, {"rules": less})
        try:
            self.kube.create(JOBS, job("cause"))
            self.says("cause", "Degraded", "Forbidden", "cannot create resource \"pods\"")
        finally:
            self.kube.patch(ROLE, {"rules": role["rules"]})
        wait("it starts after all", lambda: any(map(ready, self.kube.pods("cause").values())), 90)

    def test_the_kind_deleted_under_the_operator_and_made_again(self):
        self.kube.create(JOBS, job("cause", replicas=2))
        wait("it trains", lambda: self.kube.status("cause").get("readyReplicas") == 2, 60)
        kubectl("delete", "crd", "trainingjobs.crowdsurf.io")
        try:
            wait("its pods gone", lambda: not self.kube.pods("cause"), 60)
            wait("the log names the kind", lambda: "trainingjobs" in self.logs(), 60, self.logs)
        finally:
            kubectl("apply", "-f", "deploy/crd/trainingjobs.yaml")
        wait("the kind is served", lambda: self.kube.find(JOBS) is not None, 30)
        self.kube.create(JOBS, job("after"))
        seconds = wait("a new job trains", lambda: any(map(ready, self.kube.pods("after").values())), 90)
        print(f"kind made again to a worker that trains: {seconds:.0f} s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
