"""A Kubernetes cluster as the tests see it: objects by path, waits with a limit, and what its agents tell.

Every request goes through one `kubectl proxy`, so any kubeconfig works. Times are seconds of the monotonic clock.
"""
import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import threading
import time
import urllib.error
import urllib.request

JOBS = "/apis/crowdsurf.io/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
OPERATORS = "/api/v1/namespaces/crowdsurf-system/pods"
IMAGE = "localhost/crowdsurf-worker:0.1.0"
TRAIN = ["crowdsurf-trainer", "charlm", "--text", "/usr/share/games/fortunes", "--hidden", "16", "--step-time", "50ms"]
FAILED = ("kept", "aborted", "orphaned")  # ends of a round that bring no average
PAUSE = 0.05  # between two looks at what has no event for us; every loop has a limit of its own


class Refused(Exception):
    """An answer of the API server that is no success: its code and its message."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Kube:
    def __init__(self):
        self.proxy = subprocess.Popen(["kubectl", "proxy", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = "http://" + re.search(r"\S+:\d+", self.proxy.stdout.readline()).group(0)

    def close(self):
        self.proxy.terminate()
        self.proxy.wait()
        self.proxy.stdout.close()

    def request(self, method, path, body=None, kind="application/json", accept="application/json"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind, "Accept": accept}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["message"]
            except (ValueError, KeyError):
                pass
            raise Refused(error.code, text) from None

    def get(self, path):
        return self.request("GET", path)

    def find(self, path):
        """The object, or None when there is none."""
        try:
            return self.get(path)
        except Refused as refusal:
            if refusal.code == 404:
                return None
            raise

    def create(self, path, body):
        return self.request("POST", path, body)

    def patch(self, path, body):
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path, **options):
        try:
            return self.request("DELETE", path, options)
        except Refused as refusal:
            if refusal.code != 404:
                raise

    def pods(self, job):
        """Pods of the job by name, those that are being deleted included."""
        items = self.get(f"{PODS}?labelSelector=crowdsurf.io/job-name={job}")["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def count_pods(self, job):
        """How many there are; of each only its metadata is sent, for there may be thousands."""
        path = f"{PODS}?labelSelector=crowdsurf.io/job-name={job}"
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        return len(self.request("GET", path, accept=accept)["items"] or [])

    def status(self, job):
        found = self.find(f"{JOBS}/{job}")
        return (found or {}).get("status", {})

    def condition(self, job, kind):
        for condition in self.status(job).get("conditions", []):
            if condition["type"] == kind:
                return condition
        return {}

    def operators(self):
        """Of every operator: its pod's uid and how often it has been started."""
        return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"]
                for pod in self.get(OPERATORS)["items"]}

    def remove(self, *jobs):
        """All of them at once, until nothing of them is there. With the kind itself gone they are."""
        path = lambda name: f"{JOBS}/{name}"
        for name in jobs:
            if self.find(path(name)) is not None:
                self.delete(path(name), propagationPolicy="Foreground")
        for name in jobs:
            wait(f"{name} is gone", lambda: not self.pods(name) and self.find(path(name)) is None, 60)


def job(name, container=(), replicas=1, pod=(), **spec):
    """A TrainingJob of the images' own trainer, with a far target; its pods leave within a second. The rest are fields for its
    container, its pod and its spec."""
    container = {"name": "trainer", "image": IMAGE, "command": TRAIN, **dict(container)}
    return {"apiVersion": "crowdsurf.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"replicas": replicas, "target": {"samples": 1_000_000_000}, "disruption": {"graceSeconds": 1},
                     "template": {"spec": {"containers": [container], **dict(pod)}}, **spec}}


def kubectl(*words, text=None, check=True):
    done = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr}")
    return done.stdout


def operators_log():
    return kubectl("logs", "-n", "crowdsurf-system", "-l", "app.kubernetes.io/name=crowdsurf-operator", "--tail=-1", "--prefix")


def wait(what, holds, within, show=lambda: ""):
    """Seconds until `holds()` is true; an AssertionError that says what never came, and `show()`."""
    begun = time.monotonic()
    while True:
        try:
            if holds():
                return time.monotonic() - begun
            failure = ""
        except (OSError, Refused) as error:  # while an API server is away
            failure = f" ({error})"
        if time.monotonic() - begun > within:
            raise told(f"not within {within} s: {what}{failure}", show())
        # What tests wait for spans objects, logs and processes: no one event tells of it. Bounded by `within`.
        time.sleep(PAUSE)


def told(why, seen):
    """The AssertionError of what went wrong: the reason last, too, where a log that is cut at its beginning still has it."""
    return AssertionError(f"{why}\n{seen}\n{why}")


def events(last=30):
    """The last events of the namespace, youngest last: seconds ago, reason, object and message; what every pod has is left out."""
    items = json.loads(kubectl("get", "events", "-o", "json", check=False) or '{"items": []}')["items"]
    moment = lambda item: item.get("lastTimestamp") or item.get("eventTime") or item["metadata"]["creationTimestamp"]
    age = lambda item: (datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(moment(item))).total_seconds()
    told_by_all = ("Pulled", "Created", "Started", "Scheduled", "SuccessfulMountVolume")
    kept = sorted((item for item in items if item["reason"] not in told_by_all), key=moment)[-last:]
    return "\n".join(f"{age(i):5.0f} s ago  {i['reason']}  {i['involvedObject']['name']}  {i.get('message', '')[:160]}" for i in kept)


def ready(pod):
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def leaving(pod):
    return "deletionTimestamp" in pod["metadata"]


class Agents(threading.Thread):
    """Asks every agent of a job for /summary twice a second, also one whose pod the API server has forgotten.

    Keeps what must never be: `twice` has peer ids that two pods answered to. `seen[peer]` is the last summary of each peer,
    also of those that are gone. `rates` has what each answer said of samples a second. `logs` has what the agents wrote last
    when one of them said that a round had failed: kubelet deletes a log with its pod.
    """

    def __init__(self, kube, job):
        super().__init__(daemon=True)
        self.kube, self.job = kube, job
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self.targets, self.silent, self.seen, self.pod_of, self.twice, self.rates = {}, {}, {}, {}, [], []
        self.logs = []
        self.start()

    def run(self):
        while not self.stopping.wait(0.5):
            present = self.look()
            for uid, (name, ip) in list(self.targets.items()):
                summary = self.ask(ip)
                if summary and summary.get("worker") == name and summary.get("peer"):
                    self.silent.pop(uid, None)
                    self.take(uid, summary)
                    continue
                self.silent[uid] = self.silent.get(uid, 0) + 1
                if present is not None and uid not in present and self.silent[uid] > 3:
                    del self.targets[uid]  # gone, and nobody is there

    def look(self):
        """Uids of the job's pods; None while there is no API server."""
        try:
            pods = self.kube.pods(self.job).values()
        except (OSError, Refused):
            return None
        for pod in pods:
            if pod.get("status", {}).get("podIP"):
                self.targets[pod["metadata"]["uid"]] = (pod["metadata"]["name"], pod["status"]["podIP"])
        return {pod["metadata"]["uid"] for pod in pods}

    @staticmethod
    def ask(ip):
        try:
            with urllib.request.urlopen(f"http://{ip}:7948/summary", timeout=0.5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def take(self, uid, summary):
        before = self.seen.get(summary["peer"], {"rounds": dict.fromkeys(FAILED, 0)})["rounds"]
        if any(summary["rounds"][kind] > before[kind] for kind in FAILED):
            self.logs = agent_logs(self.job)  # before the count is seen, so that the logs are there with it
        with self.lock:
            owner = self.pod_of.setdefault(summary["peer"], uid)
            if owner != uid:
                self.twice.append(summary["peer"])
            self.seen[summary["peer"]] = {**summary, "at": time.monotonic()}
            if summary["samples_per_second"] > 0:
                self.rates.append(summary["samples_per_second"])

    def summaries(self, young=3.0):
        """The last summary of each peer that answered within `young` seconds."""
        now = time.monotonic()
        with self.lock:
            return [s for s in self.seen.values() if now - s["at"] < young]

    def averaging(self):
        """The highest number of an averaging that anybody has finished."""
        return max((s["averaging"] for s in self.summaries()), default=0)

    def rounds(self, *kinds):
        """Rounds that ended in one of these ways, at all peers that there ever were."""
        with self.lock:
            return sum(s["rounds"][kind] for s in self.seen.values() for kind in kinds)

    def failed(self):
        return self.rounds(*FAILED)

    def stop(self):
        self.stopping.set()
        self.join()


def goodput(status, agents, replicas):
    """What the operator says of a job that met its target, and the same from every rate that any agent told `agents`."""
    moment = lambda name: datetime.datetime.fromisoformat(status[name])
    seconds = (moment("targetTime") - moment("runningTime")).total_seconds()
    told, rate = status["progress"], statistics.median(agents.rates)
    ours = min(1.0, told["samples"] / (replicas * rate * seconds))
    print(f"goodput by the operator {told['goodput']}, by the test {ours:.2f} ({seconds:.0f} s, a worker's {rate:.0f} samples/s)")
    return told["goodput"], ours


def agent_logs(job, last=25):
    """The last lines of each agent's log of a job, as the nodes of our own test cluster have them."""
    state = pathlib.Path(tool("kubeconfig").strip()).parent
    lines = []
    for path in sorted(state.glob(f"node-*/logs/*_{job}-*/crowdsurf-agent/*.log")):
        pod = path.parts[-3].split("_")[1]
        with contextlib.suppress(OSError):  # kubelet has just deleted it
            lines += [f"{pod}: {line}" for line in path.read_text(errors="replace").splitlines()[-last:]]
    return lines


TOOL = pathlib.Path(__file__).with_name("cluster")


def tool(*words):
    """tests/cluster/cluster."""
    return subprocess.run([TOOL, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


class Node:
    """A node of our own test cluster, whose processes and files are this machine's."""

    def __init__(self, name):
        self.name = name

    def do(self, what):
        """kill, freeze or thaw."""
        tool(what, self.name)

    def volume(self, pod, kind, name):
        """Where kubelet keeps a volume of `pod`."""
        state = pathlib.Path(tool("kubeconfig").strip()).parent
        return state / self.name / "kubelet/pods" / pod["metadata"]["uid"] / f"volumes/kubernetes.io~{kind}/{name}"

    def pid(self, pod, container):
        """The first process of a container of `pod`."""
        statuses = [s for group in ("containerStatuses", "initContainerStatuses") for s in pod["status"].get(group, [])]
        wanted = next(s["containerID"] for s in statuses if s["name"] == container).split("//")[1]
        tasks = subprocess.run(["ctr", "-a", f"/run/crowdsurf-{self.name}.sock", "-n", "k8s.io", "tasks", "ls"],
                               check=True, capture_output=True, text=True).stdout
        return next(int(line.split()[1]) for line in tasks.splitlines() if line.startswith(wanted))


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def prepare(case):
    """Gives a TestCase class its `kube`, closed after its tests, of a cluster where the chart's operator is ready."""
    case.kube = Kube()
    case.addClassCleanup(case.kube.close)
    if not case.kube.find("/apis/apps/v1/namespaces/crowdsurf-system/deployments/crowdsurf-operator"):
        install()


def install():
    """Seconds until the chart's operator is ready."""
    begun = time.monotonic()
    done = subprocess.run(["helm", "install", "crowdsurf", "helm/crowdsurf", "-n", "crowdsurf-system",
                           "--create-namespace", "--wait", "--timeout", "120s"], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr + kubectl("describe", "pods", "-n", "crowdsurf-system"))
    return time.monotonic() - begun
