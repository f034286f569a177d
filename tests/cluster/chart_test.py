#!/usr/bin/env python3
"""The chart: helm lint, what its values switch on and off, what its schema refuses, and what the API server says of every object."""
import json
import pathlib
import subprocess
import unittest

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm/crowdsurf"
MONITORING = ("--api-versions", "monitoring.coreos.com/v1")


def helm(*words):
    return subprocess.run([programs.find("helm"), *words], capture_output=True, text=True)


def kubectl(*words, text=None):
    return subprocess.run([programs.find("kubectl"), *words], input=text, capture_output=True, text=True)


def documents(text):
    return [d for d in text.split("\n---\n") if "kind:" in d]


def render(*words):
    """The rendered objects, by (kind, name)."""
    done = helm("template", "crowdsurf", str(CHART), "--namespace", "crowdsurf-system", "--kube-version", "1.34.0", *words)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    if done.stderr:
        raise AssertionError("what a user of helm would see: " + done.stderr)
    found = {}
    for document in documents(done.stdout):
        # Objects of groups that the server does not know cannot be read by it: the names are read from the text.
        lines = [line for line in document.splitlines() if not line.startswith("#")]
        kind = next(line.split()[1] for line in lines if line.startswith("kind:"))
        after = lines[lines.index(next(line for line in lines if line.startswith("metadata:"))):]
        name = next(part.split("name:")[1].strip(" {,}").split(",")[0] for part in after if "name:" in part)
        found[kind, name] = document
    return found


class Chart(unittest.TestCase):
    def test_lint_finds_nothing(self):
        done = helm("lint", "--strict", str(CHART))
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        self.assertEqual([], [str(path) for path in CHART.rglob("*") if path.is_symlink()])

    def test_an_older_kubernetes_is_refused(self):
        """pod-lifecycle 8.8: native sidecars are on from 1.29."""
        for version, code in (("1.28.9", 1), ("1.29.0", 0)):
            done = helm("template", "crowdsurf", str(CHART), "--kube-version", version)
            self.assertEqual(code, done.returncode, done.stderr)

    def test_notes_say_how_local_images_reach_the_nodes(self):
        def notes(*words):
            # helm looks at the cluster's CRD, which tests before this one may have made without it.
            done = helm("install", "crowdsurf", str(CHART), "--dry-run=client", "--disable-openapi-validation",
                        "--set", "crds.enabled=false", *words)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            return done.stdout.split("NOTES:")[1]
        plain = notes()
        self.assertIn("localhost/crowdsurf-operator:0.1.0", plain)
        self.assertIn("localhost/crowdsurf-worker:0.1.0", plain)
        self.assertIn("kind load docker-image", plain)
        pushed = notes("--set", "image.repository=registry.example/crowdsurf-operator,agentImage=registry.example/crowdsurf-worker:0.1.0")
        self.assertNotIn("localhost", pushed)
        self.assertNotIn("kind load", pushed)
        self.assertIn("kubectl apply -f deploy/examples/charlm.yaml", pushed)

    def test_monitors_need_the_api_and_their_value(self):
        plain, full = render(), render(*MONITORING)
        self.assertNotIn(("ServiceMonitor", "crowdsurf-operator"), plain)
        self.assertIn(("ServiceMonitor", "crowdsurf-operator"), full)
        self.assertIn(("PodMonitor", "crowdsurf-workers"), full)
        self.assertIn("targetLabel: training_job", full["PodMonitor", "crowdsurf-workers"])
        self.assertIn("scheme: https", full["ServiceMonitor", "crowdsurf-operator"])
        off = render(*MONITORING, "--set", "metrics.serviceMonitor.enabled=false,metrics.podMonitor.enabled=false")
        self.assertFalse([kind for kind, _ in off if kind.endswith("Monitor")])
        labelled = render(*MONITORING, "--set", "metrics.serviceMonitor.labels.release=prometheus")
        self.assertIn('"release":"prometheus"', labelled["ServiceMonitor", "crowdsurf-operator"])

    def test_the_guard_and_its_readers(self):
        open_port = render(*MONITORING, "--set", "metrics.guard=false")
        self.assertNotIn("scheme: https", open_port["ServiceMonitor", "crowdsurf-operator"])
        self.assertIn('--guard-metrics, "false"', open_port["Deployment", "crowdsurf-operator"])
        self.assertIn(("ClusterRole", "crowdsurf-metrics-reader"), open_port)
        self.assertNotIn(("ClusterRoleBinding", "crowdsurf-metrics-reader"), open_port)
        bound = render("--set", "metrics.readers[0].name=prometheus-k8s,metrics.readers[0].namespace=monitoring")
        self.assertIn("{kind: ServiceAccount, name: prometheus-k8s, namespace: monitoring}",
                      bound["ClusterRoleBinding", "crowdsurf-metrics-reader"])

    def test_dashboards_are_shipped_whole(self):
        self.assertNotIn(("ConfigMap", "crowdsurf-dashboards"), render())
        shown = render("--set", "dashboards.enabled=true,dashboards.namespace=grafana")["ConfigMap", "crowdsurf-dashboards"]
        self.assertIn('"grafana_dashboard":"1"', shown)
        self.assertIn("namespace: grafana", shown)
        for name in ("operator", "job"):
            line = next(x for x in shown.splitlines() if x.startswith(f"  crowdsurf-{name}.json: "))
            self.assertEqual((ROOT / f"deploy/dashboards/{name}.json").read_text(), json.loads(line.split(": ", 1)[1]))

    def test_the_schema_refuses_what_it_does_not_know(self):
        for value, word in (("replicas=0", "replicas"), ("metrics.guard=maybe", "guard"), ("metrics.gard=true", "gard"),
                            ("spotPlacement=Sometimes", "spotPlacement"), ("maxWorkersPerJob=0", "maxWorkersPerJob"),
                            ("metrics.podMonitor.interval=often", "interval"),
                            ("metrics.readers[0].name=x", "readers"), ("dashboards.labels.x=1", "labels")):
            with self.subTest(value):
                done = helm("template", "x", str(CHART), "--kube-version", "1.34.0", "--set", value)
                self.assertNotEqual(0, done.returncode)
                self.assertIn(word, done.stderr)

    def test_the_api_server_takes_every_object_of_the_chart_and_of_deploy(self):
        made = kubectl("create", "namespace", "crowdsurf-system", "--dry-run=client", "-o", "yaml").stdout
        kubectl("apply", "-f", "-", text=made)
        objects = list(render("--set", "dashboards.enabled=true").values())
        self.assertGreater(len(objects), 8)
        plain = kubectl("kustomize", str(ROOT / "deploy"))
        self.assertEqual(0, plain.returncode, plain.stderr)
        for text in ("\n---\n".join(objects), plain.stdout):
            done = kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
            self.assertEqual(0, done.returncode, done.stderr)


if __name__ == "__main__":
    unittest.main()
