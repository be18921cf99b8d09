"""The bare thing that a reset stands beside: kill, a fresh overlay upper, bubblewrap, ready. Written without any code of ours.

A process of its own that gives up root at once, so that it is small and starts processes cheaply. It is told what to do by one JSON
object as its argument, and then, line by line on stdin: `write` dirties the state, `swap` measures one round and answers with its
milliseconds; end of file ends it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

SYSTEM = [
    "--ro-bind",
    "/usr",
    "/usr",
    "--ro-bind",
    "/etc/passwd",
    "/etc/passwd",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
]
LINKS = [
    arg
    for name in ("bin", "sbin", "lib", "lib64")
    if Path("/", name).is_symlink()
    for arg in ("--symlink", f"usr/{name}", f"/{name}")
]
CONFINED = [
    "--unshare-all",
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--cap-drop",
    "ALL",
    "--new-session",
    "--die-with-parent",
]


class Bare:
    """One running state: an overlay over the golden layers, and a program over it."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.room = Path(plan["room"])
        self.number = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.old: list[Path] = []

    def start(self) -> None:
        self.number += 1
        here = self.room / str(self.number)
        here.mkdir()
        for name in ("upper", "work", "socket"):
            (here / name).mkdir(mode=0o700)
        layers = [arg for layer in reversed(self.plan["layers"]) for arg in ("--overlay-src", layer)]
        argv = [self.plan["bwrap"], *CONFINED, *SYSTEM, *LINKS, *layers]
        argv += ["--overlay", str(here / "upper"), str(here / "work"), self.plan["target"]]
        argv += [
            "--dir",
            "/run/server",
            "--bind",
            str(here / "socket"),
            "/run/server",
            *self.plan["binds"],
            "--chdir",
            self.plan["target"],
        ]
        with (self.room / "log").open("ab") as log:
            out = log if self.plan["postgres"] else subprocess.PIPE
            self.process = subprocess.Popen([*argv, "--", *self.plan["argv"]], stdin=subprocess.PIPE, stdout=out, stderr=log)
        self.here = here
        self.wait_ready()

    def wait_ready(self) -> None:
        assert self.process is not None
        if not self.plan["postgres"]:
            assert self.process.stdout is not None
            if self.process.stdout.readline() != b"ready\n":
                raise SystemExit((self.room / "log").read_text()[-2000:])
            return
        end = time.monotonic() + 30
        while True:
            try:
                with self.connect() as connection:
                    connection.execute("select count(*) from pg_class").fetchone()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit((self.room / "log").read_text()[-2000:]) from None
                time.sleep(0.001)

    def connect(self) -> Any:
        return psycopg.connect(f"host={self.here / 'socket'} {self.plan['postgres']}", autocommit=True)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.old.append(self.here)

    def write(self) -> None:
        assert self.process is not None
        if self.plan["postgres"]:
            with self.connect() as connection:
                for statement in self.plan["writes"]:
                    connection.execute(statement)
            return
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(self.plan["writes"][0].encode() + b"\necho done\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"done\n"

    def swap(self) -> float:
        began = time.perf_counter()
        self.kill()
        self.start()
        return (time.perf_counter() - began) * 1e3

    def tidy(self) -> None:
        """Old uppers are deleted outside of what is measured: ours are deleted in the background, too."""
        for path in self.old:
            subprocess.run(["chmod", "-R", "u+rwx", str(path)], check=False)
            shutil.rmtree(path, ignore_errors=True)
        self.old.clear()


def main() -> None:
    plan = json.loads(sys.argv[1])
    psycopg.conninfo.make_conninfo("")  # loads what is loaded late, while this process may read it
    if (user := plan["user"]) is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    os.umask(0o077)
    bare = Bare(plan)
    bare.start()
    print("up", flush=True)
    for line in sys.stdin:
        if line == "write\n":
            bare.write()
            print("done", flush=True)
        else:
            print(bare.swap(), flush=True)
            bare.tidy()
    bare.kill()
    bare.tidy()


if __name__ == "__main__":
    main()
