"""A test that leaves something running fails by its own name, and nothing is said of what has ended."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import leftovers
from leftovers import fail_if_left, running

posix = pytest.mark.skipif(os.name != "posix", reason="needs processes of POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def left(monkeypatch):
    """Return a function that says what a piece of a test leaves behind."""
    monkeypatch.setattr(leftovers, "SECONDS_TO_END", 0.0)

    def find(piece):
        before = running()
        piece()
        with pytest.raises(pytest.fail.Exception) as failure:
            fail_if_left(before)
        return str(failure.value)

    return find


def test_a_thread_is_named(left):
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="a stray thread")
    try:
        assert left(thread.start) == f"left behind: thread 'a stray thread' ({thread.ident})"
    finally:
        done.set()
        thread.join()


@posix
def test_a_process_is_named_with_its_command(left):
    processes = []

    def start():
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes.append(subprocess.Popen([sys.executable, "-c", "input(0)"], **pipes))
        processes[0].stdout.read(1)  # its prompt: before, Linux may not know its command yet

    found = left(start)
    processes[0].communicate()  # ends its input, and so the process
    assert found == f"left behind: process {processes[0].pid} ({sys.executable} -c input(0))"


@linux
def test_fail_if_left_names_a_grandchild_process(left):
    reading, writing = os.pipe()

    def start():
        subprocess.run(["sh", "-c", "exec 3<&0; cat <&3 &"], stdin=reading, check=True)

    try:
        # The shell may not have become `cat` yet.
        assert re.fullmatch(r"left behind: process \d+ \(.*cat.*\)", left(start))
    finally:
        os.close(reading)
        os.close(writing)  # the end of its input


@linux
def test_fail_if_left_names_an_open_socket(left):
    opened = []
    try:
        assert left(lambda: opened.append(socket.socket())).startswith("left behind: socket:[")
    finally:
        opened[0].close()


def test_fail_if_left_accepts_threads_and_processes_that_end_in_time():
    before = running()
    with ThreadPoolExecutor(2) as threads:
        threads.submit(int).result()
    subprocess.run([sys.executable, "-c", ""], check=True)
    go_on = threading.Event()
    slow = threading.Thread(target=go_on.wait, args=(0.1,))
    slow.start()
    fail_if_left(before)
    assert not slow.is_alive()
