#!/usr/bin/env python3
"""Writes operator.json and job.json beside itself; with --check says whether they are what the sources make.

Needs grafana-foundation-sdk (PyPI); ./dev lint keeps it in build/dashboards-venv.
"""
import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

import job_board
import operator_board

HERE = pathlib.Path(__file__).resolve().parent


def main():
    stale = []
    for name, board in (("operator", operator_board), ("job", job_board)):
        text = json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=1).encode(board.build())), indent=1, sort_keys=True) + "\n"
        path = HERE / f"{name}.json"  # the chart has links to them
        if sys.argv[1:] != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    for name in stale:
        print(f"deploy/dashboards/{name} is not what its source makes: run deploy/dashboards/generate.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
