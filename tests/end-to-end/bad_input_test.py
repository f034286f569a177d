#!/usr/bin/env python3
"""What `crowdsurf run` makes of bad input: words that help, a count, and no harm to anybody else.

Usage: bad_input_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import os
import resource
import signal
import socket
import subprocess
import unittest

from runs import BIN, TRAINER, RunCase

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
        code, output = self.run_job(timeout=60)
        self.assertEqual(code, 1, output)
        self.assertIn("exit code 7", output)
        self.assertIn("the data is gone", output)
        self.assertIn("Retry", output)
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
        code, output = self.run_job(timeout=60)
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

    def limit(self, pid):
        """From now on the process finds the disk full."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (NOTHING, resource.RLIM_INFINITY))

    def test_a_disk_without_space_for_checkpoint_and_model_is_said_and_training_goes_on(self):
        self.write(self.command, **{"samples: 80000": "samples: 250000"})
        process = self.start()
        seen = self.wait_for_all(process)
        for worker in range(4):
            for pid in self.agents(f"e2e-{worker}-1"):
                self.limit(pid)
        seen += self.wait_for(process, "cannot write: write .*checkpoint-.*: File too large")
        failed = sum(self.metric(f"e2e-{worker}-1", "crowdsurf_worker_checkpoints_failed_total")
                     for worker in range(4))
        self.assertGreaterEqual(failed, 1)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, output)
        self.assertRegex(output, r"trained, but not all of it is written: write .*\.new: File too large")
        self.assertGreaterEqual(self.report()["samples"], 250000)
        self.assertFalse((self.state / "checkpoint" / "model.safetensors").exists())
        self.assertEqual(list((self.state / "checkpoint").glob("*.new")), [], "nothing half written")
        self.nothing_is_left()

    def test_a_disk_without_space_for_the_report_is_said(self):
        process = self.start()
        seen = self.wait_for_all(process)
        self.limit(process.pid)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, seen + output)
        self.assertRegex(output, "cannot write .*report.html: File too large")
        self.assertTrue((self.state / "checkpoint" / "model.safetensors").exists())
        self.nothing_is_left()

    def test_a_memory_volume_without_space_names_the_setting_and_fails_the_job(self):
        process = self.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                                  (30_000, resource.RLIM_INFINITY)))
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("set spec.agent.sharedMemory to at least", output)
        self.nothing_is_left()

    def test_a_trainer_that_hangs_is_ended_replaced_and_harms_nobody(self):
        process = self.start("--duration", "30s", "--hang-after", "6s")
        seen = self.wait_for_all(process)
        os.kill(self.trainer("e2e-1-1"), signal.SIGSTOP)
        seen += self.wait_for(process, r"e2e-1-1 hangs: no step for [67] s; its trainer is ended")
        seen += self.wait_for(process, r"e2e-1-2 trains, with state")
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, seen + output)
        report = self.report()
        self.assertEqual(report["rounds"]["hash_mismatches"], 0)
        self.assertEqual(report["rounds"]["failed"], 0, seen + output)
        self.assertIn("its seat is given back", (self.state / "workers" / "e2e-1-1" / "agent.log").read_text())
        self.nothing_is_left()

    def test_a_trainer_that_is_only_slow_for_a_while_keeps_its_place(self):
        process = self.start("--duration", "25s", "--hang-after", "60s")
        seen = self.wait_for_all(process)
        pid = self.trainer("e2e-2-1")
        os.kill(pid, signal.SIGSTOP)
        self.wait_until(lambda: self.metric("e2e-2-1", "crowdsurf_worker_trainer_silences_total") == 1, 20)
        os.kill(pid, signal.SIGCONT)
        self.wait_until(lambda: self.metric("e2e-2-1", "crowdsurf_worker_ready") == 1, 10)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, seen + output)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0)
        self.assertNotIn("e2e-2-2", seen + output)
        self.nothing_is_left()

    def test_a_trainer_that_truncates_the_shared_file_costs_its_own_worker_alone(self):
        process = self.start("--duration", "20s")
        seen = self.wait_for_all(process)
        os.truncate(self.link("e2e-1-1") / "tensors", 0)
        seen += self.wait_for(process, r"e2e-1-[23] trains")
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, seen + output)
        self.assertEqual(self.report()["rounds"]["hash_mismatches"], 0)
        self.assertIn("the trainer must not truncate", (self.state / "workers" / "e2e-1-1" / "agent.log").read_text())
        self.nothing_is_left()

    def test_a_trainer_that_waits_for_a_dead_agent_ends_at_once_when_told(self):
        command = ["stdbuf", "-oL", BIN / "crowdsurf-trainer", "charlm", "--text", self.path / "text", "--hidden", "32"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "CROWDSURF_DIR": str(self.path)}) as trainer:
            self.wait_for(trainer, "parameters")  # the last it says before it waits, a minute long
            trainer.terminate()
            self.assertEqual(trainer.wait(timeout=5), 128 + signal.SIGTERM)

    def test_garbage_on_every_port_of_an_agent_harms_nobody(self):
        process = self.start("--duration", "12s")
        seen = self.wait_for_all(process)
        ports = self.endpoints("e2e-0-1")
        for name in ("peer", "tensor", "http"):
            host, port = ports[name].rsplit(":", 1)
            for garbage in (os.urandom(5000), b"GET " + b"x" * 100_000, b""):
                with socket.create_connection((host, int(port)), timeout=10) as connection:
                    try:
                        connection.sendall(garbage)
                    except OSError:
                        pass  # it was faster with closing
        self.wait_until(lambda: self.metric("e2e-0-1", "crowdsurf_tensor_connections_ended_total") >= 3, 10)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, seen + output)
        report = self.report()
        self.assertEqual((report["rounds"]["failed"], report["rounds"]["hash_mismatches"]), (0, 0), output)
        self.assertNotIn("e2e-0-2", seen + output)
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
