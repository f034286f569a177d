#!/usr/bin/env python3
"""The package as a whole: its types, the oldest Python that reads it, and that it needs neither numpy nor PyTorch."""
import ast
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "crowdsurf"
OLDEST = (3, 9)
PYTHONS = [f"python3.{minor}" for minor in range(OLDEST[1], 14)]
IMPORT = f"""
import sys
sys.path.insert(0, {str(ROOT / 'python')!r})
import crowdsurf
assert not any(name in sys.modules for name in ('numpy', 'torch')), 'imported'
try:
    crowdsurf.join(None)
except ImportError as error:
    assert 'needs PyTorch' in str(error), error
else:
    raise AssertionError('there is no PyTorch here')
"""


def missing():
    """The Pythons that are not on this machine."""
    return {name for name in PYTHONS if not shutil.which(name) or
            subprocess.run([name, "-c", "pass"], capture_output=True).returncode != 0}


class PackageTest(unittest.TestCase):
    def test_the_oldest_python_can_read_every_file(self):
        self.assertIn(f'requires-python = ">={OLDEST[0]}.{OLDEST[1]}"', (ROOT / "python" / "pyproject.toml").read_text())
        for path in PACKAGE.glob("*.py"):
            ast.parse(path.read_text(), str(path), feature_version=OLDEST)
        with self.assertRaises(SyntaxError):
            ast.parse("match x:\n  case 1: pass\n", feature_version=OLDEST)

    def test_every_python_here_imports_it_with_neither_numpy_nor_torch(self):
        for python in sorted({sys.executable} | set(PYTHONS) - missing()):
            with self.subTest(python):
                run = subprocess.run([python, "-I", "-S", "-B", "-c", IMPORT], capture_output=True, text=True)
                self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_its_types_are_strict_for_the_oldest_and_the_newest_python(self):
        mypy = shutil.which("mypy")
        if not mypy:
            self.skipTest("there is no mypy (./dev setup installs it)")
        for version in (f"{OLDEST[0]}.{OLDEST[1]}", f"{sys.version_info[0]}.{sys.version_info[1]}"):
            with self.subTest(version):   # PyTorch's own types take a minute to read: `./dev lint` does
                run = subprocess.run([mypy, "--cache-dir=/dev/null", "--no-site-packages", f"--python-version={version}"],
                                     cwd=ROOT / "python", capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertTrue((PACKAGE / "py.typed").exists(), "else nobody sees them")

    def test_it_is_of_the_same_release_as_the_programs(self):
        (programs,) = re.findall(r"project\(crowdsurf VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
        (of_programs,) = (ROOT / "python" / "programs").glob("*/__init__.py")
        for path in (PACKAGE / "version.py", of_programs):
            (version,) = re.findall(r'__version__ = "(.+)"', path.read_text())
            self.assertEqual(version, programs, path)
        self.assertIn(f'local = ["crowdsurf-bin=={programs}"]', (ROOT / "python" / "pyproject.toml").read_text())


if __name__ == "__main__":
    unittest.main()
