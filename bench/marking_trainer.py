"""A trainer of dealt_samples.py whose model says what is in it: numbers for each worker and sample, which training makes 1.

A mean makes a number smaller and never 0, so one above 0 is a sample of that worker that has come into the averages. There are
as many numbers for a sample as the vector has chunks, one in each: a worker that dies within an averaging may be in some
chunks only. Its notes say what was trained, in or not: a file for each worker, a line `EPOCH INDEX ...` before each step is
counted, and `over` where the script ended by itself.
"""
import argparse
import os
import pathlib
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import crowdsurf

CHUNK = 32512   # values (docs/data-plane.md)
parser = argparse.ArgumentParser()
parser.add_argument("--notes", type=pathlib.Path, required=True)
parser.add_argument("--workers", type=int, required=True)
parser.add_argument("--lives", type=int, required=True, help="most incarnations of a worker")
parser.add_argument("--samples", type=int, required=True, help="of the data set")
parser.add_argument("--epochs", type=int, required=True, help="most that the job gets to")
parser.add_argument("--chunks", type=int, required=True)
parser.add_argument("--step-seconds", type=float, required=True)
options = parser.parse_args()
torch.set_num_threads(1)
worker = os.environ["CROWDSURF_WORKER"]
index, incarnation = map(int, worker.rsplit("-", 2)[1:])
model = torch.nn.Module()
model.marks = torch.nn.Parameter(torch.zeros(options.chunks, CHUNK))
marks = model.marks.data[:, :options.workers * options.lives * options.epochs * options.samples].unflatten(
    1, (options.workers * options.lives, options.epochs, options.samples))
job = crowdsurf.join(model)
shard = job.shard(DataLoader(TensorDataset(torch.arange(options.samples)), batch_size=1))
with open(options.notes / worker, "a", buffering=1) as notes:
    for (indices,) in shard:
        time.sleep(options.step_seconds)
        epoch = shard.state_dict()["epoch"]
        print(epoch, *indices.tolist(), file=notes)
        marks[:, index + options.workers * (incarnation - 1), epoch, indices] = 1
        job.step(samples=len(indices))
    print("over", file=notes)
