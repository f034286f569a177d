"""LoRA: a small transformer that has read English learns Python by its adapters alone: the trainer of lora-pytorch.yaml.

    python3 deploy/examples/lora.py --base base.pt --epochs 1       trains alone

The base is the model of characters.py. This script trains it on Debian's fortunes where its file is not there. It is frozen and
never travels: join() registers the adapters alone, and every worker reads the base from the same file. The text to learn
is the standard library of the python3 that runs this.
"""
import argparse
import hashlib
import os
import pathlib
import tempfile

import torch
from torch.utils.data import DataLoader, TensorDataset

import crowdsurf
from characters import FORTUNES, Transformer, bits, loss_of, read, windows

EVALUATE_EVERY = 100   # steps
MODULES = 60           # of the standard library: about a million characters


class Adapted(torch.nn.Module):
    """A linear layer as it is, and beside it the product of two thin matrices, which is zero at first."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.inner = torch.nn.Linear(layer.in_features, rank, bias=False)
        self.outer = torch.nn.Linear(rank, layer.out_features, bias=False)
        torch.nn.init.zeros_(self.outer.weight)

    def forward(self, x):
        return self.layer(x) + self.outer(self.inner(x))


def adapt(model, rank=8):
    """Freezes the model, and gives the linear layers of its blocks adapters that train."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name), rank))
    return model


def train_base(steps, until=lambda: False):
    """A model that has read so many batches of fortunes, or fewer if `until` says so: then somebody else has one."""
    torch.manual_seed(0)
    model = Transformer()
    (inputs, targets), _ = windows(read(FORTUNES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        if until():
            break
        batch = torch.randint(len(inputs), (16,))
        optimizer.zero_grad()
        loss_of(model, inputs[batch], targets[batch]).backward()
        optimizer.step()
    return model


def load_base(file, steps):
    """The base of `file`. Workers that find none all train one: the first that is done names the file, and all read that."""
    if not file.exists():
        print(f"there is no {file} yet: training a base", flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        model = train_base(steps, until=file.exists)
        with tempfile.NamedTemporaryFile(dir=file.parent) as own:
            torch.save(model.state_dict(), own)
            own.flush()
            os.chmod(own.name, 0o644)
            try:
                os.link(own.name, file)   # unlike a rename it does not replace the file of another worker
            except FileExistsError:
                pass
    model = Transformer()
    model.load_state_dict(torch.load(file, weights_only=True))   # the volume is shared: no pickle of another's is run
    return model


def fingerprint(model):
    """Of all that is frozen: the same at the end as at the beginning, and at every worker."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        if not parameter.requires_grad:
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def python_source(modules=MODULES):
    """Modules of the standard library, one after the other."""
    files = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))[:modules]
    return b"".join(file.read_bytes() for file in files).decode("ascii", "ignore")


def main():
    parser = argparse.ArgumentParser(description="adapters teach Python to a transformer that has read English")
    parser.add_argument("--base", type=pathlib.Path, required=True, help="a file for all workers; made where it is not there")
    parser.add_argument("--base-steps", type=int, default=150, help="of the base's training")
    parser.add_argument("--rank", type=int, default=8, help="of the adapters")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the text, when it trains alone")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the workers of a local job share the machine
    model = load_base(options.base, options.base_steps)
    train, held_out = windows(python_source())
    print(f"the base alone: {bits(model, *held_out):.3f} bits per character of Python", flush=True)
    torch.manual_seed(0)      # the first adapters are the same at every worker
    adapt(model, options.rank)
    adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print(f"base {fingerprint(model)}: {sum(p.numel() for p in adapters)} of {sum(p.numel() for p in model.parameters())} "
          "parameters train", flush=True)
    loader = DataLoader(TensorDataset(*train), batch_size=16)
    optimizer = torch.optim.AdamW(adapters, lr=3e-3)

    job = crowdsurf.join(model, optimizer, metrics=["heldout_bits_per_char"])
    for step, (inputs, targets) in enumerate(job.shard(loader, epochs=options.epochs), 1):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        job.step(loss=loss, samples=len(inputs))
        if step % EVALUATE_EVERY == 0:
            job.report(heldout_bits_per_char=bits(model, *held_out))
    print(f"base {fingerprint(model)} with adapters: {bits(model, *held_out):.3f} bits per character of Python")


if __name__ == "__main__":
    main()
