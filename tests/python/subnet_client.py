"""A trainer that gathers its sub-network, trains it alone and puts it back, for python_client_test.cc. Usage: DIR

A gradient step is here: add 1 to every value of the smaller tensors. Prints their shapes and scales.
"""
import array
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import crowdsurf

agent = crowdsurf.Agent([
    crowdsurf.Tensor("gates", (3 * 4, 4), units=(crowdsurf.UnitAxis(0, 7, blocks=3), crowdsurf.UnitAxis(1, 7))),
    crowdsurf.Tensor("kernel", (2, 4, 3), units=(crowdsurf.UnitAxis(1, 7),)),
    crowdsurf.Tensor("heads", (6, 2), units=(crowdsurf.UnitAxis(0, 9, size=2),)),
    crowdsurf.Tensor("bias", (5,)),
    crowdsurf.Tensor("temperature", ()),
], sys.argv[-1])
params = array.array("f", range(agent.elements))
outcome = agent.start(params)
subnet = None
while not outcome.stop:
    sets = agent.index_sets()
    if sets is not None:
        subnet = crowdsurf.Subnet(agent.tensors, sets)
        print([subnet.shapes[t.name] for t in agent.tensors], subnet.scale(7), subnet.scale(9), flush=True)
    if subnet is not None:
        parts = subnet.gather(params)
        for values in parts.values():
            if isinstance(values, array.array):
                values[:] = array.array("f", (v + 1 for v in values))
            else:
                values += 1
        subnet.scatter(parts, params)
    outcome = agent.step(1, 0.0)
    time.sleep(0.001)
agent.close()
