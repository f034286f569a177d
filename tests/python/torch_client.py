"""A PyTorch trainer on crowdsurf.join() for python_client_test.cc. Usage: DIR"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import torch

import crowdsurf

os.environ["CROWDSURF_DIR"] = sys.argv[1]
torch.manual_seed(0)
model = torch.nn.Linear(4, 8, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
job = crowdsurf.join(model, optimizer)
assert torch.all(model.weight == 3), "adopted before the first step"
for batch in job.batches([8]):
    optimizer.zero_grad()
    loss = 0.5 * ((model.weight - 3) ** 2).sum()
    loss.backward()
    optimizer.step()
    job.step(samples=batch, loss=loss)
    time.sleep(0.001)
assert job.done
job.close()
print("torch")
