#!/usr/bin/env python3
"""Plants random faults in a room, one at a time, and lists those that no test of the room notices.

    ./dev mutate ROOM [--count N] [--seed S] [--again] [--json]

The faults are planted in a copy below build/mutate, never in the working tree. A run that was stopped goes on where it was.
"""
import argparse
import dataclasses
import fcntl
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutants  # noqa: E402  (beside this file)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The test programs that would notice a fault of a room, the quickest first: each is built only when those before it passed.
ROOMS = {
    "base": ("unit_base", "unit_base_edge"),
    "coordinator-free-dht/core": ("unit_dht_core",),
    "coordinator-free-dht/edge": ("unit_dht_edge",),
    "worker/core": ("unit_worker_core", "strategies_contract", "round_model", "paper", "simulator_tests"),
    "worker/edge": ("unit_worker_edge", "unit_trainer_link"),
    "worker/trainer": ("unit_trainer", "unit_trainer_link"),
    "operator/core": ("unit_operator_core",),
    "operator/edge": ("unit_operator_edge",),
    "simulator": ("simulator_tests", "paper"),
    "cli": ("unit_cli",),
}
# Tests that need a process of their own, as in tests/CMakeLists.txt: a signal to the process would end the others.
APART = {"unit_worker_edge": "ExternalEventsTest.*"}
MEMORY = 16 << 30      # of address space: a fault may fill memory for ever
FILE_BYTES = 2 << 30
NOTICED, SURVIVED, NOT_COMPILED = "noticed", "survived", "did not compile"


@dataclasses.dataclass(frozen=True)
class Verdict:
    outcome: str
    by: str = ""


def programs_of(room):
    """The programs of the room that holds `room`, or of the rooms that it holds."""
    for name in sorted(ROOMS, key=len, reverse=True):
        if room == name or room.startswith(name + "/"):
            return ROOMS[name]
    return tuple(program for name, programs in ROOMS.items() if name.startswith(room + "/") for program in programs)


def sequence(found, seed):
    """All mutants in the order in which they are planted: the kinds take turns, since some have far more places."""
    rng = random.Random(seed)
    piles = []
    for kind in mutants.KINDS:
        pile = [mutant for mutant in found if mutant.kind == kind]
        rng.shuffle(pile)
        piles.append(pile)
    out = []
    while any(piles):
        out += [pile.pop() for pile in piles if pile]
    return out


class Journal:
    """The verdicts of a run, a line each, so that a run that was stopped goes on."""

    def __init__(self, path):
        self.path, self.verdicts = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                    self.verdicts[entry["id"]] = Verdict(entry["outcome"], entry["by"])
                except (ValueError, KeyError):
                    pass  # the line that was being written at the stop

    def add(self, mutant, verdict):
        self.verdicts[mutant.id] = verdict
        with self.path.open("a") as out:
            out.write(json.dumps({"id": mutant.id, "outcome": verdict.outcome, "by": verdict.by}) + "\n")


class Workbench:
    """A copy of the tree with a build folder of its own, without unity: a fault in a .cc file costs one file."""

    def __init__(self, folder, programs, jobs):
        self.tree, self.build, self.programs, self.jobs = folder / "tree", folder / "build", programs, jobs
        self.limits = {}

    def sync(self, root=ROOT):
        """Makes the copy equal to the working tree as git sees it; files that are equal keep their times."""
        names = subprocess.run(["git", "-C", root, "ls-files", "-z", "-c", "-o", "--exclude-standard"], check=True,
                               capture_output=True, text=True).stdout.split("\0")
        wanted = {name for name in names if name and ((root / name).exists() or (root / name).is_symlink())}
        for name in wanted:
            source, copy = root / name, self.tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                copy.unlink(missing_ok=True)
                copy.symlink_to(os.readlink(source))
            elif not source.is_file():
                continue
            elif not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copyfile(source, copy)
                shutil.copymode(source, copy)
        for copy in list(self.tree.rglob("*")):
            if (copy.is_file() or copy.is_symlink()) and str(copy.relative_to(self.tree)) not in wanted:
                copy.unlink()

    def prepare(self):
        """Configures, builds and runs the tests without a fault; they have to pass. Their time sets the limits."""
        self._run(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                   "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCROWDSURF_UNITY=OFF"], "cmake")
        self._run(["ninja", "-C", self.build, "-j", str(self.jobs), *self.programs], "the build")
        for program in self.programs:
            begun = time.monotonic()
            noticed = self._test(program, None)
            if noticed:
                sys.exit(f"mutate: without a fault, {program} fails: {noticed}")
            self.limits[program] = 30 + 5 * (time.monotonic() - begun)

    def judge(self, mutant):
        path = self.tree / mutant.file
        original = path.read_text()
        try:
            path.write_text(mutant.plant(original))
            for program in self.programs:
                built = subprocess.run(["ninja", "-C", self.build, "-j", str(self.jobs), program],
                                       capture_output=True, check=False, env=self._environment())
                if built.returncode != 0:
                    return Verdict(NOT_COMPILED)
                if noticed := self._test(program, self.limits[program]):
                    return Verdict(NOTICED, f"{program} {noticed}")
            return Verdict(SURVIVED)
        finally:
            path.write_text(original)

    def _environment(self):
        # The compiler cache sees the same paths wherever the copy lies.
        return dict(os.environ, CCACHE_BASEDIR=str(self.tree.parent), CCACHE_NOHASHDIR="1",
                    CCACHE_SLOPPINESS="include_file_ctime,include_file_mtime,pch_defines,time_macros")

    def _run(self, command, name):
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment())
        if result.returncode != 0:
            sys.exit(f"{(result.stdout + result.stderr)[-4000:]}\nmutate: {name} failed without a fault")

    def _test(self, program, limit):
        """The test that fails first, or "" when all pass."""
        parts = (f"-{APART[program]}", APART[program]) if program in APART else ("*",)
        for chosen in parts:
            if noticed := self._test_part(program, chosen, limit):
                return noticed
        return ""

    def _test_part(self, program, chosen, limit):
        def bound():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with tempfile.TemporaryDirectory(prefix="mutate-") as scratch, tempfile.TemporaryFile() as log:
            child = subprocess.Popen([self.build / "bin" / program, "--gtest_fail_fast", "--gtest_color=no",
                                      f"--gtest_filter={chosen}"], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=log,
                                     stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=bound,
                                     env=dict(os.environ, TMPDIR=scratch))
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:  # what it started goes, too
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
            log.seek(0)
            return "" if code == 0 else first_failure(log.read().decode(errors="replace"), code)


def first_failure(log, code):
    failed = re.search(r"^\[  FAILED  \] (\S+?),? ", log.replace("\n", " \n"), re.MULTILINE)
    if failed and code == 1:
        return failed.group(1)
    running = re.findall(r"^\[ RUN      \] (\S+)", log, re.MULTILINE)
    return f"{running[-1] if running else 'at its start'} ({'hangs' if code is None else f'exit {code}'})"


def line_of(mutant, verdict):
    def short(text):
        text = " ".join(text.split())
        return text if len(text) <= 70 else text[:67] + "..."
    if mutant.kind == "statement":
        change = f"deleted `{short(mutant.before)}`"
    elif mutant.after.startswith("!("):
        change = f"negated `{short(mutant.before)}`"
    else:
        change = f"`{short(mutant.before)}` became `{mutant.after}`"
    outcome = {NOTICED: f"noticed by {verdict.by}", SURVIVED: "SURVIVED", NOT_COMPILED: NOT_COMPILED}[verdict.outcome]
    return f"{mutant.file}:{mutant.line}: {change}: {outcome}"


def run(planned, count, journal, judge, report, again=False):
    """Judges mutants of `planned` until `count` of them compiled. Those in the journal are not judged a second time, but
    survivors are when `again` is set. Returns (mutant, verdict) of each."""
    results, compiled = [], 0
    for mutant in planned:
        if compiled == count:
            break
        verdict = journal.verdicts.get(mutant.id)
        if verdict is None or again and verdict.outcome == SURVIVED:
            verdict = judge(mutant)
            journal.add(mutant, verdict)
        results.append((mutant, verdict))
        compiled += verdict.outcome != NOT_COMPILED
        report(line_of(mutant, verdict))
    return results


def summary(room, seed, results):
    outcomes = [verdict.outcome for _, verdict in results]
    compiled = len(outcomes) - outcomes.count(NOT_COMPILED)
    return {"room": room, "seed": seed, "compiled": compiled, "not_compiled": outcomes.count(NOT_COMPILED),
            "noticed": outcomes.count(NOTICED), "survived": outcomes.count(SURVIVED),
            "share_noticed": round(outcomes.count(NOTICED) / compiled, 4) if compiled else None,
            "mutants": [{"file": mutant.file, "line": mutant.line, "kind": mutant.kind, "before": mutant.before,
                         "after": mutant.after, "outcome": verdict.outcome, "by": verdict.by} for mutant, verdict in results]}


def find_all(root, room):
    out = []
    for path in sorted((root / room).rglob("*")):
        if path.suffix in (".cc", ".h"):
            out += mutants.find(str(path.relative_to(root)), path.read_text())
    return out


def main():
    parser = argparse.ArgumentParser(prog="./dev mutate", description="Plants random faults in a room and lists those "
                                     "that no test of the room notices.")
    parser.add_argument("room", metavar="ROOM", help=f"{', '.join(ROOMS)}, or a folder in one of them")
    parser.add_argument("--count", type=int, default=40, metavar="N", help="faults that compile (40)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="which faults (random; printed)")
    parser.add_argument("--again", action="store_true", help="judge the survivors of an earlier run with this seed again")
    parser.add_argument("--json", action="store_true", help="print one JSON object; the lines go to stderr")
    arguments = parser.parse_args()
    room = arguments.room.strip("/")
    programs = programs_of(room)
    if not programs or not (ROOT / room).is_dir():
        parser.error(f"no room {room}; the rooms are {', '.join(ROOMS)}")
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    report = lambda line: print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)  # noqa: E731
    report(f"seed {seed}: ./dev mutate {room} --seed {seed} --count {arguments.count} repeats this run or goes on with it")

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    name = next((key for key in sorted(ROOMS, key=len, reverse=True) if (room + "/").startswith(key + "/")), room)
    folder = ROOT / "build" / "mutate" / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"mutate: another run works in {folder.relative_to(ROOT)}")
        bench = Workbench(folder, programs, os.environ.get("CROWDSURF_JOBS") or os.cpu_count())
        bench.sync()
        bench.prepare()
        found = find_all(bench.tree, room)
        report(f"{len(found)} places; tests: {', '.join(programs)}")
        journal = Journal(folder / f"{room.replace('/', '-')}-{seed}.jsonl")
        results = run(sequence(found, seed), arguments.count, journal, bench.judge, report, arguments.again)
    outcome = summary(room, seed, results)
    share = "none compiled" if outcome["share_noticed"] is None else f"{outcome['share_noticed']:.1%}"
    report(f"{room}, seed {seed}: {outcome['compiled']} faults compiled ({outcome['not_compiled']} more did not), "
           f"{outcome['noticed']} noticed, {outcome['survived']} survived: {share}")
    if arguments.json:
        print(json.dumps(outcome, indent=1))


if __name__ == "__main__":
    main()
