"""Agents that a bench measures, each in a network namespace of its own, and the trainers beside them."""
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from contestants import PATIENCE, Contestant, Player, thread_seconds

HERE = pathlib.Path(__file__).resolve().parent
PEER, TENSOR, HTTP = 7001, 7002, 7003  # ports


def make_credentials(folder, size):
    """In the new `folder`: for each agent a folder with a key and a certificate of one authority."""
    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    authority = folder / "ca"
    authority.mkdir(parents=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", "/CN=bench",
            "-keyout", authority / "key.pem", "-out", authority / "cert.pem")
    for rank in range(size):
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


def flag_of_tls(program):
    """Of an agent that another build made: before --tensor-tls there was --tls, which also turned off the encryption of control."""
    words = subprocess.run([program, "agent", "--help"], check=True, capture_output=True, text=True).stdout
    return "--tensor-tls" if "--tensor-tls" in words else "--tls"


class Job:
    """A job's agents: at most one in each namespace. `shift`: of their ports, where those of another job have the usual ones.

    `folder`: new, with the agents' folders; the links lie on memory, in a folder that close() takes away.
    """

    def __init__(self, network, folder, program, averaging, tls=True, shift=0):
        self.network, self.folder, self.program, self.tls, self.shift = network, folder, program, tls, shift
        self.tls_flag = flag_of_tls(program)
        self.config = {"generation": 1, "averaging": averaging}
        self.links = pathlib.Path(tempfile.mkdtemp(prefix="crowdsurf-bench-", dir="/dev/shm"))
        make_credentials(folder, len(network.hosts))

    def link(self, rank):
        return self.links / str(rank)

    def start_agent(self, rank, seeds, log=None, level="warning"):
        """With a new link. `seeds`: the namespaces of those that it asks; `log`: where its standard error goes."""
        directory = self.folder / f"agent{rank}"
        (directory / "seeds").write_text("".join(f"{self.network.hosts[seed]}:{PEER + self.shift}\n" for seed in seeds))
        (directory / "config").write_text(json.dumps(self.config))
        shutil.rmtree(self.link(rank), ignore_errors=True)
        self.link(rank).mkdir(mode=0o700)
        command = [self.program, "agent", "--job", "bench", "--worker", f"bench-{rank}-1", "--dir", self.link(rank),
                   "--agent-dir", directory, "--listen", self.network.hosts[rank], "--peer-port", PEER + self.shift,
                   "--tensor-port", TENSOR + self.shift, "--http-port", HTTP + self.shift, "--hang-after", 0, "--log-level", level,
                   self.tls_flag, "Required" if self.tls else "Disabled"]
        return subprocess.Popen(self.network.inside(rank, command), stderr=log)

    def start_trainer(self, rank, script, *words):
        return Player(self.network, rank, [sys.executable, HERE / script, *words],
                      {"CROWDSURF_DIR": str(self.link(rank)), "PYTHONPATH": str(HERE.parent / "python")})

    def members(self, rank):
        """Of the view that this agent is in; 0: none."""
        try:
            url = f"http://{self.network.hosts[rank]}:{HTTP + self.shift}/summary"
            with urllib.request.urlopen(url, timeout=1) as answer:
                summary = json.loads(answer.read())
        except OSError:
            return 0
        return summary["view"]["members"] if summary["view"] else 0

    def close(self):
        shutil.rmtree(self.links, ignore_errors=True)


class Agents(Contestant):
    """The agents of a job, each with a trainer of averaging_trainer.py. `tolerance`: of an average, beside the largest value."""

    SAMPLES = 1000  # of an averaging
    TRIES = 5       # at a turn: an average that lacks a member, which was slow, is none

    def __init__(self, job, elements, tolerance):
        self.job, self.tolerance, self.sent, self.wrong = job, tolerance, [], 0
        self.busiest = []   # of each turn, CPU-seconds of the thread that had most to do, on average over the agents
        ranks = range(len(job.network.hosts))
        self.agents = [job.start_agent(rank, [] if rank == 0 else [0]) for rank in ranks]
        trainers = [job.start_trainer(rank, "averaging_trainer.py", rank, len(ranks), elements, self.SAMPLES) for rank in ranks]
        super().__init__(trainers, [agent.pid for agent in self.agents])
        self.kept += [self.sent, self.busiest]

    @classmethod
    def averaging(cls, size, compression):
        return {"strategy": "Moshpit", "groupSize": size, "interval": {"samples": cls.SAMPLES}, "overlap": "Blocking",
                "weighting": "Equal", "compression": compression}

    def await_ready(self):
        super().await_ready()
        size, deadline = len(self.agents), time.monotonic() + PATIENCE
        while not all(self.job.members(rank) == size for rank in range(size)):
            if time.monotonic() > deadline:
                sys.exit("the agents do not find each other")
            self.rest()
            time.sleep(0.1)  # the agents tell nobody

    def run(self):
        def once():
            sent, threads = self.job.network.sent_bytes(), [thread_seconds(agent.pid) for agent in self.agents]
            Contestant.run(self)
            self.sent.append(self.job.network.sent_bytes() - sent)
            busiest = [max(after - before.get(thread, 0) for thread, after in thread_seconds(agent.pid).items())
                       for agent, before in zip(self.agents, threads)]
            self.busiest.append(statistics.mean(busiest))
        self.until_right(once, (self.seconds, self.cpu, self.sent, self.busiest))

    def until_right(self, once, told):
        """Runs a turn again, and forgets what was `told` of it, where an average was wrong."""
        for _ in range(self.TRIES):
            once()
            worst = max(float(error) for (error,) in self.ask("take"))
            if worst <= self.tolerance:
                return
            print(f"an average is wrong by {worst:.4f} of the largest value: once more", file=sys.stderr, flush=True)
            self.wrong += 1
            for kept in told:
                kept.pop()
            self.rest()
        sys.exit("no average is right")

    def close(self):
        for agent in self.agents:
            agent.kill()
        for agent in self.agents:
            agent.wait()
        super().close()
        self.job.close()


class TrainersView(Contestant):
    """The same agents in other turns: from the last trainer that begins to copy its values to the last that has the average."""

    word = "whole"

    def __init__(self, agents):
        self.agents = agents
        super().__init__(agents.players, agents.measured)

    def await_ready(self):
        """They are."""

    rest = close = await_ready

    def run(self):
        self.agents.until_right(super().run, (self.seconds, self.cpu))
