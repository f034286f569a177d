#!/usr/bin/env python3
"""The trainer beside an agent that bench/averaging.py measures. It trains nothing, and averages one vector when it is told to.

Usage: averaging_trainer.py RANK ELEMENTS SAMPLES    (CROWDSURF_DIR: the agent's; SAMPLES: the job's interval)
Writes "ready" once it has started. A line "rest" makes it do a step without samples and write "rested": a trainer that makes no
steps loses its seat. A line "go" makes it train SAMPLES, and step until an average is there: it writes when its snapshot was
published and when the average lay there (steady nanoseconds), and adds it at the next line. Then it writes the first value.
"""
import sys
import time

import numpy

from crowdsurf import Agent, Tensor
from crowdsurf.parameters import FlatParameters

STEP = 0.002  # seconds of a step: the agents, not the trainers, are to have the processors


class Stamped(FlatParameters):
    """Parameters that say when they were taken and when an average came."""

    def read(self, outbox):
        super().read(outbox)
        self.published = time.monotonic_ns()

    def add(self, inbox, outbox):
        say(f"{self.published} {time.monotonic_ns()}")
        sys.stdin.readline()  # adding takes the processors, which other agents may still need
        super().add(inbox, outbox)


def say(words):
    print(words, flush=True)


def main():
    rank, elements, samples = map(int, sys.argv[1:])
    values = numpy.zeros(elements, numpy.float32)
    parameters = Stamped(values, elements)
    agent = Agent([Tensor("vector", (elements,))])
    agent.start(parameters, init="local")
    say("ready")
    for line in sys.stdin:
        if line.strip() == "rest":
            agent.step(samples=0)
            say("rested")
            continue
        values[:] = rank
        outcome = agent.step(samples)
        while not outcome.applied:
            time.sleep(STEP)
            outcome = agent.step(samples=0)
        say(values[0])


if __name__ == "__main__":
    main()
