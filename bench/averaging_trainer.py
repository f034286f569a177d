#!/usr/bin/env python3
"""The trainer beside an agent that bench/averaging.py measures. It trains nothing, and averages one vector when it is told to.

Usage: averaging_trainer.py RANK SIZE ELEMENTS SAMPLES    (CROWDSURF_DIR: the agent's; SAMPLES: the job's interval)
Writes "ready" once it has started. While no line comes it makes a step without samples every second: a trainer that makes none
loses its seat. A line "rest" makes it ready for the next turn, and write "rested". A line "go" makes it train SAMPLES, and step
until an average is there: it writes when its snapshot was published and when the average lay there (steady nanoseconds). At the
next line it adds the average, and writes how far that is from the mean of all, beside the largest value, or "inf" where none
came: the averaging was given up, perhaps here alone. "whole" is the same, but the times are those before the snapshot is copied
and after the average is added. The values are noise times a factor, another for each rank and turn, so that changes are noise, too.
"""
import select
import sys
import time

import numpy

from crowdsurf import Agent, Tensor
from crowdsurf.parameters import FlatParameters

STEP = 0.002        # seconds of a step: the agents, not the trainers, are to have the processors
GIVEN_UP = 8        # seconds without an average: there will be none, and the next is due after another interval of all
IDLE = 1            # seconds of a step while others have their turns
TILE = 250_000      # values of noise; the vector repeats them
TURNS = 7           # with other factors


class Stamped(FlatParameters):
    """The values of a vector, which say when they were taken and when an average came."""

    whole = False
    asked = False     # a turn has begun, and its average has not come

    def __init__(self, vector):
        super().__init__(vector.values, len(vector.values))
        self.vector = vector

    def write(self, inbox):
        """The job's state takes the place of the values: the agents have found each other, and agree on one."""
        super().write(inbox)
        self.vector.dirty = True

    def begin_read(self, outbox, filled):
        began = time.monotonic_ns()
        super().begin_read(outbox, filled)
        self.published = began if self.whole else time.monotonic_ns()

    def add(self, inbox, outbox):
        if self.whole:
            super().add(inbox, outbox)
        if self.asked:    # not given up before it came
            self.asked = False
            self.tell()
        else:
            self.vector.dirty = True
        if not self.whole:
            super().add(inbox, outbox)

    def tell(self):
        """Until the next line: adding takes the processors, which other agents may still need."""
        say(f"{self.published} {time.monotonic_ns()}")
        sys.stdin.readline()


def say(words):
    print(words, flush=True)


class Vector:
    def __init__(self, rank, size, elements):
        self.rank, self.size, self.turn = rank, size, 0
        self.tile = numpy.random.default_rng(1).standard_normal(min(TILE, elements), numpy.float32)
        self.values = numpy.zeros(elements, numpy.float32)

    def prepare(self):
        self.values.reshape(-1, len(self.tile))[:] = self.tile * numpy.float32(1 + self.rank + self.turn % TURNS)
        self.dirty = False

    def error(self):
        """Of the values, which are the average of this turn."""
        mean = self.tile * numpy.float32(1 + (self.size - 1) / 2 + self.turn % TURNS)
        worst = max(numpy.abs(part - mean).max() for part in self.values.reshape(-1, len(self.tile)))
        self.turn, self.dirty = self.turn + 1, True
        return worst / numpy.abs(mean).max()


def main():
    rank, size, elements, samples = map(int, sys.argv[1:])
    vector = Vector(rank, size, elements)
    vector.prepare()
    parameters = Stamped(vector)
    agent = Agent([Tensor("vector", (elements,))])
    agent.start(parameters, init="local")
    say("ready")
    while True:
        told, _, _ = select.select([sys.stdin], [], [], IDLE)   # a line is answered before the next one comes
        if not told:
            agent.step(samples=0)
            continue
        word = sys.stdin.readline().strip()
        if word == "rest":
            agent.step(samples=0)
            if vector.dirty:
                vector.prepare()
            say("rested")
            continue
        if word not in ("go", "whole"):
            return
        parameters.whole, parameters.asked = word == "whole", True
        outcome, until = agent.step(samples), time.monotonic() + GIVEN_UP
        while not outcome.applied and time.monotonic() < until:
            time.sleep(STEP)
            outcome = agent.step(0)
        error = vector.error()   # also where it is of no use: the next turn has other values
        if parameters.asked:
            parameters.asked = False
            parameters.tell()
            error = float("inf")   # then the turn is repeated
        say(error)


if __name__ == "__main__":
    main()
