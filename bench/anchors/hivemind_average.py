"""Anchor of bench/averaging.py: one process of an all-reduce of hivemind 1.1.12, as its users run it.

Usage: hivemind_average.py RANK SIZE ELEMENTS MEETING HOST none|int8    (MEETING: an empty folder that all share)
hivemind encrypts what it sends, as it always does; int8 is its Uniform8BitQuantization. Writes "ready" once its averager is there.
At a line "prepare" it fills its tensor and finds its group, and writes "prepared": matchmaking is no part of a call. At a line
"go" it averages, and writes the start and the end of the call, steady nanoseconds. At a line "rest" it looks at the mean and
writes "rested". Its network daemon outlives it: the bench ends its process group.
"""
import pathlib
import sys
import time

import hivemind
import torch
from hivemind.averaging import DecentralizedAverager
from hivemind.averaging.control import AveragingStage
from hivemind.compression import NoCompression, Uniform8BitQuantization

MATCHMAKING = 3      # seconds until a group begins
TRIES = 20           # at a group of all
# Root mean square of a mean's error, beside that of the mean. Eight bits of hivemind reach three standard deviations, no further.
TOLERANCE = {"none": 1e-5, "int8": .1}
COMPRESSION = {"none": NoCompression, "int8": Uniform8BitQuantization}


def say(words):
    print(words, flush=True)


class Process:
    def __init__(self, rank, size, elements, meeting, host, compression):
        self.rank, self.size, self.tolerance, self.turn, self.called = rank, size, TOLERANCE[compression], 0, False
        self.noise = torch.randn(elements, generator=torch.Generator().manual_seed(1))
        dht = hivemind.DHT(initial_peers=self.addresses(meeting), host_maddrs=[f"/ip4/{host}/tcp/0"], use_auto_relay=False,
                           use_relay=False, start=True)
        if rank == 0:
            written = meeting / "new"
            written.write_text("\n".join(map(str, dht.get_visible_maddrs())))
            written.rename(meeting / "addresses")
        self.averager = DecentralizedAverager(
            [torch.zeros(elements)], dht, start=True, prefix="bench", target_group_size=size, min_group_size=size,
            min_matchmaking_time=MATCHMAKING, request_timeout=MATCHMAKING / 2, sender_timeout=60, reducer_timeout=120,
            next_chunk_timeout=60, allow_state_sharing=False, compression=COMPRESSION[compression]())

    def addresses(self, meeting):
        """Of rank 0, once it has some; none: this is rank 0."""
        while self.rank > 0 and not (meeting / "addresses").exists():
            time.sleep(.1)   # it tells nobody
        return (meeting / "addresses").read_text().split() if self.rank > 0 else None

    def prepare(self):
        with self.averager.get_tensors() as (tensor,):
            torch.mul(self.noise, 1 + self.rank + self.turn % 7, out=tensor)
        for _ in range(TRIES):
            self.step = self.averager.step(wait=False, require_trigger=True, allow_retries=False, timeout=60)
            while not self.step.done():
                if self.step.stage == AveragingStage.AWAITING_TRIGGER:
                    return
                time.sleep(.02)   # it tells nobody
        sys.exit("there is no group of all")

    def average(self):
        self.step.allow_allreduce()
        if len(self.step.result()) != self.size:
            sys.exit("the group has not all")
        self.called = True

    def look(self):
        if not self.called:
            return
        with self.averager.get_tensors() as (tensor,):
            mean = self.noise * (1 + (self.size - 1) / 2 + self.turn % 7)
            error = float((tensor - mean).norm() / mean.norm())
        if not error <= self.tolerance:
            sys.exit(f"a mean is wrong by {error}")
        self.turn, self.called = self.turn + 1, False


def main():
    rank, size, elements, meeting, host, compression = sys.argv[1:]
    torch.set_num_threads(1)
    process = Process(int(rank), int(size), int(elements), pathlib.Path(meeting), host, compression)
    say("ready")
    for line in sys.stdin:
        word = line.strip()
        if word == "prepare":
            process.prepare()
            say("prepared")
        elif word == "rest":
            process.look()
            say("rested")
        else:
            began = time.monotonic_ns()
            process.average()
            say(f"{began} {time.monotonic_ns()}")


if __name__ == "__main__":
    main()
