#!/usr/bin/env python3
"""What `crowdsurf run` makes of bad input: words that help, a count, and no harm to anybody else.

Usage: bad_input_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import json
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import unittest

from runs import BIN, PATIENCE, TRAINER, RunCase

NUMPY_CLIENT = pathlib.Path(__file__).resolve().parents[1] / "link" / "numpy_client.py"
# A trainer of the Python package that makes five steps and then waits for a lock that nobody gives back.
HANGS = f"""
import array, sys, threading
sys.path.insert(0, {str(NUMPY_CLIENT.parents[2] / "python")!r})
import crowdsurf

def wait_for_ever():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

agent = crowdsurf.Agent([crowdsurf.Tensor("w", (2, 3))])
agent.start(array.array("f", [0.0] * 6))
for _ in range(5):
    agent.step(samples=1)
wait_for_ever()
"""
NOTHING = 1000  # bytes that a file may have: no file of interest fits


class BadInputTest(RunCase):
    def test_mistakes_come_all_at_once_and_nothing_is_started(self):
        self.write("crowdsurf-trainer", **{"groupSize: 2": "groupsize: 1", "replicas: 4": "replicas: -4"})
        code, output = self.run_job("--notice", "soon")
        self.assertEqual(code, 2)
        for words in ("--notice: soon is not a duration", "job.yaml:5: spec.replicas: -4 is below 0",
                      "job.yaml:6: spec.averaging.groupsize: unknown field; did you mean groupSize?"):
            self.assertIn(words, output)
        self.assertFalse(self.state.exists())

    def test_a_missing_text_is_said_before_anything_starts(self):
        self.write(TRAINER.replace("TEXT", "/no/such/text"))
        code, output = self.run_job()
        self.assertEqual(code, 2)
        self.assertIn("/no/such/text is not there", output)

    def test_a_trainer_that_crashes_at_once_backs_off_and_fails_the_job_with_its_words(self):
        self.write("sh, -c, 'echo the data is gone; exit 7'")
        code, output = self.run_job()
        self.assertEqual(code, 1, output)
        self.assertIn("exit code 7", output)
        self.assertIn("the data is gone", output)
        self.assertIn("Retry", output)
        self.nothing_is_left()

    def test_a_traceback_is_said_in_a_line_wherever_a_user_looks(self):
        script = self.path / "train.py"
        script.write_text("def load():\n    raise ValueError('no \\x1b[31mlabels, token=abc')\nload()\n")
        self.write(f"python3, {script}")
        code, output = self.run_job()
        self.assertEqual(code, 1, output)
        why = "ValueError: no labels, token=***"
        self.assertRegex(output, r"e2e-\d-1: ExitCode, the trainer ended with exit code 1: " + re.escape(why))
        self.assertRegex(output, r"crowdsurf: the job failed, .*" + re.escape(why))
        self.assertIn(", in load\n", output, "the whole traceback, once")
        self.assertRegex(self.report()["failure"], r"^e2e-\d-\d ExitCode: " + re.escape(why) + "$")
        self.assertNotIn("token=abc", output + json.dumps(self.report()))

    def test_where_a_python_trainer_hangs_is_in_the_run_the_report_and_the_agents_log(self):
        script = self.path / "hang.py"
        script.write_text(HANGS)
        self.write(f"python3, -B, {script}", **{"replicas: 4": "replicas: 1", "backoffLimit: 2": "backoffLimit: 0"})
        code, output = self.run_job("--hang-after", "2s")
        self.assertEqual(code, 1, output)
        where = re.escape(f'File "{script}", line ') + r"\d+ in wait_for_ever"
        self.assertRegex(output, "e2e-0-1 hangs: no step for . s, in " + where)
        self.assertRegex(output, r"last printed:\n[\s\S]*most recent call first\):\n  " + where + r"\n  File .* in <module>")
        self.assertRegex(self.report()["failure"], "^e2e-0-1 TrainerHung: .*" + where)
        self.assertRegex((self.state / "workers" / "e2e-0-1" / "agent.log").read_text(), "where the trainer is stack=.*wait_for_ever")
        self.nothing_is_left()

    def test_an_empty_text_is_said_before_anything_starts(self):
        (self.path / "empty").write_text("")
        self.write(TRAINER.replace("TEXT", str(self.path / "empty")))
        code, output = self.run_job()
        self.assertEqual(code, 2)
        self.assertIn("empty is empty", output)
        self.assertFalse(self.state.exists())

    def test_a_folder_without_text_fails_the_job_with_the_trainers_words(self):
        (self.path / "pictures").mkdir()
        (self.path / "pictures" / "picture").write_bytes(b"\0\1\2" * 1000)
        self.write(TRAINER.replace("TEXT", str(self.path / "pictures")))
        code, output = self.run_job()
        self.assertEqual(code, 1, output)
        self.assertIn("exit code 2", output)
        self.assertRegex(output, "crowdsurf-trainer: .*pictures")
        self.nothing_is_left()

    def test_a_taken_port_is_said_before_anything_starts(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, output = self.run_job("--http-port", str(port))
        self.assertEqual(code, 2, output)
        self.assertIn(f"--http-port: port {port} of 127.0.0.1 cannot be had", output)
        self.nothing_is_left()

    def test_a_report_that_cannot_be_written_is_said_before_anything_starts(self):
        code, output = self.run_job("--report", str(self.path / "none" / "report.json"))
        self.assertEqual(code, 2, output)
        self.assertIn("--report: cannot write into", output)
        self.nothing_is_left()

    def limit(self, pid, most=NOTHING):
        """From now on the process finds the disk full when a file has `most` bytes."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def test_a_disk_without_space_for_checkpoint_and_model_is_said_and_training_goes_on(self):
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        for worker in range(4):
            for pid in self.agents(f"e2e-{worker}-1"):
                self.limit(pid)
        seen += self.wait_for(process, "cannot write .*checkpoint-.*: File too large")
        failed = sum(self.metric(f"e2e-{worker}-1", "crowdsurf_worker_checkpoints_failed_total")
                     for worker in range(4))
        self.assertGreaterEqual(failed, 1)
        for worker in range(4):
            for name in ("crowdsurf_worker_steps_total", "crowdsurf_averaging_delivered_total"):
                done = self.metric(f"e2e-{worker}-1", name)
                self.wait_until(lambda: self.metric(f"e2e-{worker}-1", name) >= done + 3)
        output = self.end_job(process, seen, code=1)
        self.assertRegex(output, r"trained, but not all of it is written: cannot write .*: File too large")
        self.assertFalse((self.state / "checkpoint" / "model.safetensors").exists())
        self.assertEqual(list((self.state / "checkpoint").glob("*.new")), [], "nothing half written")
        self.nothing_is_left()

    def test_a_disk_without_space_for_the_report_is_said(self):
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        self.limit(process.pid, 8000)  # the edit that ends the job still fits into the workers' files
        output = self.end_job(process, seen, code=1)
        self.assertRegex(output, "cannot write .*report.html: File too large")
        self.assertTrue((self.state / "checkpoint" / "model.safetensors").exists())
        self.nothing_is_left()

    def test_a_memory_volume_without_space_names_the_setting_and_fails_the_job(self):
        process = self.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                                  (30_000, resource.RLIM_INFINITY)))
        output, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("set spec.agent.sharedMemory to at least", output)
        self.nothing_is_left()

    def test_a_trainer_that_hangs_is_ended_replaced_and_harms_nobody(self):
        self.write_endless()
        process = self.start("--hang-after", "6s")
        seen = self.wait_for_all(process)
        os.kill(self.trainer("e2e-1-1"), signal.SIGSTOP)
        seen += self.wait_for(process, r"e2e-1-1 hangs: no step for ([6-9]|\d\d+) s; its trainer is ended")
        seen += self.wait_for(process, r"e2e-1-2 trains, with state")
        seen = self.end_job(process, seen)
        report = self.report()
        self.assertEqual(report["rounds"]["hash_mismatches"], 0)
        self.assertEqual(report["rounds"]["failed"], 0, seen)
        self.assertIn("its seat is given back", (self.state / "workers" / "e2e-1-1" / "agent.log").read_text())
        self.nothing_is_left()

    def test_a_trainer_that_is_only_slow_for_a_while_keeps_its_place(self):
        self.write_endless()
        process = self.start()  # --hang-after is a minute: the silence is over long before
        seen = self.wait_for_all(process)
        pid = self.trainer("e2e-2-1")
        silences = self.metric("e2e-2-1", "crowdsurf_worker_trainer_silences_total")
        os.kill(pid, signal.SIGSTOP)
        self.wait_until(lambda: self.metric("e2e-2-1", "crowdsurf_worker_trainer_silences_total") > silences)
        os.kill(pid, signal.SIGCONT)
        self.wait_until(lambda: self.metric("e2e-2-1", "crowdsurf_worker_ready") == 1)
        seen = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0)
        self.assertNotIn("e2e-2-2", seen)
        self.nothing_is_left()

    def test_a_trainer_that_truncates_the_shared_file_costs_its_own_worker_alone(self):
        self.write_endless()
        process = self.start()
        seen = self.wait_for_all(process)
        os.truncate(self.link("e2e-1-1") / "tensors", 0)
        seen += self.wait_for(process, r"e2e-1-[23] trains")
        seen = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0)
        self.assertIn("the trainer must not truncate", (self.state / "workers" / "e2e-1-1" / "agent.log").read_text())
        self.nothing_is_left()

    def test_a_trainer_that_waits_for_a_dead_agent_ends_at_once_when_told(self):
        command = ["stdbuf", "-oL", BIN / "crowdsurf-trainer", "charlm", "--text", self.path / "text", "--hidden", "32"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "CROWDSURF_DIR": str(self.path),
                                   # stdbuf preloads a library, before that of the address sanitizer.
                                   "ASAN_OPTIONS": "verify_asan_link_order=0"}) as trainer:
            self.wait_for(trainer, "parameters")  # the last it says before it waits, a minute long
            trainer.terminate()
            self.assertEqual(trainer.wait(timeout=5), 128 + signal.SIGTERM)

    def write_two(self, most, one, **replace):
        """A job whose trainers are `most`, and `one` for worker 1: words of a shell. It ends when told to."""
        self.write_endless(f"sh, -c, 'case $CROWDSURF_WORKER in e2e-1-*) exec {one};; esac; exec {most}'", **replace)

    def test_nan_in_the_parameters_of_one_worker_is_said_counted_and_harms_nobody(self):
        # A trainer that does not look at what it has made; Python is not waited for at every step.
        client = f"/usr/bin/python3 {NUMPY_CLIENT} $CROWDSURF_DIR 1000000"
        self.write_two(f"env GOAL=3 {client}", f"env GOAL=nan {client}", **{"steps: 20": "steps: 100"})
        process = self.start()
        said = r"e2e-1-1 has NaN or infinity in its parameters \(tensor \w+"
        seen = self.wait_for_each(process, [said, *(f"e2e-{worker}-1 trains" for worker in (0, 2, 3))])
        delivered = [self.metric(f"e2e-{worker}-1", "crowdsurf_averaging_delivered_total") for worker in (0, 2, 3)]
        self.wait_until(lambda: self.metric("e2e-1-1", "crowdsurf_worker_snapshots_refused_total") >= 3)
        self.wait_until(lambda: all(
            self.metric(f"e2e-{worker}-1", "crowdsurf_averaging_delivered_total") >= before + 3
            for worker, before in zip((0, 2, 3), delivered)))
        for worker in (0, 2, 3):
            self.assertEqual(self.metric(f"e2e-{worker}-1", "crowdsurf_worker_snapshots_refused_total"), 0)
        rest = self.end_job(process)
        self.assertNotIn("NaN", rest, "said once")
        seen += rest
        report = self.report()
        self.assertEqual((report["rounds"]["failed"], report["rounds"]["hash_mismatches"]), (0, 0), seen)
        self.assertNotRegex(seen, r"e2e-\d-2", "nobody was replaced")
        self.assertIn("the seat is given back", (self.state / "workers" / "e2e-1-1" / "agent.log").read_text())
        model = (self.state / "checkpoint" / "model.safetensors").read_bytes()
        numbers = model[8 + int.from_bytes(model[:8], "little"):]
        for (number,) in struct.iter_unpack("<f", numbers):
            self.assertAlmostEqual(number, 3, places=3, msg="what the three others have learnt")
        self.nothing_is_left()

    def write_odd(self, late):
        """Worker 1's trainer has another model than the rest's. `late`: a pattern of who waits for the gate."""
        self.gate = self.path / "gate"
        words = self.command.replace(",", "").replace("'", "")
        wait = f"case $CROWDSURF_WORKER in {late}) until [ -e {self.gate} ]; do sleep .1; done;; esac"
        odd = words.replace("--hidden 32", "--hidden 31")
        self.write_endless(f"sh, -c, '{wait}; case $CROWDSURF_WORKER in e2e-1-*) exec {odd};; esac; exec {words}'")

    def refused(self, worker):
        return self.metric(worker, r'crowdsurf_worker_seats_refused_total\{reason="other_tensors"\}')

    def test_a_trainer_with_other_tensors_than_the_rest_is_said(self):
        self.write_odd(late="e2e-1-*")
        process = self.start()
        seen = self.wait_for_all(process, but=1)
        self.gate.touch()
        seen += self.wait_for_each(process, [
            r"e2e-1-1 gets no seat: another tensor table: '[\w.]+' \(float32 \[[\d, ]+\]\) is not as at e2e-[023]-1",
            r"e2e-\d-1 has a seat with other tensors \(\d+ parameters\) than e2e-1-1 \(\d+\)"])
        self.assertGreaterEqual(self.refused("e2e-1-1"), 1, "it asks again after a while")
        self.assertEqual(self.refused("e2e-0-1"), 0)
        seen = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0)
        self.nothing_is_left()

    def test_a_first_trainer_with_other_tensors_is_named_by_those_it_keeps_out(self):
        self.write_odd(late="e2e-[023]-*")
        process = self.start()
        seen = self.wait_for(process, "e2e-1-1 trains")
        self.gate.touch()
        named = "e2e-1-1 has a seat with other tensors .* the trainers of a job must have the same model"
        while not re.search(named, seen) or len(set(re.findall(r"e2e-(\d)-1 gets no seat", seen))) < 3:
            seen += self.wait_for(process, "gets no seat: another tensor table|has a seat with other tensors")
        self.assertNotIn("e2e-1-1 gets no seat", seen)
        for worker in (0, 2, 3):
            self.assertGreaterEqual(self.refused(f"e2e-{worker}-1"), 1)
        seen = self.end_job(process, seen)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
