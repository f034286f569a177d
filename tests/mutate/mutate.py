#!/usr/bin/env python3
"""Plants random faults in a room, one at a time, and lists those that no test of the room notices.

    ./dev mutate ROOM [--count N] [--seed S] [--again] [--json]

The faults are planted in a copy below build/mutate, never in the working tree. A run that was stopped goes on where it was.
"""
import argparse
import concurrent.futures
import fcntl
import json
import os
import pathlib
import queue
import random
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutants  # noqa: E402  (beside this file)
from workbench import NOT_COMPILED, NOTICED, ROOT, SURVIVED, FailedWithoutFault, Verdict, Workbench  # noqa: E402

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
BENCHES = 4            # at most, each a copy of the tree: one fault leaves most of a large machine idle


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


def run(planned, count, journal, benches, report, again=False):
    """Judges mutants of `planned` until `count` of them compiled, one at a time on each bench. Those in the journal are not
    judged a second time, but survivors are when `again` is set. Returns (mutant, verdict) of each, in the order of
    `planned`. How many benches there are changes neither which are judged nor their order."""
    free = queue.SimpleQueue()
    for bench in benches:
        free.put(bench)

    def judge(mutant):
        bench = free.get()
        try:
            return bench.judge(mutant)
        finally:
            free.put(bench)

    planned = iter(planned)
    begun, reported, compiled, running = [], 0, 0, {}  # begun: [mutant, its verdict or None]; running: future -> the same
    with concurrent.futures.ThreadPoolExecutor(len(benches)) as pool:
        try:
            while True:
                # Those that run may all compile, so no more than `count` are ever judged.
                while compiled + len(running) < count and len(running) < len(benches) and (mutant := next(planned, None)):
                    verdict = journal.verdicts.get(mutant.id)
                    if verdict is None or again and verdict.outcome == SURVIVED:
                        begun.append([mutant, None])
                        running[pool.submit(judge, mutant)] = begun[-1]
                    else:
                        begun.append([mutant, verdict])
                        compiled += verdict.outcome != NOT_COMPILED
                while reported < len(begun) and begun[reported][1]:
                    report(line_of(*begun[reported]))
                    reported += 1
                if not running:
                    return [tuple(entry) for entry in begun]
                for future in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                    entry = running.pop(future)
                    entry[1] = future.result()
                    journal.add(*entry)
                    compiled += entry[1].outcome != NOT_COMPILED
        except BaseException:  # a signal, too: the pool waits for its threads
            for bench in benches:
                bench.stop()
            raise


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


def prepare(benches, jobs):
    """Makes every bench ready. The first one fills the compiler cache for the others, and its times are their limits."""
    for bench in benches:
        bench.sync()
        bench.prepare(jobs)
    limits = benches[0].time_tests()
    for bench in benches:
        bench.limits = limits


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

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    name = next((key for key in sorted(ROOMS, key=len, reverse=True) if (room + "/").startswith(key + "/")), room)
    folder = ROOT / "build" / "mutate" / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"mutate: another run works in {folder.relative_to(ROOT)}")
        jobs = int(os.environ.get("CROWDSURF_JOBS") or os.cpu_count())
        count = min(jobs, BENCHES)
        benches = [Workbench(folder / str(number), programs, jobs // count) for number in range(count)]
        try:
            prepare(benches, jobs)
        except FailedWithoutFault as failure:
            sys.exit(f"mutate: {failure}")
        found = find_all(benches[0].tree, room)
        report(f"{len(found)} places; tests: {', '.join(programs)}")
        journal = Journal(folder / f"{room.replace('/', '-')}-{seed}.jsonl")
        results = run(sequence(found, seed), arguments.count, journal, benches, report, arguments.again)
    outcome = summary(room, seed, results)
    share = "none compiled" if outcome["share_noticed"] is None else f"{outcome['share_noticed']:.1%}"
    report(f"{room}, seed {seed}: {outcome['compiled']} faults compiled ({outcome['not_compiled']} more did not), "
           f"{outcome['noticed']} noticed, {outcome['survived']} survived: {share}")
    if arguments.json:
        print(json.dumps(outcome, indent=1))


if __name__ == "__main__":
    main()
