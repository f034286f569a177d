#!/usr/bin/env python3
"""How long an averaging should take, by the formula of docs/data-plane.md: nothing is measured here.

Usage: expected.py [--table] [--parameters N] [--bytes N] [--members N] [--rounds N] [--gbit N] [--together N] [--cores N]
Without --table it prints the seconds of one case and what bounds it.
"""
import argparse

# Of a frame of Ethernet with an MTU of 1500 bytes, what TCP carries.
WIRE_SHARE = 1448 / 1538
# Seconds of one thread for a GB that its agent sends: CPU-seconds a GB of float32 (docs/data-plane.md, "Where the time goes") x share.
AGENT_CPU = 1.22
IO_THREAD, HOST_THREAD = .87 * AGENT_CPU, .08 * AGENT_CPU
MODELS = ((25e6, "25 M"), (125e6, "125 M"), (1e9, "1 G"), (7e9, "7 G"))
LINKS = (.1, 1, 10)
MEMBERS = 8


def sent_gb(parameters, wire_bytes, members, rounds=1):
    """What one member sends in an averaging: its inputs to the other owners, and its part's result to the others."""
    return rounds * 2 * (members - 1) / members * parameters * wire_bytes * 1e-9


def bounds(parameters, wire_bytes, members, gbit, rounds=1, together=1, cores=2):
    """Seconds by what bounds them. The work is pipelined, so the largest is the time. `together` members share a machine."""
    io_threads = 2 if cores >= 4 else 1
    sent, as_float32 = sent_gb(parameters, wire_bytes, members, rounds), sent_gb(parameters, 4, members, rounds)
    return {"link": 8 * sent / (WIRE_SHARE * gbit), "I/O thread": IO_THREAD * sent / io_threads, "host thread": HOST_THREAD * as_float32,
            "processors": together * AGENT_CPU * sent / cores}


def cell(parameters, wire_bytes, gbit):
    by, seconds = max(bounds(parameters, wire_bytes, MEMBERS, gbit).items(), key=lambda item: item[1])
    digits = 2 if seconds < 1 else 1 if seconds < 10 else 0
    return f"{seconds:.{digits}f}{'' if by == 'link' else ' *'}"


def table():
    head = [f"{name}, {gbit} Gbit/s" for name in ("Float16", "Int8") for gbit in LINKS]
    lines = ["| parameters | " + " | ".join(head) + " |", "|" + "---|" * (len(head) + 1)]
    for parameters, name in MODELS:
        cells = [cell(parameters, wire_bytes, gbit) for wire_bytes in (2, 1) for gbit in LINKS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="the table of docs/data-plane.md")
    parser.add_argument("--parameters", type=float, default=25e6)
    parser.add_argument("--bytes", type=int, default=2, choices=(1, 2, 4), help="of a parameter on the wire")
    parser.add_argument("--members", type=int, default=MEMBERS, help="of a group")
    parser.add_argument("--rounds", type=int, default=1, help="of an averaging: the axes of the grid")
    parser.add_argument("--gbit", type=float, default=10, help="Gbit/s of the link, each way")
    parser.add_argument("--together", type=int, default=1, help="members that share a machine")
    parser.add_argument("--cores", type=int, default=2, help="of a machine, for its agents")
    options = parser.parse_args()
    if options.table:
        return print(table())
    if min(options.parameters, options.gbit, options.rounds, options.together, options.cores) <= 0 or options.members < 2:
        parser.error("all numbers must be positive, and a group has two members at least")
    found = bounds(options.parameters, options.bytes, options.members, options.gbit, options.rounds, options.together, options.cores)
    for name, seconds in found.items():
        print(f"{name:12} {seconds:9.3f} s")
    print(f"{'expected':12} {max(found.values()):9.3f} s")


if __name__ == "__main__":
    main()
