"""The parts of averaging.py: who takes turns with whom, and which rows come of it."""
import os
import pathlib
import signal
import statistics
import sys
import time

import hivemind_venv
from bench_agents import Agents, Job, TrainersView
from contestants import Contestant, Foreign, Player, Wire
from namespaces import Network

HERE = pathlib.Path(__file__).resolve().parent
EXACT, ROUNDED = 1e-5, .05   # of an average, beside the largest value
ALGORITHMS = ("ring", "halving_doubling")


class Preparing(Contestant):
    """Players that find each other before a turn, which is no part of it."""

    def prepare(self):
        self.ask("prepare")


class Stopped(Contestant):
    """Players that are stopped while others have their turns. gloo's threads wake up all the time, and took 1 to 2 % of the
    processors from agents, which run 7 % faster without them, and from a mesh, which runs 2 % faster."""

    def signal(self, number):
        for player in self.players:
            os.killpg(player.process.pid, number)

    def await_ready(self):
        super().await_ready()
        self.signal(signal.SIGSTOP)

    def prepare(self):
        self.signal(signal.SIGCONT)
        super().prepare()

    def rest(self):
        self.signal(signal.SIGCONT)
        super().rest()
        self.signal(signal.SIGSTOP)


class Part:
    """`size` processes of each contestant, each in a namespace of its own. The contestants take turns."""

    def __init__(self, folder, binaries, cores, size, elements, delay=0):
        self.folder, self.binaries, self.cores, self.size, self.elements = folder, binaries, cores, size, elements
        self.folder.mkdir()
        self.network, self.contestants = Network(size, delay), {}

    @property
    def ideal(self):
        """Bytes that all processes together send at least in an all-reduce."""
        return 2 * (self.size - 1) * 4 * self.elements

    def close(self):
        # What is left if the bench is killed: every process is bound to it, and every namespace to its processes.
        for contestant in self.contestants.values():
            contestant.close()
        self.network.close()

    # ---- who takes part ----

    def agents(self, name, tls, compression="None", program=None):
        shift = 10 * len(self.contestants)
        job = Job(self.network, self.folder / name, program or self.binaries / "crowdsurf-worker",
                  Agents.averaging(self.size, compression), tls=tls, shift=shift)
        self.contestants[name] = Agents(job, self.elements, ROUNDED if compression == "Int8" else EXACT)

    def trainers(self):
        self.contestants["trainers"] = TrainersView(self.contestants["agents"])

    def anchor(self, name, command, kind=Stopped, environment=None):
        """`command(rank)`."""
        self.contestants[name] = kind([Player(self.network, rank, command(rank), environment) for rank in range(self.size)])

    def gloo(self, algorithms=ALGORITHMS):
        for algorithm in algorithms:
            meeting = self.meeting(algorithm)
            self.anchor(f"gloo_{algorithm}", lambda rank: [self.binaries / "bench_gloo", rank, self.size, self.elements, meeting,
                                                           self.network.hosts[rank], algorithm])

    def tls_mesh(self, name="tls_mesh", memory="piece"):
        each = self.ideal // self.size // (self.size - 1)
        self.anchor(name, lambda rank: [self.binaries / "bench_tls_mesh", memory, rank, self.size, each,
                                        self.folder / f"agents/agent{rank}", *self.network.hosts])

    def hivemind(self, compression):
        meeting = self.meeting("hivemind")
        self.anchor("hivemind", lambda rank: [hivemind_venv.PYTHON, HERE / "anchors/hivemind_average.py", rank, self.size,
                                              self.elements, meeting, self.network.hosts[rank], compression],
                    Preparing, hivemind_venv.ENVIRONMENT)

    def wire(self):
        self.contestants["iperf3"] = Wire(self.network, self.ideal)

    def meeting(self, name):
        folder = self.folder / f"meeting_{name}"
        folder.mkdir()
        return folder

    # ---- turns and rows ----

    def measure(self, warm_up, cycles):
        contestants, names = self.contestants, list(self.contestants)
        for contestant in contestants.values():
            contestant.await_ready()
        family = {self.cores.process.pid, *(pid for contestant in contestants.values() for pid in contestant.pids())}
        for contestant in contestants.values():
            contestant.foreign = Foreign(family)
            contestant.rest()
        for cycle in range(warm_up + cycles):
            if cycle == warm_up:
                for contestant in contestants.values():
                    contestant.forget(warm_up)
            for name in names[cycle % len(names):] + names[:cycle % len(names)]:
                self.take_turn(contestants[name])
            print(f"cycle {cycle - warm_up + 1:3}  " + "  ".join(f"{name} {contestants[name].seconds[-1]:.4f}" for name in names),
                  file=sys.stderr, flush=True)

    def take_turn(self, contestant):
        """Once more where the processors went apart, while there is patience."""
        while True:
            self.cores.await_near()
            began = time.monotonic()
            contestant.prepare()
            contestant.run()
            near = self.cores.near_since(began)
            contestant.settle()
            for other in self.contestants.values():
                other.rest()
            if near:
                return
            if self.cores.patience <= 0:
                contestant.apart += 1
                return
            contestant.drop()
            self.cores.lose_turn()

    def faster_gloo(self):
        """Its name: the one with the lower median."""
        present = [f"gloo_{algorithm}" for algorithm in ALGORITHMS if f"gloo_{algorithm}" in self.contestants]
        return min(present, key=lambda name: statistics.median(self.contestants[name].seconds))

    def speed(self, rows, row, one, other):
        """How much faster `one` is than `other`; ratios are of the same cycle."""
        one, other = self.contestants[one], self.contestants[other]
        rows.give(row, [b / a for a, b in zip(one.seconds, other.seconds)], Foreign.share([one.foreign, other.foreign]),
                  apart=max(one.apart, other.apart))

    def cpu(self, rows, row, one, other):
        """CPU-seconds of all turns of `one` over those of `other`."""
        one, other = self.contestants[one], self.contestants[other]
        rows.give(row, [a / b for a, b in zip(one.cpu, other.cpu)], Foreign.share([one.foreign, other.foreign]),
                  figure=sum(one.cpu) / sum(other.cpu), apart=max(one.apart, other.apart))

    def bytes(self, rows, row, name):
        agents = self.contestants[name]
        rows.give(row, [sent / self.ideal for sent in agents.sent], Foreign.share([agents.foreign]))

    def tell(self, rows, part):
        """What each contestant took. GB are what an all-reduce sends at least."""
        for name, contestant in self.contestants.items():
            share, gigabytes = Foreign.share([contestant.foreign]), self.ideal * 1e-9
            apart = contestant.apart
            rows.give(f"{part}.{name}.seconds", contestant.seconds, share, apart=apart)
            rows.give(f"{part}.{name}.cpu_per_gb", [cpu / gigabytes for cpu in contestant.cpu], share, apart=apart)
            if isinstance(contestant, Agents):
                rows.give(f"{part}.{name}.wrong", [contestant.wrong], share)
                of_one = gigabytes / self.size
                rows.give(f"{part}.{name}.busiest_per_gb", [cpu / of_one for cpu in contestant.busiest], share, apart=apart)
            if contestant.after:
                rows.give(f"{part}.{name}.cpu_per_gb_after", [cpu / gigabytes for cpu in contestant.after], share)
