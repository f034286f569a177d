#!/usr/bin/env python3
"""Agents that may dial their neighbours in a chain only, by the kernel's firewall.

Usage: tree_dial.py --reject|--drop|--open WORKERS -- COMMAND ...      (root, in a network namespace of its own): sets the
       rules, runs it; or tree_dial.py run --worker JOB-K-1 ... --listen ADDRESS ...: as CROWDSURF_AGENT_PROGRAM, the agent of worker K
Worker K listens on 127.0.1.(K+1) and runs with group FIRST_GROUP + K, which the firewall knows the sender of a packet by;
it starts when worker K-1 has a seat, so that the order of joining, which is that of the chain, is the order of the names.
What K sends reaches the addresses of K-1, K and K+1 alone: with --reject its dials elsewhere are refused at once, with --drop
they are never answered; with --open the same without the firewall.
"""
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

FIRST_GROUP = 23000  # group ids that nobody has
AGENT = "CROWDSURF_TREE_DIAL_AGENT"
PATIENCE = 40  # seconds to wait for the worker before; then this one starts all the same


def address(worker):
    return f"127.0.1.{worker + 1}"


def set_rules(workers, verdict):
    for worker in range(workers):
        for other in range(workers):
            if abs(worker - other) <= 1:
                continue
            subprocess.run(["iptables", "-A", "OUTPUT", "-o", "lo", "-d", address(other), "-m", "owner", "--gid-owner",
                            str(FIRST_GROUP + worker), "-j", verdict], check=True)


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
    arguments[arguments.index("--listen") + 1] = address(worker)
    os.setgroups([])
    os.setgid(FIRST_GROUP + worker)
    os.execv(os.environ[AGENT], [os.environ[AGENT], *arguments])


def main():
    if sys.argv[1] == "run":
        return run_agent(sys.argv[1:])
    workers = int(sys.argv[2])
    if sys.argv[1] != "--open":
        set_rules(workers, sys.argv[1].removeprefix("--").upper())
    sys.exit(subprocess.run(sys.argv[sys.argv.index("--") + 1:], check=False).returncode)


if __name__ == "__main__":
    main()
