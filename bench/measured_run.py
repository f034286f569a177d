#!/usr/bin/env python3
"""One `crowdsurf run`, watched: its report, and what it had sent and lost at each moment.

Usage: measured_run.py OUT.json STATE FIGURES PATIENCE -- crowdsurf run ...      (in the namespace to measure)
OUT.json: {report, output, trajectory: [[seconds, bytes, loss, exchanges]], step_seconds (median over the workers, while all
were together), private_mib (median of the later half), sent_bytes, members (of the largest view), together (seconds; when
first every agent was in one view of the most members), views (how many of that size there were from then on), launched (how
many workers there ever were), metrics: [[seconds, {metric: mean over the workers that have told it, most of them}]]}.
Bytes are what the namespace's lo sent, headers, TLS and metrics included, since the namespace was made. FIGURES is `run`: loss
is the workers' mean training loss as the run shows it; `all`: exchanges, steps and memory at each look, too (two requests to
each agent); or the name of a metric of the trainer: as `all`, and loss is that metric's mean over the workers.
"""
import concurrent.futures
import http.client
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

LOOK = 0.5  # seconds between two looks at the run's own page; with `all` four times as long


def get(url):
    """The page; OSError: nobody answers, or is killed in the middle of it."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.read().decode()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error


def sent_bytes():
    for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[8])
    raise OSError("this namespace has no lo")


def series(text, name):
    """The sum over all labels that the pattern `name` matches; None: there is none."""
    found = re.findall(rf"^{name} (\S+)$", text, re.M)
    return sum(map(float, found)) if found else None


class Watch:
    def __init__(self, process, state, figures):
        self.process, self.state, self.every_agent = process, state, figures != "run"
        self.metric = figures if figures not in ("run", "all") else None
        self.lines, self.trajectory, self.private, self.members = [], [], [], 0
        self.page = None
        self.counted = {}  # agent: exchanges it spoke of last; one that is gone goes on counting
        self.together, self.views = None, set()
        self.steps = {}  # agent: [(seconds, steps)], while all are together
        self.launched, self.told = set(), []
        self.asking = concurrent.futures.ThreadPoolExecutor(16)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.match(r"status +(http://\S+?) ", line)
            if found:
                self.page = found.group(1)

    def agents(self):
        for path in self.state.glob("workers/*/agent/endpoints"):
            try:
                yield f"http://{json.loads(path.read_text())['http']}"
            except (OSError, ValueError):
                continue  # it is being made

    def ask(self, agent):
        """(agent, seconds, summary, exchanges); None: it is being killed."""
        try:
            # Whichever it has: committed pairs, or steps taken with neighbours.
            metrics = get(f"{agent}/metrics")
            exchanges = ((series(metrics, r'crowdsurf_mix_exchanges_total\{[^}]*outcome="committed"[^}]*\}') or 0)
                         or (series(metrics, r"crowdsurf_mix_delivered_total(?:\{[^}]*\})?") or 0))
            return agent, time.monotonic(), json.loads(get(f"{agent}/summary")), exchanges
        except (OSError, ValueError):
            return None

    def ask_all(self):
        """The summaries; all agents at once, for a look one after the other takes seconds on a slow network."""
        answers = [answer for answer in self.asking.map(self.ask, list(self.agents())) if answer]
        views = [summary["view"] for _, _, summary, _ in answers]
        sizes = [view["members"] if view else 0 for view in views]
        if max(sizes, default=0) > self.members:  # who came before were not together
            self.members, self.together = max(sizes), None
            self.views.clear()
            self.steps.clear()
        whole = (len(answers) == self.members and all(view and view["hash"] == views[0]["hash"] for view in views)
                 and not any(summary["target_met"] for _, _, summary, _ in answers))  # the view that ends the job
        if whole and self.members > 1:
            self.together = self.together or time.monotonic()
            self.views.add(views[0]["hash"])
        for agent, at, summary, exchanges in answers:
            self.counted[agent] = exchanges
            if self.together and summary["step"]:
                self.steps.setdefault(agent, []).append((at, summary["step"]))
        return [summary for _, _, summary, _ in answers]

    def step_seconds(self):
        """Median over the workers of the time a step took; None: they were never together."""
        found = [(rows[-1][0] - rows[0][0]) / (rows[-1][1] - rows[0][1])
                 for rows in self.steps.values() if rows[-1][1] > rows[0][1]]
        return statistics.median(found) if found else None

    def memory(self):
        """Median MiB that an agent has for itself."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[1:2] != ["agent"] or not any(str(self.state) in word for word in words):
                    continue
                lines = (process / "smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            found.append(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024)
        return statistics.median(found) if found else None

    def look(self):
        loss = None
        if not self.metric:
            loss = series(get(f"{self.page}metrics"), "crowdsurf_run_loss")
        if self.every_agent:
            summaries = self.ask_all()
            told = means_of([summary["metrics"] for summary in summaries])
            self.told.append([time.monotonic(), told])
            self.launched.update(path.name for path in self.state.glob("workers/*"))
            loss = told.get(self.metric, loss)
            self.private.append(self.memory())
        if loss:
            self.trajectory.append([time.monotonic(), sent_bytes(), loss, sum(self.counted.values())])

    def run(self, patience):
        """Until it ends, or has used up its patience: then it is interrupted."""
        begin = time.monotonic()
        while self.process.poll() is None:
            if time.monotonic() - begin > patience:
                self.process.send_signal(signal.SIGINT)
                patience += 15  # a second one ends it at once
            try:
                if self.page:
                    self.look()
            except OSError:
                pass  # busy with its end
            time.sleep(LOOK * (4 if self.every_agent else 1))  # between two looks
        self.reader.join()


def means_of(told):
    """{metric: mean over the workers}, of what most of them have told."""
    found = {}
    for metrics in told:
        for name, value in metrics.items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return {name: statistics.mean(values) for name, values in found.items() if 2 * len(values) > len(told)}


def middle(values):
    """Median of the later half, in which everybody has joined; None: nothing was seen."""
    seen = [value for value in values if value is not None]
    return statistics.median(seen[len(seen) // 2:]) if seen else None


def main():
    out, state, figures, patience = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    process = subprocess.Popen(sys.argv[sys.argv.index("--") + 1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
    watch = Watch(process, state, figures)
    watch.run(patience)
    try:
        report = json.loads((state / "report.json").read_text())
    except OSError:
        report = None
    first = watch.trajectory[0][0] if watch.trajectory else 0
    pathlib.Path(out).write_text(json.dumps({
        "report": report, "output": "".join(watch.lines[-40:]), "sent_bytes": sent_bytes(), "members": watch.members,
        "step_seconds": watch.step_seconds(), "private_mib": middle(watch.private), "views": len(watch.views),
        "launched": len(watch.launched), "metrics": [[at - first, told] for at, told in watch.told],
        "together": watch.together - first if watch.together else None,
        "trajectory": [[at - first, *rest] for at, *rest in watch.trajectory]}))


if __name__ == "__main__":
    main()
