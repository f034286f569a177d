"""A bridge with a few network namespaces on it, made in the namespace of this process, and gone when it ends. Root."""
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# A child whose parent is killed must not stay: neither as a process nor as the holder of a namespace.
BOUND = ["setpriv", "--pdeathsig", "KILL"]
TCP_HEADERS = 20 + 32  # bytes: IPv4, and TCP with its time stamps


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Network:
    """`size` namespaces: 10.77.0.1 and so on, with cubic towards each other; this process is 10.77.0.254.

    `delay`: milliseconds that each of them adds to what comes to it.
    """

    def __init__(self, size, delay=0):
        self.hosts = [f"10.77.0.{i + 1}" for i in range(size)]
        self.holders = []
        ip("link", "set", "lo", "up")
        ip("link", "add", "hub", "type", "bridge")
        ip("address", "add", "10.77.0.254/24", "dev", "hub")
        ip("link", "set", "hub", "up")
        own = pathlib.Path("/proc/self/ns/net").readlink()
        for i, host in enumerate(self.hosts):
            holder = subprocess.Popen([*BOUND, "unshare", "--net", "sleep", "infinity"])
            self.holders.append(holder)
            while pathlib.Path(f"/proc/{holder.pid}/ns/net").readlink() == own:
                time.sleep(0.01)  # until it has made its namespace
            ip("link", "add", f"to{i}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            ip("link", "set", f"to{i}", "master", "hub", "up")
            for words in (["link", "set", "lo", "up"], ["link", "set", "eth0", "up"],
                          ["address", "add", f"{host}/24", "dev", "eth0", "noprefixroute"],
                          ["route", "add", "10.77.0.0/24", "dev", "eth0", "src", host, "congctl", "cubic"]):
                subprocess.run(self.inside(i, ["ip", *words]), check=True)
        slow = [sys.executable, HERE / "slow_network.py", "--delay", delay, "--here", "eth0", "--", *BOUND, "sleep", "infinity"]
        self.delayers = [subprocess.Popen(self.inside(i, slow)) for i in range(size) if delay]

    def inside(self, i, command):
        """`command`, to be run in namespace `i`. It ends with this process."""
        return [*BOUND, "nsenter", f"--net=/proc/{self.holders[i].pid}/ns/net", "--", *map(str, command)]

    def sent_bytes(self):
        """What the namespaces' living TCP connections have sent, with what was sent again."""
        total = 0
        for i in range(len(self.hosts)):
            text = subprocess.run(self.inside(i, ["ss", "-tinHO"]), check=True, capture_output=True, text=True).stdout
            total += sum(int(word.removeprefix("bytes_sent:")) for word in text.split() if word.startswith("bytes_sent:"))
        return total

    def received_payload(self, i):
        """Bytes that TCP segments brought into namespace `i`, headers apart; nothing else comes in. Also of those that came twice."""
        octets = self.counter(i, "netstat", "IpExt", "InOctets")
        return octets - TCP_HEADERS * self.counter(i, "snmp", "Ip", "InReceives")

    def counter(self, i, file, protocol, name):
        names, values = [line.split() for line in pathlib.Path(f"/proc/{self.holders[i].pid}/net/{file}").read_text().splitlines()
                         if line.startswith(f"{protocol}:")]
        return int(values[names.index(name)])

    def close(self):
        for holder in [*self.delayers, *self.holders]:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        # A namespace ends some time after its last process, and the next network wants these names.
        for i in range(len(self.hosts)):
            subprocess.run(["ip", "link", "delete", f"to{i}"], stderr=subprocess.DEVNULL, check=False)
        ip("link", "delete", "hub")
