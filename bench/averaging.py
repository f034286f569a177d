#!/usr/bin/env python3
"""How long four agents take to average 100 MB of float32 over mutual TLS, beside what gloo and the wire itself take.

Usage: averaging.py BIN [--json] [--short | --long] [--only NAME ...] [--beside PROGRAM]    (in the namespace that averaging.sh makes)
Each process is in a network namespace of its own. The contestants take turns, in another order each cycle; the first cycles are
dropped. A run lasts from the last published outbox to the last average, and for anchors from the last call to the last return.

A4           tls_mesh.seconds / agents.seconds: the share of the speed at which the same TLS streams move the same bytes
B1.tls       bytes that the agents' sockets have sent / the least that an all-reduce can send
C1.tls       CPU-seconds per GB of the agents / those of gloo's ring, which does not encrypt
M1           largest anonymous memory of an agent / the vector
NAME.seconds, NAME.cpu_per_gb    median, mean; GB are what an all-reduce sends at least
beside.ratio                     agents.seconds / those of agents of another build, which --beside names
"""
import argparse
import json
import os
import pathlib
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from namespaces import Network

SIZE, ELEMENTS, SAMPLES = 4, 25_000_000, 1000  # agents, values of the vector, and samples of an averaging
VECTOR = 4 * ELEMENTS
IDEAL = 2 * (SIZE - 1) * VECTOR  # bytes that all processes together send in an all-reduce
WARM_UP = 2
CLOCK = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
PATIENCE = 60  # seconds: for a start, and for a run
PEER, TENSOR, HTTP = 7001, 7002, 7003  # ports
CONFIG = {"generation": 1, "averaging": {"strategy": "Moshpit", "groupSize": SIZE, "interval": {"samples": SAMPLES},
                                         "overlap": "Blocking", "weighting": "Equal", "compression": "None"}}
# (must, aim, which way is good)
WANTED = {"A4": (.8, 1, "above"), "B1.tls": (1.005, 1.001, "below"), "C1.tls": (3, 2.3, "below"), "M1": (.25, .10, "below")}


class Player:
    """A process that says "ready", and answers each line with the start and the end of a run."""

    def __init__(self, network, rank, command, environment=None):
        self.process = subprocess.Popen(network.inside(rank, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, **(environment or {})}, text=True, bufsize=1)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[-6:]} has ended")
        return line.split()


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK


def busy_seconds():
    """Of all processors, since the start of the machine."""
    fields = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / CLOCK


def anonymous_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0


class Contestant:
    """Four players that run together."""

    def __init__(self, players, measured=None):
        self.players = players
        self.measured = measured or [player.process.pid for player in players]
        self.seconds, self.cpu, self.foreign = [], [], []
        self.peak = 0

    def rest(self):
        """While others have their turn."""

    def close(self):
        for player in self.players:
            player.process.kill()
            player.process.wait()

    def await_ready(self):
        for player in self.players:
            if player.hear() != ["ready"]:
                sys.exit("a process said something else than ready")

    def run(self):
        own = {*self.measured, *(player.process.pid for player in self.players)}
        cpu, all_cpu, busy = cpu_seconds(self.measured), cpu_seconds(own), busy_seconds()
        for player in self.players:
            player.tell("go")
        stamps = self.answers()
        self.cpu.append(cpu_seconds(self.measured) - cpu)
        self.foreign.append(busy_seconds() - busy - (cpu_seconds(own) - all_cpu))
        self.seconds.append((max(end for _, end in stamps) - max(begin for begin, _ in stamps)) * 1e-9)

    def answers(self):
        """Of all players; looks at the memory meanwhile."""
        selector, stamps, deadline = selectors.DefaultSelector(), [], time.monotonic() + PATIENCE
        for player in self.players:
            selector.register(player.process.stdout, selectors.EVENT_READ, player)
        while len(stamps) < len(self.players):
            for key, _ in selector.select(timeout=0.01):
                stamps.append(tuple(map(int, key.data.hear())))
                selector.unregister(key.fileobj)
            self.peak = max(self.peak, *map(anonymous_bytes, self.measured))
            if time.monotonic() > deadline:
                sys.exit("a run takes for ever")
        return stamps

    def settle(self):
        """What goes on after a run is not the next one's."""
        for _ in range(50):
            before = cpu_seconds(self.measured)
            time.sleep(0.1)  # a span to measure
            if cpu_seconds(self.measured) - before <= 0.01:
                return


class Agents(Contestant):
    """Agents of `program`, each with a trainer. `shift`: of their ports, where others have the usual ones."""

    def __init__(self, network, folder, program, shift=0):
        self.network, self.agents, self.shift, trainers = network, [], shift, []
        self.sent, self.links = 0, pathlib.Path(tempfile.mkdtemp(prefix="crowdsurf-bench-", dir="/dev/shm"))
        for rank, host in enumerate(network.hosts):
            directory = folder / f"agent{rank}"
            (directory / "seeds").write_text("" if rank == 0 else f"{network.hosts[0]}:{PEER + shift}\n")
            (directory / "config").write_text(json.dumps(CONFIG))
            link = self.links / str(rank)
            link.mkdir(mode=0o700)
            command = [program, "agent", "--job", "bench", "--worker", f"bench-{rank}-1", "--dir", link,
                       "--agent-dir", directory, "--listen", host, "--peer-port", PEER + shift,
                       "--tensor-port", TENSOR + shift, "--http-port", HTTP + shift, "--hang-after", 0, "--log-level", "warning"]
            self.agents.append(subprocess.Popen(network.inside(rank, command)))
            here = pathlib.Path(__file__).resolve().parent
            trainers.append(Player(network, rank, [sys.executable, here / "averaging_trainer.py", rank, ELEMENTS, SAMPLES],
                                   {"CROWDSURF_DIR": str(link), "PYTHONPATH": str(here.parent / "python")}))
        super().__init__(trainers, [agent.pid for agent in self.agents])

    def await_ready(self):
        super().await_ready()
        deadline = time.monotonic() + PATIENCE
        while not all(self.seated(host) for host in self.network.hosts):
            if time.monotonic() > deadline:
                sys.exit("the agents do not find each other")
            self.rest()
            time.sleep(0.1)  # the agents tell nobody

    def seated(self, host):
        try:
            with urllib.request.urlopen(f"http://{host}:{HTTP + self.shift}/summary", timeout=1) as answer:
                summary = json.loads(answer.read())
        except OSError:
            return False
        return bool(summary["view"]) and summary["view"]["members"] == SIZE

    def rest(self):
        for player in self.players:
            player.tell("rest")
        for player in self.players:
            player.hear()

    def run(self):
        sent = self.network.sent_bytes()
        super().run()
        self.sent = self.network.sent_bytes() - sent
        for player in self.players:
            player.tell("add")
        for player in self.players:
            (value,) = player.hear()
            if float(value) != (SIZE - 1) / 2:
                sys.exit(f"the average is {value}")

    def close(self):
        for agent in self.agents:
            agent.kill()
        for agent in self.agents:
            agent.wait()
        super().close()
        shutil.rmtree(self.links, ignore_errors=True)


def make_credentials(folder):
    """In the new `folder`: for each agent a folder with a key and a certificate of one authority."""
    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    authority = folder / "ca"
    authority.mkdir(parents=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", "/CN=bench",
            "-keyout", authority / "key.pem", "-out", authority / "cert.pem")
    for rank in range(SIZE):
        agent = folder / f"agent{rank}"
        agent.mkdir(mode=0o700)
        names = folder / "names"
        names.write_text(f"subjectAltName=DNS:peer.crowdsurf,URI:crowdsurf://bench/bench-{rank}-1\n"
                         "extendedKeyUsage=serverAuth,clientAuth\n")
        openssl("genpkey", "-algorithm", "ed25519", "-out", agent / "key.pem")
        (agent / "key.pem").chmod(0o600)
        openssl("req", "-new", "-key", agent / "key.pem", "-subj", "/", "-out", folder / "request")
        openssl("x509", "-req", "-in", folder / "request", "-CA", authority / "cert.pem", "-CAkey", authority / "key.pem",
                "-days", 1, "-extfile", names, "-out", agent / "cert.pem")
        shutil.copy(authority / "cert.pem", agent / "ca.pem")


def make_contestants(network, folder, options):
    def anchor(name, command):
        if options.only and name not in options.only:
            return {}
        return {name: Contestant([Player(network, rank, command(rank)) for rank in range(SIZE)])}

    def gloo(algorithm):
        meeting = folder / algorithm
        meeting.mkdir()
        return lambda rank: [options.bin / "bench_gloo", rank, SIZE, ELEMENTS, meeting, network.hosts[rank], algorithm]

    def mesh(rank):
        return [options.bin / "bench_tls_mesh", rank, SIZE, IDEAL // SIZE // (SIZE - 1), folder / f"agents/agent{rank}", *network.hosts]

    make_credentials(folder / "agents")
    found = {"agents": Agents(network, folder / "agents", options.bin / "crowdsurf-worker")}
    if options.beside:
        make_credentials(folder / "beside")
        found["beside"] = Agents(network, folder / "beside", options.beside, shift=10)
    return {**found, **anchor("gloo_ring", gloo("ring")),
            **anchor("gloo_halving_doubling", gloo("halving_doubling")), **anchor("tls_mesh", mesh)}


def rest(contestants):
    for contestant in contestants.values():
        contestant.rest()


def measure(contestants, cycles, progress):
    names, sent = list(contestants), []
    for cycle in range(WARM_UP + cycles):
        for name in names[cycle % len(names):] + names[:cycle % len(names)]:
            contestants[name].run()
            contestants[name].settle()
            rest(contestants)
        sent.append(contestants["agents"].sent)
        if progress:
            print(f"cycle {cycle - WARM_UP + 1:3}  " + "  ".join(f"{name} {contestants[name].seconds[-1]:.3f}" for name in names),
                  file=sys.stderr, flush=True)
    return sent[WARM_UP:]


def figures_of(contestants, sent):
    """Medians over the cycles; ratios are of the same cycle."""
    def kept(values):
        return values[WARM_UP:]

    def ratio(one, other):
        return statistics.median(a / b for a, b in zip(kept(one), kept(other)))
    agents, found = contestants["agents"], {}
    if "tls_mesh" in contestants:
        found["A4"] = ratio(contestants["tls_mesh"].seconds, agents.seconds)
    found["B1.tls"] = statistics.median(sent) / IDEAL
    if "gloo_ring" in contestants:
        found["C1.tls"] = sum(kept(agents.cpu)) / sum(kept(contestants["gloo_ring"].cpu))
    found["M1"] = agents.peak / VECTOR
    if "beside" in contestants:
        found["beside.ratio"] = ratio(agents.seconds, contestants["beside"].seconds)
    for name, contestant in contestants.items():
        found[f"{name}.seconds"] = statistics.median(kept(contestant.seconds))
        found[f"{name}.cpu_per_gb"] = statistics.mean(kept(contestant.cpu)) / (IDEAL * 1e-9)
    whole = sum(sum(kept(contestant.seconds)) for contestant in contestants.values()) * CORES
    found["foreign_cpu"] = sum(sum(kept(contestant.foreign)) for contestant in contestants.values()) / whole
    return found


def missed(figures):
    return [name for name, (must, _, way) in WANTED.items()
            if name in figures and (figures[name] > must if way == "below" else figures[name] < must)]


def show(figures):
    for name, value in figures.items():
        must, aim, way = WANTED.get(name, (None, None, None))
        wanted = "" if must is None else f"   must be {way} {must}, aim {aim}"
        print(f"{name:34} {value:.4g}{wanted}" if isinstance(value, float) else f"{name:34} {value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="one object with every figure")
    parser.add_argument("--short", action="store_true", help="3 cycles")
    parser.add_argument("--long", action="store_true", help="20 cycles, not 10")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these anchors beside the agents")
    parser.add_argument("--beside", type=pathlib.Path, metavar="PROGRAM", help="a crowdsurf-worker of another build, to compare with")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as an interrupt: what was made is taken away
    cycles = 3 if options.short else 20 if options.long else 10
    load, folder = os.getloadavg()[0], pathlib.Path(tempfile.mkdtemp(prefix="crowdsurf-bench-"))
    network, contestants = Network(SIZE), {}
    try:
        contestants = make_contestants(network, folder, options)
        for contestant in contestants.values():
            contestant.await_ready()
        figures = figures_of(contestants, measure(contestants, cycles, not options.json))
    finally:
        # What is left if this is killed: every process is bound to this one, and every namespace to its processes.
        for contestant in contestants.values():
            contestant.close()
        network.close()
        shutil.rmtree(folder, ignore_errors=True)
    figures |= {"load_before": load, "cycles": cycles, "judged": figures["foreign_cpu"] < 0.05}
    figures["missed"] = missed(figures)
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        show(figures)


if __name__ == "__main__":
    main()
