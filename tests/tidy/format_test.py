#!/usr/bin/env python3
"""Every C++ source is in the project's format, as clang-format of the pinned version writes it.

Other versions format a little differently, so without that version the test is skipped (exit 77): `./dev setup` installs it on
Debian 12. It is quick: 640 files in 3 s of one core.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINNED = "14"  # Debian 12's
SKIPPED = 77   # what ctest counts as skipped
BATCH = 50     # files a call: a failure in one of them does not hide the others


def pinned(program="clang-format"):
    """The path of clang-format, or another program of LLVM, of the pinned major version; or None."""
    for name in (f"{program}-{PINNED}", program):
        path = shutil.which(name)
        if not path:
            continue
        version = re.search(r"version (\d+)\.", subprocess.run([path, "--version"], capture_output=True, text=True).stdout)
        if version and version.group(1) == PINNED:
            return path
    return None


def misformatted(program, files):
    """Those of `files` that the program would write differently."""
    found = set()
    for at in range(0, len(files), BATCH):
        run = subprocess.run([program, "--dry-run", "--Werror", *files[at:at + BATCH]], cwd=ROOT, capture_output=True,
                             text=True)
        found |= set(re.findall(r"^(.+?):\d+:\d+: error: ", run.stderr, re.M))
        if run.returncode != 0 and not found:
            raise RuntimeError(run.stderr)
    return sorted(found)


def main():
    program = pinned()
    if not program:
        print(f"skipped: there is no clang-format {PINNED} (./dev setup installs it on Debian 12)")
        return SKIPPED
    planted = subprocess.run([program, "--dry-run", "--Werror", "--assume-filename", ROOT / "base" / "planted.cc"],
                             input="int  f( ){return 1 ;}\n", capture_output=True, text=True)
    if planted.returncode == 0:
        print("the check is blind: a planted fault was not seen")
        return 1
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cc"], cwd=ROOT, capture_output=True, text=True)
    files = listed.stdout.split() or [str(path.relative_to(ROOT)) for room in ROOT.iterdir() if room.is_dir() and
                                      room.name != "build" for path in room.rglob("*") if path.suffix in (".h", ".cc")]
    bad = misformatted(program, files)
    for name in bad:
        print(f"{name}: not in the project's format")
    print(f"format: {len(files)} files, {len(bad)} to mend" + ("; ./dev format mends them" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
