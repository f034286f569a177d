"""One worker of a race: digits.py's network and data, averaged by Crowdsurf or by hivemind 1.1.12 (pytorch.py, P4).

    raced_digits.py crowdsurf --target SAMPLES
    raced_digits.py hivemind --target SAMPLES --workers N --interval STEPS [--matchmaking SECONDS] [--peers ADDRESS]

Both run the same loop on the same batches; only what averages differs. The worker prints `step TIME SAMPLES` before its
first step and after its last, and `accuracy TIME FRACTION` every EVALUATE_EVERY steps. TIME is Unix time. A hivemind worker
prints its `address` and that it is `ready`; it begins, and ends, when a line comes.
"""
import argparse
import itertools
import pathlib
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "deploy" / "examples"))
BATCH, RATE, EVALUATE_EVERY = 32, 1e-3, 25   # samples, of AdamW, steps


def say(*words):
    print(*words, flush=True)


class Crowdsurf:
    def __init__(self, model, options):
        import crowdsurf
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        self.job = crowdsurf.join(model, self.optimizer)

    def batches(self, loader):
        return self.job.batches(loader)

    def step(self, loss, samples):
        self.optimizer.step()
        self.job.step(loss=loss, samples=samples)

    def end(self):
        pass


class Hivemind:
    """Local steps, and an average of parameters and AdamW's statistics each time that all together took `interval` steps a worker."""

    def __init__(self, model, options):
        import hivemind
        self.dht = hivemind.DHT(initial_peers=options.peers, start=True)
        say("address", *map(str, self.dht.get_visible_maddrs()))
        self.optimizer = hivemind.Optimizer(
            dht=self.dht, run_id="digits", optimizer=torch.optim.AdamW(model.parameters(), lr=RATE), batch_size_per_step=BATCH,
            target_batch_size=options.workers * BATCH * options.interval, use_local_updates=True,
            matchmaking_time=options.matchmaking, averaging_timeout=10,
            average_opt_statistics=("exp_avg", "exp_avg_sq"),
            averager_opts={"target_group_size": options.workers, "request_timeout": options.matchmaking / 2},
            tracker_opts={"min_refresh_period": .1, "default_refresh_period": .2})
        self.steps = options.target // (options.workers * BATCH)
        say("ready")
        sys.stdin.readline()   # all begin together

    def batches(self, loader):
        return itertools.islice((batch for _ in itertools.count() for batch in loader), self.steps)

    def step(self, loss, samples):
        self.optimizer.step()

    def end(self):
        sys.stdin.readline()   # others may want an average yet
        self.optimizer.shutdown()
        self.dht.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("by", choices=["crowdsurf", "hivemind"])
    parser.add_argument("--target", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--interval", type=int, default=20)
    parser.add_argument("--matchmaking", type=float, default=1)
    parser.add_argument("--peers", nargs="*", default=[])
    options = parser.parse_args()
    import digits
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    train, held_out = digits.digits()
    loader = DataLoader(TensorDataset(*train), batch_size=BATCH, shuffle=True, drop_last=True)
    model = digits.network()
    worker = (Crowdsurf if options.by == "crowdsurf" else Hivemind)(model, options)
    samples = 0
    for step, (images, labels) in enumerate(worker.batches(loader), 1):
        if samples == 0:
            say("step", time.time(), samples)
        worker.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        worker.step(loss, len(labels))
        samples += len(labels)
        if step % EVALUATE_EVERY == 0:
            say("accuracy", time.time(), digits.accuracy(model, *held_out))
    say("step", time.time(), samples)
    worker.end()


if __name__ == "__main__":
    main()
