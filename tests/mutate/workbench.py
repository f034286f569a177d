"""Builds and tests one fault at a time in a copy of the tree, and says what noticed it."""
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tests that need a process of their own, as in tests/CMakeLists.txt: a signal to the process would end the others.
APART = {"unit_worker_edge": "ExternalEventsTest.*"}
MEMORY = 16 << 30      # of address space: a fault may fill memory for ever
FILE_BYTES = 2 << 30
NOTICED, SURVIVED, NOT_COMPILED = "noticed", "survived", "did not compile"


class Stopped(Exception):
    """The run ends, so this fault has no verdict."""


class FailedWithoutFault(Exception):
    """The tree itself does not build, or a test of it fails: no verdict would mean anything."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    outcome: str
    by: str = ""


class Workbench:
    """A copy of the tree with a build folder of its own, without unity: a fault in a .cc file costs one file.

    Everything but `stop` is called by one thread at a time.
    """

    def __init__(self, folder, programs, jobs):
        self.tree, self.build, self.programs, self.jobs = folder / "tree", folder / "build", programs, jobs
        self.limits = {}      # program -> seconds
        self.guard = threading.Lock()
        self.stopped, self.child = False, None

    def stop(self):
        """Ends what runs here; `judge` takes its fault out again and raises Stopped. Any thread calls it."""
        with self.guard:
            self.stopped = True
            if self.child:
                kill_group(self.child)

    def sync(self, root=ROOT):
        """Makes the copy equal to the working tree as git sees it; files that are equal keep their times."""
        names = subprocess.run(["git", "-C", root, "ls-files", "-z", "-c", "-o", "--exclude-standard"], check=True,
                               capture_output=True, text=True).stdout.split("\0")
        wanted = {name for name in names if name and ((root / name).exists() or (root / name).is_symlink())}
        for name in wanted:
            source, copy = root / name, self.tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                copy.unlink(missing_ok=True)
                copy.symlink_to(os.readlink(source))
            elif not source.is_file():
                continue
            elif not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copyfile(source, copy)
                shutil.copymode(source, copy)
        for copy in list(self.tree.rglob("*")):
            if (copy.is_file() or copy.is_symlink()) and str(copy.relative_to(self.tree)) not in wanted:
                copy.unlink()

    def prepare(self, jobs):
        """Configures and builds everything without a fault, with `jobs` compilers."""
        self._make(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DCROWDSURF_UNITY=OFF"], "cmake")
        self._make(["ninja", "-C", self.build, "-j", str(jobs), *self.programs], "the build")

    def time_tests(self):
        """Runs the tests without a fault; they have to pass. Returns the limit of each: a fault may make it hang."""
        limits = {}
        for program in self.programs:
            begun = time.monotonic()
            if noticed := self._test(program, None):
                raise FailedWithoutFault(f"without a fault, {program} fails: {noticed}")
            limits[program] = 30 + 5 * (time.monotonic() - begun)
        return limits

    def judge(self, mutant):
        path = self.tree / mutant.file
        original = path.read_text()
        try:
            path.write_text(mutant.plant(original))
            for program in self.programs:
                if self._run(["ninja", "-C", self.build, "-j", str(self.jobs), program]) != 0:
                    return Verdict(NOT_COMPILED)
                if noticed := self._test(program, self.limits[program]):
                    return Verdict(NOTICED, f"{program} {noticed}")
            return Verdict(SURVIVED)
        finally:
            path.write_text(original)

    def _make(self, command, name):
        with tempfile.TemporaryFile() as log:
            if self._run(command, log=log) != 0:
                log.seek(0)
                raise FailedWithoutFault(f"{log.read().decode(errors='replace')[-4000:]}\n{name} failed without a fault")

    def _test(self, program, limit):
        """The test that fails first, or "" when all pass."""
        parts = (f"-{APART[program]}", APART[program]) if program in APART else ("*",)
        for chosen in parts:
            if noticed := self._test_part(program, chosen, limit):
                return noticed
        return ""

    def _test_part(self, program, chosen, limit):
        with tempfile.TemporaryDirectory(prefix="mutate-") as scratch, tempfile.TemporaryFile() as log:
            code = self._run(["prlimit", f"--as={MEMORY}", f"--fsize={FILE_BYTES}", "--core=0", self.build / "bin" / program,
                              "--gtest_fail_fast", "--gtest_color=no", f"--gtest_filter={chosen}"], limit, log, scratch)
            log.seek(0)
            return "" if code == 0 else first_failure(log.read().decode(errors="replace"), code)

    def _run(self, command, limit=None, log=subprocess.DEVNULL, scratch=None):
        """The exit status of a command, or None when it ran past its limit. What it started goes, too."""
        environment = dict(os.environ)
        if scratch:
            environment["TMPDIR"] = scratch
        else:  # The compiler cache sees the same paths wherever the copy lies.
            environment |= {"CCACHE_BASEDIR": str(self.tree.parent), "CCACHE_NOHASHDIR": "1",
                            "CCACHE_SLOPPINESS": "include_file_ctime,include_file_mtime,pch_defines,time_macros"}
        with self.guard:
            if self.stopped:
                raise Stopped
            self.child = subprocess.Popen(command, cwd=self.tree, stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=subprocess.STDOUT, start_new_session=True, env=environment)
        try:
            code = self.child.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with self.guard:
                kill_group(self.child)
                self.child.wait()
                self.child = None
        if self.stopped:
            raise Stopped
        return code


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def first_failure(log, code):
    failed = re.search(r"^\[  FAILED  \] (\S+?),? ", log.replace("\n", " \n"), re.MULTILINE)
    if failed and code == 1:
        return failed.group(1)
    running = re.findall(r"^\[ RUN      \] (\S+)", log, re.MULTILINE)
    return f"{running[-1] if running else 'at its start'} ({'hangs' if code is None else f'exit {code}'})"
