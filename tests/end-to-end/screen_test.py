#!/usr/bin/env python3
"""The live view of `crowdsurf run` on a terminal (a pty, read by a small emulator), and its silence where there is none.

Usage: screen_test.py BIN [TestCase.test ...]     BIN is the folder of the built programs.
"""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
import unittest

from runs import PATIENCE, RunCase

ROWS = 40
ESCAPE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Emulator:
    """As much of a terminal as the live view uses; anything else that would control it is an error."""

    def __init__(self):
        self.lines, self.row, self.column = [""], 0, 0
        self.cursor_shown, self.coloured, self.pending = True, False, ""

    def feed(self, text):
        text, self.pending = self.pending + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = ESCAPE.match(text, at)
                if not found:
                    self.pending = text[at:]  # the rest of it comes with the next read
                    return
                self.control(found.group(1), found.group(2))
                at = found.end()
                continue
            self.letter(text[at])
            at += 1

    def control(self, numbers, what):
        if numbers == "?25":
            self.cursor_shown = what == "h"
        elif what == "m":
            self.coloured = True
        elif what == "A":
            self.row = max(0, self.row - int(numbers))
        elif what == "J" and not numbers:
            self.lines = self.lines[:self.row] + [self.lines[self.row][:self.column]]
        else:
            raise AssertionError(f"the live view sent ESC [ {numbers} {what}")

    def letter(self, letter):
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.row, self.column = self.row + 1, 0
            if self.row == len(self.lines):
                self.lines.append("")
        elif letter.isprintable():
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[:self.column] + letter + line[self.column + 1:]
            self.column += 1
        else:
            raise AssertionError(f"the live view sent {letter!r}")

    def text(self):
        return "\n".join(self.lines)


class ScreenTest(RunCase):
    def on_terminal(self, *flags, columns=100, **environment):
        """Starts the run as the foreground of a terminal of its own."""
        self.master, slave = pty.openpty()
        self.addCleanup(os.close, self.master)
        self.resize(columns)

        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        process = self.start(*flags, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal, text=False,
                             env={**plain, "TERM": "xterm-256color", **environment})
        self.before = termios.tcgetattr(slave)
        os.close(slave)
        self.emulator, self.raw = Emulator(), ""
        return process

    def frame(self):
        """The last frame of which the end is seen; empty: there is none."""
        frames = COLOUR.sub("", self.raw).split("\x1b[J")
        return frames[-2].split("\x1b[")[0] if len(frames) > 2 else ""

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))

    def read(self):
        """Feeds what came, up to a second of waiting; False when the other side is closed."""
        ready, _, _ = select.select([self.master], [], [], 1)
        if not ready:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        self.bytes = getattr(self, "bytes", b"") + data
        text = self.bytes.decode(errors="ignore")  # half a letter waits for its rest
        self.emulator.feed(text[len(self.raw):])
        self.raw = text
        return True

    def read_until(self, true):
        end = time.time() + PATIENCE
        while not true(self.emulator.text()):
            self.assertLess(time.time(), end, "never came to be:\n" + self.emulator.text())
            self.assertTrue(self.read(), "it ended:\n" + self.emulator.text())

    def read_to_the_end(self, process):
        end = time.time() + PATIENCE
        while self.read():
            self.assertLess(time.time(), end, self.emulator.text())
        return process.wait(timeout=10)

    def all_train(self, text):
        """The grid of 2 x 2: two rows, two workers in each."""
        rows = re.findall(r"^  │ +[★●] \d \d.*[★●] \d \d.*$", text, re.M)
        return len(rows) == 2

    def test_workers_by_cell_and_progress_are_drawn_in_place_at_any_width_until_ctrl_c(self):
        process = self.on_terminal("--duration", "10m")
        self.read_until(self.all_train)
        self.assertFalse(self.emulator.cursor_shown)
        self.assertTrue(self.emulator.coloured)
        self.read_until(lambda text: re.search(r"█*░+ \d+%  .*left", text))
        heads = [line for line in self.emulator.lines if "e2e" in line and "Moshpit" in line]
        self.assertEqual(len(heads), 1, "drawn again in place:\n" + self.emulator.text())
        self.assertLess(max(map(len, self.emulator.lines)), 100)

        self.resize(50)
        # Frames of the old width may still be on their way.
        self.read_until(lambda _: max(map(len, self.frame().splitlines()), default=100) < 50)
        self.assertIn("│", self.frame())
        drawn = self.raw.count("\x1b[J")
        self.read_until(lambda _: self.raw.count("\x1b[J") >= drawn + 2)
        self.assertLess(max(map(len, self.frame().splitlines())), 50, "it stays so:\n" + self.frame())

        os.write(self.master, b"\x03")
        self.assertEqual(self.read_to_the_end(process), 130, self.emulator.text())
        self.assertTrue(self.emulator.cursor_shown, "the cursor is back")
        self.assertIn("report.html", self.emulator.text())
        self.nothing_is_left()

    def test_at_the_end_the_cursor_is_back_and_no_color_is_respected(self):
        self.write_endless()
        process = self.on_terminal(NO_COLOR="1")
        self.read_until(self.all_train)
        self.assertFalse(self.emulator.cursor_shown)
        self.meet_target()
        self.assertEqual(self.read_to_the_end(process), 0, self.emulator.text())
        self.assertTrue(self.emulator.cursor_shown)
        self.assertFalse(self.emulator.coloured)
        self.assertIn("0 hash mismatches", self.emulator.text())
        self.nothing_is_left()

    def test_a_dumb_terminal_and_no_terminal_get_plain_lines(self):
        progress = r"\d/4 workers .* samples/s"
        self.write_endless()
        process = self.on_terminal(TERM="dumb")
        self.read_until(lambda text: re.search(progress, text))
        self.meet_target()
        self.assertEqual(self.read_to_the_end(process), 0, self.raw)
        self.assertNotIn("\x1b", self.raw)
        self.write_endless()
        process = self.start()
        seen = self.wait_for(process, progress)
        self.assertNotIn("\x1b", self.end_job(process, seen))


if __name__ == "__main__":
    unittest.main()
