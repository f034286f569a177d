#!/usr/bin/env python3
"""A job under preemption, built with the thread sanitizer: no process of it sees a data race.

Usage: races_test.py BIN     BIN is the folder of the programs of the tsan preset. `./dev test sanitizers` runs it.
"""
import os
import re
import subprocess
import unittest

from runs import RunCase

RACY = """#include <thread>
int shared = 0;
int main() {
  std::thread other([] { ++shared; });
  ++shared;
  other.join();
}
"""


class RacesTest(RunCase):
    def setUp(self):
        super().setUp()
        options = os.environ.get("TSAN_OPTIONS", "")
        self.environment = {**os.environ, "TSAN_OPTIONS": f"{options}:log_path={self.path / 'race'}:exitcode=66"}

    def races(self):
        return [file.read_text() for file in sorted(self.path.glob("race.*"))]

    def test_a_planted_race_is_reported(self):
        program = self.path / "racy"
        subprocess.run(["c++", "-g", "-fsanitize=thread", "-x", "c++", "-", "-o", program], input=RACY, text=True, check=True)
        subprocess.run([program], env=self.environment)
        self.assertRegex("".join(self.races()), "data race")

    def test_workers_are_killed_and_nobody_races(self):
        self.write_endless()
        process = self.start("--workers", "3", "--preempt-every", "5s", "--notice", "none", env=self.environment)
        seen = ""
        while seen.count("is taken by the spot market") < 3 or not re.search(r"e2e-\d-[2-9] trains", seen):
            seen += self.wait_for(process, "is taken by the spot market|trains")
        self.end_job(process, seen)
        self.assertEqual(self.races(), [])
        self.assertGreaterEqual(self.report()["preemptions"], 3)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
