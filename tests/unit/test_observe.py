"""What counts as a process that runs, and as a socket of somebody's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandbox.model import Role
from sandbox.runtimes import observe

# The first thread ends, and another goes on: to /proc its leader is a zombie then.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
LASTING_S = 60


@contextmanager
def running(text: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def seen(pid: int) -> list[str]:
    member = observe.Member(host=pid, inside=7, parent=0)
    return [" ".join(info.argv) for info in observe.of_members([member], Role.SERVER, "db")]


def until_zombie(pid: int) -> None:
    end = time.monotonic() + LASTING_S
    while not observe.fields(pid).get("State", "").startswith("Z") and time.monotonic() < end:
        time.sleep(0.005)
    assert observe.fields(pid)["State"].startswith("Z")


def test_a_process_that_waits_only_for_its_parent_is_none() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    try:
        until_zombie(pid)
        assert seen(pid) == []
    finally:
        os.waitpid(pid, 0)


def test_a_process_whose_first_thread_ended_still_runs() -> None:
    with running(HEADLESS) as pid:
        until_zombie(pid)
        assert len(seen(pid)) == 1


def test_a_process_is_told_by_its_words() -> None:
    with running("print('ready', flush=True); import time; time.sleep(600)") as pid:
        assert seen(pid)[0].startswith(sys.executable)


def test_one_that_ends_between_two_readings_is_no_program_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bubblewrap whose program is not there was once taken for that program: its command line was read twice."""
    readings = iter([b"bwrap\0--unsetenv\0label\0", b"", b""])
    monkeypatch.setattr(observe, "_cmdline", lambda _: next(readings))

    assert not observe.is_another(7)


def test_what_is_still_to_be_accepted_is_no_end_that_nobody_holds() -> None:
    """Whoever listens will read what is in it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()

        def of_port(*, orphans: bool) -> list[str]:
            found = observe.listeners(os.getpid(), Role.AGENT, None, orphans=orphans)
            return [s.state for s in found if s.kind == "tcp" and f"{host}:{port}" in s.address and s.state != "listen"]

        with socket.create_connection((host, port)) as client:
            client.sendall(b"delete it")
        assert of_port(orphans=False) == ["other"], "its own end is nobody's, and the server's is not"
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(100)
        assert of_port(orphans=True) == ["other"], "the kernel keeps the end that closed first"
        assert of_port(orphans=False) == []
