#!/usr/bin/env python3
"""A network namespace of its own whose loopback is slow: a delay each way and a rate that all share.

Usage: slow_network.py [--delay MS] [--rate MBIT] [--here DEVICE] -- COMMAND ...    (root; iptables, tc)
The command runs in a new namespace that has nothing but lo. Many kernels have no netem, so packets wait in a queue of
netfilter (NFQUEUE), and this program lets each go DELAY later, in order; then a token bucket of the kernel shapes what lo
sends. The kernel's own TCP sees both: windows, retransmissions and congestion are the real ones. Exits as the command.
With --here it is DEVICE of this namespace that is slow: in what it takes, and the rate in what it sends.
"""
import argparse
import collections
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

NETLINK_NETFILTER, QUEUE = 12, 3  # <linux/netlink.h>, NFNL_SUBSYS_QUEUE
PACKET, CONFIG, VERDICT_BATCH = 0, 2, 3  # NFQNL_MSG_*
CFG_CMD, CFG_PARAMS, CFG_MAXLEN, CFG_MASK, CFG_FLAGS = 1, 2, 3, 4, 5  # NFQA_CFG_*
FAIL_OPEN, GSO = 1, 4  # a full queue lets packets through undelayed; large ones stay whole
LONGEST = 1 << 16  # packets in the queue: 20 ms of the fastest loopback
TICK = 0.0005  # seconds between two verdicts at most: what is added to the delay, on average the half


def message(kind, flags, *attributes):
    body = struct.pack(">BBH", 0, 0, 0)
    for name, value in attributes:
        body += struct.pack("=HH", 4 + len(value), name) + value + b"\0" * (-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), QUEUE << 8 | kind, flags, 1, 0) + body


class Delayer:
    """Holds each packet of netfilter's queue 0 for `delay` seconds."""

    def __init__(self, delay):
        self.delay = delay
        self.waiting = collections.deque()  # (when it may go, id)
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
        self.socket.bind((0, 0))
        self.socket.setblocking(False)
        request, acknowledge = 1, 4
        for attribute in ((CFG_CMD, struct.pack(">BBH", 1, 0, socket.AF_INET)),  # bind
                          (CFG_PARAMS, struct.pack(">IB", 0, 1)),  # ids only, no payload
                          (CFG_MAXLEN, struct.pack(">I", LONGEST))):
            self.ask(message(CONFIG, request | acknowledge, attribute))
        self.ask(message(CONFIG, request | acknowledge, (CFG_MASK, struct.pack(">I", FAIL_OPEN | GSO)),
                         (CFG_FLAGS, struct.pack(">I", FAIL_OPEN | GSO))))

    def ask(self, request):
        self.socket.send(request)
        select.select([self.socket], [], [], 1)
        answer = self.socket.recv(1 << 16)
        code = struct.unpack_from("=i", answer, 16)[0]
        if code != 0:
            raise OSError(-code, os.strerror(-code))

    def take(self):
        now = time.monotonic()
        while True:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # of those the kernel lets the packets through
                    raise
                continue
            if struct.unpack_from("=H", data, 4)[0] & 0xff == PACKET:
                # The first attribute is the packet's header: its id first.
                self.waiting.append((now + self.delay, data[24:28]))

    def release(self):
        now, last = time.monotonic(), None
        while self.waiting and self.waiting[0][0] <= now:
            last = self.waiting.popleft()[1]
        if last is not None:  # every id up to the last one
            self.socket.send(message(VERDICT_BATCH, 1, (2, struct.pack(">I", 1) + last)))

    def run(self, process):
        while process.poll() is None:
            for _ in range(100):
                wait = max(TICK, self.waiting[0][0] - time.monotonic()) if self.waiting else 0.05
                select.select([self.socket], [], [], wait)
                self.take()
                self.release()
        self.waiting.clear()


def inside(options):
    """The command, in the namespace that this process is in."""
    def run(*command):
        subprocess.run(command, check=True)
    device = options.here or "lo"
    run("ip", "link", "set", device, "up")
    if options.rate:
        run("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{options.rate}mbit", "burst", "256kb",
            "latency", "400ms")
    delayer = None
    if options.delay:
        delayer = Delayer(options.delay / 1000)
        # What waits on its way out counts against a connection (TCP small queues): 100 Mbit/s each over lo, 2 over veth.
        way = ("INPUT", "-i") if options.here else ("OUTPUT", "-o")
        run("iptables", "-A", *way, device, "-j", "NFQUEUE", "--queue-num", "0", "--queue-bypass")
    process = subprocess.Popen(options.command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: process.send_signal(number))
    if delayer:
        delayer.run(process)
    return process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=0, help="milliseconds each way; 0: none")
    parser.add_argument("--rate", type=float, default=0, help="Mbit/s, all connections together; 0: no limit")
    parser.add_argument("--here", metavar="DEVICE", help="no new namespace")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if not options.inside and not options.here:
        os.execvp("unshare", ["unshare", "--net", sys.executable, __file__, "--inside", *sys.argv[1:]])
    sys.exit(inside(options))


if __name__ == "__main__":
    main()
