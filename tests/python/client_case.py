"""A test of the package with a stand-in of its agent."""
import logging
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]
from stand_in import StandIn  # noqa: E402  (beside this file)


class ClientCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="crowdsurf-client-")
        self.addCleanup(self.folder.cleanup)
        self.said = []
        handler = logging.Handler()
        handler.emit = lambda record: self.said.append(record.getMessage())
        log = logging.getLogger("crowdsurf")
        log.addHandler(handler)
        log.propagate = False
        self.addCleanup(log.removeHandler, handler)
        self.environment = dict(os.environ)
        self.addCleanup(self.restore)

    def restore(self):
        os.environ.clear()
        os.environ.update(self.environment)

    def agent(self, **options):
        """A stand-in, and CROWDSURF_DIR that leads to it."""
        stand_in = StandIn(self.folder.name, **options)
        self.addCleanup(stand_in.close)
        os.environ["CROWDSURF_DIR"] = self.folder.name
        return stand_in
