#!/usr/bin/env python3
"""How long agents take to average a vector of float32, and what it costs them, beside gloo, hivemind, iperf3 and a TLS mesh.

Usage: averaging.py BIN [--json] [--short | --long | --cycles N] [--only PART ...] [--megabytes N] [--beside PROGRAM]
(in the namespace of averaging.sh)
Each process is in a network namespace of its own. Within a part the contestants take turns, in another order each cycle; the
first cycles are dropped. gloo and the meshes are stopped while others have their turns. A turn lasts from the last published
outbox to the last average, and for anchors from the last call to the last return. Rows are medians over cycles, of ratios within
a cycle. A row is judged where other programs used less than 5 % of the processors during its turns, and where the processors
were as near to each other as their kernel says (cores.py): a turn in which they went apart is repeated. Vectors have 100 MB, but
in `small`.

m4       A1.m4: speed over gloo's faster algorithm, plain. A1.trainer: the same in the trainers' view, copies in and out
         included. A2: share of the speed of iperf3 --bidir. A5.m4: Int8 over float32. B1: bytes sent over the least that an
         all-reduce sends. C1.raw: CPU-seconds over those of gloo
m8       A1.m8, A5.m8: eight agents
small    A9: 1 MB, plain, time over that of gloo's faster algorithm
tls      A4: share of the speed at which the same TLS streams move as many bytes, one piece of 128 KiB again and again.
         A4.vector: the same where they come from memory and go there. B1.tls. C1.tls: CPU-seconds over those of
         gloo, which does not encrypt. M1: largest anonymous memory of an agent over the vector
fp32     A6.fp32, A6.trainer: speed over hivemind 1.1.12, both encrypt; matchmaking is not in it
int8     A6.int8: the same, both with 8 bits
long     only where it is named: 40 and 80 ms of round trip, plain and in TLS. Nobody else takes part but --beside
step     steps that sleep 100 ms, 25 M parameters, an averaging every 50: by how much they are slowed
Also PART.NAME.seconds, .cpu_per_gb, .cpu_per_gb_after (what goes on after a turn) of each contestant, and of agents .wrong: averages
that lacked a member that was slow, of turns that were repeated. And .busiest_per_gb: CPU-seconds of an agent's busiest thread for
each GB that it sends, which is its bound where it has processors enough. --beside lets agents of
another build take turns in m4, m8, tls and long: PART.beside is the speed of ours over theirs.
"""
import argparse
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import arguments
from averaging_parts import Part
from contestants import Foreign
from cores import Cores
from namespaces import ip
from rows import Rows, Wanted

WARM_UP = 2
PATIENCE, PATIENCE_SHORT = 600, 60   # seconds that all parts together wait for processors that are near to each other
MEGABYTE = 250_000   # values
WANTED = {
    "A1.m4": Wanted(.85, 1), "A1.m8": Wanted(.85, 1), "A2": Wanted(.8, .92), "A4": Wanted(.8, .88),
    "A5.m4": Wanted(1.3, 1.7), "A5.m8": Wanted(1.6, 2.1), "A6.fp32": Wanted(5, 6.5), "A6.int8": Wanted(10, 14),
    "A9": Wanted(.8, .5, "below"), "B1": Wanted(1.003, 1.001, "below"), "B1.tls": Wanted(1.005, 1.002, "below"),
    "C1.raw": Wanted(1.3, 1, "below"), "C1.tls": Wanted(3, 2.3, "below"), "M1": Wanted(.25, .15, "below"),
    "step": Wanted(.03, .01, "below"),
}


class Bench:
    def __init__(self, options, rows, folder, cores):
        self.options, self.rows, self.folder = options, rows, folder
        self.cores, self.cycles = cores, arguments.cycles(options)

    def part(self, name, size, measured, megabytes=None, times=1, delay=0):
        """`measured(part)`: adds the contestants and returns what is to be done when they have had their turns."""
        part = Part(self.folder / name, self.options.bin, self.cores, size, MEGABYTE * (megabytes or self.options.megabytes), delay)
        try:
            after = measured(part)
            part.measure(min(WARM_UP, self.cycles), times * self.cycles)
            after()
            part.tell(self.rows, name)
        finally:
            part.close()

    def beside(self, part, tls):
        if self.options.beside:
            part.agents("beside", tls, program=self.options.beside)

    def m4(self):
        def measured(part):
            part.agents("agents", tls=False)
            part.trainers()
            part.agents("int8", tls=False, compression="Int8")
            self.beside(part, tls=False)
            part.gloo()
            part.wire()
            return lambda: told(part)

        def told(part):
            rows, gloo = self.rows, part.faster_gloo()
            part.speed(rows, "A1.m4", "agents", gloo)
            part.speed(rows, "A1.trainer", "trainers", gloo)
            part.speed(rows, "A2", "agents", "iperf3")
            part.speed(rows, "A5.m4", "int8", "agents")
            part.bytes(rows, "B1", "agents")
            part.cpu(rows, "C1.raw", "agents", gloo)
            if self.options.beside:
                part.speed(rows, "m4.beside", "agents", "beside")
        self.part("m4", 4, measured)

    def m8(self):
        def measured(part):
            part.agents("agents", tls=False)
            part.agents("int8", tls=False, compression="Int8")
            self.beside(part, tls=False)
            part.gloo()
            return lambda: told(part)

        def told(part):
            part.speed(self.rows, "A1.m8", "agents", part.faster_gloo())
            part.speed(self.rows, "A5.m8", "int8", "agents")
            if self.options.beside:
                part.speed(self.rows, "m8.beside", "agents", "beside")
        self.part("m8", 8, measured)

    def small(self):
        def measured(part):
            part.agents("agents", tls=False)
            part.gloo()
            return lambda: part.speed(self.rows, "A9", part.faster_gloo(), "agents")
        self.part("small", 4, measured, megabytes=1, times=3)

    def tls(self):
        def measured(part):
            part.agents("agents", tls=True)
            part.contestants["agents"].watched = True
            self.beside(part, tls=True)
            part.gloo()
            part.tls_mesh()
            part.tls_mesh("tls_mesh_vector", "vector")
            return lambda: told(part)

        def told(part):
            rows, agents = self.rows, part.contestants["agents"]
            part.speed(rows, "A4", "agents", "tls_mesh")
            part.speed(rows, "A4.vector", "agents", "tls_mesh_vector")
            part.bytes(rows, "B1.tls", "agents")
            part.cpu(rows, "C1.tls", "agents", part.faster_gloo())
            rows.give("M1", [agents.peak / (4 * part.elements)], Foreign.share([agents.foreign]))
            if self.options.beside:
                part.speed(rows, "tls.beside", "agents", "beside")
        self.part("tls", 4, measured)

    def fp32(self):
        def measured(part):
            part.agents("agents", tls=True)
            part.trainers()
            part.hivemind("none")
            return lambda: (part.speed(self.rows, "A6.fp32", "agents", "hivemind"),
                            part.speed(self.rows, "A6.trainer", "trainers", "hivemind"))
        self.part("fp32", 4, measured)

    def int8(self):
        def measured(part):
            part.agents("agents", tls=True, compression="Int8")
            part.hivemind("int8")
            return lambda: part.speed(self.rows, "A6.int8", "agents", "hivemind")
        self.part("int8", 4, measured)

    def long(self):
        for delay in (20, 40):
            for tls in (False, True):
                name = f"long{2 * delay}{'.tls' if tls else ''}"

                def measured(part):
                    part.agents("agents", tls)
                    self.beside(part, tls)
                    return lambda: self.options.beside and part.speed(self.rows, f"{name}.beside", "agents", "beside")
                self.part(name, 4, measured, delay=delay)

    def step(self):
        import pytorch
        short = self.options.short or self.cycles < 10
        foreign = Foreign()
        foreign.begin()
        slowed, each = pytorch.Bench(argparse.Namespace(bin=self.options.bin, short=short)).slowed(25_000_000)
        foreign.end()
        self.rows.give("step", each, Foreign.share([foreign]), figure=slowed)


PARTS = {"m4": Bench.m4, "m8": Bench.m8, "small": Bench.small, "tls": Bench.tls, "fp32": Bench.fp32, "int8": Bench.int8,
         "long": Bench.long, "step": Bench.step}
USUAL = [part for part in PARTS if part != "long"]


def main():
    parser = arguments.with_cycles(__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="of the vector, but in small")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=USUAL)
    parser.add_argument("--beside", type=pathlib.Path, metavar="PROGRAM", help="a crowdsurf-worker of another build, to compare with")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was made is taken away
    failed, rows, folder = False, Rows(WANTED, options.json), pathlib.Path(tempfile.mkdtemp(prefix="crowdsurf-bench-"))
    ip("link", "set", "lo", "up")
    cores = Cores(options.bin, PATIENCE_SHORT if options.short else PATIENCE)
    try:
        bench = Bench(options, rows, folder, cores)
        for name in options.only:
            try:
                PARTS[name](bench)
            except (SystemExit, RuntimeError, OSError, subprocess.SubprocessError) as error:
                failed = True
                print(f"bench averaging: {name} has failed: {error}", file=sys.stderr, flush=True)
    finally:
        cores.close()
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(rows.json())
    return 1 if failed or rows.missed() else 0


if __name__ == "__main__":
    sys.exit(main())
