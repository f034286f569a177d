#!/usr/bin/env python3
"""The table of expected seconds in docs/data-plane.md is what bench/expected.py computes, and its bytes are those of an all-reduce
that is counted chunk by chunk."""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "bench/expected.py"
PAGE = ROOT / "docs/data-plane.md"


def run(*words):
    return subprocess.run([sys.executable, "-B", PROGRAM, *words], capture_output=True, text=True)


def seconds(*words):
    return {name: float(value) for name, value in re.findall(r"^(.+?) +([0-9.]+) s$", run(*words).stdout, re.M)}


def sent_by(member, chunks, chunk_bytes, members):
    """Chunk i is reduced by member i mod members: what `member` sends of a vector of `chunks`."""
    sent = 0
    for chunk in range(chunks):
        sent += chunk_bytes * (members - 1 if chunk % members == member else 1)  # its result to all, or its input to the owner
    return sent


class ExpectedTest(unittest.TestCase):
    def test_the_page_has_the_computed_table(self):
        self.assertIn(run("--table").stdout, PAGE.read_text())

    def test_from_four_processors_on_two_threads_share_the_bytes(self):
        one, two = (seconds("--parameters", "1e9", "--cores", cores)["I/O thread"] for cores in ("3", "4"))
        self.assertAlmostEqual(one, 2 * two, places=2)

    def test_the_bytes_are_those_of_an_all_reduce(self):
        members, chunks = 4, 800
        sent = sent_by(1, chunks, 32768 * 4, members)
        found = seconds("--parameters", str(32768 * chunks), "--bytes", "4", "--members", str(members), "--gbit", "0.01")
        self.assertAlmostEqual(found["link"], 8 * sent / (1e7 * 1448 / 1538), places=2)
        self.assertEqual(found["expected"], found["link"])

    def test_twice_the_axes_take_twice_as_long(self):
        one, two = seconds("--parameters", "1e9"), seconds("--parameters", "1e9", "--rounds", "2")
        for name, value in one.items():
            self.assertAlmostEqual(two[name], 2 * value, delta=.002, msg=name)

    def test_nonsense_is_refused(self):
        for words in (["--members", "1"], ["--gbit", "0"], ["--parameters", "-1"], ["--bytes", "3"], ["--cores", "0"]):
            self.assertEqual(run(*words).returncode, 2, words)


if __name__ == "__main__":
    unittest.main()
