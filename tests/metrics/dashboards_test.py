#!/usr/bin/env python3
"""The shipped dashboards keep the linter's rules, are the same in the chart, and are what their sources make; planted faults are
found. The last needs grafana-foundation-sdk (./dev lint installs it); without it that one check says that it was left out."""
import copy
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARDS = ROOT / "deploy/dashboards"
VENV = ROOT / "build/dashboards-venv/bin/python"
sys.path.insert(0, str(BOARDS))
sys.dont_write_bytecode = True
import check  # noqa: E402  (from deploy/dashboards)


def panel(board, title):
    return next(p for p in board["panels"] if p["title"] == title)


# What is broken, and a word of the complaint.
FAULTS = {
    "no description": lambda b: panel(b, "Samples").pop("description"),
    "no title": lambda b: panel(b, "Samples").update(title=""),
    "the unit": lambda b: panel(b, "Rounds")["fieldConfig"]["defaults"].update(unit="bananas"),
    "not on the datasource variable": lambda b: panel(b, "Rounds").update(datasource={"uid": "abc"}),
    "a query that is not on": lambda b: panel(b, "Rounds")["targets"][0].update(datasource={"uid": "abc"}),
    "without a legend": lambda b: panel(b, "Rounds")["targets"][0].update(legendFormat=""),
    "no query": lambda b: panel(b, "Rounds").update(targets=[]),
    "an empty query": lambda b: panel(b, "Rounds")["targets"][0].update(expr=""),
    "is not $__rate_interval": lambda b: change(b, "Rounds", "$__rate_interval", "5m"),
    "use rate": lambda b: change(b, "Rounds", "rate(", "max("),
    "is not in docs/metrics.md": lambda b: change(b, "Rounds", "crowdsurf_round_total", "crowdsurf_rounds_total"),
    "lacks training_job": lambda b: change(b, "Rounds", ', training_job="$training_job"', ""),
    "brackets do not match": lambda b: change(b, "Rounds", "))", ")"),
    "nothing uses it": lambda b: rename(b, "training_job", "spare"),
    "is no variable": lambda b: change(b, "Rounds", "$namespace", "$space"),
    "lies over": lambda b: panel(b, "Rounds")["gridPos"].update(y=panel(b, "Rounds")["gridPos"]["y"] - 1),
    "twice": lambda b: panel(b, "Rounds").update(id=panel(b, "Samples")["id"]),
    "not editable": lambda b: b.update(editable=True),
    "one datasource variable": lambda b: b["templating"]["list"].pop(0),
}


def change(board, title, old, new):
    target = panel(board, title)["targets"][0]
    assert old in target["expr"]
    target["expr"] = target["expr"].replace(old, new)


def rename(board, old, new):
    next(v for v in board["templating"]["list"] if v["name"] == old)["name"] = new


class Dashboards(unittest.TestCase):
    def test_the_shipped_boards_keep_the_rules(self):
        names = check.declared()
        for path in sorted(BOARDS.glob("*.json")):
            self.assertEqual([], list(check.check(json.loads(path.read_text()), names)), path.name)

    def test_planted_faults_are_found(self):
        names = check.declared()
        board = json.loads((BOARDS / "job.json").read_text())
        for word, plant in FAULTS.items():
            with self.subTest(word):
                broken = copy.deepcopy(board)
                plant(broken)
                self.assertIn(word, "\n".join(check.check(broken, names)))

    def test_the_chart_ships_the_same_files(self):
        for path in sorted(BOARDS.glob("*.json")):
            self.assertEqual(path.read_text(), (ROOT / "helm/crowdsurf/files/dashboards" / path.name).read_text(), path.name)

    def test_the_files_are_what_the_sources_make(self):
        python = sys.executable if importlib.util.find_spec("grafana_foundation_sdk") else str(VENV)
        if not pathlib.Path(python).exists():
            self.skipTest("grafana-foundation-sdk is not installed: ./dev lint")
        made = subprocess.run([python, "-B", str(BOARDS / "generate.py"), "--check"], capture_output=True, text=True, timeout=60)
        self.assertEqual((0, ""), (made.returncode, made.stdout + made.stderr))


if __name__ == "__main__":
    unittest.main()
