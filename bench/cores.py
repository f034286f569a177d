"""Whether the processors are as near to each other as their kernel says.

A hypervisor moves its virtual processors: two that shared a cache may lie in two parts of the machine a second later, and come
back after half a minute. A program whose processes talk through memory then takes up to 1.4 times as long, and another, whose
bytes are out of the caches anyway, as long as before. So turns are compared in which the processors were near all the time.
"""
import subprocess
import threading
import time

APART = 200   # nanoseconds, there and back: cores with one cache take 50 to 150, others 300 and more
LOOK = .05    # seconds between two looks; one takes 1/300 of it
CALM = .5     # seconds that they have been near before a turn begins
TURN = 2      # seconds of a turn that is lost, about


class Cores:
    """`patience`: seconds that the bench may wait, in all its turns together."""

    def __init__(self, binaries, patience):
        self.patience = patience
        self.process = subprocess.Popen([binaries / "bench_core_distance", str(LOOK)], stdout=subprocess.PIPE, text=True)
        self.last_apart = time.monotonic()   # nobody has looked before
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        for line in self.process.stdout:
            if float(line) >= APART:
                self.last_apart = time.monotonic()

    def near_since(self, when):
        if self.process.poll() is not None:
            raise RuntimeError("bench_core_distance has ended")   # silence would say that they are near
        return self.last_apart < when

    def await_near(self):
        """It takes no longer than there is patience."""
        while not self.near_since(time.monotonic() - CALM) and self.patience > 0:
            self.patience -= LOOK
            time.sleep(LOOK)  # a span: they are near when nothing has come for a while

    def lose_turn(self):
        self.patience -= TURN

    def close(self):
        self.process.kill()
        self.process.wait()
