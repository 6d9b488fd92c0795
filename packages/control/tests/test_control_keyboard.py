# SPDX-License-Identifier: Apache-2.0
"""Keys through a real pty: every way the bytes may arrive, and the terminal restored on every way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ulna.control import NoKeys, TerminalKeys, open_keys
from ulna.control.keyboard import KeyDecoder

WORDS = {
    b"\x1b[C": ["right"],
    b"\x1b[D": ["left"],
    b"\x1bOA": ["up"],
    b"\x1b[B": ["down"],
    b"n": ["n"],
    b" ": ["space"],
    b"\r": ["enter"],
    "ü".encode(): ["ü"],
    b"\x1b[1;5C": [],
    b"\x1b[15~": [],
}


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(WORDS)), max_size=8), st.data())
def test_keys_survive_any_split(words, data):
    """The same keys come out wherever the stream of bytes is cut."""
    stream = b"".join(words)
    decoder, keys, at = KeyDecoder(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 4))
        keys += decoder.feed(stream[at : at + size])
        at += size
    assert keys + decoder.flush() == [k for w in words for k in WORDS[w]]


@pytest.mark.parametrize(
    ("chunks", "keys"),
    [
        ([b"\x1b"], ["esc"]),
        ([b"\x1b\x1b[C"], ["esc", "right"]),
        ([b"\x1b\x1b"], ["esc", "esc"]),
        ([b"q\x1b"], ["q", "esc"]),
        ([b"\x1b["], []),
        ([b"\x00"], []),
        ([b"\xff"], []),
    ],
)
def test_odd_input(chunks, keys):
    """A lone escape is the Esc key once no more bytes come; rubbish is nothing."""
    decoder = KeyDecoder()
    found = [key for chunk in chunks for key in decoder.feed(chunk)] + decoder.flush()
    assert found == keys
    assert not decoder.waiting


@pytest.fixture
def pty_pair():
    """Both ends of a pty: the person's and the program's."""
    person, program = os.openpty()
    yield person, program
    os.close(person)
    os.close(program)


LONG_S = 60
"""Longer than anything here takes on a busy machine."""


def wait_for(keys, count):
    """Collect `count` keys."""
    found, deadline = [], time.monotonic() + LONG_S
    while len(found) < count and time.monotonic() < deadline:
        key = keys.poll()
        if key is None:
            time.sleep(0.002)
        else:
            found.append(key)
    return found


def test_reads_a_pty_and_restores_it(pty_pair):
    """Arrows, letters and Esc arrive without Enter and without echo; afterwards the terminal is as before."""
    person, program = pty_pair
    before = termios.tcgetattr(program)
    keys = open_keys(program)
    usual_s, keys._timeout = keys._timeout, LONG_S  # or the pieces of the arrow may be taken for single keys
    with keys:
        assert "terminal" in keys.description
        os.write(person, b"\x1b")
        time.sleep(0.02)
        os.write(person, b"[")
        time.sleep(0.02)
        os.write(person, b"Cn")
        assert wait_for(keys, 2) == ["right", "n"]
        keys._timeout = usual_s
        os.write(person, b"\x1b")
        assert wait_for(keys, 1) == ["esc"]
        assert keys.poll() is None
        assert not termios.tcgetattr(program)[3] & termios.ECHO
        assert termios.tcgetattr(program)[3] & termios.ISIG
    assert termios.tcgetattr(program) == before
    keys.close()


def test_terminal_is_restored_after_an_exception(pty_pair):
    """Whatever ends the block."""
    _, program = pty_pair
    before = termios.tcgetattr(program)
    with pytest.raises(RuntimeError, match="boom"), TerminalKeys(program):
        raise RuntimeError("boom")
    assert termios.tcgetattr(program) == before


def test_lost_terminal_turns_keys_off(caplog):
    """When the other end goes away the thread ends by itself, and closing is quiet."""
    person, program = os.openpty()
    with TerminalKeys(program) as keys:
        os.close(person)
        keys._thread.join(LONG_S)
        assert not keys._thread.is_alive()
        assert keys.poll() is None
    assert "keys are off" in caplog.text
    os.close(program)


def test_without_a_terminal_keys_are_off_with_a_reason(tmp_path):
    """A file or a closed input gives a source without keys that says why."""
    with (tmp_path / "input").open("w+") as file:
        keys = open_keys(file.fileno())
    assert isinstance(keys, NoKeys)
    assert "not a terminal" in keys.description
    assert keys.poll() is None


def test_missing_standard_input_is_told(monkeypatch):
    """A process without standard input has no keys."""
    monkeypatch.setattr(sys, "stdin", None)
    assert "no standard input" in open_keys().description


CHILD = """
import os, signal, sys, time
from ulna.control import open_keys
keys = open_keys()
print(keys.description, flush=True)
with keys:
    print("ready", flush=True)
    while True:
        key = keys.poll()
        if key == "x":
            sys.exit(3)
        if key:
            print(key, flush=True)
        time.sleep(0.005)
"""


SHELL = """
import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
where = {"pipe": subprocess.DEVNULL}.get(sys.argv[2])
job = subprocess.Popen([sys.executable, "-c", sys.argv[1]], process_group=0, stdin=where)
if sys.argv[2] != "background":
    os.tcsetpgrp(0, job.pid)
print(job.pid, flush=True)
sys.exit(job.wait())
"""


class Child:
    """A process started by a small shell on a terminal of its own, so that it can be suspended like any job."""

    def __init__(self, code: str, how: str = "foreground") -> None:
        self.person, self.program = os.openpty()
        self.before = termios.tcgetattr(self.program)
        self.shell = subprocess.Popen(
            [sys.executable, "-c", SHELL, code, how],
            stdin=self.program,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.pid = int(self.line())

    def line(self) -> str:
        """Return the next line it printed."""
        return self.shell.stdout.readline().strip()

    def wait_until(self, condition) -> bool:
        """Wait for something to become true."""
        deadline = time.monotonic() + LONG_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.005)
        return condition()

    def stopped(self) -> bool:
        """Return whether it is suspended."""
        state = subprocess.run(["ps", "-o", "state=", "-p", str(self.pid)], capture_output=True, text=True).stdout
        return state.strip().startswith("T")

    def echoes(self) -> bool:
        """Return whether its terminal is in the mode of a shell."""
        return bool(termios.tcgetattr(self.program)[3] & termios.ECHO)

    def close(self) -> None:
        """End it."""
        if self.shell.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.shell.wait()
        self.shell.stdout.close()
        os.close(self.person)
        os.close(self.program)


@pytest.fixture
def child():
    """A running child that reads keys."""
    child = Child(CHILD)
    yield child
    child.close()


def test_suspending_gives_the_terminal_back(child):
    """Ctrl-Z restores the terminal for the shell; after fg the keys work again."""
    assert "keys are read" in child.line()
    assert child.line() == "ready"
    assert not child.echoes()
    os.kill(child.pid, signal.SIGTSTP)
    assert child.wait_until(child.stopped)
    assert termios.tcgetattr(child.program) == child.before
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait_until(lambda: not child.echoes())
    os.write(child.person, b"n")
    assert child.line() == "n"


def test_exiting_restores_the_terminal(child):
    """sys.exit inside the block leaves a sane terminal."""
    child.line()
    child.line()
    os.write(child.person, b"x")
    assert child.shell.wait(LONG_S) == 3
    assert termios.tcgetattr(child.program) == child.before


def test_keys_come_from_the_controlling_terminal_when_input_is_a_pipe():
    """`something | ulna record` still has keys: they are typed on the terminal."""
    child = Child(CHILD, "pipe")
    try:
        assert child.line() == "keys are read from the controlling terminal"
        assert child.line() == "ready"
        os.write(child.person, b"x")
        assert child.shell.wait(LONG_S) == 3
        assert termios.tcgetattr(child.program) == child.before
    finally:
        child.close()


def test_keys_are_off_in_the_background():
    """`ulna record &` is not suspended by its terminal; it says that keys are off."""
    child = Child("from ulna.control import open_keys; print(open_keys().description, flush=True)", "background")
    try:
        assert child.line() == "keys are off: the process runs in the background"
        assert child.shell.wait(LONG_S) == 0
    finally:
        child.close()
