#!/usr/bin/env python3
"""The example in PyTorch on a real cluster: deploy/examples/digits-pytorch.yaml meets a target in pods of the Dockerfile's image
`pytorch`, and one more pod of it judges the model on the job's volume.

Usage: digits_test.py BIN [TestCase.test ...]     Needs KUBECONFIG, helm, the images, pytorch among them.
"""
import pathlib
import re
import sys
import time
import unittest

import kube
from kube import JOBS, PODS, kubectl, wait

pathlib.Path(sys.argv.pop(1)).resolve()   # as every test of this folder: BIN comes first
MANIFEST = pathlib.Path(__file__).resolve().parents[2] / "deploy/examples/digits-pytorch.yaml"
SAMPLES = 60_000   # 42 passes over the data
ACCURACY = 0.9     # of 360 held-out pictures; guessing is right in one of ten
JUDGE = """
import sys
sys.path.insert(0, "deploy/examples")
import crowdsurf, digits
model = digits.network()
model.load_state_dict(crowdsurf.load_model("/model/model.safetensors"))
print("accuracy", digits.accuracy(model, *digits.digits()[1]))
"""


class DigitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kube.prepare(cls)

    def test_digits_train_in_pods_to_their_target_and_leave_a_model(self):
        manifest, changed = re.subn(r"samples: \d+", f"samples: {SAMPLES}", MANIFEST.read_text())
        self.assertEqual(changed, 1)
        image = re.search(r"image: (\S+)", manifest).group(1)
        begun = time.monotonic()
        kubectl("apply", "-f", "-", text=manifest)
        agents = kube.Agents(self.kube, "digits")
        self.addCleanup(agents.stop)
        story = lambda: kubectl("get", "tj", "digits", "-o", "wide") + kubectl("get", "pods", "-o", "wide") + kube.events()
        first = wait("a first step", lambda: any(s["step"] > 0 for s in agents.summaries()), 120, story)
        print(f"\nkubectl apply to the first training step: {first:.1f} s")
        wait("Succeeded", lambda: self.kube.condition("digits", "Succeeded").get("status") == "True", 240, story)
        print(f"kubectl apply to Succeeded: {time.monotonic() - begun:.0f} s")
        status = self.kube.status("digits")
        self.assertGreaterEqual(status["progress"]["samples"], SAMPLES)
        self.assertEqual(status["failures"]["total"], 0)
        self.assertEqual(agents.twice, [], "two members under one id")
        self.assertGreaterEqual(self.judge(image), ACCURACY)

    def judge(self, image):
        """The accuracy of the model on the job's volume, by a pod."""
        self.kube.create(PODS, {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "judge"},
            "spec": {"restartPolicy": "Never", "securityContext": {"fsGroup": 65532},
                     "volumes": [{"name": "model", "persistentVolumeClaim": {"claimName": "digits"}}],
                     "containers": [{"name": "judge", "image": image, "command": ["python3", "-c", JUDGE],
                                     "volumeMounts": [{"name": "model", "mountPath": "/model", "readOnly": True}]}]}})
        said = lambda: kubectl("logs", "judge", check=False)
        phase = lambda: self.kube.get(f"{PODS}/judge")["status"]["phase"]
        wait("a judgement", lambda: phase() in ("Succeeded", "Failed"), 60, lambda: said() + kubectl("describe", "pod", "judge"))
        self.assertEqual(phase(), "Succeeded", said())
        print(said().strip())
        return float(re.search(r"accuracy (\S+)", said()).group(1))

    def tearDown(self):
        self.kube.delete(f"{JOBS}/digits", propagationPolicy="Foreground")
        self.kube.delete(f"{PODS}/judge", gracePeriodSeconds=0)
        kubectl("delete", "pvc", "digits", "--ignore-not-found", "--wait=false")
        wait("its pods gone", lambda: not self.kube.pods("digits"), 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
