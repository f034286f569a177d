"""Federated digits, the trainer of federated-pytorch.yaml: each worker trains on data that no other one has.

    python3 deploy/examples/federated.py --site 2       trains alone, and never learns the digits of other sites

The pictures are sorted by digit and cut into as many shards as there are sites, so a site has seen a few of the ten
digits. What a peer can infer of a site's data is in docs/security.md. Plain SGD has no state: an optimizer with momentum would
hand one site's gradients to every joiner.
"""
import argparse
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

import crowdsurf
from digits import accuracy, digits, network

EVALUATE_EVERY = 100  # steps


def site_of_worker():
    """A worker that replaces another one stands at its site: they are called JOB-INDEX-INCARNATION."""
    return int(os.environ.get("CROWDSURF_WORKER", "alone-0-1").rsplit("-", 2)[1])


def private_shard(images, labels, site, sites):
    """The data of one site. A real site reads its own files here."""
    by_digit = torch.sort(labels, stable=True).indices
    mine = by_digit.chunk(sites)[site % sites]
    return images[mine], labels[mine]


def main():
    parser = argparse.ArgumentParser(description="sites with different digits learn all of them, and share no picture")
    parser.add_argument("--site", type=int, default=site_of_worker(), help="whose data (default: by the worker's index)")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=20, help="passes over the shard, when it trains alone")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters: the same at every worker")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the workers of a local job share the machine
    torch.manual_seed(options.seed)
    train, held_out = digits()
    images, labels = private_shard(*train, options.site, options.sites)
    print(f"site {options.site} has {len(labels)} pictures of the digits {sorted(set(labels.tolist()))}", flush=True)
    loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    job = crowdsurf.join(model, optimizer, metrics=["heldout_accuracy"])
    for step, (images, labels) in enumerate(job.batches(loader, epochs=options.epochs), 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        job.step(loss=loss, samples=len(labels))
        if step % EVALUATE_EVERY == 0:
            job.report(heldout_accuracy=accuracy(model, *held_out))
    print(f"held-out accuracy of all digits {accuracy(model, *held_out):.4f}, after the site's own last steps")


if __name__ == "__main__":
    main()
