#!/usr/bin/env python3
"""How fast the kernels over tensor bytes are beside intrinsics written by hand for AVX-512, on chunks that lie in the L2 cache.

Usage: kernels.py BIN [--json] [--short | --long]
bench_kernels (bench/kernels) runs each kernel and its hand-written twin in turns, in CPU time of one thread, and holds both to a
scalar oracle first. kernels.NAME is a kernel's share of the twin's speed, median of the turns; K1 is the least of them. It is
judged where other programs used less than 5 % of the processors. Without AVX-512 there is no row.
"""
import json
import statistics
import subprocess
import sys

import arguments
from contestants import Foreign
from rows import Rows, Wanted

WANTED = {"K1": Wanted(.8, .95)}


def main():
    options = arguments.of(__doc__, "20 pairs of turns, not 200", "2,000 pairs of turns").parse_args()
    rows, foreign = Rows(WANTED, options.json), Foreign()
    pairs = 20 if options.short else 2000 if options.long else 200
    foreign.begin()
    told = subprocess.run([options.bin / "bench_kernels", str(pairs)], check=True, stdout=subprocess.PIPE, text=True).stdout
    foreign.end()
    shares, others = json.loads(told), Foreign.share([foreign])
    for name, each in shares.items():
        rows.give(f"kernels.{name}", each, others)
    if shares:
        least = min(shares, key=lambda name: statistics.median(shares[name]))
        rows.give("K1", shares[least], others)
    elif not options.json:
        print("no row: this processor has no AVX-512")
    if options.json:
        print(rows.json())
    return 1 if rows.missed() else 0


if __name__ == "__main__":
    sys.exit(main())
