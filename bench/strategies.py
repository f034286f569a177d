#!/usr/bin/env python3
"""Strategies in real jobs: every one of them on two networks, sixteen workers of each where it should win, A2CiD2 beside gossip on a
ring of 16, RelaySum behind a firewall.

Usage: strategies.py BIN [--json] [--short] [--only NAME ...] [--seconds S] [--text PATH] [--state DIR]       (root)
NAME is a part (`table`, `sixteen`, `ring`, `dial`), a network (`loopback`, `shaped`) or a strategy of the table; with `sixteen`,
strategies are those of its cases (sixteen.py; about twelve minutes). Each run has a network
namespace of its own; `shaped` is slow_network.py's: 20 ms each way, 200 Mbit/s for all together. Everybody mixes once in
five steps (A2CiD2: 0.2 pairings a step). Columns: held-out bits per character of the final model at equal time; training
loss, in bits, when lo had sent what the thriftiest run of that network sent in all (equal bytes; the mean of five seconds
around; training and not held-out, for the model then is gone); rounds that failed; time stopped by averaging; goodput.
The anchor, AllReduce+restarts, loses the whole job at each preemption and comes back from its checkpoint.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import sixteen

JOB = """apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: bench}
spec:
  replicas: WORKERS
  averaging: {AVERAGING}
  target: {samples: TARGET}
  checkpoint: {intervalSeconds: 5}
  template: {spec: {containers: [{name: trainer, image: x, command: COMMAND}]}}
"""
TRAINER = "[crowdsurf-trainer, charlm, --text, TEXT, --step-time, 100ms]"
# Every worker has one or two of the ten labels, and is measured on all of them: what bench/ring_job.h computes, as a job.
SORTED = ("[crowdsurf-trainer, mlp, --shards, '16', --optimizer, sgd, --momentum, '0', --clip, '0', --lr, '0.1', "
          "--evaluate-every, '10', --step-time, 100ms]")
EVERY = "interval: {steps: 5}"
STRATEGIES = {
    "AllReduce+restarts": f"strategy: AllReduce, {EVERY}",
    "AllReduce": f"strategy: AllReduce, {EVERY}",
    "Moshpit": f"strategy: Moshpit, groupSize: 4, {EVERY}",
    "GossipPairs": f"strategy: Gossip, {EVERY}, gossip: {{graph: Exponential, mode: Pairs}}",
    "GossipNeighbours": f"strategy: Gossip, {EVERY}, gossip: {{graph: Exponential, mode: Neighbours}}",
    "A2CiD2": "strategy: A2CiD2, a2cid2: {graph: Ring, rateCom: 0.2}",
    "RelaySum": f"strategy: RelaySum, {EVERY}, relaySum: {{tree: DoubleBinaryTree}}",
    "PowerGossip": f"strategy: PowerGossip, {EVERY}, powerGossip: {{graph: Ring, rank: 1}}",
}
RING = {
    "pairs": f"strategy: Gossip, {EVERY}, gossip: {{graph: Ring, mode: Pairs}}",
    "a2cid2": "strategy: A2CiD2, a2cid2: {graph: Ring, rateCom: 0.2}",
}
NETWORKS = {"loopback": [], "shaped": ["--delay", "20", "--rate", "200"]}
HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ("heldout_bits", "bits_at_equal_bytes", "samples", "sent_mb", "rounds_failed", "stall", "goodput", "preemptions")
ALONE = 108_018 * 4 / 2**20  # MiB of the model
NEAR = 2.5  # seconds on each side: the loss of one look is that of some batches only
LAST = 10  # seconds whose looks make a run's final loss: a hundred steps, as in ring_job.cc
COMING = 20  # seconds that sixteen have to come together in, beside the time that is compared
WANTED = {"a2cid2.job": .5, "a2cid2.job_step_time": 1.02, "a2cid2.job_buffers": 1.5}  # at most


class Bench:
    def __init__(self, options):
        self.options = options
        self.figures = {}
        self.state = pathlib.Path(options.state or tempfile.mkdtemp(prefix="crowdsurf-bench-"))
        self.state.mkdir(parents=True, exist_ok=True)
        self.runs = 0

    def run(self, averaging, network, *flags, workers=8, trainer=TRAINER, target=10**12, patience=300, watch="run",
            wrapper=None):
        """What measured_run.py says of a run."""
        self.runs += 1
        job, out = self.state / "job.yaml", self.state / f"out-{self.runs}.json"
        job.write_text(JOB.replace("WORKERS", str(workers)).replace("AVERAGING", averaging).replace("TARGET", str(target))
                       .replace("COMMAND", trainer.replace("TEXT", self.options.text)))
        shutil.rmtree(self.state / "run", ignore_errors=True)
        out.unlink(missing_ok=True)
        environment = dict(os.environ)
        prefix = []
        if wrapper:
            prefix = [sys.executable, HERE / "tree_dial.py", f"--{wrapper}", str(workers), "--"]
            environment["CROWDSURF_AGENT_PROGRAM"] = str(HERE / "tree_dial.py")
            environment["CROWDSURF_TREE_DIAL_AGENT"] = str(self.options.bin / "crowdsurf-worker")
        command = [sys.executable, HERE / "slow_network.py", *NETWORKS[network], "--", *prefix,
                   sys.executable, HERE / "measured_run.py", out, self.state / "run", watch, str(patience), "--",
                   self.options.bin / "crowdsurf", "run", job, "--state-dir", self.state / "run", *flags]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            return json.loads(out.read_text())
        except OSError:
            sys.exit(f"a run left nothing:\n{done.stdout}")

    def give(self, name, value):
        self.figures[name] = value
        if not self.options.json:
            wanted = f"   must be at most {WANTED[name]}" if name in WANTED else ""
            print(f"{name:44} {'not measured' if value is None else format(value, '.4g')}{wanted}", flush=True)

    def table(self, networks, strategies, seconds):
        for network in networks:
            runs = {}
            for name in strategies:
                restarts = ["--preempt-count", "all"] if name.endswith("+restarts") else []
                runs[name] = self.run(STRATEGIES[name], network, "--duration", f"{seconds}s", "--preempt-every", "12s",
                                      "--notice", "none", "--seed", "1", *restarts)
                if not self.options.json:
                    print(f"{network} {name}: done", file=sys.stderr, flush=True)
            budget = min((run["trajectory"][-1][1] for run in runs.values() if run["trajectory"]), default=0)
            for name, run in runs.items():
                self.row(f"{network}.{name}", run, budget)
        if not self.options.json:
            self.print_table(networks, strategies)

    def row(self, name, run, budget):
        report = run["report"]
        if report is None:
            print(run["output"], file=sys.stderr)
            report = {"rounds": {}}
        values = {"heldout_bits": report.get("heldout_bits_per_char"), "samples": report.get("samples"),
                  "bits_at_equal_bytes": loss_at(run["trajectory"], budget),
                  "sent_mb": run["trajectory"][-1][1] / 1e6 if run["trajectory"] else None,
                  "rounds_failed": report["rounds"].get("failed"), "stall": report.get("averaging_stall_ratio"),
                  "goodput": report.get("goodput"), "preemptions": report.get("preemptions")}
        for column in COLUMNS:
            self.figures[f"{name}.{column}"] = values[column]

    def print_table(self, networks, strategies):
        for network in networks:
            print(f"\n| {network} | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
            for name in strategies:
                shown = [self.figures[f"{network}.{name}.{column}"] for column in COLUMNS]
                print(f"| {name} | " + " | ".join("-" if v is None else format(v, ".4g") for v in shown) + " |")

    def ring(self, seconds, pairs):
        """16 workers with label-sorted digits on a ring: A2CiD2 beside gossip in pairs, exchange for exchange."""
        found = {name: [] for name in ("ratio", "step")}
        for pair in range(pairs):
            order = list(RING) if pair % 2 == 0 else list(RING)[::-1]
            runs = {name: self.run(RING[name], "shaped", "--duration", f"{seconds + COMING}s", "--seed", str(pair + 1),
                                   workers=16, trainer=SORTED, watch="heldout_loss") for name in order}
            for name, run in runs.items():
                rows = from_together(run)
                self.give(f"ring16.{pair}.{name}.members", run["members"])
                self.give(f"ring16.{pair}.{name}.views", run["views"])
                self.give(f"ring16.{pair}.{name}.final_loss", final_loss(rows))
                self.give(f"ring16.{pair}.{name}.exchanges", rows[-1][2] if rows else None)
                self.give(f"ring16.{pair}.{name}.seconds", rows[-1][0] if rows else None)
                self.give(f"ring16.{pair}.{name}.step_seconds", run["step_seconds"])
            ratio = exchanges_ratio(runs["a2cid2"], runs["pairs"])
            self.give(f"ring16.{pair}.ratio", ratio)
            if ratio is not None:
                found["ratio"].append(ratio)
            if all(run["step_seconds"] for run in runs.values()):
                found["step"].append(runs["a2cid2"]["step_seconds"] / runs["pairs"]["step_seconds"])
        # A run that never came together, or never to gossip's loss, must not make the others look better.
        self.give("a2cid2.job", statistics.median(found["ratio"]) if len(found["ratio"]) == pairs else None)
        self.give("a2cid2.job_step_time", statistics.median(found["step"]) if len(found["step"]) == pairs else None)

    def buffers(self, seconds):
        """What an agent of A2CiD2 holds beside what one of gossip in pairs does; the model must be large enough to be seen."""
        held = {name: self.run(averaging, "loopback", "--duration", f"{seconds}s", "--seed", "1", watch="all")["private_mib"]
                for name, averaging in RING.items()}
        for name, mib in held.items():
            self.give(f"ring8.{name}.private_mib", mib)
        self.give("a2cid2.job_buffers", (held["a2cid2"] - held["pairs"]) / ALONE if all(held.values()) else None)

    def dial(self, patience):
        """RelaySum on a chain: everybody may dial everybody; then the neighbours in the chain only, other dials being refused;
        then these, other dials being without an answer."""
        averaging = "strategy: RelaySum, interval: {steps: 5}, relaySum: {tree: Chain}"
        for name, wrapper in (("relaysum.dial_open", "open"), ("relaysum.dial", "reject"), ("relaysum.dial_silent", "drop")):
            run = self.run(averaging, "loopback", target=600_000, patience=patience, watch="all", wrapper=wrapper)
            report = run["report"] or {}
            finished = report.get("outcome") == "Succeeded" and run["members"] == 8
            self.give(name, int(finished))
            self.give(f"{name}_members", run["members"])
            self.give(f"{name}_samples", report.get("samples"))


def from_together(run):
    """[[seconds, loss, exchanges]] since all were in one view; each loss the mean of three looks."""
    if run["together"] is None:
        return []
    rows = [[t - run["together"], loss, e] for t, _, loss, e in run["trajectory"] if t >= run["together"]]
    return [[t, statistics.mean(row[1] for row in rows[max(0, i - 1):i + 2]), e - rows[0][2]]
            for i, (t, _, e) in enumerate(rows)]


def final_loss(rows):
    """Mean of the looks of the last seconds; None: there are none."""
    return statistics.mean(loss for t, loss, _ in rows if t >= rows[-1][0] - LAST) if rows else None


def exchanges_ratio(run, baseline):
    """Exchanges until the loss is for good below the baseline's final one, over all of the baseline's in equal time. None:
    never. For good, because the loss of workers that have a part of the data each first rises."""
    rows, others = from_together(run), from_together(baseline)
    if not rows or not others:
        return None
    end = min(rows[-1][0], others[-1][0])
    rows, others = [[row for row in each if row[0] <= end] for each in (rows, others)]
    final = final_loss(others)
    above = [i for i, (_, loss, _) in enumerate(rows) if loss > final]
    after = above[-1] + 1 if above else 1
    if after >= len(rows) or not others[-1][2]:
        return None
    return rows[after][2] / others[-1][2]


def loss_at(trajectory, budget):
    """Mean loss of the looks near the moment at which `budget` bytes were sent; None: never."""
    moment = next((t for t, b, _, _ in trajectory if b >= budget), None)
    if moment is None:
        return None
    return statistics.mean(loss for t, _, loss, _ in trajectory if abs(t - moment) <= NEAR)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="one object with every figure")
    parser.add_argument("--short", action="store_true", help="runs of 15 seconds, for a look")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--seconds", type=int, default=40, help="of each run of the table")
    parser.add_argument("--ring-seconds", type=int, default=90, help="that are compared of each run of the ring")
    parser.add_argument("--sixteen-seconds", type=int, default=40, help="that are compared of each run of sixteen")
    parser.add_argument("--text", default="/usr/share/games/fortunes")
    parser.add_argument("--state", help="where runs keep their state; default: a new folder")
    options = parser.parse_args()
    parts = ("table", "sixteen", "ring", "dial")
    unknown = set(options.only) - {*parts, *NETWORKS, *STRATEGIES}
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}: not one of {', '.join((*parts, *NETWORKS, *STRATEGIES))}")
    if os.geteuid() != 0:
        parser.error("only root can make network namespaces")
    options.bin = options.bin.resolve()
    wanted = set(options.only)
    networks = [n for n in NETWORKS if n in wanted] or list(NETWORKS)
    strategies = [s for s in STRATEGIES if s in wanted] or list(STRATEGIES)
    table = not wanted or "table" in wanted or ("sixteen" not in wanted and bool(wanted & {*NETWORKS, *STRATEGIES}))
    load = os.getloadavg()[0]
    bench = Bench(options)
    if table:
        bench.table(networks, strategies, 15 if options.short else options.seconds)
    invalid = []
    if not wanted or "sixteen" in wanted:
        for name in [name for name in sixteen.CASES if name in wanted] or sixteen.CASES:
            invalid += sixteen.run_case(bench, name, 15 if options.short else options.sixteen_seconds)
    if not wanted or "ring" in wanted:
        bench.ring(options.ring_seconds, 1 if options.short else 3)
        bench.buffers(15)
    if not wanted or "dial" in wanted:
        bench.dial(50)
    if options.json:
        missed = [n for n, most in WANTED.items() if n in bench.figures and not (bench.figures[n] or 1e9) <= most]
        print(json.dumps({**bench.figures, "missed": missed, "invalid": invalid, "load_before": load, "short": options.short}, indent=1))
    else:
        print(f"the load was {load:.1f} on {os.cpu_count()} cores before the first run")
    for problem in invalid:
        print(f"not measured: {problem}", file=sys.stderr)
    if not options.state:
        shutil.rmtree(bench.state, ignore_errors=True)
    sys.exit(1 if invalid else 0)


if __name__ == "__main__":
    main()
