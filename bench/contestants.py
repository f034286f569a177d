"""Processes that take turns: what each turn takes of time and processors, and what others took of the processors meanwhile."""
import contextlib
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import time

CLOCK = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
PATIENCE = 300  # seconds, for a turn
WATCH = .1      # seconds between two looks at memory: with .01 a turn took 2 % longer


def fields_of(pid):
    """What /proc/PID/stat says after the name: the state is the first."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def cpu_seconds(pids):
    """Of living processes, without their children."""
    total = 0
    for pid in pids:
        fields = fields_of(pid)
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK


def thread_seconds(pid):
    """CPU-seconds of each thread of a living process, by its number."""
    found = {}
    for path in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            found[path.name] = int((path / "schedstat").read_text().split()[0]) * 1e-9
    return found


def own_cpu_seconds():
    """Of this process and of those that it has waited for."""
    return sum(map(int, fields_of(os.getpid())[11:15])) / CLOCK


def busy_seconds():
    """Of all processors, since the start of the machine."""
    fields = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / CLOCK


def group_of(leader):
    """The living processes of a process group."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int(fields_of(path.name)[2]) == leader:
                found.append(int(path.name))
        except OSError:
            continue  # it has just ended
    return found


def anonymous_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0


class Foreign:
    """What programs outside of the bench take of the processors, from begin() to end(). The bench's own are `pids`."""

    def __init__(self, pids=()):
        self.pids = list(pids)
        self.seconds = self.elapsed = 0.0

    def begin(self):
        self.before = busy_seconds() - cpu_seconds(self.pids) - own_cpu_seconds()
        self.began = time.monotonic()

    def end(self):
        self.elapsed += time.monotonic() - self.began
        self.seconds += busy_seconds() - cpu_seconds(self.pids) - own_cpu_seconds() - self.before

    @staticmethod
    def share(parts):
        """Of all processors, while any of the parts was measured."""
        elapsed = sum(part.elapsed for part in parts)
        return max(0.0, sum(part.seconds for part in parts) / (elapsed * CORES)) if elapsed else float("nan")


class Player:
    """A process in namespace `rank` that says "ready", and answers each line. It leads a process group."""

    def __init__(self, network, rank, command, environment=None):
        self.process = subprocess.Popen(network.inside(rank, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, **(environment or {})}, text=True, bufsize=1, start_new_session=True)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[-6:]} has ended")
        return line.split()

    def close(self):
        """With its children, which may outlive it (hivemind's network daemon)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Contestant:
    """Players that run together. A player's answer to "go" is the start and the end of its part (steady nanoseconds); to "rest",
    a word: it makes ready for its next turn, and does it between the turns."""

    word = "go"

    def __init__(self, players, measured=None):
        self.players, self.measured = players, measured
        self.seconds, self.cpu, self.after = [], [], []   # of each turn; after: CPU-seconds from its end to silence
        self.kept = [self.seconds, self.cpu, self.after]
        self.apart = 0             # turns while the processors were apart
        self.foreign = Foreign()   # while it runs, and until it is silent
        self.peak, self.watched = 0, False   # bytes of the largest process; looked at where `watched`

    def close(self):
        for player in self.players:
            player.close()

    def ask(self, word):
        for player in self.players:
            player.tell(word)
        return [player.hear() for player in self.players]

    def await_ready(self):
        for player in self.players:
            if player.hear() != ["ready"]:
                sys.exit("a process said something else than ready")
        if self.measured is None:
            self.measured = [pid for player in self.players for pid in group_of(player.process.pid)]

    def pids(self):
        return {*self.measured, *(player.process.pid for player in self.players)}

    def rest(self):
        self.ask("rest")

    def prepare(self):
        """What is no part of a turn, and must come just before it."""

    def forget(self, turns):
        """The first ones warmed up."""
        for kept in self.kept:
            del kept[:turns]
        self.apart, self.foreign = 0, Foreign(self.foreign.pids)

    def drop(self):
        """The last turn."""
        for kept in self.kept:
            kept.pop()

    def run(self):
        cpu = cpu_seconds(self.measured)
        self.foreign.begin()
        for player in self.players:
            player.tell(self.word)
        stamps = self.answers()
        self.cpu.append(cpu_seconds(self.measured) - cpu)
        self.seconds.append((max(end for _, end in stamps) - max(begin for begin, _ in stamps)) * 1e-9)

    def answers(self):
        selector, stamps, deadline = selectors.DefaultSelector(), [], time.monotonic() + PATIENCE
        for player in self.players:
            selector.register(player.process.stdout, selectors.EVENT_READ, player)
        while len(stamps) < len(self.players):
            for key, _ in selector.select(timeout=WATCH if self.watched else 1):
                stamps.append(tuple(map(int, key.data.hear())))
                selector.unregister(key.fileobj)
            if self.watched:
                self.peak = max(self.peak, *map(anonymous_bytes, self.measured))
            if time.monotonic() > deadline:
                sys.exit("a turn takes for ever")
        return stamps

    def settle(self):
        """What goes on after a turn is not the next one's."""
        begin = before = cpu_seconds(self.measured)
        for _ in range(50):
            time.sleep(0.1)  # a span to measure
            now = cpu_seconds(self.measured)
            if now - before <= 0.01:
                break
            before = now
        self.after.append(before - begin)
        self.foreign.end()


class Wire(Contestant):
    """iperf3 in both directions between the first two namespaces. Its seconds are those that `ideal` bytes would take."""

    def __init__(self, network, ideal):
        self.network, self.ideal = network, ideal
        self.server = subprocess.Popen(network.inside(1, ["iperf3", "-s", "-B", network.hosts[1]]), stdout=subprocess.DEVNULL)
        super().__init__([], [self.server.pid])

    def await_ready(self):
        client = [*self.client(), "--bytes", "1K"]
        for _ in range(100):
            if subprocess.run(client, capture_output=True).returncode == 0:
                return
            time.sleep(0.1)  # the server tells nobody
        sys.exit("iperf3 does not answer")

    def client(self):
        return self.network.inside(0, ["iperf3", "-c", self.network.hosts[1], "--bidir", "-C", "cubic", "-l", "1M", "-J"])

    def run(self):
        cpu = cpu_seconds(self.measured) + own_cpu_seconds()
        self.foreign.begin()
        told = subprocess.run([*self.client(), "-t", "1"], check=True, capture_output=True, text=True).stdout
        end = json.loads(told)["end"]
        bits = sum(end[way]["bits_per_second"] for way in ("sum_received", "sum_received_bidir_reverse"))
        self.seconds.append(8 * self.ideal / bits)
        self.cpu.append((cpu_seconds(self.measured) + own_cpu_seconds() - cpu) / (bits / 8) * self.ideal)

    def close(self):
        self.server.kill()
        self.server.wait()
