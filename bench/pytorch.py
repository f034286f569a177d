#!/usr/bin/env python3
"""The figures of PyTorch workers on this machine: what joining costs in lines, time and accuracy.

Usage: pytorch.py BIN [--json] [--short] [--only NAME ...]
P1: lines changed in a plain loop (docs/pytorch.md). P2: share by which steps of 100 ms that sleep are slowed, 20 M
parameters, an averaging every 50 steps, beside the same script alone. P3: held-out accuracy of digits.py below a single
process at equal samples, in points, while one of four workers is killed every 3 s; mean of 3 seeds. P4.samples, P4.time: the
same loop averaged by hivemind 1.1.12 beside it, samples a second and time to 97 % (digits_race.py). P5: seconds from join()
to the first step, 100 MB of parameters: the greater of two medians, of workers that begin a job together (they take the
first one's parameters) and of those that replace a killed one (they take the job's average). P6: what becomes of the samples
that job.shard() deals (dealt_samples.py). P6.lost: samples that the job counts as trained and that some chunk of its model lacks.
P6.retrained: trained again, though no dead worker had trained them in vain; both while a worker is killed every 3 s, 100 in
all. P6.notice: lost, trained again or in vain, while a worker is taken every 3 s with a notice. P7: 1 where 1 to 16 clients
train the same samples an epoch. P8: seconds from a notice, in the file that an agent's platform writes, to the user's
callback; p99 of 200 (kubelet's share is not in it). Each line has the load of the machine: on a busy one the figures are
printed and not judged, but for P1, P6.lost and P7. --short: fewer samples and kills, for a look.
"""
import argparse
import difflib
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "deploy" / "examples"
sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES), str(ROOT / "tests" / "support")]
# must, aim: each at most so much, but for AT_LEAST
WANTED = {"P1": (6, 4), "P2": (.03, .01), "P3": (1, 0), "P4.samples": (2, 5), "P4.time": (2, 5), "P5": (3, 1),
          "P6.lost": (0, 0), "P6.retrained": (0, 0), "P6.notice": (0, 0), "P7": (1, 1), "P8": (1, .3)}
PARTS = sorted({name.split(".")[0] for name in WANTED})
AT_LEAST = ("P4.samples", "P4.time", "P7")
WHATEVER_THE_LOAD = ("P1", "P6.lost", "P7")
ENVIRONMENT = {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python")}
KILLS = ["--preempt-every", "3s", "--notice", "none"]
BUSY = 1.0    # load a core, before a part begins, above which its figure is not judged


class Bench:
    def __init__(self, options):
        self.bin, self.short = pathlib.Path(options.bin).resolve(), options.short
        self.figures = {}

    def crowdsurf(self, state, *words):
        run = subprocess.run([self.bin / "crowdsurf", "run", "--fresh", "--state-dir", state, *map(str, words)],
                             env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stdout + run.stderr)
        return json.loads((state / "report.json").read_text())

    def alone(self, *words):
        return subprocess.run(["/usr/bin/python3", *map(str, words)], env=ENVIRONMENT, check=True, capture_output=True,
                              text=True).stdout

    def lines(self):
        plain, worker = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "pytorch.md").read_text(), re.S)
        return sum(line.startswith("+ ") for line in difflib.ndiff(plain.splitlines(), worker.splitlines())), []

    def slowed(self, parameters=20_000_000):
        """Each pair is a job of two workers and the script alone, one after the other."""
        ratios, script = [], [ROOT / "bench" / "paced_module.py", "--parameters", parameters]
        script += ["--steps", 100 if self.short else 300]
        for _ in range(1 if self.short else 3):
            with tempfile.TemporaryDirectory() as folder:
                state = pathlib.Path(folder)
                samples = 2 * (60 + int(script[-1]))
                self.crowdsurf(state, "--workers", 2, "--samples", samples, "--", "python3", *script)
                steps = self.told(state, "step")
            (single,) = re.findall(r"^step (\S+)$", self.alone(*script), re.M)
            ratios.append(statistics.mean(steps) / float(single) - 1)
        return statistics.median(ratios), ratios

    def told(self, state, what):
        """What the trainers' logs say after this word."""
        logs = [path.read_text() for path in sorted(state.glob("workers/*/trainer.log"))]
        return [float(figure) for log in logs for figure in re.findall(rf"^{what} (\S+)$", log, re.M)]

    def accuracy(self):
        import crowdsurf
        import digits
        train, held_out = digits.digits()
        lost = []
        for seed in range(1 if self.short else 3):
            manifest = (EXAMPLES / "digits-pytorch.yaml").read_text()
            manifest = manifest.replace("digits.py]", f"digits.py, --seed, '{seed}']")
            with tempfile.TemporaryDirectory() as folder:
                job, state = pathlib.Path(folder, "job.yaml"), pathlib.Path(folder, "state")
                job.write_text(manifest)
                samples = ["--samples", 100_000] if self.short else []
                report = self.crowdsurf(state, job, *samples, *KILLS)
                model = digits.network()
                model.load_state_dict(crowdsurf.load_model(state / "checkpoint" / "model.safetensors"))
            epochs = round(report["samples"] / len(train[1]))
            said = self.alone(EXAMPLES / "digits.py", "--epochs", epochs, "--seed", seed)
            single = float(re.search(r"held-out accuracy (\S+)", said).group(1))
            lost.append(100 * (single - digits.accuracy(model, *held_out)))
            print(f"  seed {seed}: {report['samples']:.0f} samples, {report['preemptions']} killed, rounds {report['rounds']}, "
                  f"single {single:.4f}, points lost {lost[-1]:.2f}", file=sys.stderr)
        return statistics.mean(lost), lost

    def raced(self):
        import digits_race
        return digits_race.Race(self.crowdsurf, self.short).run()

    def joining(self):
        """Three workers begin a job, and each that is killed is replaced."""
        joins = {"first": [], "later": []}
        script = [ROOT / "bench" / "paced_module.py", "--parameters", 25_000_000, "--steps", 100_000]
        for _ in range(1 if self.short else 3):
            with tempfile.TemporaryDirectory() as folder:
                state = pathlib.Path(folder)
                self.crowdsurf(state, "--workers", 3, "--duration", "40s", "--preempt-every", "12s", "--notice", "none", "--",
                               "python3", *script)
                for path in state.glob("workers/*/trainer.log"):
                    kind = "first" if path.parent.name.endswith("-1") else "later"
                    joins[kind] += [float(figure) for figure in re.findall(r"^join (\S+)$", path.read_text(), re.M)]
        print("  joins: " + "; ".join(f"{kind} {sorted(seconds)}" for kind, seconds in joins.items()), file=sys.stderr)
        return max(map(statistics.median, joins.values())), joins["first"] + joins["later"]

    def noticed(self):
        """One worker, which is told and told otherwise, so that it never leaves."""
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder)
            words = [self.bin / "crowdsurf", "run", "--fresh", "--state-dir", state, "--workers", "1", "--duration", "1h", "--",
                     "python3", ROOT / "bench" / "noticed_trainer.py"]
            run = subprocess.Popen(words, env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                seconds = [self.notice(state) for _ in range(20 if self.short else 200)]
            finally:
                run.terminate()
                run.wait()
        return statistics.quantiles(seconds, n=100)[98], [statistics.median(seconds), max(seconds)]

    def notice(self, state):
        time.sleep(random.uniform(0, 0.05))   # the client looks every 50 ms
        before = len(self.told(state, "noticed"))
        (agent,) = self.when(lambda: list(state.glob("workers/*/agent/token")))
        began = time.time()
        self.tell(agent.parent, json.dumps({"reason": "bench", "deadline": began + 3600}))
        (*_, noticed) = self.when(lambda: self.told(state, "noticed")[before:])
        self.tell(agent.parent, "")
        self.when(lambda: sum(log.read_text().count("withdrawn") for log in state.glob("workers/*/trainer.log")) > before)
        return noticed - began

    def tell(self, folder, text):
        new = folder / "notice.new"
        new.write_text(text)
        new.rename(folder / "notice")

    def when(self, look, patience=60):
        end = time.monotonic() + patience
        while not (found := look()):
            if time.monotonic() > end:
                raise RuntimeError("it never came to be")
            time.sleep(0.005)
        return found

    def dealt_job(self, *words):
        """The account of a job whose workers are taken."""
        import dealt_samples
        with tempfile.TemporaryDirectory() as folder:
            job, state, notes = (pathlib.Path(folder, name) for name in ("job.yaml", "state", "notes"))
            notes.mkdir()
            job.write_text(dealt_samples.manifest(notes))
            report = self.crowdsurf(state, job, *words)
            account = dealt_samples.Account(state, notes)
        account.say(report)
        return account, report["preemptions"]

    def dealt(self):
        seconds = "30s"   # what the trainers have marks for
        kills, lost, again, vain = 0, [], [], []
        while kills < (10 if self.short else 100):
            account, killed = self.dealt_job("--duration", seconds, *KILLS)
            kills += killed
            lost.append(account.lost())
            again.append(account.again(account.dead()))
        for _ in range(1 if self.short else 2):
            account, _ = self.dealt_job("--duration", seconds, "--preempt-every", "3s", "--notice", "10s")
            vain.append(account.lost() + account.again() + account.in_vain(account.replaced()))
        return {"P6.lost": (sum(lost), lost), "P6.retrained": (sum(again), again), "P6.notice": (sum(vain), vain)}

    def dealt_without_a_job(self):
        import dealt_samples
        each = dealt_samples.equal_epochs()
        return min(each), each


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    bench = Bench(options)
    parts = {"P1": bench.lines, "P2": bench.slowed, "P3": bench.accuracy, "P4": bench.raced, "P5": bench.joining, "P6": bench.dealt,
             "P7": bench.dealt_without_a_job, "P8": bench.noticed}
    failed = False
    for part in options.only:
        before = os.getloadavg()[0]
        told = parts[part]()
        for name, (figure, each) in (told if isinstance(told, dict) else {part: told}).items():
            must, aim = WANTED[name]
            judged = name in WHATEVER_THE_LOAD or before / os.cpu_count() <= BUSY
            fine = figure >= must if name in AT_LEAST else figure <= must
            word = "not judged: the machine is busy" if not judged else "ok" if fine else "MISSED"
            failed = failed or word == "MISSED"
            bench.figures[name] = {"figure": figure, "each": each, "load_before": before, "load_after": os.getloadavg()[0]}
            if not options.json:
                print(f"{name} {figure:.4g} (must {must}, aim {aim}; {word}) of {[round(value, 4) for value in each]}, "
                      f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after", flush=True)
    if options.json:
        print(json.dumps(bench.figures))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
