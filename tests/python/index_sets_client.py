"""A trainer that trains the active rows alone, for python_client_test.cc. Usage: index_sets_client.py DIR

Every step adds 1 to each element of the rows whose indices are active, and to nothing else.
"""
import array
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import crowdsurf

agent = crowdsurf.Agent([crowdsurf.Tensor("w", (6, 2), group_out=0), crowdsurf.Tensor("u", (5,), group_out=1)],
                      sys.argv[-1])
params = array.array("f", [0.0] * agent.elements)
outcome = agent.start(params)
active = {}
while not outcome.stop:
    changed = agent.index_sets()
    if changed is not None:
        active = changed
        print(active, flush=True)
    for tensor in agent.tensors:
        wide = tensor.elements // tensor.shape[0]
        for row in active.get(tensor.group_out, ()):
            first = tensor.offset // 4 + row * wide
            for at in range(first, first + wide):
                params[at] += 1
    outcome = agent.step(1, 0.0)
    time.sleep(0.001)
agent.close()
