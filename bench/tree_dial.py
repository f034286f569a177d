#!/usr/bin/env python3
"""Agents that may dial their neighbours in a chain only, by the kernel's firewall.

Usage: tree_dial.py --rules|--relay|--open WORKERS -- COMMAND ...      (root, in a network namespace of its own): sets the
       rules, runs it; or tree_dial.py run --worker JOB-K-1 ... --listen ADDRESS ...: as CROWDSURF_AGENT_PROGRAM, the agent of worker K
Worker K listens on 127.0.1.(K+1) and runs with group FIRST_GROUP + K, which the firewall knows the sender of a packet by;
it starts when worker K-1 has a seat, so that the order of joining, which is that of the chain, is the order of the names.
With --rules what K sends reaches the addresses of K-1, K and K+1 alone; with --relay, too, and what its agent dials elsewhere is
redirected to tree_relay.py, which runs beside each worker under the same rules; with --open the same without the firewall.
"""
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import tree_relay

FIRST_GROUP = 23000  # group ids that nobody has
AGENT = "CROWDSURF_TREE_DIAL_AGENT"
PATIENCE = 40  # seconds to wait for the worker before; then this one starts all the same


def set_rules(workers, relayed):
    for worker in range(workers):
        for other in range(workers):
            if abs(worker - other) <= 1:
                continue
            hidden = ["OUTPUT", "-o", "lo", "-d", tree_relay.address(other), "-m", "owner", "--gid-owner",
                      str(FIRST_GROUP + worker)]
            subprocess.run(["iptables", "-A", *hidden, "-j", "REJECT"], check=True)
            if relayed:  # before the rule above: what is redirected goes to 127.0.0.1
                subprocess.run(["iptables", "-t", "nat", "-A", *hidden, "-p", "tcp", "-j", "REDIRECT", "--to-ports",
                                str(tree_relay.REDIRECTED + worker)], check=True)


def start_relays(workers):
    relays = [subprocess.Popen([sys.executable, tree_relay.__file__, str(worker)], stdout=subprocess.PIPE, text=True,
                               group=FIRST_GROUP + worker, extra_groups=[]) for worker in range(workers)]
    for relay in relays:
        if relay.stdout.readline() != "ready\n":
            raise OSError("a relay did not start")
    return relays


def seated(endpoints):
    try:
        url = f"http://{json.loads(endpoints.read_text())['http']}/summary"
        with urllib.request.urlopen(url, timeout=1) as answer:
            return json.loads(answer.read())["view"] is not None
    except (OSError, ValueError):
        return False  # not yet


def run_agent(arguments):
    name = arguments[arguments.index("--worker") + 1]
    job, worker, incarnation = name.rsplit("-", 2)
    worker = int(worker)
    own = pathlib.Path(arguments[arguments.index("--agent-dir") + 1])
    before = own.parent.parent / f"{job}-{worker - 1}-{incarnation}" / own.name / "endpoints"
    until = time.monotonic() + PATIENCE
    while worker > 0 and not seated(before) and time.monotonic() < until:
        time.sleep(0.1)  # between two questions
    arguments[arguments.index("--listen") + 1] = tree_relay.address(worker)
    os.setgroups([])
    os.setgid(FIRST_GROUP + worker)
    os.execv(os.environ[AGENT], [os.environ[AGENT], *arguments])


def main():
    if sys.argv[1] == "run":
        return run_agent(sys.argv[1:])
    workers = int(sys.argv[2])
    if sys.argv[1] != "--open":
        set_rules(workers, sys.argv[1] == "--relay")
    relays = start_relays(workers) if sys.argv[1] == "--relay" else []
    status = subprocess.run(sys.argv[sys.argv.index("--") + 1:], check=False).returncode
    for relay in relays:
        relay.terminate()
        relay.wait()
    sys.exit(status)


if __name__ == "__main__":
    main()
