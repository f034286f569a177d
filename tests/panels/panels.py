"""A real Prometheus for a test, and the question whether every panel of a dashboard has data in it.

Prometheus listens on a free port of the loopback, keeps its data in the test's folder and ends with the test. It is the one in PATH, or
Debian's package unpacked below build/ (nothing is installed, so no service of that name starts).
"""
import json
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Grafana takes four scrape intervals or more; these are a second apart. On a machine with ten times its load, a job of the sanitizers'
# build makes a round in ten seconds: a shorter window would find no round in it.
RATE_WINDOW = "30s"
UNPACKED = ROOT / "build/prometheus"


def find_prometheus():
    """The program's path; None with a word on stderr when there is none and Debian's cannot be had."""
    for place in (shutil.which("prometheus"), UNPACKED / "usr/bin/prometheus"):
        if place and pathlib.Path(place).exists():
            return str(place)
    UNPACKED.mkdir(parents=True, exist_ok=True)
    got = subprocess.run(["apt-get", "download", "-q", "prometheus"], cwd=UNPACKED, capture_output=True, text=True)
    packages = sorted(UNPACKED.glob("prometheus_*.deb"))
    if got.returncode != 0 or not packages:
        print("no prometheus in PATH, and apt-get cannot download it: " + got.stderr.strip()[-300:], file=sys.stderr)
        return None
    subprocess.run(["dpkg", "-x", packages[-1], UNPACKED], check=True)
    return str(UNPACKED / "usr/bin/prometheus")


class Prometheus:
    """Scrapes what `targets` says, every second. scrape: further settings of each job, by its name."""

    def __init__(self, program, folder, scrape):
        self.folder = pathlib.Path(folder)
        jobs = []
        for name, settings in scrape.items():
            self.targets(name, [])
            jobs.append({"job_name": name, "file_sd_configs": [{"files": [str(self.file(name))], "refresh_interval": "1s"}],
                         **settings})
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
        (self.folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.log = self.folder / "prometheus.log"
        self.started = time.time()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [program, f"--config.file={self.folder / 'prometheus.yml'}", f"--storage.tsdb.path={self.folder / 'tsdb'}",
                 "--web.listen-address=127.0.0.1:0", "--log.format=json"],
                stdout=log, stderr=log, start_new_session=True)
        self.url = self.find_url()

    def file(self, name):
        return self.folder / f"targets-{name}.json"

    def targets(self, name, groups):
        """groups: [{"targets": ["host:port"], "labels": {...}}]; replaces what was there, in one step."""
        fresh = self.file(name).with_suffix(".tmp")
        fresh.write_text(json.dumps(groups))
        fresh.rename(self.file(name))

    def find_url(self, patience=30):
        """It names no port that it chose; the kernel does."""
        end = time.time() + patience
        while time.time() < end and self.process.poll() is None:
            for port in listening_ports(self.process.pid):
                url = f"http://127.0.0.1:{port}"
                try:
                    with urllib.request.urlopen(url + "/-/ready", timeout=2) as reply:
                        if reply.status == 200:
                            return url
                except (urllib.error.URLError, OSError):
                    pass
            time.sleep(0.1)  # between two looks at another process
        self.stop()
        raise RuntimeError("prometheus does not start:\n" + self.log.read_text()[-2000:])

    def ask(self, expr):
        """Every value of `expr` over the test's time that is a number; raises when the query is refused."""
        query = urllib.parse.urlencode(
            {"query": expr, "start": self.started, "end": time.time(), "step": max(1, round((time.time() - self.started) / 60))})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{query}", timeout=20) as reply:
                result = json.load(reply)["data"]["result"]
        except urllib.error.HTTPError as refused:
            raise RuntimeError(f"{expr}: {json.load(refused).get('error')}") from refused
        return [float(v) for series in result for _, v in series["values"] if v != "NaN"]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def listening_ports(pid):
    """TCP ports on which process `pid` listens."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        try:
            inodes.add(str(link.readlink()))
        except OSError:
            continue
    ports = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                ports.append(int(words[1].rsplit(":", 1)[1], 16))
    return ports


def panels_of(board, variables):
    """(title, [expr]) of every panel and annotation of deploy/dashboards/BOARD.json, the variables replaced by their values."""
    spec = json.loads((ROOT / f"deploy/dashboards/{board}.json").read_text())
    asked = [(p["title"], [t["expr"] for t in p["targets"]]) for p in spec["panels"] if p["type"] != "row"]
    asked += [("marks: " + a["name"], [a["expr"]]) for a in (spec.get("annotations") or {}).get("list", [])]
    for title, exprs in asked:
        for name, value in variables.items():
            exprs = [e.replace(f"${name}", value) for e in exprs]
        yield title, exprs


def empty_panels(prometheus, board, variables):
    """(all panels, {title of one without data: its queries that have none})."""
    seconds = max(10, round(time.time() - prometheus.started))
    variables = {"__rate_interval": RATE_WINDOW, "__range": f"{seconds}s", **variables}
    empty, count = {}, 0
    for title, exprs in panels_of(board, variables):
        count += 1
        missing = [e for e in exprs if not prometheus.ask(e)]
        if missing:
            empty[title] = missing
    return count, empty


def wait_for_panels(prometheus, board, variables, seconds, every, tend):
    """Looks every `every` seconds until all panels have data or the time is over; tend() keeps the targets up to date."""
    end = time.time() + seconds
    while True:
        tend()
        count, empty = empty_panels(prometheus, board, variables)
        if not empty or time.time() > end:
            print(f"{board}: panels whose query returns data / panels: {count - len(empty)} / {count}, after "
                  f"{time.time() - prometheus.started:.0f} s")
            return count, empty
        time.sleep(every)
