#!/usr/bin/env python3
"""Every manifest of bad_manifests.yaml is refused by a real API server, which knows nothing of us but the CRD, with path and reason."""
import os
import pathlib
import subprocess
import unittest

import programs

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATE = "{spec: {containers: [{name: trainer, image: x}]}}"


def kubectl(*words, text=None):
    return subprocess.run([programs.find("kubectl"), *words], input=text, capture_output=True, text=True)


def manifest(body):
    """The whole manifest of a case: kind, and a name where it gives none."""
    lines = [line for line in body.splitlines() if line and not line.startswith("#")]
    if not any(line.startswith("metadata:") for line in lines):
        lines.insert(0, "metadata: {name: bad}")
    lines = [line for line in lines if line != "{}"]
    text = "\n".join(["apiVersion: crowdsurf.io/v1alpha1", "kind: TrainingJob", *lines])
    return text.replace("template: T}", f"template: {TEMPLATE}}}") + "\n"


def cases():
    """(path, words, the manifest before or None, the manifest)."""
    for body in (HERE / "bad_manifests.yaml").read_text().split("\n---\n"):
        said = {line[2:].split(": ", 1)[0]: line.split(": ", 1)[1] for line in body.splitlines()
                if line.startswith(("# refused: ", "# was: "))}
        if said["refused"].startswith("PATH"):
            raise ValueError("the file's own comment")
        path, words = said["refused"].split(" | ")
        before = manifest("spec: " + said["was"]) if "was" in said else None
        yield path, words, before, manifest(body)


class BadManifests(unittest.TestCase):
    count = 0

    def setUp(self):
        crd = kubectl("apply", "--server-side", "--force-conflicts", "-f", str(HERE.parents[1] / "deploy/crd/trainingjobs.yaml"))
        self.assertEqual(0, crd.returncode, crd.stderr)
        kubectl("wait", "--for=condition=Established", "crd/trainingjobs.crowdsurf.io", "--timeout=30s")
        BadManifests.count += 1
        self.space = f"bad-{os.getpid()}-{self.count}"
        self.assertEqual(0, kubectl("create", "namespace", self.space).returncode)
        self.addCleanup(kubectl, "delete", "namespace", self.space, "--wait=false")

    def apply(self, text, *flags):
        return kubectl("-n", self.space, "apply", "--validate=strict", *flags, "-f", "-", text=text)

    def test_every_bad_manifest_is_refused_with_its_path_and_the_reason(self):
        tried = 0
        for path, words, before, after in cases():
            with self.subTest(path=path, words=words):
                if before:
                    made = self.apply(before)
                    self.assertEqual(0, made.returncode, made.stderr)
                refused = self.apply(after, "--dry-run=server")
                self.assertNotEqual(0, refused.returncode, after)
                self.assertIn(path, refused.stderr)
                self.assertIn(words, refused.stderr)
                if before:
                    kubectl("-n", self.space, "delete", "trainingjob", "--all")
            tried += 1
        print(f"{tried} bad manifests tried")
        self.assertGreaterEqual(tried, 50)

    def test_the_good_manifest_that_the_bad_ones_differ_from_is_taken(self):
        made = self.apply(manifest("spec: {target: {samples: 1}, template: T}"), "--dry-run=server")
        self.assertEqual(0, made.returncode, made.stderr)


if __name__ == "__main__":
    unittest.main()
