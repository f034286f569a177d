"""Handwritten digits of scikit-learn with a small convolutional network: the trainer of digits-pytorch.yaml.

    python3 deploy/examples/digits.py --epochs 20       trains alone

A worker of a job trains until the job's target is met. The five lines with `job` or `crowdsurf` are what makes it one.
"""
import argparse

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import crowdsurf

EVALUATE_EVERY = 200  # steps


def digits():
    """(images, labels) to train on, 1,437 of them, and (images, labels) held out, every fifth."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    held_out = torch.arange(len(labels)) % 5 == 0
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


@torch.no_grad()
def accuracy(model, images, labels):
    return float((model(images).argmax(1) == labels).float().mean())


def main():
    parser = argparse.ArgumentParser(description="a small network learns handwritten digits")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the data, when it trains alone")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters: the same at every worker")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the workers of a local job share the machine
    torch.manual_seed(options.seed)
    train, held_out = digits()
    loader = DataLoader(TensorDataset(*train), batch_size=32, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    job = crowdsurf.join(model, optimizer, metrics=["heldout_accuracy"])
    for step, (images, labels) in enumerate(job.batches(loader, epochs=options.epochs), 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        job.step(loss=loss, samples=len(labels))
        if step % EVALUATE_EVERY == 0:
            job.report(heldout_accuracy=accuracy(model, *held_out))
    print(f"held-out accuracy {accuracy(model, *held_out):.4f}")


if __name__ == "__main__":
    main()
