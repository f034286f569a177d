"""Both dashboards before a real Prometheus that scrapes the operators and the agents in their pods, as the chart's monitors would.

One thread keeps the targets up to date. Prometheus and its data live in a folder of the test's own.
"""
import pathlib
import sys
import tempfile
import threading

from kube import Refused, kubectl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "panels"))
import panels  # noqa: E402  (from tests/panels)

OPERATORS = "/api/v1/namespaces/crowdsurf-system/pods"
READER = "panels"   # the account that may read metrics
EVERY = 1.0         # seconds between two looks at who is there


class Boards(threading.Thread):
    def __init__(self, program, kube, job):
        """program: of Prometheus."""
        super().__init__(daemon=True)
        self.kube, self.job = kube, job
        self.folder = tempfile.TemporaryDirectory(prefix="crowdsurf-panels-")
        self.stopping = threading.Event()
        kubectl("-n", "crowdsurf-system", "create", "serviceaccount", READER)
        kubectl("create", "clusterrolebinding", READER, "--clusterrole=crowdsurf-metrics-reader",
                f"--serviceaccount=crowdsurf-system:{READER}")
        secret = pathlib.Path(self.folder.name) / "token"
        secret.write_text(kubectl("-n", "crowdsurf-system", "create", "token", READER, "--duration=1h").strip())
        self.prometheus = panels.Prometheus(program, self.folder.name, {
            "agents": {},
            "crowdsurf-operator": {"scheme": "https", "tls_config": {"insecure_skip_verify": True}, "honor_labels": True,
                                   "authorization": {"credentials_file": str(secret)}}})
        self.start()

    def run(self):
        while not self.stopping.wait(EVERY):
            self.tend()

    def tend(self):
        try:
            workers = self.addresses(self.kube.pods(self.job).values(), 7948)
            operators = self.addresses(self.kube.get(OPERATORS)["items"], 8443)
        except (OSError, Refused):
            return  # while an API server is away
        labels = {"namespace": "default", "training_job": self.job}
        self.prometheus.targets("agents", [{"targets": workers, "labels": labels}])
        self.prometheus.targets("crowdsurf-operator", [{"targets": operators, "labels": {}}])

    @staticmethod
    def addresses(pods, port):
        return [f"{pod['status']['podIP']}:{port}" for pod in pods if pod.get("status", {}).get("podIP")]

    def empty(self):
        """{panel: its queries that have no data} of both boards, and how many panels there are."""
        asked = {"operator": {"job": "crowdsurf-operator", "instance": ".+"},
                 "job": {"namespace": "default", "training_job": self.job}}
        count, empty = 0, {}
        for board, variables in asked.items():
            some, without = panels.wait_for_panels(self.prometheus, board, variables, seconds=30, every=2, tend=lambda: None)
            count += some
            empty.update({f"{board}: {title}": queries for title, queries in without.items()})
        return count, empty

    def stop(self):
        self.stopping.set()
        self.join()
        self.prometheus.stop()
        kubectl("delete", "clusterrolebinding", READER, check=False)
        kubectl("-n", "crowdsurf-system", "delete", "serviceaccount", READER, check=False)
        self.folder.cleanup()
