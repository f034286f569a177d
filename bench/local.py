#!/usr/bin/env python3
"""The figures of a job on one machine: what preemption, overlap and a total loss cost, and what an agent costs.

Usage: local.py BIN [--json] [--short] [--only NAME ...] [--text PATH] [--state DIR]
NAME is a part below; every figure is printed as PART.FIGURE with what it must be and what is aimed at. Figures that compare
runs are measured in one go, interleaved. On a machine that is busy with something else the figures are printed and not
judged. --short: runs of half a minute, for a look; the figures of record take about half an hour.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

JOB = """apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: bench}
spec:
  replicas: 8
  averaging: {strategy: Moshpit, groupSize: 4, interval: {INTERVAL}, overlap: OVERLAP}
  target: {samples: TARGET}
  checkpoint: {intervalSeconds: 5}
  template: {spec: {containers: [{name: trainer, image: x, command: [crowdsurf-trainer, charlm, --text, TEXT STEP_TIME]}]}}
"""
CORES = os.cpu_count() or 1
CHECKPOINT = 5  # seconds between checkpoints, as in JOB
CLOCK = os.sysconf("SC_CLK_TCK")
KILLED = ["--notice", "none"]
# (must, aim, which way is good)
WANTED = {
    "start.seconds": (3, 1.5, "below"),
    "control.goodput": (.98, .98, "above"),
    "churn.goodput": (.85, .95, "above"),
    "churn.rounds_failed": (0, 0, "below"),
    "churn.hash_mismatches": (0, 0, "below"),
    "churn.replacement_seconds_p95": (5, 2.5, "below"),
    "churn.averaging_stall_ratio": (.03, .01, "below"),
    "heldout.ratio": (1.02, 1.01, "below"),
    "overlap.ratio": (1.01, 1.005, "below"),
    "all.first_round_seconds": (10, 3, "below"),
    "all.lost_checkpoint_intervals": (1, 1, "below"),
    "agent.idle_cpu": (.01, .002, "below"),
    "agent.private_mib_over_a_quarter_model": (25, 25, "below"),
    "end.seconds": (4, 2, "below"),
}


class Bench:
    def __init__(self, options):
        self.options = options
        self.figures = {}
        self.notes = []
        self.state = pathlib.Path(options.state or tempfile.mkdtemp(prefix="crowdsurf-bench-"))

    def job(self, target=10**12, interval="steps: 50", overlap="Delayed", step_time="100ms"):
        path = self.state / "job.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        pace = f", --step-time, {step_time}" if step_time else ""
        path.write_text(JOB.replace("INTERVAL", interval).replace("OVERLAP", overlap).replace("TARGET", str(target))
                        .replace("TEXT", self.options.text).replace(" STEP_TIME", pace))
        return path

    def start(self, job, *flags):
        shutil.rmtree(self.state / "run", ignore_errors=True)
        command = [self.options.bin / "crowdsurf", "run", job, "--state-dir", self.state / "run", *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, job, *flags):
        """(report, output) of a whole run."""
        output, _ = self.start(job, *flags).communicate()
        try:
            return json.loads((self.state / "run" / "report.json").read_text()), output
        except OSError:
            sys.exit(f"the run left no report:\n{output}")

    def give(self, name, value):
        self.figures[name] = value
        if not self.options.json:
            must, aim, way = WANTED.get(name, (None, None, None))
            wanted = "" if must is None else f"   must be {way} {must}, aim {aim}"
            shown = "not measured" if value is None else f"{value:.4g}"
            print(f"{name:42} {shown}{wanted}", flush=True)

    # ---- the parts -------------------------------------------------------------------------------

    def control(self, seconds):
        """Without preemption, paced: how much of the workers' own speed the job has; and the start."""
        report, _ = self.run(self.job(), "--duration", f"{seconds}s")
        self.give("start.seconds", report["start_seconds"])
        self.give("control.goodput", report["goodput"])

    def churn(self, seconds):
        """One of eight killed every five seconds, without notice."""
        report, _ = self.run(self.job(), "--duration", f"{seconds}s", "--preempt-every", "5s", *KILLED)
        self.give("churn.goodput", report["goodput"])
        self.give("churn.rounds_failed", report["rounds"]["failed"])
        self.give("churn.hash_mismatches", report["rounds"]["hash_mismatches"])
        self.give("churn.preemptions", report["preemptions"])
        self.give("churn.replacement_seconds_p50", report["replacement_seconds"]["p50"])
        self.give("churn.replacement_seconds_p95", report["replacement_seconds"]["p95"])
        self.give("churn.averaging_stall_ratio", report["averaging_stall_ratio"])

    def compare(self, name, samples, pairs, one, other):
        """Held-out bits of `one` over those of `other` at equal samples, median of interleaved pairs."""
        ratios = []
        for pair in range(pairs):
            bits = []
            for job, flags in (one, other):
                report, output = self.run(self.job(samples, **job), "--seed", str(pair + 1), *flags)
                if report["heldout_bits_per_char"] is None:
                    sys.exit(f"no held-out figure:\n{output}")
                bits.append(report["heldout_bits_per_char"])
            ratios.append(bits[0] / bits[1])
            self.notes.append(f"{name} pair {pair + 1}: {bits[0]:.4f} against {bits[1]:.4f} bits, {samples} samples")
        self.give(f"{name}.ratio", statistics.median(ratios))

    def heldout(self, samples, pairs):
        """The preempted run against the undisturbed one."""
        self.compare("heldout", samples, pairs, ({}, ["--preempt-every", "5s", *KILLED]), ({}, []))

    def overlap(self, samples, pairs):
        """Delayed against blocking averaging."""
        self.compare("overlap", samples, pairs, ({}, []), ({"overlap": "Blocking"}, []))

    def summaries(self):
        """{worker: what its agent says now}"""
        found = {}
        for path in (self.state / "run" / "workers").glob("*/agent/endpoints"):
            try:
                address = json.loads(path.read_text())["http"]
                with urllib.request.urlopen(f"http://{address}/summary", timeout=1) as answer:
                    found[path.parts[-3]] = json.loads(answer.read())
            except (OSError, ValueError):
                continue  # it is being killed or made
        return found

    def all(self, seconds):
        """All killed at once and started again by the market: the way back through the checkpoint."""
        process = self.start(self.job(), "--duration", f"{2 * seconds - 5}s", "--preempt-every", f"{seconds}s",
                             "--preempt-count", "all", *KILLED)
        before, restored, up, first_round = 0, None, None, None
        rate = 0
        while process.poll() is None and first_round is None:
            seen = self.summaries()
            old = {w: s for w, s in seen.items() if w.endswith("-1")}
            new = {w: s for w, s in seen.items() if not w.endswith("-1")}
            for summary in old.values():
                before = max(before, summary["job_samples"])
                rate = max(rate, summary["samples_per_second"])
            counts = [s["job_samples"] for s in new.values() if s["job_samples"] > 0]
            if counts and restored is None:
                restored = min(counts)
            if len(new) == 8 and up is None and all(s["state"] != "Starting" for s in new.values()):
                up = time.time()
            if new and any(s["rounds"]["completed"] > 0 for s in new.values()):
                first_round = time.time()
            time.sleep(0.02)  # between two looks; the processes tell nobody
        process.send_signal(signal.SIGINT)
        process.communicate()
        if first_round is None or restored is None:
            return self.give("all.first_round_seconds", None)
        self.give("all.first_round_seconds", max(0, first_round - (up or first_round)))
        self.give("all.samples_lost", before - restored)
        if rate > 0:
            self.give("all.lost_checkpoint_intervals", (before - restored) / (8 * rate) / CHECKPOINT)

    def agents(self):
        """Pids of the run's agents, without their supervisors."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[1:2] == ["agent"] and any(str(self.state) in word for word in words):
                found.append(process)
        return found

    def agent(self, seconds):
        """What an agent costs beside a trainer that trains, while there is nothing to average."""
        process = self.start(self.job(interval="seconds: 3600"), "--duration", "1h")
        trains = 0
        for line in process.stdout:
            trains += " trains" in line
            if trains == 8:
                break
        time.sleep(5)  # joining is over then, and its memory in use
        agents = self.agents()

        def used():
            fields = [(agent / "stat").read_text().rsplit(")", 1)[1].split() for agent in agents]
            return [(int(f[11]) + int(f[12])) / CLOCK for f in fields]
        begin, at = used(), time.time()
        time.sleep(seconds)  # what is measured: nothing happens
        span = time.time() - at
        self.give("agent.idle_cpu", statistics.median((b - a) / span for a, b in zip(begin, used())))
        private = []
        for agent in agents:
            lines = (agent / "smaps_rollup").read_text().splitlines()
            private.append(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024)
        model = 108_018 * 4 / 2**20
        self.give("agent.private_mib", statistics.median(private))
        self.give("agent.private_mib_over_a_quarter_model", statistics.median(private) - model / 4)
        process.send_signal(signal.SIGINT)
        process.communicate()

    def end(self, seconds):
        """From the view's word that the target is met to the end of the last worker, also amid churn."""
        process = self.start(self.job(), "--duration", f"{seconds}s", "--preempt-every", "2s", *KILLED)
        met = None
        while process.poll() is None:
            if met is None and any(s["target_met"] for s in self.summaries().values()):
                met = time.time()
            if met is not None and not self.agents():
                break
            time.sleep(0.02)  # between two looks; the processes tell nobody
        self.give("end.seconds", None if met is None else time.time() - met)
        process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="one object with every figure")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--text", default="/usr/share/games/fortunes")
    parser.add_argument("--state", help="where runs keep their state; default: a new folder")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    bench = Bench(options)
    long = not options.short
    parts = {"control": lambda: bench.control(120 if long else 20),
             "churn": lambda: bench.churn(120 if long else 25),
             "agent": lambda: bench.agent(60 if long else 10),
             "all": lambda: bench.all(40 if long else 25),
             "end": lambda: bench.end(20 if long else 10),
             "heldout": lambda: bench.heldout(*(4_000_000, 3) if long else (200_000, 1)),
             "overlap": lambda: bench.overlap(*(4_000_000, 3) if long else (200_000, 1))}
    unknown = set(options.only) - set(parts)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}: not one of {', '.join(parts)}")
    load = os.getloadavg()[0]
    for name, part in parts.items():
        if not options.only or name in options.only:
            part()
    judged = load < 0.5 * CORES
    missed = []
    for name, value in bench.figures.items():
        must, _, way = WANTED.get(name, (None, None, None))
        if must is not None and (value is None or (value > must if way == "below" else value < must)):
            missed.append(name)
    if options.json:
        print(json.dumps({**bench.figures, "judged": judged, "missed": missed, "load_before": load,
                          "short": options.short, "notes": bench.notes}, indent=1))
    else:
        print(*bench.notes, sep="\n")
        if not judged:
            print(f"not judged: the load was {load:.1f} on {CORES} cores before the first run")
        elif missed:
            print("missed: " + ", ".join(missed))
    if not options.state:
        shutil.rmtree(bench.state, ignore_errors=True)


if __name__ == "__main__":
    main()
