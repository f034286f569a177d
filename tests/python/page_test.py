#!/usr/bin/env python3
"""docs/pytorch.md: its script runs as it stands, and with its four lines changed. Needs PyTorch and scikit-learn, else skipped."""
import difflib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pytorch.md").read_text()
MOST_CHANGED = 4   # lines of a plain loop


PLAIN, WORKER = re.findall(r"```python\n(.*?)```", PAGE, re.S)


class PageTest(unittest.TestCase):
    def run_script(self, text):
        environment = {name: value for name, value in os.environ.items() if name != "CROWDSURF_DIR"}
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(text)
            run = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True,
                                 env={**environment, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stderr

    def test_the_script_runs_plain_and_as_a_worker_without_an_agent(self):
        self.assertEqual(self.run_script(PLAIN), "")
        self.assertIn("trains alone", self.run_script(WORKER))

    def test_few_lines_change(self):
        changes = list(difflib.ndiff(PLAIN.splitlines(), WORKER.splitlines()))
        added, removed = ([line for line in changes if line.startswith(mark)] for mark in ("+ ", "- "))
        print(f"lines changed in a plain loop: {len(added)}")
        self.assertLessEqual(len(added), MOST_CHANGED)
        self.assertLessEqual(len(removed), len(added), "a line that is taken away is not counted otherwise")


if __name__ == "__main__":
    for module in ("torch", "sklearn"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: needs Debian's python3-{module}")
            sys.exit(77)
    unittest.main()
