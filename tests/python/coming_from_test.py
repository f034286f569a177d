#!/usr/bin/env python3
"""docs/coming-from.md: the loop after each diff runs alone; so does the one before it where it needs PyTorch alone."""
import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
DIFFS = dict(re.findall(r"^## (.*?)$(?:(?!^## ).)*?```diff\n(.*?)```", PAGE, re.S | re.M))
OF_PYTORCH = ("DDP", "DiLoCo")   # hivemind and torchft are not installed here
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}   # what torchrun gives to one process


def side(diff, gone):
    """The script on one side of the diff; `gone`: the mark of the lines that it has not."""
    lines = diff.splitlines()
    assert all(line[:1] in "+- " and line for line in lines), diff
    return "\n".join(line[1:] for line in lines if not line.startswith(gone)) + "\n"


class ComingFromTest(unittest.TestCase):
    def run_script(self, text):
        environment = {name: value for name, value in os.environ.items() if name != "CROWDSURF_DIR"}
        environment.update(ALONE, PYTHONPATH=str(ROOT / "python"))
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text(text)
            run = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True, env=environment)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stderr

    def test_every_loop_trains_alone_after_the_change(self):
        for title, diff in DIFFS.items():
            with self.subTest(title):
                self.assertIn("trains alone", self.run_script(side(diff, "-")))

    def test_every_loop_was_one_before_it(self):
        import torch

        for title, diff in DIFFS.items():
            with self.subTest(title):
                before = side(diff, "+")
                ast.parse(before)
                self.assertNotIn("crowdsurf", before)
                if title in OF_PYTORCH and torch.distributed.is_available():
                    self.run_script(before)

    def test_they_are_all_found(self):
        self.assertEqual(sorted(DIFFS), ["DDP", "DiLoCo", "hivemind", "torchft"])


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: needs Debian's python3-torch")
        sys.exit(77)
    unittest.main()
