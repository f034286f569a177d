"""Sixteen paced workers: each strategy on the network where docs/strategies says that it should win, beside an anchor there.

A part of strategies.py. The runs of a case have the same network, data, seed and time, and are compared at the same moment:
`--sixteen-seconds` after the job's first steps, coming together and coming back included, or as long as the shortest of them
ran. Losses are held out, the mean over the workers' own models in the last ten seconds before that moment. A case's first anchor is what its
ratio is of; a second one, where there is one, tells what of the win is the strategy's and what is the waiting's: `+waiting` is
an all-reduce as it is elsewhere (overlap: Blocking), `+delayed` ours, `+restarts` one that loses the whole job with a worker.
"""
import dataclasses
import statistics

WORKERS = 16
COMING = 15  # seconds that they have to come together in
BEYOND = 3  # seconds that a run goes on for, so that there is a look after the moment
LAST = 10  # seconds whose looks make a loss
KILLED = ["--notice", "none"]
# A small model, so that sixteen steps in 100 ms leave two cores the most of their time, and sixteen workers that send a model
# to two neighbours each step fit into 200 Mbit/s.
TEXT = "crowdsurf-trainer charlm --text TEXT --hidden 32 --evaluate-every 10 --step-time STEP"
STEADY = "['" + TEXT.replace(" ", "', '").replace("STEP", "100ms") + "']"
# One of the sixteen takes four times as long for a step.
ONE_SLOW = ("[sh, -c, 'case $CROWDSURF_WORKER in *-3-*) step=400ms;; *) step=100ms;; esac; exec "
            + TEXT.replace("STEP", "$step") + "']")
SORTED = ("[crowdsurf-trainer, mlp, --hidden, '32,32', --shards, '16', --optimizer, sgd, --momentum, '0', --clip, '0', --lr, "
          "'0.1', --evaluate-every, '20', --step-time, 50ms]")
BITS, NATS, POINTS = "heldout_bits_per_char", "heldout_loss", "heldout_accuracy"
EVERY = "interval: {steps: STEPS}"
WAITING = f"strategy: AllReduce, overlap: Blocking, {EVERY}"


@dataclasses.dataclass(frozen=True)
class Case:
    network: str
    trainer: str
    loss: str  # the trainer's metric
    steps: int  # between two averagings
    averaging: dict  # run: spec.averaging; the strategy, then its anchors
    flags: tuple = ()
    churn: bool = False  # workers are taken


CASES = {
    # Exact beside almost exact: the data differ as much as they can, and waiting for everybody costs little.
    "AllReduce": Case("loopback", SORTED, NATS, 5, {
        "AllReduce": WAITING,
        "GossipPairs": f"strategy: Gossip, {EVERY}, gossip: {{graph: Exponential, mode: Pairs}}",
        "AllReduce+delayed": f"strategy: AllReduce, {EVERY}"}),
    # A worker is lost every twelve seconds, as in the table of eight.
    "Moshpit": Case("shaped", STEADY, BITS, 5, {
        "Moshpit": f"strategy: Moshpit, groupSize: 4, {EVERY}",
        "AllReduce+restarts": f"strategy: AllReduce, {EVERY}",
        "AllReduce": f"strategy: AllReduce, {EVERY}"}, ("--preempt-every", "12s", *KILLED), churn=True),
    # Nobody waits for the slow one; an all-reduce as it is elsewhere does.
    "GossipPairs": Case("shaped", ONE_SLOW, BITS, 1, {
        "GossipPairs": f"strategy: Gossip, {EVERY}, gossip: {{graph: Exponential, mode: Pairs}}",
        "AllReduce+waiting": WAITING,
        "AllReduce+delayed": f"strategy: AllReduce, {EVERY}"}),
    # Each step is mixed, and no step waits for the network's 20 ms.
    "GossipNeighbours": Case("shaped", STEADY, BITS, 1, {
        "GossipNeighbours": f"strategy: Gossip, {EVERY}, gossip: {{graph: Ring, mode: Neighbours}}",
        "AllReduce+waiting": WAITING,
        "AllReduce+delayed": f"strategy: AllReduce, {EVERY}"}),
    # The links of one tree, data of other labels behind each.
    "RelaySum": Case("shaped", SORTED, NATS, 1, {
        "RelaySum": f"strategy: RelaySum, {EVERY}, relaySum: {{tree: BinaryTree}}",
        "GossipNeighbours": f"strategy: Gossip, {EVERY}, gossip: {{graph: BinaryTree, mode: Neighbours}}"}),
}
SHOWN = ("accuracy", "samples", "sent_mb", "rounds_failed", "stall", "goodput", "preemptions", "step_seconds", "seconds")


def run_case(bench, strategy, seconds):
    """Runs a case and gives its figures; the names of its runs that are not what they should be."""
    case = CASES[strategy]
    runs, bad = {}, []
    for name, averaging in case.averaging.items():
        flags = [*case.flags, *(["--preempt-count", "all"] if name.endswith("+restarts") else [])]
        runs[name] = bench.run(averaging.replace("STEPS", str(case.steps)), case.network, "--duration",
                               f"{seconds + BEYOND}s", "--seed", "1", *flags, workers=WORKERS, trainer=case.trainer,
                               watch="all")
    end = min([seconds, *(run["metrics"][-1][0] for run in runs.values() if run["metrics"])])
    for place, (name, run) in enumerate(runs.items()):
        key = f"sixteen.{strategy}" + ("" if place == 0 else f".{name}")
        problems = problems_of(run, case)
        bad += [f"{key}: {problem}" for problem in problems]
        values = figures(run, case, end)
        if problems:
            values["loss"] = values["accuracy"] = None
        bench.give(f"{key}.loss", values["loss"])
        for column in SHOWN:
            if column != "accuracy" or case.trainer == SORTED:
                bench.give(f"{key}.{column}", values[column])
        runs[name] = values
    own, anchor, *_ = [values["loss"] for values in runs.values()]
    bench.give(f"sixteen.{strategy}.anchor_loss", anchor)
    bench.give(f"sixteen.{strategy}.ratio", own / anchor if own is not None and anchor else None)
    return bad


def problems_of(run, case):
    """Why a run measures something else than it should; empty: it does not."""
    report = run["report"]
    if report is None:
        return [f"it left no report:\n{run['output']}"]
    problems = []
    if run["members"] != WORKERS or run["together"] is None:
        problems.append(f"at most {run['members']} of {WORKERS} were in one view at once")
    elif not case.churn and run["together"] > COMING:
        problems.append(f"they came together after {run['together']:.0f} s only")
    if not case.churn and run["views"] != 1:
        problems.append(f"the sixteen were in {run['views']} views one after the other")
    if report["outcome"] != "Succeeded":
        problems.append(f"it ended as {report['outcome']}")
    crashed = run["launched"] - WORKERS - report["preemptions"]
    if crashed > 0:
        problems.append(f"{crashed} workers were replaced that nobody had taken")
    if case.churn != (report["preemptions"] > 0):
        problems.append(f"{report['preemptions']} workers were taken")
    if report["rounds"]["hash_mismatches"]:
        problems.append(f"{report['rounds']['hash_mismatches']} members disagreed on a result")
    return problems


def figures(run, case, end):
    report = run["report"] or {"rounds": {}}
    rows = [told for t, told in run["metrics"] if end - LAST <= t <= end]
    sent = [b for t, b, _, _ in run["trajectory"] if t <= end]

    def mean(metric):
        found = [told[metric] for told in rows if metric in told]
        return statistics.mean(found) if found else None
    return {"loss": mean(case.loss), "accuracy": mean(POINTS), "samples": report.get("samples"),
            "sent_mb": sent[-1] / 1e6 if sent else None, "rounds_failed": report["rounds"].get("failed"),
            "stall": report.get("averaging_stall_ratio"), "goodput": report.get("goodput"),
            "preemptions": report.get("preemptions"), "step_seconds": run["step_seconds"], "seconds": end}
