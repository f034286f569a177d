#!/usr/bin/env python3
"""How fast a joiner gets 1 GB of state from three donors, and how much of it is sent twice when a donor is killed on the way.

Usage: state.py BIN [--json] [--short | --long | --cycles N] [--megabytes N] [--only PART ...]    (in the namespace of state.sh)
Four agents have a network namespace each. Each cycle one of them joins, and gets the state from the other three; then the one
that has been there for the longest is killed, and joins in the next cycle. The first cycles are dropped. A join lasts from the
agent's word that it fetches the state to the trainer's look at it (every 10 ms). A row is judged where other programs used less
than 5 % of the processors during its joins. Links take twelve times the state of memory.

plain    S1.plain: GB/s, median, without TLS
tls      S1.tls: the same with TLS
resent   S1.resent: without TLS, a donor is killed when the joiner has 40 % of the bytes; MiB of TCP payload that reach the joiner
         before it is in the view, beyond the least that plain joins have. The greater of two medians: of the oldest donor, which
         the others follow, and of the youngest (resent.oldest, .youngest). resent.fetches: how often the state was asked for
"""
import datetime
import pathlib
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time

import arguments
from bench_agents import Job
from contestants import PATIENCE, Foreign
from namespaces import Network, ip
from rows import Rows, Wanted

SEATS = 4
WARM_UP = 1
SAMPLES = 1000   # of an averaging
KILLED_AT = .4   # of the bytes
WANTED = {"S1.plain": Wanted(2, 3), "S1.tls": Wanted(.5, .9), "S1.resent": Wanted(1, 1, "below")}


class Seat:
    """An agent and its trainer in namespace `rank`."""

    def __init__(self, job, rank, seeds, elements, log):
        self.job, self.rank, self.log = job, rank, log
        with log.open("w") as out:
            self.agent = job.start_agent(rank, seeds, log=out, level="info")
        self.trainer = job.start_trainer(rank, "state_trainer.py", elements)
        self.pids = [self.agent.pid, self.trainer.process.pid]

    def fetches(self):
        """(Unix time, donors) of each that has begun."""
        told = re.findall(r"^(\S+) info state fetching state .*donors=(\d+)", self.log.read_text(), re.M)
        return [(datetime.datetime.fromisoformat(time).timestamp(), int(donors)) for time, donors in told]

    def came(self):
        """Seconds of the first fetch; None: there was nothing to get. Waits until the trainer may begin."""
        word, came = self.trainer.hear()
        if word != "ready":
            sys.exit("a trainer said something else than ready")
        fetches = self.fetches()
        return float(came) - fetches[0][0] if fetches else None

    def kill(self):
        self.agent.kill()
        self.agent.wait()
        self.trainer.close()


class Swarm:
    """Three donors, oldest first, and a free seat."""

    def __init__(self, bench, folder, tls):
        self.bench, self.folder = bench, folder
        self.network = Network(SEATS)
        averaging = {"strategy": "Moshpit", "groupSize": SEATS, "interval": {"samples": SAMPLES}, "weighting": "Equal",
                     "compression": "None"}
        self.job = Job(self.network, folder, bench.binaries / "crowdsurf-worker", averaging, tls=tls)
        self.donors, self.foreign = [], Foreign()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for donor in self.donors:
            donor.kill()
        self.job.close()
        self.network.close()

    def start(self):
        for rank in range(SEATS - 1):
            self.sit(rank)
            self.donors[-1].came()
            self.meet()
            if rank == 1:
                self.average()

    def average(self):
        """So that the state is an average of the job, as joiners get it, and no longer its first parameters."""
        for donor in self.donors:
            donor.trainer.tell(f"train {SAMPLES}")
        for donor in self.donors:
            donor.trainer.hear()

    def sit(self, rank):
        seeds = [donor.rank for donor in self.donors]
        self.donors.append(Seat(self.job, rank, seeds, self.bench.elements, self.folder / f"log{rank}"))

    def meet(self):
        """Until all are in one view."""
        deadline = time.monotonic() + PATIENCE
        while any(self.job.members(donor.rank) != len(self.donors) for donor in self.donors):
            if time.monotonic() > deadline:
                sys.exit("the agents do not find each other")
            time.sleep(.05)   # the agents tell nobody

    def free_seat(self):
        (rank,) = set(range(SEATS)) - {donor.rank for donor in self.donors}
        return rank

    def join(self, killed=None):
        """The seat of a joiner, with its `seconds` and the `payload` that reached it. `killed`: the donor that dies on the way;
        None: the oldest dies afterwards."""
        rank = self.free_seat()
        received = self.network.received_payload(rank)
        self.foreign.pids = [pid for donor in self.donors for pid in donor.pids]
        self.foreign.begin()
        self.sit(rank)
        joiner, oldest = self.donors[-1], self.donors[0]
        if killed is not None:
            while self.network.received_payload(rank) - received < KILLED_AT * self.bench.bytes:
                time.sleep(.001)
            self.drop(killed)
        joiner.seconds = joiner.came()
        if joiner.seconds is None or joiner.fetches()[0][1] != SEATS - 1:
            sys.exit("the joiner was not sent to all donors")
        self.meet()
        self.foreign.pids = [pid for donor in self.donors for pid in donor.pids]
        self.foreign.end()
        joiner.payload = self.network.received_payload(rank) - received
        if killed is None:
            self.drop(oldest)
            self.meet()
        return joiner

    def drop(self, seat):
        self.donors.remove(seat)
        seat.kill()


class Bench:
    def __init__(self, options, rows, folder):
        self.rows, self.folder, self.binaries = rows, folder, options.bin
        self.elements = options.megabytes * 250_000
        self.bytes = 4 * self.elements
        self.cycles = arguments.cycles(options)

    def joins(self, swarm, killed=lambda donors: None):
        """The joiners of each cycle, and what others used of the processors."""
        swarm.foreign, joiners = Foreign(), []
        for cycle in range(self.cycles + WARM_UP):
            if cycle == WARM_UP:
                swarm.foreign, joiners = Foreign(), []
            joiner = swarm.join(killed(swarm.donors))
            joiners.append(joiner)
            print(f"join {cycle - WARM_UP + 1:3}  {joiner.seconds:.3f} s, {joiner.payload} bytes", file=sys.stderr, flush=True)
        return joiners, Foreign.share([swarm.foreign])

    def rate(self, row, joiners, foreign):
        self.rows.give(row, [self.bytes * 1e-9 / joiner.seconds for joiner in joiners], foreign)

    def tls(self):
        with Swarm(self, self.folder / "tls", tls=True) as swarm:
            swarm.start()
            self.rate("S1.tls", *self.joins(swarm))

    def plain(self, resent):
        with Swarm(self, self.folder / "plain", tls=False) as swarm:
            swarm.start()
            joiners, foreign = self.joins(swarm)
            self.rate("S1.plain", joiners, foreign)
            if resent:
                self.resent(swarm, min(joiner.payload for joiner in joiners))

    def resent(self, swarm, least):
        mebibytes, fetches, others = {}, [], []
        for name, killed in (("oldest", lambda donors: donors[0]), ("youngest", lambda donors: donors[-1])):
            joiners, foreign = self.joins(swarm, killed)
            mebibytes[name] = [(joiner.payload - least) / 2**20 for joiner in joiners]
            self.rows.give(f"resent.{name}", mebibytes[name], foreign)
            fetches += [len(joiner.fetches()) for joiner in joiners]
            others.append(foreign)
        self.rows.give("S1.resent", max(mebibytes.values(), key=statistics.median), max(others))
        self.rows.give("resent.fetches", fetches, max(others), figure=statistics.mean(fetches))


def main():
    parser = arguments.with_cycles(__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="of state")
    parser.add_argument("--only", nargs="+", choices=["plain", "tls", "resent"], default=["plain", "tls", "resent"],
                        help="resent needs plain, and brings it along")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was made is taken away
    rows, folder = Rows(WANTED, options.json), pathlib.Path(tempfile.mkdtemp(prefix="crowdsurf-bench-"))
    ip("link", "set", "lo", "up")
    try:
        bench = Bench(options, rows, folder)
        if {"plain", "resent"} & set(options.only):
            bench.plain("resent" in options.only)
        if "tls" in options.only:
            bench.tls()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(rows.json())
    return 1 if rows.missed() else 0


if __name__ == "__main__":
    sys.exit(main())
