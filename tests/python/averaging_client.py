"""A trainer on crowdsurf.Link for python_client_test.cc: moves 32 parameters towards 3.

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

opaque = b"state of python"
seen = []
link = crowdsurf.Link([crowdsurf.Tensor("w", (4, 8)), crowdsurf.Tensor("v", (3,), role="Buffer")], sys.argv[-1],
                      metrics=["distance"], opaque_get=lambda: opaque, opaque_set=seen.append)
assert (link.elements, link.seed, link.job) == (32, 42, "charlm"), "the buffer is not averaged in this job"
assert [t.offset for t in link.tensors] == [0, None]
params = array.array("f", [float(link.seed)] * link.elements)
if memory.numpy is not None:
    params = memory.numpy.array(params)
outcome = link.start(params)
assert outcome.adopted and outcome.averaging == 4 and seen == [b"state of a donor"]
steps = 0
while not outcome.stop:
    steps += 1
    if steps == 20 and "--cut" in sys.argv:
        link._agent._http.sock.shutdown(socket.SHUT_RDWR)
    for i in range(len(params)):
        params[i] -= 0.1 * (params[i] - 3)
    link.set_metric("distance", abs(float(params[0]) - 3))
    outcome = link.step(8, (params[0] - 3) ** 2, params)
    time.sleep(0.001)
link.acknowledge_stop()
link.close()
print("numpy" if memory.numpy is not None else "plain")
