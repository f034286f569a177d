#!/usr/bin/env python3
"""mutants.py finds the places of a fault and no others; mutate.py judges each once, goes on after a stop, and leaves the
working tree alone."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import mutants  # noqa: E402  (beside this file)
import mutate  # noqa: E402
import workbench  # noqa: E402  (beside this file)


def changes(text, kind=None):
    """The lines that mutants of `text` change, as they become."""
    before = text.splitlines()
    out = set()
    for mutant in mutants.find("room/a.cc", text):
        if kind in (None, mutant.kind):
            after = mutant.plant(text).splitlines()
            out.add(" ".join(" ".join(new for old, new in zip(before, after) if old != new).split()))
    return out


def body(*lines):
    return "void F() {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


class MutantsTest(unittest.TestCase):
    def test_a_comparison_moves_its_bound_or_turns_round(self):
        self.assertEqual(changes(body("return a < b;"), "comparison"), {"return a <= b;", "return a >= b;"})
        self.assertEqual(changes(body("return a == b;"), "comparison"), {"return a != b;"})

    def test_arithmetic_turns_round(self):
        self.assertEqual(changes(body("x += a * b;"), "arithmetic"), {"x -= a * b;", "x += a / b;"})
        self.assertEqual(changes(body("++x;"), "arithmetic"), {"--x;"})

    def test_small_numbers_move_by_one_and_large_ones_twofold(self):
        self.assertEqual(changes(body("G(0, x);"), "constant"), {"G(1, x);"})
        self.assertEqual(changes(body("G(3);"), "constant"), {"G(4);", "G(2);"})
        self.assertEqual(changes(body("G(16'384u);"), "constant"), {"G(32768u);", "G(8192u);"})
        self.assertEqual(changes(body("G(0x10);"), "constant"), {"G(0x20);", "G(0x8);"})
        self.assertEqual(changes(body("G(0.5f);"), "constant"), {"G(1.0f);", "G(0.25f);"})
        self.assertEqual(changes(body("G(true);"), "constant"), {"G(false);"})

    def test_calls_assignments_and_jumps_can_be_deleted(self):
        for statement in ("G(1);", "a.b->c(d);", "x = 3;", "list[2] = A{1};", "*x = 3;", "++x;", "x++;", "break;",
                          "std::sort(a, b, [&](int c, int d) { return c < d; });"):
            self.assertIn("{}", changes(body(statement), "statement"), statement)

    def test_a_statement_under_a_condition_is_deleted_alone(self):
        self.assertEqual(changes(body("if (a(b)) c();", "else", "  d();"), "statement"), {"if (a(b)) {}", "{}"})
        self.assertEqual(changes(body("switch (a) {", "case A::kB:", "  c();", "}"), "statement"), {"{}"})

    def test_declarations_and_results_are_not_deleted(self):
        for statement in ("int x = 3;", "const auto& x = G();", "Foo foo(1);", "std::vector<int> x(3);", "return G();",
                          "Foo* const x = G();", "auto [a, b] = G();", "using A = B;", "std::map<A, B>& x = G();"):
            self.assertEqual(changes(body(statement), "statement"), set(), statement)

    def test_conditions_are_negated(self):
        self.assertEqual(changes(body("if (a(b)) c();"), "condition"), {"if (!(a(b))) c();"})
        self.assertEqual(changes(body("if (int x = f(); g(x)) c();"), "condition"), {"if (int x = f(); !(g(x))) c();"})
        self.assertEqual(changes(body("x = a && b;"), "condition"), {"x = a || b;"})
        self.assertEqual(changes(body("if (a == b) c();"), "condition"), set())  # a comparison is the same fault
        self.assertEqual(changes(body("if (auto x = f()) c();"), "condition"), set())  # does not compile

    def test_initial_values_of_constants_and_fields_count_and_signatures_do_not(self):
        text = "constexpr int kA = 20;\nstruct A {\n  int a = 3;\n  virtual void F(std::array<int, 8> x) = 0;\n};\n"
        self.assertEqual(changes(text), {"constexpr int kA = 40;", "constexpr int kA = 10;", "int a = 4;", "int a = 2;"})
        self.assertEqual(changes("enum class A { kB = 1, kC = 2 };\nbool operator<(const A& a, const B& b);\n"), set())

    def test_comments_texts_checks_logs_and_includes_stay(self):
        for line in ("// a < b; G(3);", 'x("a < b, 3");', "CHECK(a < b && c == 3);", "CHECK_EQ(a + 1, b);",
                     'log_.Info(a < b ? "x" : "y", 3);', "/* a + b */", "static_assert(a < 3);"):
            found = changes(body(line))
            self.assertLessEqual(found, {"{}"}, line)  # but the call whose argument is a text can go
        self.assertEqual(changes("#include <a>\n#define A(x) x + 1 < \\\n  x * 2\n"), set())
        self.assertEqual(changes(body("G('<', '\\'', \"\\\" < \");"), "comparison"), set())

    def test_calls_that_only_save_time_and_loops_that_would_only_hang_stay(self):
        self.assertEqual(changes(body("out.reserve(n + 1);")), set())
        self.assertEqual(changes(body("for (;; ++i) {", "}"), "arithmetic"), set())

    def test_types_are_no_arithmetic(self):
        self.assertEqual(changes(body("std::map<A*, const B&> x;", "T&& y(z);", "a = -b;", "c = *d;", "e = &f;"),
                                 "arithmetic"), set())

    def test_a_mutant_knows_its_line_and_keeps_its_name(self):
        text = body("a();", "b(c < d);")
        found = [mutant for mutant in mutants.find("room/a.cc", text) if mutant.kind == "comparison"]
        self.assertEqual([mutant.line for mutant in found], [3, 3])
        self.assertEqual(found, [mutant for mutant in mutants.find("room/a.cc", text) if mutant.kind == "comparison"])
        self.assertEqual(len({mutant.id for mutant in mutants.find("room/a.cc", text)}), len(mutants.find("room/a.cc", text)))

    def test_this_tree_has_faults_of_every_kind_in_every_room(self):
        for room in mutate.ROOMS:
            kinds = {mutant.kind for mutant in mutate.find_all(mutate.ROOT, room)}
            self.assertEqual(kinds, set(mutants.KINDS), room)


class FakeBench:
    """Says at once what `outcome` says, and writes down what it was asked."""

    def __init__(self, outcome, judged):
        self.outcome, self.judged, self.stopped = outcome, judged, threading.Event()

    def judge(self, mutant):
        self.judged.append(mutant)
        return workbench.Verdict(self.outcome(mutant))

    def stop(self):
        self.stopped.set()


class MutateTest(unittest.TestCase):
    def setUp(self):
        self.text = body("a(1);", "b(c < d);", "x = y + z;", "if (e(f)) g();")
        self.planned = mutate.sequence(mutants.find("room/a.cc", self.text), 7)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.journal = pathlib.Path(self.folder.name) / "journal"
        self.judged = []

    def run_all(self, outcome, count, again=False, benches=1):
        return mutate.run(self.planned, count, mutate.Journal(self.journal),
                          [FakeBench(outcome, self.judged) for _ in range(benches)], lambda line: None, again)

    def test_a_seed_plants_the_same_faults_and_kinds_take_turns(self):
        self.assertEqual(self.planned, mutate.sequence(mutants.find("room/a.cc", self.text), 7))
        self.assertNotEqual(self.planned, mutate.sequence(mutants.find("room/a.cc", self.text), 8))
        self.assertEqual([mutant.kind for mutant in self.planned[:5]], list(mutants.KINDS))

    def test_faults_that_do_not_compile_are_replaced_and_counted(self):
        outcome = {mutants.KINDS[0]: workbench.NOT_COMPILED, mutants.KINDS[1]: workbench.SURVIVED}
        results = self.run_all(lambda mutant: outcome.get(mutant.kind, workbench.NOTICED), 6)
        told = mutate.summary("room", 7, results)
        self.assertEqual(told["compiled"], 6)
        self.assertGreater(told["not_compiled"], 0)
        self.assertEqual(told["noticed"] + told["survived"], 6)

    def test_a_stopped_run_goes_on_where_it_was(self):
        self.run_all(lambda mutant: workbench.NOTICED, 3)
        with self.journal.open("a") as out:
            out.write('{"id": "half a li')  # a stop in the midst of a line
        first = len(self.judged)
        results = self.run_all(lambda mutant: workbench.NOTICED, 5)
        self.assertEqual((first, len(self.judged), len(results)), (3, 5, 5))

    def test_benches_side_by_side_judge_what_one_would(self):
        def outcome(mutant):
            return workbench.NOT_COMPILED if mutant.kind in ("constant", "statement") else workbench.NOTICED
        alone = self.run_all(outcome, 4)
        self.assertEqual([verdict.outcome for _, verdict in alone].count(workbench.NOTICED), 4)
        for benches in (2, 3, 9):
            self.journal.unlink()
            self.judged.clear()
            self.assertEqual(self.run_all(outcome, 4, benches=benches), alone)
            self.assertEqual(len(self.judged), len(alone))

    def test_lines_come_in_the_order_of_the_faults_though_a_later_one_is_judged_first(self):
        second_is_judged = threading.Event()
        lines = []

        def outcome(mutant):
            if mutant == self.planned[0]:
                self.assertTrue(second_is_judged.wait(20))
            if mutant == self.planned[1]:
                second_is_judged.set()
            return workbench.NOTICED
        mutate.run(self.planned, 3, mutate.Journal(self.journal), [FakeBench(outcome, []) for _ in range(2)], lines.append)
        self.assertEqual(lines, [mutate.line_of(mutant, workbench.Verdict(workbench.NOTICED))
                                 for mutant in self.planned[:3]])

    def test_a_bench_that_fails_ends_the_others_and_what_was_judged_stays(self):
        first = workbench.Verdict(workbench.NOTICED)
        benches = [FakeBench(None, []) for _ in range(2)]

        def judge(mutant):
            if mutant == self.planned[0]:
                return first
            if mutant == self.planned[1]:
                self.assertTrue(benches[0].stopped.wait(20) and benches[1].stopped.wait(20))
                raise workbench.Stopped
            raise OSError("no space left")
        for bench in benches:
            bench.judge = judge
        with self.assertRaises(OSError):
            mutate.run(self.planned, 9, mutate.Journal(self.journal), benches, lambda line: None)
        self.assertEqual(mutate.Journal(self.journal).verdicts, {self.planned[0].id: first})

    def test_survivors_are_judged_again_only_when_asked(self):
        self.run_all(lambda mutant: workbench.SURVIVED, 3)
        self.run_all(lambda mutant: workbench.NOTICED, 3)
        self.assertEqual(len(self.judged), 3)
        results = self.run_all(lambda mutant: workbench.NOTICED, 3, again=True)
        self.assertEqual({verdict.outcome for _, verdict in results}, {workbench.NOTICED})

    def test_the_failing_test_is_named(self):
        failing = "[ RUN      ] A.B\n[  FAILED  ] A.B (3 ms)\n"
        self.assertEqual(workbench.first_failure(failing, 1), "A.B")
        self.assertEqual(workbench.first_failure("[ RUN      ] A.B\n[       OK ] A.B (1 ms)\n[ RUN      ] A.C\n", -6),
                         "A.C (exit -6)")
        self.assertEqual(workbench.first_failure("[ RUN      ] A.C\n", None), "A.C (hangs)")

    def test_rooms_and_their_parts_have_programs_that_exist(self):
        listed = (mutate.ROOT / "tests/CMakeLists.txt").read_text()
        for room, programs in mutate.ROOMS.items():
            self.assertTrue((mutate.ROOT / room).is_dir(), room)
            for program in programs:
                self.assertIn(f"crowdsurf_tests({program} ", listed)
        self.assertEqual(mutate.programs_of("worker/core/round"), mutate.ROOMS["worker/core"])
        self.assertEqual(mutate.programs_of("coordinator-free-dht"), ("unit_dht_core", "unit_dht_edge"))
        self.assertEqual(mutate.programs_of("worker/nowhere"), ())

    def test_tests_that_need_a_process_of_their_own_get_one(self):
        listed = (mutate.ROOT / "tests/CMakeLists.txt").read_text()
        for program, chosen in workbench.APART.items():
            self.assertIn(f'set_property(TEST {program} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-{chosen}")', listed)
        program, chosen = next(iter(workbench.APART.items()))
        with tempfile.TemporaryDirectory() as folder:
            bench = workbench.Workbench(pathlib.Path(folder), (), 1)
            (bench.build / "bin").mkdir(parents=True)
            bench.tree.mkdir()
            for name in (program, "another"):
                path = bench.build / "bin" / name
                path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n')
                path.chmod(0o755)
                self.assertEqual(bench._test(name, 20), "")
            filters = [line.split("--gtest_filter=")[1] for line in (pathlib.Path(folder) / "calls").read_text().splitlines()]
        self.assertEqual(filters, [f"-{chosen}", chosen, "*"])

    def test_the_copy_follows_the_tree_and_repairs_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            root, copy = pathlib.Path(folder) / "root", pathlib.Path(folder) / "copy"
            root.mkdir()
            subprocess.run(["git", "init", "-q", root], check=True)
            (root / ".gitignore").write_text("build\n")
            (root / "build").write_text("ignored")
            (root / "a.cc").write_text("a")
            (root / "b.cc").write_text("b")
            bench = workbench.Workbench(copy, (), 1)
            bench.sync(root)
            self.assertEqual(sorted(path.name for path in bench.tree.iterdir()), [".gitignore", "a.cc", "b.cc"])
            (bench.tree / "a.cc").write_text("a fault that a killed run left behind")
            (root / "b.cc").unlink()
            bench.sync(root)
            self.assertEqual((bench.tree / "a.cc").read_text(), "a")
            self.assertFalse((bench.tree / "b.cc").exists())
            self.assertEqual((root / "a.cc").read_text(), "a")

    def test_a_stop_ends_the_test_that_runs_and_takes_the_fault_out(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            bench = workbench.Workbench(folder, ("hangs",), 1)
            bench.limits = {"hangs": 100}
            bench.tree.mkdir()
            (bench.build / "bin").mkdir(parents=True)
            (bench.build / "build.ninja").write_text("build hangs: phony\n")
            (bench.tree / "a.cc").write_text(body("a(1);"))
            os.mkfifo(folder / "begun")
            program = bench.build / "bin" / "hangs"
            program.write_text(f"#!/bin/sh\necho > {folder}/begun\nsleep 100\n")
            program.chmod(0o755)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                judged = pool.submit(bench.judge, mutants.find("a.cc", body("a(1);"))[0])
                (folder / "begun").read_text()
                self.assertNotEqual((bench.tree / "a.cc").read_text(), body("a(1);"))
                bench.stop()
                with self.assertRaises(workbench.Stopped):
                    judged.result(20)
            self.assertEqual((bench.tree / "a.cc").read_text(), body("a(1);"))

    def test_a_program_that_runs_past_its_limit_hangs(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = workbench.Workbench(pathlib.Path(folder), (), 1)
            (bench.build / "bin").mkdir(parents=True)
            bench.tree.mkdir()
            program = bench.build / "bin" / "hangs"
            program.write_text("#!/bin/sh\necho '[ RUN      ] A.B'\nsleep 100\n")
            program.chmod(0o755)
            self.assertEqual(bench._test("hangs", 1), "A.B (hangs)")

    def test_a_fault_is_planted_in_the_copy_and_taken_out_again(self):
        with tempfile.TemporaryDirectory() as folder:
            bench = workbench.Workbench(pathlib.Path(folder), ("no_such_program",), 1)
            bench.tree.mkdir()
            (bench.tree / "a.cc").write_text(body("a(1);"))
            mutant = mutants.find("a.cc", body("a(1);"))[0]
            self.assertEqual(bench.judge(mutant).outcome, workbench.NOT_COMPILED)  # there is no build
            self.assertEqual((bench.tree / "a.cc").read_text(), body("a(1);"))


if __name__ == "__main__":
    unittest.main()
