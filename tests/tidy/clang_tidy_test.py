#!/usr/bin/env python3
"""clang-tidy with .clang-tidy sees a planted fault of each kind, and `./dev lint` picks the right units.

What it finds in the project itself, `./dev lint all` says: that takes an hour of two cores.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clang_tidy  # noqa: E402  (beside this file)
import format_test  # noqa: E402

PLANTED = {
    "bugprone-integer-division": "double F(int a) { return a / 2; }",
    "bugprone-use-after-move": "#include <string>\n#include <utility>\n"
                               "auto F(std::string a) { std::string b = std::move(a); return b + a; }",
    "performance-for-range-copy": "#include <string>\n#include <vector>\n"
                                  "size_t F(const std::vector<std::string>& v) {\n"
                                  "  size_t n = 0;\n  for (const std::string s : v) n += s.size();\n  return n;\n}",
    "performance-unnecessary-value-param": "#include <string>\nsize_t F(const std::string a) { return a.size(); }",
    "readability-identifier-naming": "class lower_case_class {};",
}
NAMES = ("constexpr int limit = 3;", "enum class Kind { first };", "int f() { return 1; }", "class A { int x = 0; };",
         "int F(int wrongCase) { return wrongCase; }", "template <class t> struct A {};", "namespace Upper {}")
SOUND = """namespace sound {
constexpr int kLimit = 3;
enum class Kind { kFirst };
class Counter {
 public:
  int count() const { return count_; }
  void Add(int more) { count_ += more; }

 private:
  int count_ = kLimit;
};
}  // namespace sound
"""


class ClangTidyTest(unittest.TestCase):
    def setUp(self):
        self.program = format_test.pinned("clang-tidy")
        if not self.program:
            self.skipTest(f"there is no clang-tidy {format_test.PINNED} (./dev setup installs it on Debian 12)")

    def findings(self, source):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "planted.cc")
            file.write_text(source + "\n")
            run = subprocess.run([self.program, f"--config-file={clang_tidy.ROOT / '.clang-tidy'}", "--quiet", file, "--",
                                  "-std=c++20"], capture_output=True, text=True)
            return run.stdout + (run.stderr if "error" in run.stderr and not run.stdout else "")

    def test_sees_a_planted_fault_of_each_kind(self):
        for check, source in PLANTED.items():
            with self.subTest(check):
                self.assertIn(check, self.findings(source))

    def test_sees_every_wrong_name(self):
        for source in NAMES:
            with self.subTest(source):
                self.assertIn("readability-identifier-naming", self.findings(source))

    def test_is_silent_where_nothing_is_wrong(self):
        self.assertEqual(self.findings(SOUND), "")


class UnitsTest(unittest.TestCase):
    FILES = {"a/low.h": "", "a/low.cc": '#include "a/low.h"\n', "a/mid.h": '#include "a/low.h"\n#include <vector>\n',
             "b/top.cc": '#include "a/mid.h"\n', "b/only.h": "", "b/other.cc": '#include "b/only.h"\n'}

    def test_a_header_is_checked_in_its_own_source_or_the_nearest(self):
        includers = clang_tidy.includers_of(self.FILES, self.FILES.get)
        self.assertEqual(clang_tidy.source_for("a/low.h", includers), "a/low.cc")
        self.assertEqual(clang_tidy.source_for("a/mid.h", includers), "b/top.cc")
        self.assertEqual(clang_tidy.source_for("b/only.h", includers), "b/other.cc")
        self.assertIsNone(clang_tidy.source_for("b/nobody.h", includers))


if __name__ == "__main__":
    unittest.main()
