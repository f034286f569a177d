"""The command line that benches with rows share."""
import argparse
import pathlib


def of(document, short, long):
    """A parser: where the programs are, --json, --short and --long. `short`, `long`: what these make of the bench."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="one object with every row")
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument("--long", action="store_true", help=long)
    return parser


def with_cycles(document):
    """The same, for benches whose contestants take turns."""
    parser = of(document, "3 cycles", "20 cycles, not 10")
    parser.add_argument("--cycles", type=int, help="so many")
    return parser


def cycles(options):
    return options.cycles or (3 if options.short else 20 if options.long else 10)
