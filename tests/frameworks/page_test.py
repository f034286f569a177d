#!/usr/bin/env python3
"""docs/frameworks.md: each of its scripts runs as it stands, alone."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text()
SCRIPTS = re.findall(r"^## (.*?)$(?:(?!^## ).)*?```python\n(.*?)```", PAGE, re.S | re.M)


class PageTest(unittest.TestCase):
    def test_every_script_trains_alone_and_says_so_once(self):
        environment = {name: value for name, value in os.environ.items() if name != "CROWDSURF_DIR"}
        environment.update(PYTHONPATH=str(ROOT / "python"), HF_HUB_OFFLINE="1")
        for title, text in SCRIPTS:
            with self.subTest(title), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder, "train.py")
                script.write_text(text)
                run = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True, env=environment, cwd=folder)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stderr.count("trains alone"), 1, run.stderr)

    def test_they_are_all_found(self):
        self.assertEqual(len(SCRIPTS), PAGE.count("```python"))


if __name__ == "__main__":
    unittest.main()
