"""A device for tests of staging.py: its streams do what they are told at a time of their own choosing.

Of everything that the events allow, a seed chooses what is done next, and when: a copy that nobody waits for is late for
some seed. Vectors of the device are used again as soon as nobody has them, as those of CUDA's allocator are.
"""
import collections
import ctypes
import random
import threading
import weakref

import torch


class FakeDevice:
    """`without`: memory of the device is never left."""

    def __init__(self, seed, without=False):
        self.rng, self.without, self.lock = random.Random(seed), without, threading.RLock()
        self.streams, self.free, self.most, self.lent = [], collections.defaultdict(list), 0, 0
        self.script, self.side = FakeStream(self), FakeStream(self)

    def current(self):
        return self.script

    def empty(self, elements):
        with self.lock:
            if self.without:
                return None
            block = self.free[elements].pop() if self.free[elements] else torch.full((elements,), float("nan"))
            self.lent += 1
            self.most = max(self.most, self.lent)
            handle = block.view(-1)
            weakref.finalize(handle, self.give_back, elements, block)
            return handle

    def give_back(self, elements, block):
        with self.lock:
            self.lent -= 1
            self.free[elements].append(block)

    def pinned(self, elements):
        return torch.full((elements,), float("nan"))

    def some(self):
        """A little of what is to be done, perhaps nothing."""
        while self.rng.random() < 0.5 and self.one():
            pass

    def one(self):
        """One thing that may be done now. False: there is none."""
        with self.lock:
            ready = [stream for stream in self.streams if stream.is_ready()]
            if ready:
                self.rng.choice(ready).do()
            return bool(ready)

    def rest(self):
        while self.one():
            pass


class FakeStream:
    def __init__(self, device):
        self.device, self.queue, self.done, self.put = device, collections.deque(), 0, 0
        device.streams.append(self)

    def enqueue(self, act, after=lambda: True):
        with self.device.lock:
            self.queue.append((after, act))
            self.put += 1
            self.device.some()

    def is_ready(self):
        return bool(self.queue) and self.queue[0][0]()

    def do(self):
        self.queue.popleft()[1]()
        self.done += 1

    def copy(self, to, source):
        to, source = Bare(to), Bare(source)
        self.enqueue(lambda: to.there().copy_(source.there()))

    def add(self, to, change):
        to, change = Bare(to), Bare(change)
        self.enqueue(lambda: to.there().add_(change.there().to(to.kind)))

    def run(self, act):
        """What a script does there."""
        self.enqueue(act)

    def record(self):
        return FakeEvent(self, self.put)

    def follow(self, event):
        self.enqueue(lambda: None, event.has_come)


class FakeEvent:
    def __init__(self, stream, at):
        self.stream, self.at = stream, at

    def has_come(self):
        return self.stream.done >= self.at

    def wait(self):
        while not self.has_come():
            assert self.stream.device.one(), "the streams wait for one another"
        self.stream.device.some()


class Bare:
    """Where a tensor is, without holding it: a device works on addresses, whoever has them by then."""

    def __init__(self, tensor):
        self.address, self.kind = tensor.data_ptr(), tensor.dtype
        self.shape, self.stride = tensor.shape, tensor.stride()
        self.span = 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride)) if tensor.numel() else 0

    def there(self):
        flat = torch.frombuffer((ctypes.c_char * (self.span * torch.empty(0, dtype=self.kind).element_size()))
                                .from_address(self.address), dtype=self.kind)
        return flat.as_strided(self.shape, self.stride)
