"""An agent's side of the trainer link for tests of the client: what docs/trainer-link.md says, and no averaging.

A test plays the agent: it waits for what the trainer has written, and writes words and regions. The real agent's side
is in python_client_test.cc.
"""
import hashlib
import http.server
import json
import mmap
import os
import socket
import socketserver
import struct
import threading
import time

import numpy

import crowdsurf.bells

PATIENCE = 60   # seconds for what comes in milliseconds on a quiet machine
HOLD, STOP, NOTICE, WANTED, READY, RELEASED = 0x1C0, 0x200, 0x240, 0x280, 0x2C0, 0x300
EPOCH, BEAT, BELL, ADOPT, HAS_OPAQUE, OVERLAP, LR_SCALE, JOB_SAMPLES = 0x100, 0x140, 0x180, 0x340, 0x350, 0x380, 0x3C0, 0x400
OPAQUE_WANTED, WAKE_AT, RUNG, STEPS, SAMPLES, PUBLISHED, APPLIED, ACKNOWLEDGED = 0x440, 0x4C0, 0x800, 0x840, 0x880, 0x8C0, 0x900, 0x940
ADOPTED, LOSS, OPAQUE_GIVEN, METRICS = 0x980, 0xA08, 0xA40, 0xAC0
SHARE, PUBLISHED_GATHERED, GATHERED, SHARES, PARAMETERS_STEP = 0x540, 0x8E8, 0xB80, 0xB88, 0xB90
FILLING, FILLED = 0xBC0, 0xBC8
LEASES_VERSION, LEASES_STREAM, LEASES_POSITION, LEASES_WAITS = 0x500, 0xB40, 0xB48, 0xB50
PAGE = 4096


class StandIn:
    """Serves agent.sock in `folder` until close(). `roles`: averaged ones. `hold`: the trainer waits for let_start()."""

    def __init__(self, folder, version=1, roles=("Parameter",), worker="digits-0-1", hold=False, gradients=False):
        self.folder, self.version, self.roles, self.worker, self.hold = str(folder), version, roles, worker, hold
        self.gradients, self.paths = gradients, []
        self.registered, self.gone = threading.Event(), threading.Event()
        self.tensors, self.fresh, self.first, self.bells, self.opaque, self.given, self.requests = [], [], [], [], b"", None, []
        self.notice = {"leaving": False}
        self.data, self.leases = [], {"stream": 0, "begin": 0, "leases": [], "closed": False, "other": None}
        self.puts, self.refuses_put = 0, None   # states that came; or (code, words): none is taken
        self.slow_puts = threading.Event()      # cleared: a state is not read from its socket
        self.slow_puts.set()
        self.refuses = None     # or (code, words): no trainer is registered
        self.said = {"roles": list(roles)}   # in GET /v1/state; {}: as an agent that says no roles
        self.placed = []
        self.wrong = {}         # what the answer to a registration says instead; None: leaves out
        self._map = None
        stand_in = self

        class Handler(_Handler):
            agent = stand_in

        self._server = _Server(os.path.join(self.folder, "agent.sock"), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self):
        """Ends like an agent that is killed: its connections, and what a supervisor would not find again."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()
        self._server = None
        os.unlink(os.path.join(self.folder, "agent.sock"))
        if self._map is not None:
            os.unlink(os.path.join(self.folder, "tensors"))

    # --- the file ----------------------------------------------------------------------------------

    def register(self, body):
        self.tensors, self.fresh = body["tensors"], self.fresh + [body["fresh"]]
        self.first.append(body["first"])
        self.bells.append(body["bells"])
        placed, at = [], 0
        for tensor in self.tensors:
            shared = tensor["role"] in self.roles
            placed.append({**tensor, "offset": at if shared else None})
            at += 4 * int(numpy.prod(tensor["shape"], dtype=int)) if shared else 0
        self.placed, region = placed, -(-at // PAGE) * PAGE
        self.outbox_at, self.inbox_at = 2 * PAGE, [2 * PAGE + region, 2 * PAGE + 2 * region]
        self.elements, size = at // 4, 2 * PAGE + 3 * region
        if self._map is None:
            with open(os.path.join(self.folder, "tensors"), "w+b") as file:
                file.truncate(size)
                self._map = mmap.mmap(file.fileno(), size)
            self._map[:12] = b"CSFLINK1" + struct.pack("<I", self.version)
            self.put(LR_SCALE, 1.0, "d")
            self.put(HOLD, int(self.hold), "I")
        self.put(EPOCH, self.get(EPOCH) + 1)
        answer = {"version": self.version, "session": 1, "job": "digits", "worker": self.worker, "seed": 42,
                  "elements": self.elements, "file_bytes": size, "outbox": self.outbox_at,
                  "gradients": self.gradients, "inbox": self.inbox_at, "index_sets": {"offset": 0, "bytes": 0}, "tensors": placed, **self.wrong}
        return {key: value for key, value in answer.items() if value is not None}

    def put(self, at, value, kind="Q"):
        struct.pack_into("<" + kind, self._map, at, value)

    def get(self, at, kind="Q"):
        return struct.unpack_from("<" + kind, self._map, at)[0]

    def region(self, at):
        return numpy.frombuffer(self._map, numpy.float32, self.elements, at)

    @property
    def outbox(self):
        return self.region(self.outbox_at)

    def inbox(self, number):
        return self.region(self.inbox_at[number])

    # --- what an agent does --------------------------------------------------------------------------

    def until(self, true, act):
        """Calls `act`, such as the trainer's next step, until `true`."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, "it never came to be"
            act()

    def let_start(self, adopt=None, opaque=None):
        """Ends the wait before the first step, with these values to adopt."""
        if adopt is not None:
            self.offer(adopt, opaque)
        self.put(HOLD, 0, "I")

    def offer(self, values, opaque=None, averaging=0):
        self.inbox(0)[:] = values
        self.opaque = opaque or b""
        self.put(HAS_OPAQUE, int(opaque is not None), "I")
        self.put(ADOPT + 8, averaging)
        self.put(ADOPT, ((self.get(ADOPT) >> 1) + 1) << 1)

    def deliver(self, ticket, values):
        self.inbox(1)[:] = values
        self.put(READY, 2 * ticket + 1)
        self.agent_bell().ring()

    def grant(self, **leases):
        """What GET /v1/leases answers from now on."""
        self.leases = {**self.leases, **leases}
        self.put(LEASES_VERSION, self.get(LEASES_VERSION) + 1)
        self.agent_bell().ring()

    def agent_bell(self):
        return crowdsurf.bells.Bell(self._map, BELL)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, *arguments):
        self._connections = []
        super().__init__(*arguments)

    def process_request(self, request, address):
        self._connections.append(request)
        super().process_request(request, address)

    def end_connections(self):
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass   # it has ended by itself


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    has_registered = False

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass
        if self.has_registered:
            self.agent.gone.set()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        self.agent.requests.append(self.path)
        if self.path == "/v1/data":
            self.agent.data.append(body)
        if self.path != "/v1/register":
            return self.answer(202, {})
        if self.agent.refuses:
            return self.answer(self.agent.refuses[0], {"error": self.agent.refuses[1]})
        self.has_registered = True
        self.answer(200, self.agent.register(body))
        self.agent.registered.set()

    def do_PUT(self):
        self.agent.paths.append(self.path)
        self.agent.puts += 1
        self.agent.slow_puts.wait(PATIENCE)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.agent.refuses_put:
            return self.answer(self.agent.refuses_put[0], {"error": self.agent.refuses_put[1]})
        self.agent.given = body
        self.answer(200, {"sha256": hashlib.sha256(self.agent.given).hexdigest()})

    def do_GET(self):
        if self.path == "/v1/opaque":
            return self.answer(200, self.agent.opaque, {"X-Sha256": hashlib.sha256(self.agent.opaque).hexdigest()})
        if self.path == "/v1/leases":
            return self.answer(200, self.agent.leases)
        if self.path == "/v1/notice":
            return self.answer(200, self.agent.notice)
        self.answer(200, {"tensors": self.agent.placed, **self.agent.said})

    def answer(self, code, content, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self):
        return "trainer"

    def log_message(self, *words):
        pass
