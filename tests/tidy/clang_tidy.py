#!/usr/bin/env python3
"""Runs clang-tidy of the pinned version, with .clang-tidy, on what changed since a commit.

    clang_tidy.py BUILD BASE     BUILD: a configured build of the clang preset; BASE: a commit, or "all"

A source is checked in its unit of translation: in a unity build, with up to seven neighbours. A header is checked in one unit
that includes it. A change of .clang-tidy is a change of everything. One unit takes 10 to 30 s of a core.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import format_test  # noqa: E402  (beside this file: how a program of the pinned version is found)

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^#include "(.+?)"', re.M)


def units_of(build):
    """Every source of the compilation database, by its path from the root: the unit that compiles it."""
    units = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = pathlib.Path(entry["file"])
        inside = INCLUDE.findall(unit.read_text()) if build in unit.parents and unit.exists() else [unit]
        for source in map(pathlib.Path, inside):
            if ROOT in source.parents and build not in source.parents:
                units[str(source.relative_to(ROOT))] = str(unit)
    return units


def includers_of(files, read):
    """For every header of the project, the files that include it."""
    includers = {}
    for name in files:
        for header in INCLUDE.findall(read(name)):
            includers.setdefault(header, []).append(name)
    return includers


def source_for(header, includers):
    """A source that sees `header`: its own, else the nearest one that includes it. None: nothing includes it."""
    own = re.sub(r"\.h$", ".cc", header)
    level, seen = [header], {header}
    while level:
        above = [name for at in level for name in includers.get(at, [])]
        sources = sorted(name for name in above if name.endswith(".cc"))
        if sources:
            return own if own in sources else sources[0]
        level = [name for name in above if name not in seen]
        seen.update(level)
    return None


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")


def changed_since(base, everything):
    if base == "all":
        return everything
    names = set(git("diff", "--name-only", "--diff-filter=d", base)) | set(git("ls-files", "--others", "--exclude-standard"))
    return everything if ".clang-tidy" in names else sorted(names & set(everything))


def check(program, build, unit):
    """What clang-tidy finds in a unit: one text a finding, with its place. It raises an error where the unit cannot be read."""
    run = subprocess.run([program, "-p", str(build), "--quiet", unit], cwd=ROOT, capture_output=True, text=True)
    findings = re.split(r"(?m)^(?=\S+:\d+:\d+: (?:error|warning): )", run.stdout)[1:]
    if run.returncode != 0 and not findings:
        raise RuntimeError(f"{unit}: {run.stdout}{run.stderr}")
    return {finding.replace(f"{ROOT}/", "") for finding in findings}


def main(build, base):
    program = format_test.pinned("clang-tidy")
    if program is None:
        print(f"lint: clang-tidy {format_test.PINNED} is not installed", file=sys.stderr)
        return 1
    everything = [name for name in git("ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cc")
                  if name and (ROOT / name).exists()]
    changed = changed_since(base, everything)
    includers = includers_of(everything, lambda name: (ROOT / name).read_text()) if changed else {}
    sources = {name if name.endswith(".cc") else source_for(name, includers) for name in changed}
    units_by_source = units_of(build)
    units = sorted({units_by_source[name] for name in sources if name in units_by_source})
    print(f"lint: clang-tidy reads {len(changed)} changed files in {len(units)} units", file=sys.stderr)
    found = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, findings in enumerate(pool.map(lambda unit: check(program, build, unit), units), 1):
            print("".join(sorted(findings - found)), end="", flush=True)
            found |= findings
            if sys.stderr.isatty():
                print(f"\rlint: {number} of {len(units)}", end="", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]))
