"""A run of `crowdsurf run` for tests: a small job on a text of its own, and looks at what is going on."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
TRAINER = "crowdsurf-trainer, charlm, --text, TEXT, --hidden, '32', --step-time, 20ms"
JOB = """apiVersion: crowdsurf.io/v1alpha1
kind: TrainingJob
metadata: {name: e2e}
spec:
  replicas: 4
  averaging: {strategy: Moshpit, groupSize: 2, interval: {steps: 20}}
  target: {samples: 80000}
  checkpoint: {intervalSeconds: 1}
  runPolicy: {backoffLimit: 2}
  template: {spec: {containers: [{name: trainer, image: x, command: [COMMAND]}]}}
"""


# Seconds for what comes in one to ten on a quiet machine. A test fails by it and never waits for it: a processor that
# compiles something else beside the test must not fail it.
PATIENCE = 120
MARK = "CROWD_OF_TEST"  # in the environment of everything that a test starts: the state directory of its run


def processes(state):
    """{pid: words of its command} of the run in `state`, trainers in any language and their children included."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            environment = []   # an agent's is shown to root alone
        named = any(str(state).encode() in word for word in words) and b"crowdsurf" in words[0]
        if words[0] and (named or f"{MARK}={state}".encode() in environment):
            found[int(process.name)] = b" ".join(words).decode(errors="replace")
    return found


def sockets_of(pids):
    """Inodes of the sockets that these processes hold."""
    found = set()
    for pid in pids:
        try:
            for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                kind, _, inode = os.readlink(descriptor).partition(":[")
                if kind == "socket":
                    found.add(inode.rstrip("]"))
        except OSError:
            continue  # it has just ended, or closed it
    return found


def locked(file):
    """Whether a process holds a lock on it. Asked without locking: its run may be about to."""
    try:
        inode = f":{file.stat().st_ino}"
    except OSError:
        return False
    return any(line.split()[5].endswith(inode) for line in pathlib.Path("/proc/locks").read_text().splitlines()
               if line.split()[1] == "FLOCK")


def listening():
    """{inode: name} of every socket of this machine that listens."""
    found = {}
    for family in ("tcp", "tcp6"):
        for line in pathlib.Path("/proc/net", family).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":  # TCP_LISTEN
                found[words[9]] = words[1]
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & 0x10000:  # __SO_ACCEPTCON
            found[words[6]] = words[7] if len(words) > 7 else "unnamed"
    return found


class RunCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="crowdsurf-e2e-")
        self.path = pathlib.Path(self.folder.name)
        self.state = self.path / "state"
        text = self.path / "text"
        text.write_text("\n%\n".join(f"The {n} surfers of the crowd carry {n * n} stars.\nAgain and again."
                                     for n in range(4000)) + "\n")
        self.job = self.path / "job.yaml"
        self.command = TRAINER.replace("TEXT", str(text))
        self.write(self.command)
        self.shared = set(os.listdir("/dev/shm"))
        self.sockets = set()  # of the run's processes, as seen while it ran
        self.started = []

    def tearDown(self):
        for process in self.started:  # a test that failed must not leave its run to the next one
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()
        self.folder.cleanup()

    def write(self, command, **replace):
        text = JOB.replace("COMMAND", command)
        for old, new in replace.items():
            text = text.replace(old, new)
        self.job.write_text(text)

    def start(self, *flags, **extra):
        extra = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": os.environ, **extra}
        extra["env"] = {**extra["env"], MARK: str(self.state)}
        process = subprocess.Popen([BIN / "crowdsurf", "run", self.job, "--state-dir", self.state, *flags], **extra)
        self.started.append(process)
        return process

    def write_endless(self, command=None, **replace):
        """A job that ends when the test has seen what it waits for (end_job), not after a time."""
        self.write(command or self.command, **{"samples: 80000": "samples: 1000000000", **replace})

    def edit(self, text, written=None):
        """The manifest is replaced by this text in one step, as an editor does it; `written`: its time, in ns."""
        new = self.job.with_suffix(".new")
        new.write_text(text)
        if written is not None:
            os.utime(new, ns=(written, written))
        new.rename(self.job)

    def meet_target(self):
        """Edits the manifest so that the target is met, and the job ends well."""
        self.edit(re.sub(r"samples: \d+", "samples: 1", self.job.read_text()))

    def end_job(self, process, seen="", code=0):
        """Meets the target; the run ends with `code`. All that it said, `seen` first."""
        self.meet_target()
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, seen + output)
        return seen + output

    def interrupt(self, process, seen=""):
        """Ctrl-C, and the end of the run within its time (10 s for the workers); all that it said, `seen` first."""
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, seen + output)
        return seen + output

    def run_job(self, *flags, timeout=PATIENCE):
        process = self.start(*flags)
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output

    def wait_for(self, process, pattern, timeout=PATIENCE):
        """Reads the run's output until a line matches; all of it so far."""
        seen, end = "", time.time() + timeout
        while time.time() < end:
            line = process.stdout.readline()
            seen += line
            if re.search(pattern, line):
                self.sockets |= sockets_of(processes(self.state))
                return seen
            if not line:
                break
        self.fail(f"never saw {pattern}:\n{seen}")

    def left(self):
        """Whatever of the run is still there: processes, sockets that listen, socket files, shared folders."""
        found = [f"process {pid}: {words}" for pid, words in processes(self.state).items()]
        for inode, name in listening().items():
            if inode in self.sockets or name.startswith(str(self.path)):
                found.append(f"socket {inode}: {name}")
        found += [f"socket file {file}" for file in self.state.rglob("*") if file.is_socket()]
        return found + [f"shared folder {name}" for name in set(os.listdir("/dev/shm")) - self.shared
                        if self.is_mine(name)]

    def nothing_is_left(self, patience=10):
        end = time.time() + patience
        while (found := self.left()) and time.time() < end:
            time.sleep(0.05)  # between two looks at processes of others, which have no event; bounded by `end`
        # Not a look of its own: a run beside this one may be taking its folder away, its lock first.
        self.assertEqual(found, [])

    def is_mine(self, name):
        """Not that of another test's run, which lives and holds its lock. One of this test that lives is a process."""
        folder = pathlib.Path("/dev/shm") / name
        return name.startswith("crowdsurf-") and any(folder.glob("e2e-*")) and not locked(folder / "lock")

    def wait_for_each(self, process, patterns):
        """Reads until each of the patterns has matched some line, in whatever order; all of the output so far."""
        seen = ""
        while missing := [pattern for pattern in patterns if not re.search(pattern, seen)]:
            seen += self.wait_for(process, "|".join(missing))
        return seen

    def wait_for_all(self, process, but=None):
        """Reads until every worker of the job trains (`but` one); all of the output so far."""
        return self.wait_for_each(process, [f"e2e-{worker}-1 trains" for worker in range(4) if worker != but])

    def wait_until(self, true, patience=PATIENCE):
        end = time.time() + patience
        while not true():
            self.assertLess(time.time(), end, "it never came to be")
            time.sleep(0.05)  # between two looks at a process of its own, which tells nobody; bounded by `end`

    def agents(self, worker):
        """{pid: words of its command} of that worker's agent (a word of its command), without its supervisor."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[1:2] == ["agent"] and worker in words and any(str(self.state) in word for word in words):
                found[int(process.name)] = words
        return found

    def shared_folder(self):
        """The folder in /dev/shm in which the run's workers have theirs; an agent lives."""
        words = next(iter(self.agents("--dir").values()))
        return pathlib.Path(words[words.index("--dir") + 1]).parent

    def link(self, worker):
        """The folder that the worker's agent and trainer share."""
        (words,) = self.agents(worker).values()
        return pathlib.Path(words[words.index("--dir") + 1])

    def trainer(self, worker):
        """The pid of the worker's trainer."""
        mine = f"CROWDSURF_DIR={self.link(worker)}".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes().split(b"\0")
                command = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mine in environment and b"crowdsurf-trainer" in command[0]:
                found.append(int(process.name))
        (pid,) = found
        return pid

    def kill_worker(self, worker):
        """Kills its agent and trainer at once, as when a machine goes."""
        for pid in processes(self.state):
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if f"CROWDSURF_WORKER={worker}".encode() in environment:
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue   # it ended with its supervisor, or is an agent, which does

    def endpoints(self, worker):
        return json.loads((self.state / "workers" / worker / "agent" / "endpoints").read_text())

    def metric(self, worker, name):
        """The sum of a metric's series of one agent."""
        return self.sum_at(f"http://{self.endpoints(worker)['http']}/metrics", name)

    def sum_at(self, url, name):
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(name + r"[ {]", line))

    def page(self, seen):
        """The address of the page of the run that said `seen`."""
        return re.search(r"status +(http://127.0.0.1:\d+/)", seen).group(1)

    def run_metric(self, seen, name):
        """The sum of a metric's series of the run that said `seen`."""
        return self.sum_at(self.page(seen) + "metrics", name)

    def log(self, worker, process):
        """What is kept of what the worker's "agent" or "trainer" has printed: its beginning and its end."""
        path = self.state / "workers" / worker / f"{process}.log"
        parts = [path.with_name(path.name + end) for end in (".head", ".1", "")]
        return "".join(part.read_text(errors="replace") for part in parts if part.exists())

    def report(self):
        return json.loads((self.state / "report.json").read_text())
