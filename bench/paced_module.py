"""A trainer of pytorch.py: a module of so many parameters whose steps sleep. Prints the seconds of join() and of a step."""
import argparse
import time

import torch

import crowdsurf

parser = argparse.ArgumentParser()
parser.add_argument("--parameters", type=int, required=True)
parser.add_argument("--step-seconds", type=float, default=0.1)
parser.add_argument("--steps", type=int, required=True, help="that are timed, after as many as an averaging needs")
options = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Module()
model.w = torch.nn.Parameter(torch.zeros(options.parameters))
began = time.monotonic()
job = crowdsurf.join(model)
print(f"join {time.monotonic() - began:.4f}", flush=True)
WARM = 50
for step in range(WARM + options.steps):
    if step == WARM:
        began = time.monotonic()
    time.sleep(options.step_seconds)
    job.step(samples=1)
print(f"step {(time.monotonic() - began) / options.steps:.6f}", flush=True)
for _ in job.batches([0]):   # until the job is over
    time.sleep(options.step_seconds)
    job.step(samples=1)
