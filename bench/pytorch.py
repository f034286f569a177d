#!/usr/bin/env python3
"""The figures of PyTorch workers on this machine: what joining costs in lines, time and accuracy.

Usage: pytorch.py BIN [--json] [--short] [--only NAME ...]
P1: lines changed in a plain loop (docs/pytorch.md). P2: share by which steps of 100 ms that sleep are slowed, 20 M
parameters, an averaging every 50 steps, beside the same script alone. P3: held-out accuracy of digits.py below a single
process at equal samples, in points, while one of four workers is killed every 3 s; mean of 3 seeds. P5: seconds from join()
to the first step with the state of the job, 100 MB of parameters. Each line has the load of the machine: on a busy one the
figures are printed and not judged. --short: fewer samples, for a look.
"""
import argparse
import difflib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "deploy" / "examples"
sys.path[:0] = [str(ROOT / "python"), str(EXAMPLES)]
WANTED = {"P1": (6, 4), "P2": (.03, .01), "P3": (1, 0), "P5": (3, 1)}   # must, aim: each at most so much
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

    def slowed(self):
        """Each pair is a job of two workers and the script alone, one after the other."""
        ratios, script = [], [ROOT / "bench" / "paced_module.py", "--parameters", 20_000_000]
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

    def joining(self):
        """Workers that replace one that was killed: they fetch the job's state."""
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder)
            script = [ROOT / "bench" / "paced_module.py", "--parameters", 25_000_000, "--steps", 100_000]
            self.crowdsurf(state, "--workers", 3, "--duration", "40s" if self.short else "90s", "--preempt-every", "12s",
                           "--notice", "none", "--", "python3", *script)
            logs = sorted(path for path in state.glob("workers/*/trainer.log") if not path.parent.name.endswith("-1"))
            seconds = [float(figure) for path in logs for figure in re.findall(r"^join (\S+)$", path.read_text(), re.M)]
        return statistics.median(seconds), seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="+", choices=sorted(WANTED), default=sorted(WANTED))
    options = parser.parse_args()
    bench = Bench(options)
    parts = {"P1": bench.lines, "P2": bench.slowed, "P3": bench.accuracy, "P5": bench.joining}
    failed = False
    for name in options.only:
        before = os.getloadavg()[0]
        figure, each = parts[name]()
        must, aim = WANTED[name]
        judged = name == "P1" or before / os.cpu_count() <= BUSY
        word = "not judged: the machine is busy" if not judged else "ok" if figure <= must else "MISSED"
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
