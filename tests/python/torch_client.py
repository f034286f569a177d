"""A PyTorch trainer on crowdsurf.module.Worker for python_client_test.cc. Usage: DIR"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import torch

import crowdsurf.module

torch.manual_seed(0)
model = torch.nn.Linear(4, 8, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
worker = crowdsurf.module.Worker(model, optimizer, directory=sys.argv[1])
assert torch.all(model.weight == 3), "adopted before the first step"
outcome = None
while outcome is None or not outcome.stop:
    optimizer.zero_grad()
    loss = 0.5 * ((model.weight - 3) ** 2).sum()
    loss.backward()
    optimizer.step()
    outcome = worker.step(samples=8, loss=float(loss))
    time.sleep(0.001)
worker.close()

# The opaque state of every kind of optimizer goes into bytes and comes back the same.
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
    optimizer = kind(model.parameters(), lr=0.1)
    model.weight.grad = torch.rand(8, 4)
    optimizer.step()
    before = optimizer.state_dict()
    after = crowdsurf.module.unpack(crowdsurf.module.pack(before))
    assert after["state"].keys() == before["state"].keys()
    for key, state in before["state"].items():
        for name, value in state.items():
            same = torch.equal(after["state"][key][name], value) if torch.is_tensor(value) else True
            assert same, (kind, name)
    kind(model.parameters(), lr=0.5).load_state_dict(after)
garbage = crowdsurf.module.pack(optimizer.state_dict())
for length in range(0, len(garbage), 7):
    try:
        crowdsurf.module.unpack(garbage[:length])
        assert False, "cut short and taken"
    except ValueError:
        pass
print("torch")
