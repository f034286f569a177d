"""A character-level transformer on Debian's fortunes: the trainer of characters-pytorch.yaml.

    python3 deploy/examples/characters.py --epochs 1       trains alone

The job deals the windows of the text (job.shard): each is trained once an epoch, by one worker, as workers come and go.
"""
import argparse
import math
import pathlib

import torch
from torch.utils.data import DataLoader, TensorDataset

import crowdsurf

FORTUNES = "/usr/share/games/fortunes"   # Debian: fortunes
SYMBOLS = 128                            # ASCII
WINDOW = 64                              # characters that the model sees
EVALUATE_EVERY = 100                     # steps


def read(folder):
    """The text of a folder of fortunes; what is not ASCII is left out."""
    files = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_file() and not path.suffix)
    return b"".join(path.read_bytes() for path in files).decode("ascii", "ignore")


def windows(text):
    """(inputs, targets) to train on, and (inputs, targets) held out, every tenth. A target is the character after its input."""
    codes = torch.tensor(list(text.encode("ascii")))
    count = (len(codes) - 1) // WINDOW
    inputs, targets = codes[:count * WINDOW].view(count, WINDOW), codes[1:count * WINDOW + 1].view(count, WINDOW)
    held_out = torch.arange(count) % 10 == 0
    return (inputs[~held_out], targets[~held_out]), (inputs[held_out], targets[held_out])


class Block(torch.nn.Module):
    """Attention to what came before, then two layers for each character by itself."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.register_buffer("later", torch.ones(WINDOW, WINDOW, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        seen = scores.masked_fill(self.later[:length, :length], -math.inf).softmax(-1) @ value
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.characters, self.places = torch.nn.Embedding(SYMBOLS, width), torch.nn.Embedding(WINDOW, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.guess = torch.nn.LayerNorm(width), torch.nn.Linear(width, SYMBOLS)

    def forward(self, codes):
        places = self.places(torch.arange(codes.shape[1], device=codes.device))
        return self.guess(self.norm(self.blocks(self.characters(codes) + places)))


def loss_of(model, inputs, targets):
    return torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def bits(model, inputs, targets, most=256):
    """Bits per character, over `most` windows that are spread over all."""
    apart = max(1, len(inputs) // most)
    return float(loss_of(model, inputs[::apart], targets[::apart])) / math.log(2)


def main():
    parser = argparse.ArgumentParser(description="a small transformer learns to guess the next character")
    parser.add_argument("--text", default=FORTUNES, help="a folder of text files (default: Debian's fortunes)")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the text, when it trains alone")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters: the same at every worker")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the workers of a local job share the machine
    torch.manual_seed(options.seed)
    train, held_out = windows(read(options.text))
    loader = DataLoader(TensorDataset(*train), batch_size=16)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    job = crowdsurf.join(model, optimizer, metrics=["heldout_bits_per_char"])
    for step, (inputs, targets) in enumerate(job.shard(loader, epochs=options.epochs), 1):
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        job.step(loss=loss, samples=len(inputs))
        if step % EVALUATE_EVERY == 0:
            job.report(heldout_bits_per_char=bits(model, *held_out))
    print(f"held-out bits per character {bits(model, *held_out):.3f}")


if __name__ == "__main__":
    main()
