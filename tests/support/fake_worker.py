#!/usr/bin/env python3
"""A worker of the tests: speaks the process contract of docs/local-mode.md, and trains nothing.

As an agent:    fake_worker.py run --job J --worker W --dir LINK --agent-dir DIR ...
As a trainer:   fake_worker.py train [--exit CODE] [--after SECONDS] [--print TEXT] [--last-word TEXT] [--ignore-term]
                [--child]
The agent counts samples while it lives. The target is met when every agent of the job together has done
FAKE_TARGET samples (each one counts alone: FAKE_TARGET / FAKE_WORKERS); then it raises `stop` in LINK, the first
writes a model, the trainer ends with 0, the agent with 0.
"""
import argparse
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time


def write(path, text):
    temporary = pathlib.Path(str(path) + ".new")
    temporary.write_text(text)
    temporary.rename(path)


class Agent:
    def __init__(self, arguments):
        self.started = time.time()
        self.arguments = arguments
        self.target = float(os.environ.get("FAKE_TARGET", "1e18")) / float(os.environ.get("FAKE_WORKERS", "1"))
        self.rate = float(os.environ.get("FAKE_RATE", "1000"))
        self.leaving = False

    def samples(self):
        return int((time.time() - self.started) * self.rate)

    def loss(self, samples):
        return None if os.environ.get("FAKE_LOSS") == "none" else 1 + 3 / (1 + samples / 1000)

    def trainer_state(self):
        """FAKE_TRAINER, from the moment when the trainer has said its words: what it said must be on record."""
        began = (pathlib.Path(self.arguments.dir) / "began").exists()
        return os.environ.get("FAKE_TRAINER", "stepping") if began else "stepping"

    def summary(self):
        samples = self.samples()
        index = int(self.arguments.worker.split("-")[-2])
        return {
            "job": self.arguments.job, "worker": self.arguments.worker, "peer": "0" * 64,
            "state": "Leaving" if self.leaving else os.environ.get("FAKE_STATE", "Training"),
            "step": samples // 32, "samples": samples,
            "samples_per_second": self.rate, "loss": self.loss(samples), "metrics": {},
            "view": {"epoch": 1, "hash": "00000001", "members": 8, "radices": [2, 4], "branch": False},
            "cell": [index // 4, index % 4], "averaging": samples // 1600, "job_samples": samples * 4,
            "target_met": samples >= self.target and "FAKE_SUMMARY_TARGET" not in os.environ, "steward": index == 0,
            "rounds": {"completed": samples // 800, "fast": samples // 800, "repaired": 0, "adopted": 0, "kept": 0,
                       "aborted": 0, "orphaned": 0, "branch": 0},
            "trainer": {"state": self.trainer_state(), "seconds_since_step": 7,
                        "stacks": os.environ.get("FAKE_STACKS", "")},
            "trouble": os.environ.get("FAKE_TROUBLE", ""),
            "silent_seeds": os.environ.get("FAKE_SILENT_SEEDS", "").split(),
            "write_error": os.environ.get("FAKE_WRITE_ERROR", ""),
            "hash_mismatches": 0, "stall_seconds": 0.01, "round_seconds": {"p50": 0.02, "p95": 0.05}, "members": [],
            "started_unix": self.started, "first_step_unix": self.started + 0.05, "joined_with_state": True}

    def linger(self, said):
        """FAKE_LINGER: until the trainer has had its last word, or this worker is told to leave."""
        time.sleep(0.1)
        while "FAKE_LINGER" in os.environ and not (self.leaving or said.exists()):
            time.sleep(0.02)

    def serve(self):
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if agent.arguments.worker.split("-")[-2] == os.environ.get("FAKE_SLOW"):
                    time.sleep(1)   # time itself: others are to be heard of first
                body = json.dumps(agent.summary()).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_address[1]

    def run(self):
        link, own = pathlib.Path(self.arguments.dir), pathlib.Path(self.arguments.agent_dir)
        for name in ("ca.pem", "token", "seeds", "config"):
            assert (own / name).exists(), name
        json.loads((own / "config").read_text())["averaging"]["strategy"]
        if os.environ.get("FAKE_AGENT") == "crash":
            print("agent: cannot go on", flush=True)
            return 1
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "leaving", True))
        port = self.serve()
        write(own / "endpoints", json.dumps({"id": "0" * 64, "peer": f"127.0.0.1:{port}", "tensor": "127.0.0.1:1",
                                             "http": f"127.0.0.1:{port}"}))
        reason = "Left"
        while not self.leaving:
            if self.samples() >= self.target:
                reason = "TargetMet"
                (link / "stop").write_text("")
                write(pathlib.Path(self.arguments.checkpoint_dir) / "model.safetensors", "model")
                self.linger(link / "said")
                break
            time.sleep(0.02)
        write(self.arguments.termination_log, json.dumps({"reason": reason, "samples": self.samples(),
                                                             "write_error": os.environ.get("FAKE_LAST_ERROR", "")}))
        return 0


def train(arguments):
    print(arguments.print, flush=True)
    if arguments.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.child:  # one that leaves the process group, as daemons do
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    link = pathlib.Path(os.environ["CROWDSURF_DIR"])
    (link / "began").write_text("")
    stop = link / "stop"
    end = time.time() + arguments.after
    while time.time() < end:
        if stop.exists():
            if arguments.last_word:
                time.sleep(0.5)   # time itself: one that looks at its model once more, and may be ended meanwhile
                print(arguments.last_word, flush=True)
                (link / "said").write_text("")
            return 0
        time.sleep(0.02)
    return arguments.exit


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run")
    for flag in ("job", "worker", "dir", "agent-dir", "listen", "peer-port", "tensor-port", "http-port", "signer",
                 "capacity", "checkpoint-dir", "termination-log", "log-level", "tensor-tls", "hang-after"):
        run.add_argument("--" + flag)
    run.add_argument("--die-with-parent", action="store_true")
    trainer = commands.add_parser("train")
    trainer.add_argument("--exit", type=int, default=0)
    trainer.add_argument("--after", type=float, default=1e9)
    trainer.add_argument("--print", default="training")
    trainer.add_argument("--last-word")
    trainer.add_argument("--ignore-term", action="store_true")
    trainer.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    return Agent(arguments).run() if arguments.command == "run" else train(arguments)


if __name__ == "__main__":
    sys.exit(main())
