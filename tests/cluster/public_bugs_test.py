#!/usr/bin/env python3
"""What users of other operators reported in public and what works here: each with the place where it was reported.

Usage: public_bugs_test.py BIN [TestCase.test ...]     Needs KUBECONFIG, helm, the images.
The jobs of all tests are made before the first one, so that they start together. Those that cannot work are in causes_test.
"""
import json
import pathlib
import subprocess
import sys
import unittest

import kube
from kube import JOBS, PODS, Refused, job, kubectl, ready, wait

pathlib.Path(sys.argv.pop(1)).resolve()   # as every test of this folder: BIN comes first
LONG = "a" * 49   # the longest name of a job
RESTRICTED = JOBS.replace("/default/", "/restricted/")
SERVICES = "/api/v1/namespaces/default/services"
MODEST = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]},
          "seccompProfile": {"type": "RuntimeDefault"}}
PAIR = job("pair", replicas=2)
POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
EXPANDED = job("expanded", {"env": [POD_NAME],
                            "volumeMounts": [{"name": "ck", "mountPath": "/ck", "subPathExpr": "$(POD_NAME)"}]},
               pod={"securityContext": {"fsGroup": 65532}, "volumes": [{"name": "ck", "emptyDir": {}}]},
               checkpoint={"volume": "ck", "intervalSeconds": 5})


class PublicBugsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kube.prepare(cls)
        cls.operators = cls.kube.operators()
        namespace = {"metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        cls.kube.create("/api/v1/namespaces", namespace)
        cls.addClassCleanup(cls.kube.delete, "/api/v1/namespaces/restricted")
        cls.addClassCleanup(cls.kube.remove, "pair", "expanded", LONG, "nameless")
        for path, body in ((JOBS, PAIR), (JOBS, EXPANDED), (JOBS, job(LONG)),
                           (RESTRICTED, job("modest", {"securityContext": MODEST}, replicas=2))):
            cls.kube.create(path, body)

    def tearDown(self):
        self.assertEqual(self.kube.operators(), self.operators, "an operator crashed")

    def show(self):
        return kubectl("get", "tj,pods", "-A", "-o", "wide", check=False) + kube.events()

    def trains(self, path, workers):
        count = lambda: (self.kube.find(path) or {}).get("status", {}).get("readyReplicas")
        seconds = wait(f"{workers} workers of {path.split('/')[-1]}", lambda: count() == workers, 60, self.show)
        print(f"{path.split('/')[-1]}: {workers} workers train {seconds:.1f} s later")

    def pair_is(self, *names, held=()):
        """The pair's workers are these, and they train; but for them only the held ones are there."""
        def holds():
            pods = self.kube.pods("pair")
            return sorted(pods) == sorted([*names, *held]) and all(ready(pods[name]) for name in names)
        wait(f"the pods {names}", holds, 60, self.show)

    def counted(self, disruptions):
        status = lambda: self.kube.status("pair")
        wait(f"{disruptions} disruptions", lambda: status()["disruptions"]["total"] >= disruptions, 20, self.show)
        self.assertEqual((status()["disruptions"]["total"], status()["failures"]["total"]), (disruptions, 0), status())

    def test_1_a_pod_that_a_finalizer_holds_and_a_service_that_is_deleted(self):
        """batch.kubernetes.io/job-tracking, backup tools: replaced at once, counted once; ray-project/kuberay#66, GitOps prune."""
        self.trains(f"{JOBS}/pair", 2)
        self.addCleanup(self.release)
        self.kube.patch(f"{PODS}/pair-1-1", {"metadata": {"finalizers": ["example.com/hold"]}})
        self.kube.delete(f"{PODS}/pair-1-1", gracePeriodSeconds=1)
        self.pair_is("pair-0-1", "pair-1-2", held=["pair-1-1"])
        self.counted(1)
        self.release()
        self.pair_is("pair-0-1", "pair-1-2")
        # What is counted of this one comes after all that the other's end brought.
        self.kube.delete(f"{SERVICES}/pair-peers")
        self.kube.delete(f"{PODS}/pair-0-1", gracePeriodSeconds=1)
        self.pair_is("pair-0-2", "pair-1-2")
        self.counted(2)

    def release(self):
        try:
            self.kube.patch(f"{PODS}/pair-1-1", {"metadata": {"finalizers": None}})
        except Refused:
            pass  # it has been, and the pod is gone

    def test_2_a_job_that_is_replaced_under_its_name_begins_with_nothing(self):
        """ray-project/kuberay#66: made again while the pods of the old one are there."""
        self.trains(f"{JOBS}/pair", 2)
        before = self.kube.get(f"{JOBS}/pair")["metadata"]["uid"]
        old = {pod["metadata"]["uid"] for pod in self.kube.pods("pair").values()}
        kubectl("replace", "--force", "--timeout=20s", "-f", "-", text=json.dumps(PAIR))
        self.assertNotEqual(self.kube.get(f"{JOBS}/pair")["metadata"]["uid"], before)

        def whole():
            pods = {pod["metadata"]["uid"]: pod for pod in self.kube.pods("pair").values()}
            return len(pods) == 2 and not old & set(pods) and all(map(ready, pods.values()))
        wait("two workers of the new one, none of the old one", whole, 60, self.show)
        self.trains(f"{JOBS}/pair", 2)
        self.counted(0)

    def test_a_checkpoint_mount_with_a_variable_of_the_trainer(self):
        """telepresenceio/telepresence#2756: the agent has the mount, too, and not the variable."""
        self.trains(f"{JOBS}/expanded", 1)

    def test_pod_security_restricted_takes_what_the_operator_adds(self):
        """kubeflow/trainer, ray-project/kuberay."""
        self.trains(f"{RESTRICTED}/modest", 2)

    def test_names_that_are_right_for_the_job_and_not_for_what_is_made_of_it(self):
        """ray-project/kuberay#3083, #2845, kubernetes-sigs/jobset."""
        for name, words in (("1job", "a letter first"), ("my.job", "a-z, 0-9"), (LONG + "a", "longer than 49")):
            with self.subTest(name), self.assertRaises(Refused) as refused:
                self.addCleanup(self.kube.delete, f"{JOBS}/{name}")
                self.kube.create(JOBS, job(name))
            self.assertIn(words, refused.exception.message)
        self.trains(f"{JOBS}/{LONG}", 1)

    def test_a_pull_secret_without_a_name_gets_none(self):
        """kubernetes/kubernetes#85332: charts write one, and a schema's default must not fill it in."""
        made = self.kube.create(JOBS, job("nameless", pod={"imagePullSecrets": [{}]}, suspend=True))
        secret, = made["spec"]["template"]["spec"]["imagePullSecrets"]
        self.assertEqual(secret.get("name", ""), "")

    def test_a_second_release_is_refused_and_the_page_says_how_to_take_over(self):
        """cert-manager/cert-manager#3483, kubewarden#1829: a kept CRD belongs to the release that made it."""
        install = ["helm", "install", "other", "helm/crowdsurf", "-n", "other", "--create-namespace", "--dry-run=server"]
        refused = subprocess.run(install, capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0, "two operators would lead")
        self.assertIn('"trainingjobs.crowdsurf.io"', refused.stderr)
        self.assertIn("invalid ownership metadata", refused.stderr)
        page = pathlib.Path("docs/kubernetes.md").read_text()
        self.assertTrue("invalid ownership metadata" in page and "--take-ownership" in page, "the page does not say it")
        taken = subprocess.run([*install, "--take-ownership"], capture_output=True, text=True)
        self.assertEqual(taken.returncode, 0, taken.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
