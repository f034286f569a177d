#!/usr/bin/env python3
"""Every panel of the Operator dashboard has data while the operator reconciles on the cluster that KUBECONFIG names, and its metrics
port lets in whom the cluster's rights let in.

Usage: operator_test.py BIN    the operator runs here, outside of the cluster; the test plays the kubelet by patching pods' status.
"""
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import panels

sys.path.insert(0, str(panels.ROOT / "tests/cluster"))
import programs  # noqa: E402  (from tests/cluster)

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
JOB = {
    "apiVersion": "crowdsurf.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "shown"},
    "spec": {"replicas": 3, "target": {"samples": 1000},
             "template": {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}},
}


def kubectl(*words, object=None):
    done = subprocess.run([programs.find("kubectl"), *words], input=json.dumps(object) if object else None, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def eventually(what, seconds, look):
    end = time.time() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.time() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.2)  # between two looks at another process


class OperatorPanels(unittest.TestCase):
    def setUp(self):
        self.program = panels.find_prometheus()
        if self.program is None:
            self.skipTest("there is no prometheus")
        self.space = f"panels-{os.getpid()}"
        self.folder = tempfile.TemporaryDirectory(prefix="crowdsurf-panels-")
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(panels.ROOT / "deploy/crd/trainingjobs.yaml"))
        kubectl("wait", "--for=condition=Established", "crd/trainingjobs.crowdsurf.io", "--timeout=30s")
        kubectl("create", "namespace", self.space)
        self.addCleanup(kubectl, "delete", "namespace", self.space, "--wait=false")
        self.addCleanup(self.folder.cleanup)

    def account(self, name):
        kubectl("-n", self.space, "create", "serviceaccount", name)
        return kubectl("-n", self.space, "create", "token", name).strip()

    def start_operator(self):
        log = pathlib.Path(self.folder.name) / "operator.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [BIN / "crowdsurf-operator", "--namespace", self.space, "--watch-namespace", self.space, "--agent-image", "none",
                 "--signer-host", "localhost", "--listen", "127.0.0.1", "--sign-port", "0", "--health-port", "0",
                 "--metrics-port", "0"], stdout=out, stderr=out)

        def stop():
            process.terminate()
            process.wait(20)
        self.addCleanup(stop)
        found = eventually("the operator's port", 30, lambda: re.search(r'metrics_port=(\d+)', log.read_text()))
        return f"127.0.0.1:{found.group(1)}"

    def scrape(self, address, token=None):
        """(status, text) of a request for the metrics."""
        unverified = ssl.create_default_context()
        unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"https://{address}/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=10, context=unverified) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def pods(self):
        return json.loads(kubectl("-n", self.space, "get", "pods", "-o", "json"))["items"]

    def train(self, count):
        """Plays the kubelet: every pod that is not going runs and is Ready; waits until there are `count`."""
        def all_ready():
            alive = [p for p in self.pods() if "deletionTimestamp" not in p["metadata"]]
            for pod in alive:
                if pod["status"].get("phase") == "Running":
                    continue
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
                kubectl("-n", self.space, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p",
                        json.dumps({"status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": [ready]}}))
            return len(alive) == count
        eventually(f"{count} workers", 30, all_ready)

    def test_every_panel_has_data_and_only_those_who_may_are_let_in(self):  # pod-lifecycle 8.11
        address = self.start_operator()
        may, may_not = self.account("scraper"), self.account("stranger")
        role = f"panels-{os.getpid()}"
        kubectl("create", "clusterrole", role, "--verb=get", "--non-resource-url=/metrics")
        self.addCleanup(kubectl, "delete", "clusterrole", role)
        kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--serviceaccount={self.space}:scraper")
        self.addCleanup(kubectl, "delete", "clusterrolebinding", role)
        eventually("the right to read metrics", 30, lambda: self.scrape(address, may)[0] == 200)
        self.assertEqual(401, self.scrape(address)[0])
        self.assertEqual(401, self.scrape(address, "no.such.token")[0])
        code, text = self.scrape(address, may_not)
        self.assertEqual((403, True), (code, "may not get /metrics" in text))
        secret = pathlib.Path(self.folder.name) / "token"
        secret.write_text(may)
        prometheus = panels.Prometheus(self.program, self.folder.name, {"crowdsurf-operator": {
            "scheme": "https", "tls_config": {"insecure_skip_verify": True}, "honor_labels": True,
            "authorization": {"credentials_file": str(secret)}}})
        self.addCleanup(prometheus.stop)
        prometheus.targets("crowdsurf-operator", [{"targets": [address], "labels": {}}])
        # A rate needs a scrape from before: what happened earlier is no increase.
        eventually("two scrapes", 30, lambda: sum(prometheus.ask("up")) >= 2)
        kubectl("-n", self.space, "apply", "-f", "-", object=JOB)
        self.train(3)
        victim = self.pods()[0]["metadata"]["name"]
        kubectl("-n", self.space, "delete", "pod", victim, "--grace-period=0", "--force")
        count, empty = panels.wait_for_panels(prometheus, "operator", {"job": "crowdsurf-operator", "instance": ".+"}, seconds=60,
                                              every=2, tend=lambda: self.train(3))
        self.assertEqual({}, empty)
        self.assertGreater(count, 30)
        self.assertEqual(1, max(prometheus.ask('sum(crowdsurf_job_disruptions_total{training_job="shown"})')))
        kubectl("-n", self.space, "delete", "trainingjob", "shown", "--wait=false")
        eventually("a job's series to go with it", 30, lambda: 'training_job="shown"' not in self.scrape(address, may)[1])


if __name__ == "__main__":
    unittest.main()
