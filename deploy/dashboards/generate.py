#!/usr/bin/env python3
"""Writes operator.json and job.json beside itself and into the chart; with --check says whether they are what the sources make.

Needs grafana-foundation-sdk (PyPI); ./dev lint keeps it in build/dashboards-venv.
"""
import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

import job_board
import operator_board

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE.parents[1] / "helm/crowdsurf/files/dashboards"  # helm warns of links, and a packaged chart needs the files


def main():
    stale = []
    for name, board in (("operator", operator_board), ("job", job_board)):
        text = json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=1).encode(board.build())), indent=1, sort_keys=True) + "\n"
        for path in (HERE / f"{name}.json", CHART / f"{name}.json"):
            if sys.argv[1:] != ["--check"]:
                path.write_text(text)
            elif not path.exists() or path.read_text() != text:
                stale.append(path.relative_to(HERE.parents[1]))
    for name in stale:
        print(f"{name} is not what its source makes: run deploy/dashboards/generate.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
