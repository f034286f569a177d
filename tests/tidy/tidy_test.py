#!/usr/bin/env python3
"""Plants one fault of each kind in a small tree and sees tidy.py turn red; then holds the real tree to the rules."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TIDY = pathlib.Path(__file__).resolve().parent / "tidy.py"
HEADER = "// A.\n// B.\n// C.\n#pragma once\n"


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = subprocess.run([sys.executable, TIDY, folder], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout


class TidyTest(unittest.TestCase):
    def expect(self, files, rule):
        code, out = run(files)
        self.assertEqual(code, 1, out)
        self.assertIn(rule, out)

    def test_a_clean_tree_passes(self):
        code, out = run({"base/README.md": "x", "base/a.h": HEADER, "worker/README.md": "x",
                         "worker/core/b.h": HEADER + '#include "base/a.h"\n'})
        self.assertEqual(code, 0, out)

    def test_a_core_may_not_include_an_edge(self):
        self.expect({"worker/core/a.h": HEADER + '#include "worker/edge/b.h"\n'}, "worker/core may not include worker/edge")

    def test_operator_and_worker_never_meet(self):
        self.expect({"operator/edge/a.h": HEADER + '#include "worker/core/b.h"\n'}, "may not include worker/core")

    def test_the_manifest_is_below_operator_and_worker(self):
        self.expect({"base/manifest/a.h": HEADER + '#include "operator/core/job/b.h"\n'},
                    "base/manifest may not include operator/core")
        self.expect({"base/a.h": HEADER + '#include "base/manifest/fields.h"\n'}, "base may not include base/manifest")

    def test_a_room_may_not_include_one_above_it(self):
        self.expect({"worker/core/view/a.h": HEADER + '#include "worker/core/round/b.h"\n'},
                    "worker/core/view may not include worker/core/round")
        self.expect({"worker/edge/link/a.cc": '#include "worker/edge/agent/agent.h"\n'},
                    "worker/edge/link may not include worker/edge/agent")
        self.expect({"operator/core/job/a.cc": '#include "operator/core/decide/decide.h"\n'},
                    "operator/core/job may not include operator/core/decide")
        self.expect({"operator/edge/kube/a.cc": '#include "operator/edge/controller.h"\n'},
                    "operator/edge/kube may not include operator/edge/controller.h")
        self.expect({"simulator/engine/a.h": HEADER + '#include "simulator/round/round_node.h"\n'},
                    "simulator/engine may not include simulator/round")
        self.expect({"coordinator-free-dht/core/wire/a.h": HEADER + '#include "coordinator-free-dht/core/node/node.h"\n'},
                    "coordinator-free-dht/core/wire may not include coordinator-free-dht/core/node")
        self.expect({"coordinator-free-dht/core/relay/a.cc": '#include "coordinator-free-dht/core/store/store.h"\n'},
                    "coordinator-free-dht/core/relay may not include coordinator-free-dht/core/store")
        self.expect({"cli/screen/a.cc": '#include "cli/report/report.h"\n'}, "cli/screen may not include cli/report")
        self.expect({"cli/run/a.cc": '#include "cli/commands.h"\n'}, "cli/run may not include cli/commands.h")

    def test_an_inner_room_has_a_page(self):
        self.expect({"worker/README.md": "x", "worker/core/view/a.h": HEADER}, "worker/core/view:1: a room has a README.md")

    def test_a_core_has_no_clock(self):
        self.expect({"worker/core/a.h": HEADER + "#include <chrono>\n"}, "a core may not include <chrono>")
        self.expect({"worker/core/a.cc": "int f() { return std::mutex(); }\n"}, "a core may not use std::mutex")

    def test_a_long_function_fails(self):
        body = "int f(int x) {\n" + "  ++x;\n" * 70 + "  return x;\n}\n"
        self.expect({"base/a.cc": body}, "function has 73 lines")

    def test_a_long_method_in_a_class_fails_and_the_class_itself_does_not(self):
        method = "  int f(int x) {\n" + "    ++x;\n" * 70 + "    return x;\n  }\n"
        self.expect({"base/a.h": HEADER + "class A {\n public:\n" + method + "};\n"}, "function has 73 lines")
        code, out = run({"base/README.md": "x", "base/a.h": HEADER + "class A {\n" + "  int x();\n" * 90 + "};\n"})
        self.assertEqual(code, 0, out)

    def test_a_long_file_fails(self):
        self.expect({"base/a.cc": "int x;\n" * 501}, "file has 501 lines")

    def test_a_large_folder_fails(self):
        files = {"base/README.md": "x", **{f"base/a{n}.cc": "\n" for n in range(35)}}
        code, out = run(files)
        self.assertEqual(code, 0, out)
        self.expect({**files, "base/b.h": HEADER}, "base:1: folder has 36 C++ files")

    def test_a_header_without_a_comment_fails(self):
        self.expect({"base/a.h": "#pragma once\n"}, "a header opens with a comment")

    def test_left_overs_fail(self):
        self.expect({"base/a.cc": "// TO" "DO\n"}, "finish it")
        self.expect({"base/util.h": HEADER}, "no util")

    def test_a_room_without_a_readme_fails(self):
        self.expect({"base/a.h": HEADER}, "a room has a README.md")

    def test_every_rule_of_a_pods_life_is_cited_by_a_test_and_no_other(self):
        page = {"docs/pod-lifecycle.md": "- 1.1 Notice.\n  as in 9.9\n- 1.2 Leave.\n", "tests/README.md": "x"}
        cites = "// pod-lifecycle %s\n"
        code, out = run({**page, "tests/a.cc": cites % "1.1, 1.2"})
        self.assertEqual(code, 0, out)
        self.expect({**page, "tests/a.cc": cites % "1.1"}, "no test cites rule 1.2")
        self.expect({**page, "tests/a.cc": cites % "1.1, 1.2, 1.3"}, "cites rule 1.3, which")
        self.expect({**page, "operator/README.md": "x", "operator/core/a.cc": cites % "1.1, 1.2"}, "no test cites rule 1.1")
        page["docs/pod-lifecycle.md"] += "- 1.2 Again.\n"
        self.expect({**page, "tests/a.cc": cites % "1.1, 1.2"}, "rule 1.2 is there twice")

    def test_a_file_includes_what_it_uses_and_does_not_have_it_of_its_neighbours(self):
        declared = HEADER + "namespace crowdsurf {\nint Weigh(int x);\nclass Scales;\n}\n"
        body = "namespace crowdsurf {\n%s\n}\n"
        clean = {"base/README.md": "x", "base/scales.h": declared, "base/shop.h": HEADER + '#include "base/scales.h"\n'}
        uses = body % "int Sell() { return Weigh(2); }"
        for name, text in {
                "included": '#include "base/scales.h"\n' + uses,
                "included by what is included": '#include "base/shop.h"\n' + uses,
                "declared here": body % "int Weigh(int x) { return x; }\nint Sell() { return Weigh(2); }",
                "somebody's": body % "int Sell() { return other::Weigh(2) + mine.Weigh(2) + mine->Weigh(2); }",
                "a member's": body % "class Mine {\n  int Weigh(int x);\n  int Sell() { return Weigh(2); }\n};",
                "only told of": body % "// Weigh\nconst char* Sell() { return \"Weigh\"; }"}.items():
            with self.subTest(name):
                code, out = run({**clean, "base/a.cc": text})
                self.assertEqual(code, 0, out)
        rule = "uses Weigh and does not include base/scales.h"
        self.expect({**clean, "base/a.cc": uses}, rule)
        self.expect({**clean, "base/a.cc": body % "int Sell() { return crowdsurf::Weigh(2); }"}, rule)
        self.expect({**clean, "base/a.h": HEADER + body % "Scales* Mine();"}, "base/a.h:6: uses Scales")
        # What a neighbour has for itself, in a batch everybody has.
        own = {**clean, "base/b.cc": body % "namespace {\nusing other::Price;\nconstexpr int kDozen = 12;\n}"}
        self.expect({**own, "base/a.cc": body % "int Sell() { return kDozen; }"}, "uses kDozen and does not include base/b.cc")
        self.expect({**own, "base/a.cc": body % "Price Sell();"}, "uses Price and does not include base/b.cc")
        code, out = run({**own, "base/edge/a.cc": body % "int Sell() { return kDozen; }"})
        self.assertEqual(code, 0, out)

    def test_a_comment_or_a_page_cites_only_what_is_there(self):
        tree = {"base/README.md": "x", "base/a.h": HEADER, "docs/round.md": "x", "docs/b/page.md": "x"}
        for text in ("// base/a.h, a.h, docs/round.md 4, base, docs/b/; http://base/c.h and <sys/c.h>\n",
                     "// base/*.h, base/{c,d}.h, tests/unit/c, c.pb.h, base/NAME.h\n", 'const char* kPath = "base/c.h";\n'):
            code, out = run({**tree, "base/a.cc": text})
            self.assertEqual(code, 0, out)
        code, out = run({**tree, "docs/README.md": "[page](b/page.md#part), [outside](https://base.org/c.md)\n"})
        self.assertEqual(code, 0, out)
        self.expect({**tree, "base/a.cc": "int x;  // as base/c.h\n"}, "base/a.cc:1: cites base/c.h, which is not there")
        self.expect({**tree, "base/a.cc": "\n// (c.h says why)\n"}, "base/a.cc:2: cites c.h, which")
        self.expect({**tree, "base/a.cc": "// Source: protocol.md 4.\n"}, "cites protocol.md, which")
        self.expect({**tree, "base/a.cc": "// as docs/b/c has it\n"}, "cites docs/b/c, which")
        self.expect({**tree, "base/a.py": '"""As base/c.h."""\n'}, "cites base/c.h, which")
        self.expect({**tree, "base/a.sh": "# see docs/c.md\n"}, "cites docs/c.md, which")
        self.expect({**tree, "docs/README.md": "the code is `base/c.h`\n"}, "cites base/c.h, which")
        self.expect({**tree, "docs/README.md": "[page](page.md)\n"}, "docs/README.md:1: cites page.md, which")

    def test_an_include_says_the_whole_path(self):
        self.expect({"tests/unit/a_test.cc": '#include "b.h"\n'}, "include from the repository root")

    def test_the_project_itself_is_clean(self):
        result = subprocess.run([sys.executable, TIDY], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    unittest.main()
