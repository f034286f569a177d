"""A trainer on crowdsurf.Agent for python_client_test.cc: moves 32 parameters towards 3.

Usage: averaging_client.py [--cut] DIR      --cut: its first connection ends by itself, a while after the start
"""
import array
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import crowdsurf
from crowdsurf import memory

seen = []


class State:
    def get(self):
        return b"state of python"

    def set(self, data):
        seen.append(data)


agent = crowdsurf.Agent([crowdsurf.Tensor("w", (4, 8)), crowdsurf.Tensor("v", (3,), role="Buffer")], sys.argv[-1],
                      metrics=["distance"], state=State())
assert (agent.elements, agent.seed, agent.job) == (32, 42, "charlm"), "the buffer is not averaged in this job"
assert [t.offset for t in agent.tensors] == [0, None]
params = array.array("f", [float(agent.seed)] * agent.elements)
if memory.numpy is not None:
    params = memory.numpy.array(params)
outcome = agent.start(params)
assert outcome.adopted and outcome.averaging == 4 and seen == [b"state of a donor"]
steps = 0
while not outcome.stop:
    steps += 1
    if steps == 20 and "--cut" in sys.argv:
        agent._connection._socket.shutdown(socket.SHUT_RDWR)
    for i in range(len(params)):
        params[i] -= 0.1 * (params[i] - 3)
    agent.set_metric("distance", abs(float(params[0]) - 3))
    outcome = agent.step(8, (params[0] - 3) ** 2)
    time.sleep(0.001)
agent.close()
print("numpy" if memory.numpy is not None else "plain")
