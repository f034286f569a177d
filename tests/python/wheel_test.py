#!/usr/bin/env python3
"""The wheel `crowdsurf` in an empty environment: it installs without a registry, and is imported with nothing beside it."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMPORT = """
import importlib.util, crowdsurf
assert 'site-packages' in crowdsurf.__file__, crowdsurf.__file__
assert not any(importlib.util.find_spec(name) for name in ('numpy', 'torch'))
print(crowdsurf.__version__, crowdsurf.Agent.__name__)
"""


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class WheelTest(unittest.TestCase):
    def test_it_installs_into_an_empty_environment_and_is_imported(self):
        with tempfile.TemporaryDirectory() as folder:
            out, environment = pathlib.Path(folder, "out"), pathlib.Path(folder, "environment")
            run(ROOT / "deploy" / "wheels" / "client", out)
            (wheel,) = out.glob("*.whl")
            self.assertRegex(wheel.name, r"^crowdsurf-[\d.]+-py3-none-any\.whl$")
            with zipfile.ZipFile(wheel) as content:
                names = set(content.namelist())
                (metadata,) = (content.read(name).decode() for name in names if name.endswith("/METADATA"))
            sources = {f"crowdsurf/{path.name}" for path in (ROOT / "python" / "crowdsurf").glob("*.py")}
            self.assertLessEqual(sources | {"crowdsurf/py.typed"}, names)
            self.assertEqual([line for line in metadata.splitlines() if line.startswith("Requires-Dist") and
                              "extra ==" not in line], [], "nothing is required")
            run(sys.executable, "-m", "venv", "--without-pip", environment)
            python = environment / "bin" / "python"
            run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python, "install", "--no-index", wheel)
            self.assertRegex(run(python, "-I", "-c", IMPORT), r"^[\d.]+ Agent\n$")


if __name__ == "__main__":
    for module in ("pip", "setuptools", "wheel", "venv"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: needs Debian's python3-{module}")
            sys.exit(77)
    unittest.main()
