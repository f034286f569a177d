"""The programs of Crowdsurf. Each command of this package runs the program of its name, in its place."""

import os
import sys

__version__ = "0.1.0"

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def _run(name: str) -> None:
    program = os.path.join(_FOLDER, name)
    os.execv(program, [program, *sys.argv[1:]])


def crowdsurf() -> None:
    _run("crowdsurf")


def crowdsurf_worker() -> None:
    _run("crowdsurf-worker")


def crowdsurf_trainer() -> None:
    _run("crowdsurf-trainer")
