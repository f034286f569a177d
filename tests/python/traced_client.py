"""A trainer on crowdsurf.Agent whose vector says what is in it: see tests/unit/trainer_link/trace/link_trace.h.

Usage: traced_client.py [--leases] DIR
"""
import array
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import crowdsurf

UNIT = 8   # samples of a step
SIZE = 32  # elements, and samples of the data set
PACE = .0005   # seconds of a step: time itself is meant, without which counts outgrow what float32 holds exactly


class State:
    def get(self):
        return b"state of python"

    def set(self, data):
        pass


def march(agent, params, outcome):
    while not outcome.stop:
        for i in range(SIZE):
            params[i] += i + 1
        time.sleep(PACE)
        outcome = agent.step(UNIT, 0.0)


def draw(agent, params, outcome):
    leases, lease, position = agent.draw(SIZE, UNIT), None, 0
    while not outcome.stop:
        if lease is None or position == lease.begin + lease.samples:
            agent.look()
            lease = agent.next_lease()
            if lease is None:
                outcome = agent.pause()
                continue
            position = lease.begin
        count = min(UNIT, lease.begin + lease.samples - position)
        leases.hand(count)
        for at in range(position, position + count):
            params[at] += 1
        time.sleep(PACE)
        outcome = agent.step(count, 0.0)
        position += count
        if agent.look():
            lease = None


agent = crowdsurf.Agent([crowdsurf.Tensor("w", (SIZE,))], sys.argv[-1], state=State())
params = array.array("f", range(SIZE))
try:
    import numpy
    params = numpy.array(params)
except ImportError:
    pass
(draw if "--leases" in sys.argv else march)(agent, params, agent.start(params))
agent.close()
