"""P4 of pytorch.py: digits.py's job beside the same loop averaged by hivemind 1.1.12 (raced_digits.py has both).

Four workers on this machine, nobody is killed. Settings of both are tuned on one grid of intervals, and hivemind's also on its
matchmaking time, with a seed apart. Then both take turns, another seed each time. hivemind's workers sometimes do not find each
other and hang: a setting that hangs is not chosen, and a turn that hangs is repeated. P4.samples is our samples a second over
hivemind's. P4.time is hivemind's seconds over ours, from the first step of a worker to the first worker that has 97 % of the
held-out digits right. For each of the two both have the settings with which they did best in it.
"""
import dataclasses
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import hivemind_venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = "bench/raced_digits.py"
WORKERS, SURE = 4, .97
INTERVALS = (20, 50, 100)    # steps of a worker
MATCHMAKING = (1, 3)         # seconds; half of it is the request's timeout
PATIENCE = 200               # seconds, of a run
TURNS = 3                    # of hivemind, for one that does not hang


class Hung(RuntimeError):
    """A worker of hivemind ended, or did not in PATIENCE."""


@dataclasses.dataclass
class Run:
    settings: tuple
    rate: float       # samples a second of all workers
    seconds: float    # to SURE; infinite: nobody came there

    @classmethod
    def of(cls, settings, logs):
        def told(word):
            return [tuple(map(float, pair)) for log in logs for pair in re.findall(rf"^{word} (\S+) (\S+)$", log, re.M)]
        steps = told("step")
        ends = [time for time, samples in steps if samples > 0]
        if not ends:
            raise RuntimeError("no worker ended:\n" + "\n".join(log[-2000:] for log in logs))
        began = min(time for time, _ in steps)
        sure = [time for time, fraction in told("accuracy") if fraction >= SURE]
        return cls(settings, sum(samples for _, samples in steps) / (max(ends) - began), min(sure, default=float("inf")) - began)


class Race:
    def __init__(self, crowdsurf, short):
        """`crowdsurf(state, *words)` runs a job on this machine."""
        self.crowdsurf, self.short = crowdsurf, short
        self.target = 30_000 if short else 60_000
        self.python = hivemind_venv.install()

    def ours(self, seed, interval):
        manifest = (ROOT / "deploy" / "examples" / "digits-pytorch.yaml").read_text()
        command = [SCRIPT, "crowdsurf", "--target", self.target, "--seed", seed]
        manifest = manifest.replace("deploy/examples/digits.py", ", ".join(f"'{word}'" for word in command))
        manifest = manifest.replace("{steps: 20}", f"{{steps: {interval}}}").replace("samples: 400000", f"samples: {self.target}")
        with tempfile.TemporaryDirectory() as folder:
            job, state = pathlib.Path(folder, "job.yaml"), pathlib.Path(folder, "state")
            job.write_text(manifest)
            self.crowdsurf(state, job)
            return Run.of((interval,), [path.read_text() for path in sorted(state.glob("workers/*/trainer.log"))])

    def hivemind(self, seed, interval, matchmaking):
        words = [self.python, SCRIPT, "hivemind", "--target", self.target, "--seed", seed, "--workers", WORKERS,
                 "--interval", interval, "--matchmaking", matchmaking]
        with tempfile.TemporaryDirectory() as folder:
            workers, peers = [], []
            try:
                for rank in range(WORKERS):
                    log = pathlib.Path(folder, f"{rank}.log")
                    workers.append(self.worker(log, [*words, *["--peers"] * bool(peers), *peers]))
                    peers = peers or self.when(r"^address (\S+)", *workers[0])
                for worker in workers:
                    self.when(r"^ready", *worker)
                for process, _ in workers:
                    process.stdin.write(b"begin\n")
                    process.stdin.flush()
                for worker in workers:
                    self.when(r"^step \S+ [1-9]", *worker)
            finally:
                for process, _ in workers:   # its network daemons outlive it
                    os.killpg(process.pid, 9)
                    process.wait()
            return Run.of((interval, matchmaking), [log.read_text() for _, log in workers])

    def worker(self, log, words):
        environment = {**os.environ, **hivemind_venv.ENVIRONMENT, "PYTHONPATH": str(ROOT / "python")}
        with log.open("w") as out:
            return subprocess.Popen([*map(str, words)], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=out,
                                    start_new_session=True), log

    def when(self, line, process, log):
        """What the log has of such lines, once there is one."""
        end = time.monotonic() + PATIENCE
        while not (found := re.findall(line, log.read_text(), re.M)):
            if time.monotonic() > end or process.poll() is not None:
                raise Hung("a worker of hivemind ended, or hangs:\n" + log.read_text()[-2000:])
            time.sleep(.05)
        return found

    def found(self, turns, seed, *settings):
        """A run of hivemind that does not hang. None: all turns do."""
        for _ in range(turns):
            try:
                return self.hivemind(seed, *settings)
            except Hung as hung:
                print(f"  hivemind {settings}, seed {seed}: {hung}", file=sys.stderr, flush=True)
        return None

    def told(self, run):
        print(f"  {json.dumps(dataclasses.asdict(run))}", file=sys.stderr, flush=True)
        return run

    def run(self):
        ours = [self.told(self.ours(0, interval)) for interval in INTERVALS]
        grid = [(20, 1), (50, 1)] if self.short else itertools.product(INTERVALS, MATCHMAKING)
        theirs = [self.told(run) for settings in grid if (run := self.found(1, 0, *settings))]
        if not theirs:
            raise Hung("hivemind hangs with every setting")
        figures = {}
        for name, best, ratio in (("P4.samples", lambda runs: max(runs, key=lambda run: run.rate), lambda a, b: a.rate / b.rate),
                                  ("P4.time", lambda runs: min(runs, key=lambda run: run.seconds),
                                   lambda a, b: b.seconds / a.seconds)):
            settings, their_settings = best(ours).settings, best(theirs).settings
            print(f"  {name}: ours {settings}, hivemind {their_settings}", file=sys.stderr, flush=True)
            ratios = []
            for seed in range(1, 2 if self.short else 4):
                a, b = self.ours(seed, *settings), self.found(TURNS, seed, *their_settings)
                if b is None:
                    raise Hung(f"hivemind hangs {TURNS} times with {their_settings}")
                print(f"  seed {seed}: {a.rate:.0f} and {b.rate:.0f} samples/s, {a.seconds:.2f} and {b.seconds:.2f} s", file=sys.stderr)
                ratios.append(ratio(a, b))
            figures[name] = (statistics.median(ratios), ratios)
        return figures
