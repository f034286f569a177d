#!/usr/bin/env python3
"""The trainer beside an agent that bench/state.py measures. It trains nothing: it has a pattern, and looks for it in what it gets.

Usage: state_trainer.py ELEMENTS    (CROWDSURF_DIR: the agent's)
Writes "ready SECONDS" when it may begin: the Unix time at which the job's state lay in the agent's memory, 0 where there was
none to get. A state that is not the pattern ends it. Then it makes steps without samples, and keeps no copy of the values. At a
line "train SAMPLES" it trains as many, and writes "trained" once an average has come.
"""
import select
import sys
import time

import numpy

from crowdsurf import Agent, Tensor

STEP = 0.01          # seconds
TILE = 1_000_000     # values; the pattern repeats them, each time by another factor


class Pattern:
    def __init__(self):
        self.tile = numpy.random.default_rng(1).standard_normal(TILE, numpy.float32)
        self.came = 0.0

    def parts(self, region):
        for number, first in enumerate(range(0, len(region), TILE)):
            part = region[first:first + TILE]
            yield part, self.tile[:len(part)] * numpy.float32(1 + number)

    def read(self, outbox):
        for part, values in self.parts(outbox):
            part[:] = values

    def add(self, inbox, outbox):
        """Two that are equal have themselves for their mean, to the bit."""

    def write(self, inbox):
        self.came = time.time()
        if not all(numpy.array_equal(part, values) for part, values in self.parts(inbox)):
            sys.exit("the state that came is another")


class Little:
    """A trainer's state: a donor waits for one before it answers."""

    def get(self):
        return b"state"

    def set(self, data):
        if data != b"state":
            raise ValueError("another state")


def main():
    pattern = Pattern()
    agent = Agent([Tensor("vector", (int(sys.argv[1]),))], state=Little())
    agent.start(pattern)
    print(f"ready {pattern.came!r}", flush=True)
    while True:
        told, _, _ = select.select([sys.stdin], [], [], STEP)
        if not told:
            agent.step(samples=0)
            continue
        _, samples = sys.stdin.readline().split()
        outcome = agent.step(samples=int(samples))
        while not outcome.applied:
            time.sleep(STEP)
            outcome = agent.step(samples=0)
        print("trained", flush=True)


if __name__ == "__main__":
    main()
